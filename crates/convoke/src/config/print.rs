//! The table of keys, written out.

use super::keys::{KEYS, SECTIONS};
use super::load::Loaded;
use super::settings::Settings;
use serde_json::{Value, json};
use std::fmt::Write;
use toml::de::DeValue;

/// Every key with its meaning and its default, as a file that can be used as it is.
pub(crate) fn defaults() -> String {
    let settings = Settings::default();
    let mut out = String::from(
        "# Every key of Convoke's configuration, with its default.\n\
         # A file sets what it names; then the environment counts, then flags.\n",
    );
    for (section, about) in SECTIONS {
        let _ = write!(out, "\n# {about}\n");
        if !section.is_empty() {
            let _ = writeln!(out, "[{section}]");
        }
        for key in KEYS.iter().filter(|key| key.parts().0 == *section) {
            let flag = key.flag.map(|flag| format!(", {flag}")).unwrap_or_default();
            let _ = write!(out, "\n# {}\n# {}{flag}\n", key.meaning, key.environment());
            let _ = writeln!(out, "{} = {}", key.parts().1, (key.read)(&settings));
        }
    }
    out
}

/// What counts here and now, and where it came from.
pub(crate) fn effective(loaded: &Loaded) -> String {
    let mut out = String::new();
    for (section, _) in SECTIONS {
        if !section.is_empty() {
            let _ = write!(out, "\n[{section}]\n");
        }
        for key in KEYS.iter().filter(|key| key.parts().0 == *section) {
            let _ = write!(out, "{} = {}", key.parts().1, (key.read)(&loaded.settings));
            if let Some(origin) = loaded.origin(key.name) {
                let _ = write!(out, "  # {origin}");
            }
            out.push('\n');
        }
    }
    out
}

/// The same as [`defaults`] for scripts.
pub(crate) fn defaults_json() -> Value {
    let settings = Settings::default();
    let keys = KEYS.iter().map(|key| {
        json!({
            "key": key.name,
            "default": value(&(key.read)(&settings)),
            "meaning": key.meaning,
            "variable": key.environment(),
            "flag": key.flag,
        })
    });
    json!({ "keys": keys.collect::<Vec<_>>() })
}

/// The same as [`effective`] for scripts; `origin` is null for defaults.
pub(crate) fn effective_json(loaded: &Loaded) -> Value {
    let keys = KEYS.iter().map(|key| {
        let origin = loaded.origin(key.name).map(ToString::to_string);
        json!({ "key": key.name, "value": value(&(key.read)(&loaded.settings)), "origin": origin })
    });
    json!({ "keys": keys.collect::<Vec<_>>() })
}

/// What a file would contain: numbers, truths and lists are these, times and sizes are texts with units.
fn value(toml: &str) -> Value {
    of(DeValue::parse(toml).expect("keys are written as TOML").get_ref())
}

fn of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(truth) => (*truth).into(),
        DeValue::Integer(number) => serde_json::from_str(number.as_str()).unwrap_or(Value::Null),
        DeValue::Float(number) => serde_json::from_str(number.as_str()).unwrap_or(Value::Null),
        DeValue::Array(values) => values.iter().map(|value| of(value.get_ref())).collect(),
        DeValue::Datetime(_) | DeValue::Table(_) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::Flag;
    use crate::config::value::Raw;

    #[test]
    fn the_printed_defaults_are_a_file_that_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("convoke.toml");
        std::fs::write(&path, defaults()).unwrap();
        let mut loaded = Loaded::default();
        loaded.file(&path).unwrap();
        for key in KEYS {
            assert!(loaded.origin(key.name).is_some(), "{} is missing", key.name);
            assert_eq!((key.read)(&loaded.settings), (key.read)(&Settings::default()), "{}", key.name);
        }
    }

    #[test]
    fn the_effective_configuration_says_where_values_come_from() {
        let mut loaded = Loaded::default();
        loaded.flags(&[Flag { key: "region", flag: "--region", raw: Raw::from("eu") }]).unwrap();
        let text = effective(&loaded);
        assert!(text.contains("region = \"eu\"  # --region\n"), "{text}");
        assert!(text.contains("\ncluster = \"convoke\"\n"), "{text}");
    }

    #[test]
    fn scripts_get_values_of_their_kind() {
        let mut loaded = Loaded::default();
        loaded.flags(&[Flag { key: "join", flag: "--join", raw: Raw::from("a:1,b:2") }]).unwrap();
        let shown = effective_json(&loaded);
        let of = |name: &str| shown["keys"].as_array().unwrap().iter().find(|key| key["key"] == name).unwrap().clone();
        assert_eq!(of("join"), json!({ "key": "join", "value": ["a:1", "b:2"], "origin": "--join" }));
        assert_eq!(of("client_port"), json!({ "key": "client_port", "value": 7700, "origin": null }));
        assert_eq!(of("timers.heartbeat_interval")["value"], "5s");
        let defaults = defaults_json();
        assert_eq!(defaults["keys"].as_array().unwrap().len(), KEYS.len());
        for key in defaults["keys"].as_array().unwrap() {
            assert!(!key["default"].is_null(), "{key}");
        }
    }
}
