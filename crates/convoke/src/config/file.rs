//! A configuration file, read into raw values that remember their lines.

use super::value::Raw;
use toml::de::{DeTable, DeValue};

/// One value of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// With its section.
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) raw: Raw,
}

/// Errors are sentences, with the line they are about.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, (usize, String)> {
    let table = DeTable::parse(text)
        .map_err(|error| (error.span().map_or(1, |span| line_of(text, span.start)), error.message().to_owned()))?;
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let line = line_of(text, key.span().start);
        match value.get_ref() {
            DeValue::Table(section) => {
                for (inner, value) in section {
                    let line = line_of(text, inner.span().start);
                    entries.push(entry(format!("{}.{}", key.get_ref(), inner.get_ref()), line, value.get_ref())?);
                }
            }
            value => entries.push(entry(key.get_ref().to_string(), line, value)?),
        }
    }
    // Tables are sorted by name; people read from top to bottom.
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

fn entry(name: String, line: usize, value: &DeValue<'_>) -> Result<Entry, (usize, String)> {
    match raw(value) {
        Some(raw) => Ok(Entry { name, line, raw }),
        None => Err((
            line,
            format!("{name} is a {}: write a text, a number, true or false, or a list of texts", value.type_str()),
        )),
    }
}

fn raw(value: &DeValue<'_>) -> Option<Raw> {
    Some(match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Raw::Text(number.as_str().to_owned()),
        DeValue::Integer(number) => Raw::from(i64::from_str_radix(number.as_str(), number.radix()).ok()?),
        DeValue::Float(number) => Raw::Text(number.as_str().to_owned()),
        DeValue::Boolean(value) => Raw::from(*value),
        DeValue::Array(values) => {
            let texts = values.iter().map(|value| match value.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            });
            Raw::List(texts.collect::<Option<_>>()?)
        }
        DeValue::Datetime(_) | DeValue::Table(_) => return None,
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// The value of the only key of a file.
#[cfg(test)]
pub(crate) fn value_of(text: &str) -> Raw {
    parse(text).unwrap().remove(0).raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_know_their_lines() {
        let text = "region = \"eu\"\njoin = [\"a:1\", \"b:2\"]\n\n[timers]\nheartbeat_interval = \"5s\"\n\n[limits]\npeers = 0x10\n";
        let entries = parse(text).unwrap();
        let shown: Vec<_> = entries.iter().map(|entry| (entry.line, entry.name.as_str())).collect();
        assert_eq!(shown, [(1, "region"), (2, "join"), (5, "timers.heartbeat_interval"), (8, "limits.peers")]);
        assert_eq!(entries[1].raw, Raw::List(vec!["a:1".to_owned(), "b:2".to_owned()]));
        assert_eq!(entries[3].raw, Raw::from(16));
    }

    #[test]
    fn what_is_no_value_is_named_with_its_line() {
        let (line, error) = parse("[timers]\n\nheartbeat_interval = 2020-01-01\n").unwrap_err();
        assert_eq!(line, 3);
        assert!(error.starts_with("timers.heartbeat_interval is a datetime"), "{error}");
        let (line, _) = parse("region = \"eu\"\n\nregion = \"us\"\n").unwrap_err();
        assert_eq!(line, 3);
        let (line, _) = parse("a = 1\nb = [1, \n").unwrap_err();
        assert!(line >= 2, "{line}");
    }
}
