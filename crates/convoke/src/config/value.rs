//! Kinds of values: how each is read from a file, the environment or a flag, and written as TOML.

use super::settings::LogFormat;
use convoke_cli::{duration, show_duration};
use std::path::PathBuf;
use std::time::Duration;

/// A value as somebody wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    Text(String),
    List(Vec<String>),
}

impl Raw {
    fn text(&self) -> Result<&str, String> {
        match self {
            Raw::Text(text) => Ok(text),
            Raw::List(_) => Err("is a list: write one value".to_owned()),
        }
    }
}

impl<T: ToString> From<T> for Raw {
    fn from(value: T) -> Raw {
        Raw::Text(value.to_string())
    }
}

/// Reads and writes one kind of value. Errors continue the sentence "KEY …".
pub(crate) trait Kind {
    type Value;
    fn parse(raw: &Raw) -> Result<Self::Value, String>;
    fn toml(value: &Self::Value) -> String;
}

pub(crate) struct Text;
pub(crate) struct Path;
/// In the environment and in flags separated by commas.
pub(crate) struct List;
pub(crate) struct Port;
pub(crate) struct Switch;
/// With units.
pub(crate) struct Time;
pub(crate) struct Count;
pub(crate) struct Count32;
pub(crate) struct Count64;
/// With units, or without as bytes.
pub(crate) struct Bytes;
pub(crate) struct Bytes64;
pub(crate) struct Share;
pub(crate) struct Format;

impl Kind for Text {
    type Value = String;

    fn parse(raw: &Raw) -> Result<String, String> {
        let text = raw.text()?;
        if text.chars().any(char::is_control) {
            return Err(format!("is {text:?}: remove the control characters"));
        }
        Ok(text.to_owned())
    }

    fn toml(value: &String) -> String {
        quoted(value)
    }
}

impl Kind for Path {
    type Value = PathBuf;

    fn parse(raw: &Raw) -> Result<PathBuf, String> {
        match raw.text()? {
            "" => Err("is empty: name a directory".to_owned()),
            path => Ok(path.into()),
        }
    }

    fn toml(value: &PathBuf) -> String {
        quoted(&value.to_string_lossy())
    }
}

impl Kind for List {
    type Value = Vec<String>;

    fn parse(raw: &Raw) -> Result<Vec<String>, String> {
        let parts: Vec<&str> = match raw {
            Raw::Text(text) => text.split(',').collect(),
            Raw::List(parts) => parts.iter().map(String::as_str).collect(),
        };
        Ok(parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }

    fn toml(value: &Vec<String>) -> String {
        format!("[{}]", value.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(", "))
    }
}

impl Kind for Port {
    type Value = u16;

    fn parse(raw: &Raw) -> Result<u16, String> {
        let text = raw.text()?;
        text.parse().map_err(|_| format!("is {text:?}: write a port from 0 to 65535; 0 is any free one"))
    }

    fn toml(value: &u16) -> String {
        value.to_string()
    }
}

impl Kind for Switch {
    type Value = bool;

    fn parse(raw: &Raw) -> Result<bool, String> {
        match raw.text()? {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            other => Err(format!("is {other:?}: write true or false")),
        }
    }

    fn toml(value: &bool) -> String {
        value.to_string()
    }
}

/// A hundred years: what is added to a clock must not overflow it.
const TIME_MAX: Duration = Duration::from_secs(36_500 * 24 * 3_600);

impl Kind for Time {
    type Value = Duration;

    fn parse(raw: &Raw) -> Result<Duration, String> {
        let text = raw.text()?;
        let time = duration(text)
            .ok_or_else(|| format!("is {text:?}: write a time with its unit, for example \"20s\" or \"500ms\""))?;
        if time > TIME_MAX {
            return Err(format!("is {text:?}: write a time of at most 36500d"));
        }
        Ok(time)
    }

    fn toml(value: &Duration) -> String {
        quoted(&show_duration(*value))
    }
}

impl Kind for Count {
    type Value = usize;

    fn parse(raw: &Raw) -> Result<usize, String> {
        let text = raw.text()?;
        text.replace('_', "").parse().map_err(|_| format!("is {text:?}: write a whole number"))
    }

