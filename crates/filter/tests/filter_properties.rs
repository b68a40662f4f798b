//! Filters compared with a naive evaluator and a naive matcher that follow the text of the requirement.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use std::collections::BTreeMap;

use convoke_filter::{Filter, Health, Status, Subject, Wildcard};
use proptest::prelude::*;

const FIELDS: [&str; 6] = ["id", "service", "locality", "revision", "client", "owner"];
const STATUSES: [(Status, &str); 3] = [(Status::Up, "up"), (Status::Down, "down"), (Status::Left, "left")];
/// The last two cannot follow `meta.` without quotes.
const KEYS: [&str; 4] = ["a", "b.c", "d e", "\"\\\n"];

#[derive(Clone, Debug)]
enum Node {
    Text { field: String, operator: Operator, values: Vec<String> },
    Metadata { key: String, bracketed: bool, operator: Operator, values: Vec<String> },
    Exists { key: String },
    Status { operator: Operator, values: Vec<usize>, quoted: bool },
    Drained,
    Routable,
    FlagIs { routable: bool, equal: bool, value: bool },
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Matches,
    NotMatches,
    In,
    NotIn,
}

#[derive(Clone, Debug)]
struct Member {
    texts: Vec<String>,
    status: Status,
    drained: bool,
    health: Health,
    pairs: BTreeMap<String, String>,
}

impl Member {
    fn subject(&self) -> Subject<'_> {
        Subject {
            id: &self.texts[0],
            service: &self.texts[1],
            locality: &self.texts[2],
            revision: &self.texts[3],
            client: &self.texts[4],
            owner: &self.texts[5],
            status: self.status,
            drained: self.drained,
            health: self.health,
            metadata: &self.pairs,
        }
    }
}

fn naive_matches(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|skipped| naive_matches(rest, &text[skipped..])),
        [first, rest @ ..] => text.first() == Some(first) && naive_matches(rest, &text[1..]),
    }
}

fn naive_wildcard(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    naive_matches(&pattern, &text)
}

fn naive_compare(operator: Operator, value: Option<&str>, values: &[String]) -> bool {
    let listed = |value: &str| values.iter().any(|other| other == value);
    match (operator, value) {
        (Operator::Equal, Some(value)) => value == values[0],
        (Operator::NotEqual, Some(value)) => value != values[0],
        (Operator::Matches, Some(value)) => naive_wildcard(&values[0], value),
        (Operator::NotMatches, Some(value)) => !naive_wildcard(&values[0], value),
        (Operator::In, Some(value)) => listed(value),
        (Operator::NotIn, Some(value)) => !listed(value),
        (Operator::Equal | Operator::Matches | Operator::In, None) => false,
        (Operator::NotEqual | Operator::NotMatches | Operator::NotIn, None) => true,
    }
}

fn naive_evaluate(node: &Node, member: &Member) -> bool {
    let routable = member.status == Status::Up && !member.drained && member.health != Health::Critical;
    match node {
        Node::Text { field, operator, values } => {
            let index = FIELDS.iter().position(|name| name == field).expect("a field of the list");
            naive_compare(*operator, Some(&member.texts[index]), values)
        }
        Node::Metadata { key, operator, values, .. } => {
            naive_compare(*operator, member.pairs.get(key).map(String::as_str), values)
        }
        Node::Exists { key } => member.pairs.contains_key(key),
        Node::Status { operator, values, .. } => {
            let names: Vec<String> = values.iter().map(|index| STATUSES[*index].1.to_owned()).collect();
            let (_, name) = STATUSES.iter().find(|(status, _)| *status == member.status).expect("all are listed");
            naive_compare(*operator, Some(name), &names)
        }
        Node::Drained => member.drained,
        Node::Routable => routable,
        Node::FlagIs { routable: about_routable, equal, value } => {
            let flag = if *about_routable { routable } else { member.drained };
            (flag == *value) == *equal
        }
        Node::Not(inner) => !naive_evaluate(inner, member),
        Node::And(left, right) => naive_evaluate(left, member) && naive_evaluate(right, member),
        Node::Or(left, right) => naive_evaluate(left, member) || naive_evaluate(right, member),
    }
}

