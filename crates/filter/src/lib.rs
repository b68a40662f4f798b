//! Filters (R-09): which members a query or a subscription is about.
//!
//! This crate owns the filter language: its text, its errors and its evaluation on one [`Subject`]. It knows nothing
//! of indexes or subscriptions; [`Filter::service_literal`] is all it tells them.
//!
//! ```text
//! filter     = "" | or                                   blank text matches everything
//! or         = and { "or" and }
//! and        = unary { "and" unary }
//! unary      = { "not" } ( "(" or ")" | term )           so: not binds tightest, then and, then or
//! term       = text-field ( "==" | "!=" ) string
//!            | text-field [ "not" ] "matches" string     "*" is any run of characters, all else is literal
//!            | text-field [ "not" ] "in" "(" string { "," string } ")"
//!            | "status" …                                "==", "!=" and "in", on up, down, left; quotes optional
//!            | flag [ ( "==" | "!=" ) ( "true" | "false" ) ]
//!            | "exists" metadata
//! text-field = "id" | "service" | "locality" | "revision" | "client" | "owner" | metadata
//! flag       = "drained" | "routable"                    routable is up and not drained (R-16)
//! metadata   = "meta.KEY" | "meta" "[" string "]"        KEY is letters, digits, "_", "-" and inner dots
//! string     = in double or single quotes; escapes \" \' \\ \n \t \u{HEX}
//! ```
//!
//! A metadata key that is absent equals nothing and matches nothing, not even `*`: `==`, `matches` and `in` are false
//! on it; `!=`, `not matches` and `not in` are true. Every negated operator is thus the exact opposite of the plain
//! one, and the parser moves each `not` down to the terms it governs.

mod error;
mod expression;
mod lexer;
mod parser;
mod status;
mod suggestion;
mod term;
mod wildcard;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

pub use error::FilterError;
pub use status::Status;
pub use wildcard::Wildcard;

use expression::{Expression, Term, Test, TextField, TextTest};

/// The longest text accepted, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// How deep parentheses may nest. Bounds the recursion of parser, evaluation and display.
pub const NESTING_MAX: usize = 32;
/// How many terms a text may have, each value of an `in` list counting as one. Bounds the cost of one evaluation.
pub const TERMS_MAX: usize = 256;

/// What a filter is evaluated on.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub id: &'a str,
    pub service: &'a str,
    pub locality: &'a str,
    pub revision: &'a str,
    pub status: Status,
    pub drained: bool,
    pub client: &'a str,
    pub owner: &'a str,
    pub metadata: &'a dyn Lookup,
}

/// Metadata, however it is held: packed in a node, as a map in a client.
pub trait Lookup: fmt::Debug {
    fn value(&self, key: &str) -> Option<&str>;
}

impl Lookup for BTreeMap<String, String> {
    fn value(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

/// A condition on members. Displays as canonical text, which parses back to an equal filter as long as it is within
/// the limits above (a filter joined from several may not be, nor one spelt with fewer spaces than canonical text).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// All must hold; none means everything matches. No clause is itself an `AllOf`, so that joining filters in any
    /// order of grouping gives equal filters and never deepens them.
    clauses: Vec<Expression>,
}

impl Filter {
    /// Matches everything.
    pub fn all() -> Filter {
        Filter::default()
    }

    /// Reads the filter language; blank text is [`Filter::all`].
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let clauses = match parser::parse(text)? {
            None => Vec::new(),
            Some(Expression::AllOf(clauses)) => clauses,
            Some(clause) => vec![clause],
        };
        Ok(Filter { clauses })
    }

    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.clauses.iter().all(|clause| clause.matches(subject))
    }

    /// Matches what both match.
    #[must_use]
    pub fn and(mut self, other: Filter) -> Filter {
        self.clauses.extend(other.clauses);
        self
    }

    pub fn service(pattern: &str) -> Filter {
        Filter::pattern(TextField::Service, pattern)
    }

    pub fn locality(pattern: &str) -> Filter {
        Filter::pattern(TextField::Locality, pattern)
    }

    pub fn revision(pattern: &str) -> Filter {
        Filter::pattern(TextField::Revision, pattern)
    }

    /// The key must be present and its value match.
    pub fn metadata(key: &str, pattern: &str) -> Filter {
        Filter::pattern(TextField::Metadata(key.into()), pattern)
    }

    pub fn status(status: Status) -> Filter {
        Filter::term(Test::Status(vec![status]))
    }

    /// The one service every match must have, if the filter implies it. Used to route changes to subscribers and to
    /// use the service index.
    pub fn service_literal(&self) -> Option<&str> {
        self.clauses.iter().find_map(Expression::service_literal)
    }

    fn pattern(field: TextField, pattern: &str) -> Filter {
        Filter::term(Test::Text(field, TextTest::matches(pattern)))
    }

    fn term(test: Test) -> Filter {
        Filter { clauses: vec![Expression::Term(Term { negated: false, test })] }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.clauses.as_slice() {
            [clause] => clause.fmt(f),
            clauses => expression::write_all_of(f, clauses),
        }
    }
}

impl TryFrom<&str> for Filter {
    type Error = FilterError;

    fn try_from(text: &str) -> Result<Filter, FilterError> {
        Filter::parse(text)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        Filter::parse(text)
    }
}
