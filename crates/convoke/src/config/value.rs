//! Values with units: how files, variables and flags write them.

use convoke_cli::{duration, show_duration};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// A hundred years: adding a configured time to a clock must not overflow.
const TIME_MAX: Duration = Duration::from_secs(36_500 * 24 * 3_600);
const KIBI: u64 = 1024;
const MEBI: u64 = 1024 * 1024;

/// A duration with its unit: `500ms`, `20s`, `1m30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "String")]
pub(crate) struct Time(Duration);

impl TryFrom<Value> for Time {
    type Error = String;

    fn try_from(value: Value) -> Result<Time, String> {
        match value.as_str().and_then(duration) {
            Some(time) if time > TIME_MAX => Err(format!("{value} is too long: use at most 36500d")),
            Some(time) => Ok(Time(time)),
            None => Err(format!("{value} is not a time: use a number with a unit, for example \"20s\" or \"500ms\"")),
        }
    }
}

impl From<Time> for String {
    fn from(time: Time) -> String {
        show_duration(time.0)
    }
}

impl From<Duration> for Time {
    fn from(duration: Duration) -> Time {
        Time(duration)
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Duration {
        time.0
    }
}

/// A size in bytes, with or without a unit: `64KiB`, `4MiB`, `4096`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub(crate) struct Bytes(u64);

impl TryFrom<Value> for Bytes {
    type Error = String;

    fn try_from(value: Value) -> Result<Bytes, String> {
        let bytes = value.as_u64().or_else(|| bytes(value.as_str()?));
        bytes.map(Bytes).ok_or_else(|| format!("{value} is not a size: use for example \"64KiB\" or \"4MiB\""))
    }
}

impl From<Bytes> for Value {
    fn from(Bytes(bytes): Bytes) -> Value {
        match bytes {
            1.. if bytes.is_multiple_of(MEBI) => format!("{}MiB", bytes / MEBI).into(),
            1.. if bytes.is_multiple_of(KIBI) => format!("{}KiB", bytes / KIBI).into(),
            _ => bytes.into(),
        }
    }
}

impl From<u64> for Bytes {
    fn from(bytes: u64) -> Bytes {
        Bytes(bytes)
    }
}

impl From<usize> for Bytes {
    fn from(bytes: usize) -> Bytes {
        Bytes(bytes as u64)
    }
}

impl From<Bytes> for u64 {
    fn from(bytes: Bytes) -> u64 {
        bytes.0
    }
}

impl From<Bytes> for usize {
    fn from(bytes: Bytes) -> usize {
        usize::try_from(bytes.0).unwrap_or(usize::MAX)
    }
}

fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().replace('_', "");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[end..].trim() {
        "" | "B" => 1,
        "KiB" => KIBI,
        "MiB" => MEBI,
        "GiB" => 1024 * MEBI,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(unit)
}

/// Reads a path that must not be empty.
pub(crate) fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    if path.as_os_str().is_empty() {
        return Err(serde::de::Error::custom("the path is empty: name a directory"));
    }
    Ok(path)
}

/// Reads a text from a variable or a flag as the kind of value that `current` is. Text that does not fit is returned as
/// it is, and rejected when the settings are deserialized.
pub(crate) fn coerce(value: Value, current: &Value) -> Value {
    let Value::String(text) = &value else { return value };
    let read = match current {
        Value::Bool(_) => match text.as_str() {
            "true" | "1" => Some(true.into()),
            "false" | "0" => Some(false.into()),
            _ => None,
        },
        Value::Number(_) => serde_json::from_str(&text.replace('_', "")).ok().filter(Value::is_number),
        Value::Array(_) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Some(parts.map(Value::from).collect())
        }
        _ => None,
    };
    read.unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_need_units() {
        assert_eq!(Time::try_from(json!("36500d")), Ok(Time(TIME_MAX)));
        assert_eq!(Time::try_from(json!("40000d")), Err("\"40000d\" is too long: use at most 36500d".to_owned()));
        for wrong in [json!(5), json!("5"), json!("soon"), json!(null)] {
            let error = Time::try_from(wrong).unwrap_err();
            assert!(error.ends_with("is not a time: use a number with a unit, for example \"20s\" or \"500ms\""));
        }
    }

    #[test]
    fn sizes_have_units_or_are_bytes() {
        for (text, size) in [("17", 17), ("64KiB", 65_536), ("4 MiB", 4 << 20), ("4_096", 4_096), ("5B", 5)] {
            assert_eq!(Bytes::try_from(json!(text)), Ok(Bytes(size)), "{text}");
        }
        for text in ["", "MiB", "4MB", "-1", "99999999999999999999"] {
            assert!(Bytes::try_from(json!(text)).is_err(), "{text}");
        }
        assert_eq!(Value::from(Bytes(4 << 20)), json!("4MiB"));
        assert_eq!(Value::from(Bytes(1_000)), json!(1_000));
        assert_eq!(Value::from(Bytes(0)), json!(0));
    }

    #[test]
    fn text_is_converted_to_the_type_of_the_key() {
        assert_eq!(coerce(json!("7_700"), &json!(1)), json!(7_700));
        assert_eq!(coerce(json!("0.5"), &json!(1.0)), json!(0.5));
        assert_eq!(coerce(json!("1"), &json!(false)), json!(true));
        assert_eq!(coerce(json!("a, b,"), &json!([])), json!(["a", "b"]));
        assert_eq!(coerce(json!("7"), &json!("")), json!("7"));
        assert_eq!(coerce(json!("yes"), &json!(false)), json!("yes"), "does not fit");
    }
}