/// Writes parentheses only where precedence requires them, so that precedence is tested, too.
fn render(node: &Node) -> String {
    let tight = |inner: &Node| match inner {
        Node::And(..) | Node::Or(..) => format!("({})", render(inner)),
        _ => render(inner),
    };
    let below_and = |inner: &Node| if matches!(inner, Node::Or(..)) { tight(inner) } else { render(inner) };
    match node {
        Node::Text { field, operator, values } => render_comparison(field, *operator, &quoted(values)),
        Node::Metadata { key, bracketed, operator, values } => {
            render_comparison(&render_key(key, *bracketed), *operator, &quoted(values))
        }
        Node::Exists { key } => format!("exists {}", render_key(key, false)),
        Node::Status { operator, values, quoted: quotes } => {
            let names: Vec<String> = values.iter().map(|index| STATUSES[*index].1.to_owned()).collect();
            render_comparison("status", *operator, &if *quotes { quoted(&names) } else { names })
        }
        Node::Drained => "drained".to_owned(),
        Node::Routable => "routable".to_owned(),
        Node::FlagIs { routable, equal, value } => {
            let (name, operator) = (if *routable { "routable" } else { "drained" }, if *equal { "==" } else { "!=" });
            format!("{name} {operator} {value}")
        }
        Node::Not(inner) => format!("not {}", tight(inner)),
        Node::And(left, right) => format!("{} and {}", below_and(left), below_and(right)),
        Node::Or(left, right) => format!("{} or {}", render(left), render(right)),
    }
}

fn render_comparison(field: &str, operator: Operator, values: &[String]) -> String {
    match operator {
        Operator::Equal => format!("{field} == {}", values[0]),
        Operator::NotEqual => format!("{field}!={}", values[0]),
        Operator::Matches => format!("{field} matches {}", values[0]),
        Operator::NotMatches => format!("{field} not matches {}", values[0]),
        Operator::In => format!("{field} in ({})", values.join(", ")),
        Operator::NotIn => format!("{field} not in({})", values.join(",")),
    }
}

fn render_key(key: &str, bracketed: bool) -> String {
    if bracketed || key.contains([' ', '"']) { format!("meta[{}]", quote(key)) } else { format!("meta.{key}") }
}

fn quoted(values: &[String]) -> Vec<String> {
    values.iter().map(|value| quote(value)).collect()
}

