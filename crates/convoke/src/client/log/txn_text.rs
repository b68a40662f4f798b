//! The text form of a transaction: one compare or operation per line.
//!
//! ```text
//! # Comments and empty lines are ignored.
//! if value owner = "me"
//! then put state done
//! then delete-prefix tmp/
//! else get owner
//! ```

use convoke_proto::json::{Compare, Delete, Get, Op, Operand, Put, Relation, Target, Txn};
use std::fmt;

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextError {
    line: usize,
    message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

const LINE: &str = "expected `if`, `if-prefix`, `then` or `else` at the start of the line";
const COMPARE: &str = "expected `value|version|create_revision|mod_revision|lease KEY =|!=|<|> OPERAND`, `exists KEY`, \
                       `missing KEY` or `lock NAME FENCE`";
const OPERATION: &str = "expected `put KEY VALUE [lease ID]`, `delete KEY`, `delete-prefix PREFIX`, `get KEY`, \
                         `list|keys PREFIX [LIMIT]`, `range FROM UNTIL [LIMIT]` or `count PREFIX`";

/// Parses a transaction.
pub(super) fn parse(text: &str) -> Result<Txn, TextError> {
    let mut txn = Txn::default();
    for (at, line) in text.lines().enumerate() {
        let failed = |message: String| TextError { line: at + 1, message };
        let words = words(line).map_err(failed)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] => {}
            ["if", rest @ ..] => txn.compare.push(compare(rest, false).map_err(failed)?),
            ["if-prefix", rest @ ..] => txn.compare.push(compare(rest, true).map_err(failed)?),
            ["then", rest @ ..] => txn.then.push(operation(rest).map_err(failed)?),
            ["else", rest @ ..] => txn.otherwise.push(operation(rest).map_err(failed)?),
            _ => return Err(failed(LINE.to_owned())),
        }
    }
    Ok(txn)
}

/// Splits a line at spaces. Text in double quotes is one word; `\\"`, `\\\\`, `\\n`, `\\r` and `\\t` are escapes in it.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.chars().peekable();
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        match rest.peek() {
            None => return Ok(words),
            Some('#') if words.is_empty() => return Ok(words),
            Some('"') => {
                rest.next();
                let mut word = String::new();
                loop {
                    match rest.next() {
                        Some('"') => break,
                        Some('\\') => match rest.next() {
                            Some('n') => word.push('\n'),
                            Some('r') => word.push('\r'),
                            Some('t') => word.push('\t'),
                            Some(c @ ('"' | '\\')) => word.push(c),
                            _ => return Err("unknown escape; write bytes in JSON with value_base64".to_owned()),
                        },
                        Some(c) => word.push(c),
                        None => return Err("a double quote is missing".to_owned()),
                    }
                }
                if rest.peek().is_some_and(|c| !c.is_whitespace()) {
                    return Err("expected a space after a closing double quote".to_owned());
                }
                words.push(word);
            }
            Some(_) => {
                let mut word = String::new();
                while let Some(c) = rest.next_if(|c| !c.is_whitespace()) {
                    word.push(c);
                }
                words.push(word);
            }
        }
    }
}

fn compare(words: &[&str], prefix: bool) -> Result<Compare, String> {
    let key = |key: &str| Some(key.to_owned());
    match words {
        ["exists", name] => Ok(Compare { key: key(name), prefix, target: Some(Target::Exists), ..Compare::default() }),
        ["missing", name] => {
            let value = Some(Operand::Flag(false));
            Ok(Compare { key: key(name), prefix, target: Some(Target::Exists), value, ..Compare::default() })
        }
        ["lock", name, fence] if !prefix => {
            Ok(Compare { lock: key(name), fence: Some(number(fence)?), ..Compare::default() })
        }
        [target, name, op, operand] => {
            let text = || Ok(Operand::Text((*operand).to_owned()));
            let (target, value) = match *target {
                "value" => (Target::Value, text()),
                "lease" => (Target::Lease, text()),
                "version" => (Target::Version, number(operand).map(Operand::Number)),
                "create_revision" => (Target::CreateRevision, number(operand).map(Operand::Number)),
                "mod_revision" => (Target::ModRevision, number(operand).map(Operand::Number)),
                _ => return Err(COMPARE.to_owned()),
            };
            let op = Some(match *op {
                "=" => Relation::Equal,
                "!=" => Relation::NotEqual,
                "<" => Relation::Less,
                ">" => Relation::Greater,
                _ => return Err(COMPARE.to_owned()),
            });
            Ok(Compare { key: key(name), prefix, target: Some(target), op, value: Some(value?), ..Compare::default() })
        }
        _ => Err(COMPARE.to_owned()),
    }
}

