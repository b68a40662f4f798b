//! The table of keys, written out.

use super::keys::{KEYS, SECTIONS};
use super::load::Loaded;
use super::settings::Settings;
use std::fmt::Write;

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
}
