//! Filter expressions: the part of Consul's language (go-bexpr) that its clients use. An expression is compiled once and
//! applied to rows as JSON.

mod lexer;
mod parser;

use parser::{Comparison, Node};
use serde_json::Value;

/// Longest expression.
pub const FILTER_BYTES_MAX: usize = 4 * 1024;

/// A compiled expression.
#[derive(Debug)]
pub struct Expression(Node);

impl Expression {
    /// Compiles an expression. `fields` are the names that a selector may begin with.
    pub fn parse(text: &str, fields: &[&str]) -> Result<Expression, String> {
        let failed = |why: String| format!("Failed to create boolean expression evaluator: {why}");
        if text.len() > FILTER_BYTES_MAX {
            return Err(failed(format!("{} bytes, at most {FILTER_BYTES_MAX} are allowed", text.len())));
        }
        let node = lexer::tokens(text).and_then(parser::parse).map_err(failed)?;
        node.check(&|selector| {
            let known = selector.first().is_some_and(|first| fields.contains(&first.as_str()));
            if known { Ok(()) } else { Err(failed(format!("Selector {:?} is not valid", selector.join(".")))) }
        })?;
        Ok(Expression(node))
    }

    pub fn matches(&self, row: &Value) -> bool {
        self.0.matches(row)
    }
}

impl Node {
    fn check(&self, valid: &impl Fn(&[String]) -> Result<(), String>) -> Result<(), String> {
        match self {
            Node::And(left, right) | Node::Or(left, right) => left.check(valid).and_then(|()| right.check(valid)),
            Node::Not(inner) => inner.check(valid),
            Node::Match { selector, .. } => valid(selector),
        }
    }

    fn matches(&self, row: &Value) -> bool {
        match self {
            Node::And(left, right) => left.matches(row) && right.matches(row),
            Node::Or(left, right) => left.matches(row) || right.matches(row),
            Node::Not(inner) => !inner.matches(row),
            Node::Match { selector, comparison } => comparison.holds(select(row, selector)),
        }
    }
}

/// A field that is left out because it is empty is the same as an empty one.
fn select<'a>(row: &'a Value, selector: &[String]) -> Option<&'a Value> {
    selector.iter().try_fold(row, |value, name| value.get(name))
}

impl Comparison {
    fn holds(&self, value: Option<&Value>) -> bool {
        match self {
            Comparison::Equal(wanted) => value.is_some_and(|value| equals(value, wanted)),
            Comparison::Contains(wanted) => match value {
                Some(Value::Array(list)) => list.iter().any(|value| equals(value, wanted)),
                Some(Value::Object(map)) => map.contains_key(wanted),
                Some(Value::String(text)) => text.contains(wanted.as_str()),
                _ => false,
            },
            Comparison::Empty => match value {
                None | Some(Value::Null) => true,
                Some(Value::Array(list)) => list.is_empty(),
                Some(Value::Object(map)) => map.is_empty(),
                Some(Value::String(text)) => text.is_empty(),
                Some(_) => false,
            },
            Comparison::Matches(pattern) => value.and_then(Value::as_str).is_some_and(|text| pattern.is_match(text)),
        }
    }
}

fn equals(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Bool(value) => crate::parse_bool(wanted) == Some(*value),
        Value::Number(number) => {
            wanted.parse::<f64>().is_ok_and(|wanted| number.as_f64().is_some_and(|number| number == wanted))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FIELDS: [&str; 5] = ["Service", "Tags", "Meta", "Port", "Flag"];

    fn matches(text: &str) -> Result<bool, String> {
        let row = json!({"Service": "web", "Tags": ["a", "b c"], "Meta": {"env": "prod"}, "Port": 80, "Flag": true});
        Expression::parse(text, &FIELDS).map(|expression| expression.matches(&row))
    }

    #[test]
    fn expressions_select_rows() {
        for (text, found) in [
            ("Service == web", true),
            (r#"Service == "web""#, true),
            ("Service==`web`", true),
            ("Service != web", false),
            ("Port == 80", true),
            ("Flag == true", true),
            ("a in Tags", true),
            (r#""b c" in Tags"#, true),
            ("Tags contains x", false),
            ("x not in Tags", true),
            ("Tags not contains a", false),
            ("Meta.env == prod", true),
            (r#"Meta["env"] == "prod""#, true),
            ("env in Meta", true),
            ("Meta.none == x", false),
            ("Meta.none != x", true),
            ("Meta.none is empty", true),
            ("Tags is not empty", true),
            ("Service matches `^w.b$`", true),
            ("Service not matches `x`", true),
            ("Service == web and Port == 81 or Port == 80", true),
            ("Service == web and (Port == 81 or Port == 82)", false),
            ("not Service == web", false),
            ("not (Service == api) and Port == 80", true),
        ] {
            assert_eq!(matches(text), Ok(found), "{text}");
        }
    }

    #[test]
    fn invalid_expressions_are_named() {
        let failed =
            |text| matches(text).map_err(|error| error.replace("Failed to create boolean expression evaluator: ", ""));
        assert_eq!(failed("Nope == 1"), Err("Selector \"Nope\" is not valid".to_owned()));
        for text in [
            "",
            "Service ==",
            "Service",
            "(Service == web",
            "Service == web)",
            "Service == web and",
            "\"x",
            "Service matches `(`",
        ] {
            assert!(failed(text).is_err(), "{text}");
        }
        let deep = format!("{}Service == web{}", "(".repeat(500), ")".repeat(500));
        assert!(failed(&deep).is_err_and(|error| error.contains("nested")));
        assert!(failed(&"x".repeat(FILTER_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn fuzz_expressions() {
        convoke_fuzz::texts(
            &["Service == \"web\" and not (a in Tags or Meta.k is not empty)", "Meta[\"a\"] != `x`"],
            |text| {
                let _ = matches(text);
            },
        );
    }
}
