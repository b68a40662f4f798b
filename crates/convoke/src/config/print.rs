//! Prints the configuration as TOML and as JSON.

use super::keys::{KEYS, SECTIONS};
use super::load::Loaded;
use super::settings::Settings;
use serde_json::{Value, json};
use std::fmt::Write;

/// All keys with their meaning and default, as a valid configuration file.
pub(crate) fn defaults() -> String {
    let settings = Settings::default();
    let mut out = String::from(
        "# All configuration keys of Convoke with their defaults.\n\
         # Environment variables override the file, flags override both.\n",
    );
    for (section, about) in SECTIONS {
        let _ = write!(out, "\n# {about}\n");
        if !section.is_empty() {
            let _ = writeln!(out, "[{section}]");
        }
        for key in KEYS.iter().filter(|key| key.parts().0 == *section) {
            let flag = key.flag.map(|flag| format!(", {flag}")).unwrap_or_default();
            let _ = writeln!(out, "\n# {}.", key.help);
            if !key.details.is_empty() {
                let _ = writeln!(out, "# {}", key.details);
            }
            let variable = if key.only_in_file { "Only in the file".to_owned() } else { key.environment() };
            let _ = writeln!(out, "# {variable}{flag}");
            let _ = writeln!(out, "{} = {}", key.parts().1, in_toml(&key.read(&settings)));
        }
    }
    out
}

/// A value in TOML. It differs from JSON in tables only.
fn in_toml(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("[{}]", values.iter().map(in_toml).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name} = {}", in_toml(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

/// The effective values and their sources.
pub(crate) fn effective(loaded: &Loaded) -> String {
    let mut out = String::new();
    for (section, _) in SECTIONS {
        if !section.is_empty() {
            let _ = write!(out, "\n[{section}]\n");
        }
        for key in KEYS.iter().filter(|key| key.parts().0 == *section) {
            let _ = write!(out, "{} = {}", key.parts().1, in_toml(&key.read(&loaded.settings)));
            if let Some(source) = loaded.source(key.name) {
                let _ = write!(out, "  # {source}");
            }
            out.push('\n');
        }
    }
    out
}

/// [`defaults`] as JSON.
pub(crate) fn defaults_json() -> Value {
    let settings = Settings::default();
    let keys = KEYS.iter().map(|key| {
        json!({
            "key": key.name,
            "default": key.read(&settings),
            "meaning": key.help,
            "details": key.details,
            "variable": (!key.only_in_file).then(|| key.environment()),
            "flag": key.flag,
        })
    });
    json!({ "keys": keys.collect::<Vec<_>>() })
}

/// [`effective`] as JSON; `source` is null for defaults.
pub(crate) fn effective_json(loaded: &Loaded) -> Value {
    let keys = KEYS.iter().map(|key| {
        let source = loaded.source(key.name).map(ToString::to_string);
        json!({ "key": key.name, "value": key.read(&loaded.settings), "source": source })
    });
    json!({ "keys": keys.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::Flag;

    #[test]
    fn the_printed_defaults_are_a_valid_file_without_effect() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("convoke.toml");
        std::fs::write(&path, defaults()).unwrap();
        let mut loaded = Loaded::default();
        loaded.file(&path).unwrap();
        for key in KEYS {
            assert!(loaded.source(key.name).is_some(), "{} is missing", key.name);
            assert_eq!(key.read(&loaded.settings), key.read(&Settings::default()), "{}", key.name);
        }
    }

    #[test]
    fn printed_tables_are_valid_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("convoke.toml");
        let script = "[[checks.scripts]]\nmember = \"m\"\ncheck = \"c\"\ncommand = [\"echo\", \"a \\\"b\\\"\"]\n";
        std::fs::write(&path, script).unwrap();
        let mut loaded = Loaded::default();
        loaded.file(&path).unwrap();
        let printed = effective(&loaded);
        std::fs::write(&path, &printed).unwrap();
        let mut again = Loaded::default();
        again.file(&path).unwrap();
        let scripts = |loaded: &Loaded| serde_json::to_value(&loaded.settings.checks.scripts).unwrap();
        assert_eq!(scripts(&loaded), scripts(&again), "{printed}");
        assert_eq!(scripts(&again)[0]["interval"], "10s");
    }

    #[test]
    fn the_effective_configuration_contains_origins() {
        let mut loaded = Loaded::default();
        loaded.flags(&[Flag { key: "region", flag: "--region", value: "eu".to_owned() }]).unwrap();
        let text = effective(&loaded);
        assert!(text.contains("region = \"eu\"  # --region\n"), "{text}");
        assert!(text.contains("\ncluster = \"convoke\"\n"), "{text}");
    }

    #[test]
    fn json_values_keep_their_types() {
        let mut loaded = Loaded::default();
        loaded.flags(&[Flag { key: "join", flag: "--join", value: "a:1,b:2".to_owned() }]).unwrap();
        let shown = effective_json(&loaded);
        let of = |name: &str| shown["keys"].as_array().unwrap().iter().find(|key| key["key"] == name).unwrap().clone();
        assert_eq!(of("join"), json!({ "key": "join", "value": ["a:1", "b:2"], "source": "--join" }));
        assert_eq!(of("client_port"), json!({ "key": "client_port", "value": 7700, "source": null }));
        assert_eq!(of("timers.heartbeat_interval")["value"], "5s");
        let defaults = defaults_json();
        assert_eq!(defaults["keys"].as_array().unwrap().len(), KEYS.len());
        for key in defaults["keys"].as_array().unwrap() {
            assert!(!key["default"].is_null(), "{key}");
        }
    }
}
