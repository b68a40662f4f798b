//! Times as text.

/// The date and time in UTC of a number of UNIX milliseconds: `2026-11-17 06:10:54 UTC`.
pub fn date_time(unix_ms: u64) -> String {
    let (date, time) = parts(unix_ms);
    format!("{date} {time} UTC")
}

/// The same in the form of RFC 3339, with milliseconds: `2026-11-17T06:10:54.321Z`.
pub fn timestamp(unix_ms: u64) -> String {
    let (date, time) = parts(unix_ms);
    format!("{date}T{time}.{:03}Z", unix_ms % 1_000)
}

fn parts(unix_ms: u64) -> (String, String) {
    let seconds = unix_ms / 1_000;
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hours, minutes, seconds) = (time / 3_600, time / 60 % 60, time % 60);
    (format!("{year:04}-{month:02}-{day:02}"), format!("{hours:02}:{minutes:02}:{seconds:02}"))
}

/// The Gregorian date of a day since 1970-01-01. Years are counted from March, so that a leap day ends a year.
fn date(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01, in eras of 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (951_868_799_999, "2000-02-29 23:59:59 UTC"),
            (1_709_251_200_000, "2024-03-01 00:00:00 UTC"),
            (1_767_225_599_000, "2025-12-31 23:59:59 UTC"),
            (1_794_895_854_999, "2026-11-17 06:10:54 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date_time(ms), text);
        }
        assert_eq!(timestamp(1_794_895_854_009), "2026-11-17T06:10:54.009Z");
    }
}
