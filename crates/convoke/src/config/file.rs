//! Reads a configuration file into values with their line numbers.

use serde_json::Value;
use toml::de::{DeTable, DeValue};

/// One value of a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Entry {
    /// The key with its section.
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) value: Value,
}

/// Reads all values in the order of the file. An error has the line that it is about.
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
    // The parser sorts tables by name; errors are reported from top to bottom.
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

fn entry(name: String, line: usize, value: &DeValue<'_>) -> Result<Entry, (usize, String)> {
    match plain(value) {
        Some(value) => Ok(Entry { name, line, value }),
        None => {
            let kind = value.type_str();
            Err((
                line,
                format!("{name} is a {kind}: use a string, a number, true, false, a list of strings or of tables"),
            ))
        }
    }
}

fn plain(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok()?.into(),
        DeValue::Float(number) => number.as_str().parse::<f64>().ok()?.into(),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Array(values) => {
            let elements = values.iter().map(|value| match value.get_ref() {
                DeValue::String(text) => Some(Value::from(text.as_ref())),
                DeValue::Table(table) => fields(table),
                _ => None,
            });
            elements.collect::<Option<_>>()?
        }
        DeValue::Datetime(_) | DeValue::Table(_) => return None,
    })
}

/// The fields of one table of a list.
fn fields(table: &DeTable<'_>) -> Option<Value> {
    let fields = table.iter().map(|(name, value)| Some((name.get_ref().to_string(), plain(value.get_ref())?)));
    fields.collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_know_their_lines() {
        let text = "region = \"eu\"\njoin = [\"a:1\", \"b:2\"]\n\n[timers]\nheartbeat_interval = \"5s\"\n\n[limits]\nwatchers = 0x10\n";
        let entries = parse(text).unwrap();
        let shown: Vec<_> = entries.iter().map(|entry| (entry.line, entry.name.as_str())).collect();
        assert_eq!(shown, [(1, "region"), (2, "join"), (5, "timers.heartbeat_interval"), (8, "limits.watchers")]);
        assert_eq!(entries[1].value, json!(["a:1", "b:2"]));
        assert_eq!(entries[3].value, json!(16));
    }

    #[test]
    fn lists_of_tables_are_lists_of_objects() {
        let text = "[checks]\nallow = []\n\n[[checks.scripts]]\nmember = \"m\"\ncommand = [\"a\", \"b\"]\n[[checks.scripts]]\n";
        let entries = parse(text).unwrap();
        let scripts = entries.iter().find(|entry| entry.name == "checks.scripts").unwrap();
        assert_eq!(scripts.value, json!([{ "member": "m", "command": ["a", "b"] }, {}]));
        assert_eq!(parse("[checks]\nscripts = [{ member = \"m\" }]\n").unwrap()[0].value, json!([{ "member": "m" }]));
    }

    #[test]
    fn errors_have_the_line_of_the_value() {
        let (line, error) = parse("[timers]\n\nheartbeat_interval = 2020-01-01\n").unwrap_err();
        assert_eq!(line, 3);
        assert!(error.starts_with("timers.heartbeat_interval is a datetime"), "{error}");
        let (line, _) = parse("region = \"eu\"\n\nregion = \"us\"\n").unwrap_err();
        assert_eq!(line, 3);
        let (line, _) = parse("a = 1\nb = [1, \n").unwrap_err();
        assert!(line >= 2, "{line}");
    }
}
