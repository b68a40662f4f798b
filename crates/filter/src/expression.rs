//! A parsed filter: its evaluation, its implied service and its canonical text.

use std::fmt;

use super::lexer::{is_bare_key, write_string};
use super::{Health, Status, Subject, Wildcard};

/// An expression without negation: the parser moves every `not` into the terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Term(Term),
    /// Two or more items; none is an `AllOf`.
    AllOf(Vec<Expression>),
    /// Two or more items; none is an `AnyOf`.
    AnyOf(Vec<Expression>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) negated: bool,
    pub(super) test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Text(TextField, TextTest),
    /// One of these values: not empty, sorted, without duplicates.
    Status(Vec<Status>),
    /// As with the status.
    Health(Vec<Health>),
    Flag(Flag),
    /// The metadata key is present.
    Exists(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextField {
    Id,
    Service,
    Locality,
    Revision,
    Client,
    Owner,
    Metadata(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextTest {
    /// Equal to one of these values: not empty, sorted, without duplicates.
    OneOf(Vec<Box<str>>),
    /// Never a literal pattern: that becomes a `OneOf`.
    Matches(Wildcard),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    Drained,
    Routable,
}

impl Expression {
    pub(super) fn all_of(items: Vec<Expression>) -> Expression {
        let mut flat = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Expression::AllOf(inner) => flat.extend(inner),
                item => flat.push(item),
            }
        }
        single(flat).unwrap_or_else(Expression::AllOf)
    }

    pub(super) fn any_of(items: Vec<Expression>) -> Expression {
        let mut flat = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Expression::AnyOf(inner) => flat.extend(inner),
                item => flat.push(item),
            }
        }
        single(flat).unwrap_or_else(Expression::AnyOf)
    }

    pub(super) fn matches(&self, subject: &Subject<'_>) -> bool {
        match self {
            Expression::Term(term) => term.test.matches(subject) != term.negated,
            Expression::AllOf(items) => items.iter().all(|item| item.matches(subject)),
            Expression::AnyOf(items) => items.iter().any(|item| item.matches(subject)),
        }
    }

    /// Whether a member of this service can match.
    pub(super) fn admits_service(&self, service: &str) -> bool {
        match self {
            Expression::Term(Term { negated, test: Test::Text(TextField::Service, test) }) => {
                test.accepts(service) != *negated
            }
            Expression::Term(_) => true,
            Expression::AllOf(items) => items.iter().all(|item| item.admits_service(service)),
            Expression::AnyOf(items) => items.iter().any(|item| item.admits_service(service)),
        }
    }

    pub(super) fn service_literal(&self) -> Option<&str> {
        match self {
            Expression::Term(Term { negated: false, test: Test::Text(TextField::Service, test) }) => test.literal(),
            Expression::Term(_) => None,
            Expression::AllOf(items) => items.iter().find_map(Expression::service_literal),
            Expression::AnyOf(items) => {
                let first = items.first()?.service_literal()?;
                items.iter().all(|item| item.service_literal() == Some(first)).then_some(first)
            }
        }
    }
}

impl Test {
    fn matches(&self, subject: &Subject<'_>) -> bool {
        match self {
            Test::Text(field, test) => field.value(subject).is_some_and(|value| test.accepts(value)),
            Test::Status(statuses) => statuses.contains(&subject.status),
            Test::Health(healths) => healths.contains(&subject.health),
            Test::Flag(Flag::Drained) => subject.drained,
            Test::Flag(Flag::Routable) => {
                subject.status == Status::Up && !subject.drained && subject.health != Health::Critical
            }
            Test::Exists(key) => subject.metadata.value(key).is_some(),
        }
    }
}

impl TextField {
    fn value<'a>(&self, subject: &Subject<'a>) -> Option<&'a str> {
        Some(match self {
            TextField::Id => subject.id,
            TextField::Service => subject.service,
            TextField::Locality => subject.locality,
            TextField::Revision => subject.revision,
            TextField::Client => subject.client,
            TextField::Owner => subject.owner,
            TextField::Metadata(key) => return subject.metadata.value(key),
        })
    }
}

