//! Filters (R-09) select the members of a query or a watch.
//!
//! This crate owns the filter language: its syntax, its errors and its evaluation on one [`Subject`]. It must not
//! depend on indexes or watches; they use [`Filter::service_literal`] to narrow their work.
//!
//! ```text
//! filter     = "" | or                                   blank text matches everything
//! or         = and { "or" and }
//! and        = unary { "and" unary }
//! unary      = { "not" } ( "(" or ")" | term )           "not" binds tightest, then "and", then "or"
//! term       = text-field ( "==" | "!=" ) string
//!            | text-field [ "not" ] "matches" string     "*" matches any run of characters
//!            | text-field [ "not" ] "in" "(" string { "," string } ")"
//!            | "status" …                                "==", "!=", "in" with up, down, left; quotes optional
//!            | "health" …                                the same with passing, warning, critical
//!            | flag [ ( "==" | "!=" ) ( "true" | "false" ) ]
//!            | "exists" metadata
//! text-field = "id" | "service" | "locality" | "revision" | "client" | "owner" | metadata
//! flag       = "drained" | "routable"                    routable: up, not drained, not critical (R-16)
//! metadata   = "meta.KEY" | "meta" "[" string "]"        KEY is letters, digits, "_", "-" and inner dots
//! string     = in double or single quotes; escapes \" \' \\ \n \t \u{HEX}
//! ```
//!
//! An absent metadata key equals no value and matches no pattern, not even `*`. For such a key, `==`, `matches` and
//! `in` are false, and `!=`, `not matches` and `not in` are true. Every negated operator is thus the exact opposite
//! of the plain one. The parser uses this to move each `not` down to the terms that it governs.

mod error;
mod expression;
mod health;
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
pub use health::Health;
pub use status::Status;
pub use wildcard::Wildcard;

use expression::{Expression, Term, Test, TextField, TextTest};

/// Maximum length of a filter in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Maximum nesting of parentheses. Bounds the recursion of parsing, evaluation and display.
pub const NESTING_MAX: usize = 32;
/// Maximum number of terms. Each value of an `in` list counts as one term. Bounds the cost of one evaluation.
pub const TERMS_MAX: usize = 256;

/// The attributes of one member, on which a filter is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub id: &'a str,
    pub service: &'a str,
    pub locality: &'a str,
    pub revision: &'a str,
    pub status: Status,
    pub drained: bool,
    pub health: Health,
    pub client: &'a str,
    pub owner: &'a str,
    pub metadata: &'a dyn MetadataLookup,
}

/// Metadata lookup. Nodes store metadata packed, clients store it as a map.
pub trait MetadataLookup: fmt::Debug {
    /// Returns the value of a key.
    fn value(&self, key: &str) -> Option<&str>;
}

impl MetadataLookup for BTreeMap<String, String> {
    fn value(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

/// A condition on members.
///
/// A filter displays as canonical text, which parses back to an equal filter if it is within the limits above. The text
/// may exceed them if [`Filter::and`] joined several filters, or if the original text had fewer spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// All clauses must hold; an empty list matches every member. No clause is itself an `AllOf`. Joining filters is
    /// therefore associative and never makes them deeper.
    clauses: Vec<Expression>,
}

impl Filter {
    /// Returns the filter that matches all members.
    pub fn all() -> Filter {
        Filter::default()
    }

    /// Parses a filter. Blank text is [`Filter::all`].
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let clauses = match parser::parse(text)? {
            None => Vec::new(),
            Some(Expression::AllOf(clauses)) => clauses,
            Some(clause) => vec![clause],
        };
        Ok(Filter { clauses })
    }

    /// Returns whether a member matches.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.clauses.iter().all(|clause| clause.matches(subject))
    }

    /// Returns the conjunction of both filters.
    #[must_use]
    pub fn and(mut self, other: Filter) -> Filter {
        self.clauses.extend(other.clauses);
        self
    }

    /// Matches members by service. In a pattern, `*` matches any run of characters.
    pub fn service(pattern: &str) -> Filter {
        Filter::pattern(TextField::Service, pattern)
    }

    /// Matches members whose service matches any of the patterns; none if there are no patterns.
    pub fn any_service<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Filter {
        let term = |pattern: S| {
            let test = Test::Text(TextField::Service, TextTest::matches(pattern.as_ref()));
            Expression::Term(Term { negated: false, test })
        };
        let items: Vec<_> = patterns.into_iter().map(term).collect();
        // No service has an empty name.
        if items.is_empty() { Filter::service("") } else { Filter { clauses: vec![Expression::any_of(items)] } }
    }

    /// Matches members by locality.
    pub fn locality(pattern: &str) -> Filter {
        Filter::pattern(TextField::Locality, pattern)
    }

    /// Matches members by their `revision` attribute.
    pub fn revision(pattern: &str) -> Filter {
        Filter::pattern(TextField::Revision, pattern)
    }

    /// Matches members that have the metadata key with a value that matches the pattern.
    pub fn metadata(key: &str, pattern: &str) -> Filter {
        Filter::pattern(TextField::Metadata(key.into()), pattern)
    }

    /// Matches members by status.
    pub fn status(status: Status) -> Filter {
        Filter::term(Test::Status(vec![status]))
    }

    /// Returns the only service that a match can have, if the filter implies one. Nodes use it to route changes to
    /// watchers and to query the service index.
    pub fn service_literal(&self) -> Option<&str> {
        self.clauses.iter().find_map(Expression::service_literal)
    }

    /// Whether a member of this service can match. Nodes skip the other services in the service index, and nothing about
    /// them appears in a position of a list (AU10).
    pub fn admits_service(&self, service: &str) -> bool {
        self.clauses.iter().all(|clause| clause.admits_service(service))
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
