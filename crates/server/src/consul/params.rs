//! Parameters of the query. Like Consul, and unlike `/api/v1`, unknown ones are ignored: clients send many.

use super::failure::Failure;
use crate::surface::Surface;
use ::http::request::Parts;
use axum::extract::FromRequestParts;
use convoke_consul::{parse_bool, parse_duration};
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// How long a blocking query waits by default, and at most.
const WAIT: Duration = Duration::from_secs(5 * 60);
const WAIT_MAX: Duration = Duration::from_secs(10 * 60);

const NOT_OF_RESULT: [&str; 6] = ["index", "wait", "stale", "consistent", "cached", "token"];

/// The parameters in the order in which they were sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

/// Parameters of every read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadOptions {
    /// A blocking query: wait until the index is another one.
    pub(crate) index: u64,
    pub(crate) wait: Duration,
    pub(crate) consistency: Mode,
    pub(crate) pretty: bool,
}

/// The consistency that the client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Default,
    Consistent,
    Stale,
}

impl Params {
    /// Returns the first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a parameter unless it is empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Whether a parameter is present, with any value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns all values of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns a boolean parameter. Without a value it is true.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.get(name) {
            None => Ok(false),
            Some("") => Ok(true),
            Some(text) => parse_bool(text).ok_or_else(|| Failure::bad(format!("Invalid value for ?{name}"))),
        }
    }

    /// Writes the parameters in the order of their names, as Go does.
    pub(crate) fn encoded(&self) -> String {
        let mut sorted: Vec<&(String, String)> = self.0.iter().collect();
        sorted.sort_by(|one, other| one.0.cmp(&other.0));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(sorted).finish()
    }

    /// Appends the parameters that a result can depend on, which are not those of waiting and of consistency.
    pub(crate) fn of_result(&self, mut text: String) -> String {
        for (name, value) in self.0.iter().filter(|(name, _)| !NOT_OF_RESULT.contains(&name.as_str())) {
            // No character can end a length, so different parameters make different texts.
            let _ = write!(text, " {}:{name}{}:{value}", name.len(), value.len());
        }
        text
    }

    pub(crate) fn pretty(&self) -> bool {
        self.has("pretty")
    }

    /// Returns the parameters of a read.
    pub(crate) fn read_options(&self) -> Result<ReadOptions, Failure> {
        let wait = match self.text("wait") {
            None => Duration::ZERO,
            Some(text) => parse_duration(text).map_err(|_| Failure::bad("Invalid wait time"))?,
        };
        let wait = if wait.is_zero() { WAIT } else { wait.min(WAIT_MAX) };
        let index = match self.text("index") {
            None => 0,
            Some(text) => text.parse().map_err(|_| Failure::bad("Invalid index"))?,
        };
        let consistency = match (self.has("stale"), self.has("consistent"), self.has("cached")) {
            (true, true, _) => {
                return Err(Failure::bad("Cannot specify ?stale with ?consistent, conflicting semantics."));
            }
            (_, true, true) => {
                return Err(Failure::bad("Cannot specify ?cached with ?consistent, conflicting semantics."));
            }
            (true, ..) => Mode::Stale,
            (_, true, _) => Mode::Consistent,
            _ => Mode::Default,
        };
        Ok(ReadOptions { index, wait, consistency, pretty: self.pretty() })
    }

    fn parse(query: &str) -> Params {
        Params(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }
}

impl FromRequestParts<Arc<Surface>> for Params {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Surface>) -> Result<Params, Infallible> {
        Ok(Params::parse(parts.uri.query().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn parameters_of_reads_are_those_of_consul() {
        let options = |query: &str| Params::parse(query).read_options().map_err(|failure| failure.parts().1.to_owned());
        let read = options("index=7&wait=1m&stale&pretty&unknown=1").unwrap();
        let wait = Duration::from_secs(60);
        assert_eq!(read, ReadOptions { index: 7, wait, consistency: Mode::Stale, pretty: true });
        assert_eq!(options("wait=1h").unwrap().wait, WAIT_MAX);
        assert_eq!(options("wait=0s").unwrap().wait, WAIT);
        assert_eq!(options("wait=x").unwrap_err(), "Invalid wait time");
        assert_eq!(options("index=-1").unwrap_err(), "Invalid index");
        assert!(options("stale&consistent").unwrap_err().starts_with("Cannot specify ?stale"));
        let of_result = |query: &str| Params::parse(query).of_result(String::new());
        assert_eq!(of_result("passing&index=7&wait=1m&stale"), of_result("passing"));
        for (one, other) in
            [("tag=a", "tag=b"), ("tag=a&tag=b", "tag=b&tag=a"), ("a=b%201:c", "a=b&c"), ("", "passing")]
        {
            assert_ne!(of_result(one), of_result(other), "{one} {other}");
        }
        let params = Params::parse("tag=a&tag=b&passing&x=False");
        assert_eq!(params.all("tag").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((params.flag("passing").unwrap(), params.flag("x").unwrap()), (true, false));
        assert_eq!(Params::parse("passing=maybe").flag("passing").unwrap_err().parts().1, "Invalid value for ?passing");
    }
}