impl TextTest {
    pub(super) fn one_of(mut values: Vec<Box<str>>) -> TextTest {
        values.sort_unstable();
        values.dedup();
        TextTest::OneOf(values)
    }

    pub(super) fn matches(pattern: &str) -> TextTest {
        let wildcard = Wildcard::new(pattern);
        match wildcard.literal() {
            Some(literal) => TextTest::OneOf(vec![literal.into()]),
            None => TextTest::Matches(wildcard),
        }
    }

    fn accepts(&self, value: &str) -> bool {
        match self {
            TextTest::OneOf(values) => values.iter().any(|candidate| **candidate == *value),
            TextTest::Matches(wildcard) => wildcard.matches(value),
        }
    }

    fn literal(&self) -> Option<&str> {
        match self {
            TextTest::OneOf(values) if values.len() == 1 => values.first().map(|value| &**value),
            _ => None,
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Term(term) => term.fmt(f),
            Expression::AllOf(items) => write_all_of(f, items),
            Expression::AnyOf(items) => write_joined(f, items, " or ", |f, item| item.fmt(f)),
        }
    }
}

/// Writes terms joined by `and`. It binds tighter than `or`, so only an `or` below an `and` needs parentheses.
pub(super) fn write_all_of(f: &mut fmt::Formatter<'_>, items: &[Expression]) -> fmt::Result {
    write_joined(f, items, " and ", |f, item| match item {
        Expression::AnyOf(_) => write!(f, "({item})"),
        item => write!(f, "{item}"),
    })
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.negated { "not " } else { "" };
        match &self.test {
            Test::Text(field, TextTest::Matches(wildcard)) => {
                write!(f, "{field} {not}matches ")?;
                write_string(f, wildcard.as_str())
            }
            Test::Text(field, TextTest::OneOf(values)) => {
                field.fmt(f)?;
                self.write_one_of(f, values)
            }
            Test::Status(statuses) => {
                let values: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
                f.write_str("status")?;
                self.write_one_of(f, &values)
            }
            Test::Health(healths) => {
                let values: Vec<&str> = healths.iter().map(|health| health.as_str()).collect();
                f.write_str("health")?;
                self.write_one_of(f, &values)
            }
            Test::Flag(Flag::Drained) => write!(f, "{not}drained"),
            Test::Flag(Flag::Routable) => write!(f, "{not}routable"),
            Test::Exists(key) => {
                write!(f, "{not}exists ")?;
                write_metadata_field(f, key)
            }
        }
    }
}

impl Term {
    fn write_one_of(&self, f: &mut fmt::Formatter<'_>, values: &[impl AsRef<str>]) -> fmt::Result {
        if let [value] = values {
            f.write_str(if self.negated { " != " } else { " == " })?;
            return write_string(f, value.as_ref());
        }
        f.write_str(if self.negated { " not in (" } else { " in (" })?;
        write_joined(f, values, ", ", |f, value| write_string(f, value.as_ref()))?;
        f.write_str(")")
    }
}

impl fmt::Display for TextField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TextField::Id => "id",
            TextField::Service => "service",
            TextField::Locality => "locality",
            TextField::Revision => "revision",
            TextField::Client => "client",
            TextField::Owner => "owner",
            TextField::Metadata(key) => return write_metadata_field(f, key),
        })
    }
}

fn single(mut items: Vec<Expression>) -> Result<Expression, Vec<Expression>> {
    match items.pop() {
        Some(item) if items.is_empty() => Ok(item),
        last => {
            items.extend(last);
            Err(items)
        }
    }
}

fn write_metadata_field(f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
    if is_bare_key(key) {
        return write!(f, "meta.{key}");
    }
    f.write_str("meta[")?;
    write_string(f, key)?;
    f.write_str("]")
}

fn write_joined<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    separator: &str,
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        write(f, item)?;
    }
    Ok(())
}