fn quote(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

fn value() -> impl Strategy<Value = String> {
    "[abé]{0,3}"
}

fn pattern() -> impl Strategy<Value = String> {
    "[abé*]{0,4}"
}

/// An operator with suitable values.
fn comparison() -> impl Strategy<Value = (Operator, Vec<String>)> {
    prop_oneof![
        (prop_oneof![Just(Operator::Equal), Just(Operator::NotEqual)], prop::collection::vec(value(), 1)),
        (prop_oneof![Just(Operator::Matches), Just(Operator::NotMatches)], prop::collection::vec(pattern(), 1)),
        (prop_oneof![Just(Operator::In), Just(Operator::NotIn)], prop::collection::vec(value(), 1..4)),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(&KEYS[..]).prop_map(str::to_owned)
}

fn leaf() -> impl Strategy<Value = Node> {
    let field = prop::sample::select(&FIELDS[..]);
    let status_operator =
        prop::sample::select(&[Operator::Equal, Operator::NotEqual, Operator::In, Operator::NotIn][..]);
    // `service` has its own case, because `service_literal` depends on it alone.
    prop_oneof![
        (field, comparison()).prop_map(|(field, (operator, values))| Node::Text {
            field: field.to_owned(),
            operator,
            values
        }),
        value().prop_map(|value| Node::Text {
            field: "service".to_owned(),
            operator: Operator::Equal,
            values: vec![value]
        }),
        (key(), any::<bool>(), comparison()).prop_map(|(key, bracketed, (operator, values))| Node::Metadata {
            key,
            bracketed,
            operator,
            values
        }),
        key().prop_map(|key| Node::Exists { key }),
        (status_operator, prop::collection::vec(0..STATUSES.len(), 1..3), any::<bool>())
            .prop_map(|(operator, values, quoted)| Node::Status { operator, values, quoted }),
        Just(Node::Drained),
        Just(Node::Routable),
        any::<(bool, bool, bool)>().prop_map(|(routable, equal, value)| Node::FlagIs { routable, equal, value }),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    leaf().prop_recursive(5, 24, 2, |inner| {
        let pair = || (inner.clone().prop_map(Box::new), inner.clone().prop_map(Box::new));
        prop_oneof![
            inner.clone().prop_map(|inner| Node::Not(Box::new(inner))),
            pair().prop_map(|(left, right)| Node::And(left, right)),
            pair().prop_map(|(left, right)| Node::Or(left, right)),
        ]
    })
}

fn member() -> impl Strategy<Value = Member> {
    let status = (0..STATUSES.len()).prop_map(|index| STATUSES[index].0);
    let pairs = prop::collection::btree_map(key(), value(), 0..KEYS.len());
    let health = (0..Health::ALL.len()).prop_map(|index| Health::ALL[index]);
    (prop::collection::vec(value(), FIELDS.len()), status, any::<bool>(), health, pairs)
        .prop_map(|(texts, status, drained, health, pairs)| Member { texts, status, drained, health, pairs })
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    prop::collection::vec(member(), 8)
}

/// Text made of tokens of the language reaches deeper into the parser than arbitrary characters do.
fn language_like() -> impl Strategy<Value = String> {
    let pieces = [
        "service", "status", "meta", "meta.a", "drained", "and ", "or ", "not ", "matches", "in", "exists", "==", "!=",
        "(", ")", "[", "]", ",", "\"", "'", "\\", "\\u{", "}", "a", "up", " ", "é", "🦀", "*", "=",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..24).prop_map(|pieces| pieces.concat())
}

fn assert_sound(text: &str) -> Result<(), TestCaseError> {
    match Filter::parse(text) {
        Ok(filter) => prop_assert_eq!(Filter::parse(&filter.to_string()), Ok(filter)),
        Err(error) => {
            prop_assert!(text.is_char_boundary(error.offset));
            prop_assert_eq!(&error.text, text);
            let pointer = error.pointer();
            let caret = pointer.lines().last().unwrap_or_default();
            prop_assert_eq!(caret.chars().count(), error.column());
            prop_assert!(error.to_string().starts_with("invalid filter at "));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn evaluation_equals_the_naive_one(node in node(), members in members()) {
        let text = render(&node);
        let filter = Filter::parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let canonical = Filter::parse(&filter.to_string()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&canonical, &filter, "{}", text);
        for member in &members {
            let expected = naive_evaluate(&node, member);
            prop_assert_eq!(filter.matches(&member.subject()), expected, "{}", text);
        }
    }

    #[test]
    fn joining_is_conjunction(left in node(), right in node(), members in members()) {
        let (left, right) = (Filter::parse(&render(&left)).unwrap(), Filter::parse(&render(&right)).unwrap());
        let both = left.clone().and(right.clone());
        prop_assert_eq!(Filter::parse(&both.to_string()), Ok(both.clone()));
        for member in &members {
            let subject = member.subject();
            prop_assert_eq!(both.matches(&subject), left.matches(&subject) && right.matches(&subject));
        }
    }

    #[test]
    fn the_service_of_a_match_is_admitted(node in node(), members in members()) {
        let filter = Filter::parse(&render(&node)).unwrap();
        for member in &members {
            prop_assert!(!filter.matches(&member.subject()) || filter.admits_service(&member.texts[1]));
        }
        if let Some(literal) = filter.service_literal() {
            let other = format!("{literal}x");
            prop_assert!(!filter.admits_service(&other));
        }
    }

    #[test]
    fn a_match_has_the_literal_service(node in node(), members in members()) {
        let filter = Filter::parse(&render(&node)).unwrap();
        let Some(literal) = filter.service_literal() else { return Ok(()) };
        for mut member in members {
            if filter.matches(&member.subject()) {
                prop_assert_eq!(&member.texts[1], literal);
            }
            // Another service must not match, even if the filter mentions it.
            member.texts[1] = format!("{literal}x");
            prop_assert!(!filter.matches(&member.subject()));
        }
    }

    #[test]
    fn builders_equal_the_naive_matcher(pattern in pattern(), key in key(), member in member()) {
        let subject = member.subject();
        let wildcard = |text: &str| naive_wildcard(&pattern, text);
        prop_assert_eq!(Filter::service(&pattern).matches(&subject), wildcard(subject.service));
        prop_assert_eq!(Filter::locality(&pattern).matches(&subject), wildcard(subject.locality));
        prop_assert_eq!(Filter::revision(&pattern).matches(&subject), wildcard(subject.revision));
        let metadata = member.pairs.get(&key).is_some_and(|value| wildcard(value));
        prop_assert_eq!(Filter::metadata(&key, &pattern).matches(&subject), metadata);
        for (status, _) in STATUSES {
            prop_assert_eq!(Filter::status(status).matches(&subject), status == subject.status);
        }
    }

    #[test]
    fn built_filters_round_trip(pattern in ".{0,20}", key in ".{0,20}") {
        let filter = Filter::metadata(&key, &pattern).and(Filter::service(&pattern));
        prop_assert_eq!(Filter::parse(&filter.to_string()), Ok(filter));
    }

    #[test]
    fn arbitrary_text_is_sound(text in "\\PC{0,40}", raw in any::<String>()) {
        assert_sound(&text)?;
        assert_sound(&raw)?;
    }

    #[test]
    fn damaged_text_is_sound(node in node(), at in any::<prop::sample::Index>(), insert in any::<char>()) {
        let mut characters: Vec<char> = render(&node).chars().collect();
        let at = at.index(characters.len());
        characters[at] = insert;
        assert_sound(&characters.iter().collect::<String>())?;
        characters.truncate(at);
        assert_sound(&characters.iter().collect::<String>())?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wildcard_equals_the_naive_matcher(pattern in "[abé*]{0,6}", text in "[abé]{0,8}") {
        prop_assert_eq!(Wildcard::new(&pattern).matches(&text), naive_wildcard(&pattern, &text));
    }

    #[test]
    fn language_like_text_is_sound(text in language_like()) {
        assert_sound(&text)?;
    }
}