fn operation(words: &[&str]) -> Result<Op, String> {
    let text = |text: &str| text.to_owned();
    let limit = |words: &[&str]| match words {
        [] => Ok(None),
        [limit] => number(limit).map(Some),
        _ => Err(OPERATION.to_owned()),
    };
    match words {
        ["put", key, value] => Ok(Op::Put(Put { key: text(key), value: Some(text(value)), ..Put::default() })),
        ["put", key, value, "lease", lease] => {
            let (key, value, lease) = (text(key), Some(text(value)), Some(text(lease)));
            Ok(Op::Put(Put { key, value, lease, ..Put::default() }))
        }
        ["delete", key] => Ok(Op::Delete(Delete { key: text(key), ..Delete::default() })),
        ["delete-prefix", key] => Ok(Op::Delete(Delete { key: text(key), prefix: true, ..Delete::default() })),
        ["get", key] => Ok(Op::Get(Get { key: text(key), ..Get::default() })),
        ["count", key] => Ok(Op::Get(Get { key: text(key), prefix: true, count: true, ..Get::default() })),
        [which @ ("list" | "keys"), key, rest @ ..] => {
            let (keys, limit) = (*which == "keys", limit(rest)?);
            Ok(Op::Get(Get { key: text(key), prefix: true, keys, limit, ..Get::default() }))
        }
        ["range", from, until, rest @ ..] => {
            let (key, until, limit) = (text(from), Some(text(until)), limit(rest)?);
            Ok(Op::Get(Get { key, until, limit, ..Get::default() }))
        }
        _ => Err(OPERATION.to_owned()),
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_proto::v1;

    #[test]
    fn text_and_json_are_the_same() {
        let text = parse(
            "# move\n\nif value owner = \"me # \\\"too\\\"\\n\"\nif-prefix missing jobs/\nif version a > 3\nif lock l 9\n\
             then put state done\n then  put  b 1 lease 12\nthen delete-prefix tmp/\nelse list c 10\nelse range a b\n",
        );
        let json = r#"{"compare":[
                {"key":"owner","target":"value","op":"=","value":"me # \"too\"\n"},
                {"key":"jobs/","prefix":true,"target":"exists","value":false},
                {"key":"a","target":"version","op":">","value":3},
                {"lock":"l","fence":9}],
            "then":[{"put":{"key":"state","value":"done"}},{"put":{"key":"b","value":"1","lease":"12"}},
                {"delete":{"key":"tmp/","prefix":true}}],
            "else":[{"get":{"key":"c","prefix":true,"limit":10}},{"get":{"key":"a","until":"b"}}]}"#;
        let text = text.unwrap();
        assert_eq!(text, serde_json::from_str(json).unwrap());
        assert!(v1::Txn::try_from(text).is_ok());
    }

    #[test]
    fn an_error_names_the_line() {
        for (text, line, words) in [
            ("if exists a\nput a b", 2, "expected `if`"),
            ("then put a", 1, "expected `put KEY VALUE"),
            ("then put \"a b", 1, "double quote is missing"),
            ("then put \"a\"b c", 1, "expected a space"),
            ("then put \"\\x\" c", 1, "unknown escape"),
            ("\n\nif version a = x", 3, "\"x\" is not a number"),
            ("if value a ~ b", 1, "expected `value|version"),
            ("if-prefix lock a 1", 1, "expected `value|version"),
            ("then list a 1 2", 1, "expected `put KEY"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.message.contains(words), "{text}: {error}");
        }
    }
    #[test]
    fn fuzz_text() {
        let corpus = [
            "if value owner = \"me # \\\"too\\\"\\n\"\nif-prefix missing jobs/\nif lock l 9\nthen put state done",
            "then put b 1 lease 12\nthen delete-prefix tmp/\nelse list c 10\nelse range a b 3\nelse count d\nelse keys e",
            "# comment\n\nif version a > 3\nif mod_revision a != 18446744073709551615\nthen get a\nthen delete a",
        ];
        convoke_fuzz::texts(&corpus, |text| match parse(text) {
            Ok(txn) => {
                let json = serde_json::to_string(&txn).unwrap();
                assert_eq!(serde_json::from_str::<Txn>(&json).ok().as_ref(), Some(&txn), "{json}");
                let _ = v1::Txn::try_from(txn);
            }
            Err(error) => assert!((1..=text.lines().count()).contains(&error.line), "{error}"),
        });
    }
}