    fn toml(value: &usize) -> String {
        value.to_string()
    }
}

impl Kind for Count32 {
    type Value = u32;

    fn parse(raw: &Raw) -> Result<u32, String> {
        let count = Count::parse(raw)?;
        count.try_into().map_err(|_| format!("is {count}: write at most {}", u32::MAX))
    }

    fn toml(value: &u32) -> String {
        value.to_string()
    }
}

impl Kind for Count64 {
    type Value = u64;

    fn parse(raw: &Raw) -> Result<u64, String> {
        Count::parse(raw).map(|count| count as u64)
    }

    fn toml(value: &u64) -> String {
        value.to_string()
    }
}

impl Kind for Bytes64 {
    type Value = u64;

    fn parse(raw: &Raw) -> Result<u64, String> {
        Bytes::parse(raw).map(|bytes| bytes as u64)
    }

    fn toml(value: &u64) -> String {
        Bytes::toml(&usize::try_from(*value).unwrap_or(usize::MAX))
    }
}

impl Kind for Bytes {
    type Value = usize;

    fn parse(raw: &Raw) -> Result<usize, String> {
        let text = raw.text()?;
        bytes(text).ok_or_else(|| format!("is {text:?}: write a size, for example \"64KiB\" or \"4MiB\""))
    }

    fn toml(value: &usize) -> String {
        match *value {
            value if value > 0 && value % MEBI == 0 => quoted(&format!("{}MiB", value / MEBI)),
            value if value > 0 && value % KIBI == 0 => quoted(&format!("{}KiB", value / KIBI)),
            value => value.to_string(),
        }
    }
}

impl Kind for Share {
    type Value = f64;

    fn parse(raw: &Raw) -> Result<f64, String> {
        let text = raw.text()?;
        text.parse().map_err(|_| format!("is {text:?}: write a number between 0 and 1"))
    }

    fn toml(value: &f64) -> String {
        format!("{value:?}")
    }
}

impl Kind for Format {
    type Value = LogFormat;

    fn parse(raw: &Raw) -> Result<LogFormat, String> {
        match raw.text()? {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            other => Err(format!("is {other:?}: write \"text\" or \"json\"")),
        }
    }

    fn toml(value: &LogFormat) -> String {
        quoted(match value {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        })
    }
}

const KIBI: usize = 1024;
const MEBI: usize = 1024 * 1024;

fn bytes(text: &str) -> Option<usize> {
    let text = text.trim().replace('_', "");
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(end) => (
            &text[..end],
            match text[end..].trim() {
                "B" => 1,
                "KiB" => KIBI,
                "MiB" => MEBI,
                "GiB" => 1024 * MEBI,
                _ => return None,
            },
        ),
        None => (text.as_str(), 1),
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

/// A TOML basic string. Control characters are refused on input, so only these two need care.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_units() {
        for (text, ms) in [("500ms", 500), ("20s", 20_000), ("1m30s", 90_000), ("0.5s", 500), ("2h", 7_200_000)] {
            assert_eq!(duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "s", "5 parsecs", "-1s", "1s2", "99999999999999999999h"] {
            assert_eq!(duration(text), None, "{text}");
        }
        assert_eq!(Time::parse(&Raw::from("36500d")), Ok(TIME_MAX));
        let error = Time::parse(&Raw::from("10000000000000000000s")).unwrap_err();
        assert_eq!(error, "is \"10000000000000000000s\": write a time of at most 36500d");
        assert_eq!(show_duration(Duration::from_secs(90)), "90s");
        assert_eq!(show_duration(Duration::from_secs(300)), "5m");
    }

    #[test]
    fn sizes_have_units_or_are_bytes() {
        for (text, size) in [("17", 17), ("64KiB", 65_536), ("4 MiB", 4 << 20), ("4_096", 4_096)] {
            assert_eq!(bytes(text), Some(size), "{text}");
        }
        for text in ["", "MiB", "4MB", "-1", "99999999999999999999"] {
            assert_eq!(bytes(text), None, "{text}");
        }
        assert_eq!(Bytes::toml(&(4 << 20)), "\"4MiB\"");
        assert_eq!(Bytes::toml(&1_000), "1000");
    }
}
