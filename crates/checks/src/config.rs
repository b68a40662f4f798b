//! Settings of the checker.

use ipnet::IpNet;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How many checks run at the same time, by default.
const CONCURRENCY: usize = 256;

/// Scripts of one node.
const SCRIPTS_MAX: usize = 256;
/// The program and its arguments together.
const COMMAND_BYTES_MAX: usize = 16 * 1_024;
/// The shortest interval of a script.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Settings of the checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckerConfig {
    /// Networks and addresses (`ADDRESS:PORT`) that checks may reach although they are denied by default.
    pub allow: Vec<String>,
    /// Loopback addresses are allowed, because the node itself listens there only.
    pub allow_loopback: bool,
    /// Checks that run at the same time.
    pub concurrency: usize,
    /// Authorities for checks with TLS, in PEM; those of the system by default.
    pub ca: Option<PathBuf>,
    /// Programs that this node runs, and whose results it reports.
    pub scripts: Vec<ScriptCheck>,
}

/// A program whose exit status is the result of a check that the application would report otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptCheck {
    /// Id of the member, at any node.
    pub member: String,
    /// Id of its check, which has a `ttl_ms`.
    pub check: String,
    /// The program and its arguments. No shell interprets them.
    pub command: Vec<String>,
    /// Between the beginnings of two runs.
    pub interval: Duration,
    /// After this time the process group of the script is killed.
    pub timeout: Duration,
}

impl Default for CheckerConfig {
    fn default() -> Self {
        CheckerConfig {
            allow: Vec::new(),
            allow_loopback: false,
            concurrency: CONCURRENCY,
            ca: None,
            scripts: Vec::new(),
        }
    }
}

impl CheckerConfig {
    /// Checks the scripts. The error names the script and what is wrong with it.
    pub fn check_scripts(&self) -> Result<(), ConfigError> {
        if self.scripts.len() > SCRIPTS_MAX {
            return Err(ConfigError::Scripts(self.scripts.len()));
        }
        let mut known = HashSet::new();
        for (index, script) in self.scripts.iter().enumerate() {
            let repeated = !known.insert((&script.member, &script.check));
            if let Some(problem) =
                script.problem().or(repeated.then_some("another script has the same member and check"))
            {
                let (member, check) = (script.member.clone(), script.check.clone());
                return Err(ConfigError::Script { number: index + 1, member, check, problem });
            }
        }
        Ok(())
    }
}

impl ScriptCheck {
    fn problem(&self) -> Option<&'static str> {
        let bytes: usize = self.command.iter().map(String::len).sum();
        match () {
            () if self.member.is_empty() => Some("member is empty: name the id of a member"),
            () if self.check.is_empty() => Some("check is empty: name the id of a check with ttl_ms"),
            () if self.command.first().is_none_or(String::is_empty) => Some("command is empty: name a program"),
            () if bytes > COMMAND_BYTES_MAX => Some("command has more than 16384 bytes: use a file"),
            () if self.interval < INTERVAL_MIN => Some("interval is too short: use at least 1s"),
            () if self.timeout.is_zero() => Some("timeout is 0: use at least 1ms"),
            () => None,
        }
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("checks.scripts has {0} entries, at most 256 are allowed")]
    Scripts(usize),
    #[error("checks.scripts, entry {number} (member {member:?}, check {check:?}): {problem}")]
    Script { number: usize, member: String, check: String, problem: &'static str },
    #[error("{0:?} is neither a network such as 10.0.0.0/8 nor an address and port such as 10.0.0.1:7700")]
    Allow(String),
}

/// One entry of [`CheckerConfig::allow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    Network(IpNet),
    Address(SocketAddr),
}

impl Allowed {
    pub(crate) fn parse(text: &str) -> Result<Allowed, ConfigError> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Allowed::Network(network));
        }
        if let Ok(address) = text.parse::<std::net::IpAddr>() {
            return Ok(Allowed::Network(address.into()));
        }
        text.parse().map(Allowed::Address).map_err(|_| ConfigError::Allow(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn script(member: &str, command: &[&str]) -> ScriptCheck {
        ScriptCheck {
            member: member.to_owned(),
            check: "c".to_owned(),
            command: command.iter().map(|part| (*part).to_owned()).collect(),
            interval: INTERVAL_MIN,
            timeout: Duration::from_secs(5),
        }
    }

    fn problem(scripts: Vec<ScriptCheck>) -> String {
        CheckerConfig { scripts, ..CheckerConfig::default() }.check_scripts().unwrap_err().to_string()
    }

    #[test]
    fn invalid_scripts_are_named() {
        let good = script("m", &["true"]);
        let config = CheckerConfig { scripts: vec![good.clone()], ..CheckerConfig::default() };
        assert_eq!(config.check_scripts(), Ok(()));
        let twice = problem(vec![good.clone(), good.clone()]);
        assert_eq!(
            twice,
            "checks.scripts, entry 2 (member \"m\", check \"c\"): another script has the same member and check"
        );
        let long = "x".repeat(COMMAND_BYTES_MAX);
        let hasty = ScriptCheck { interval: Duration::from_millis(999), ..good.clone() };
        let endless = ScriptCheck { timeout: Duration::ZERO, ..good.clone() };
        for (wrong, words) in [
            (script("", &["true"]), "member is empty"),
            (ScriptCheck { check: String::new(), ..good.clone() }, "check is empty"),
            (script("m", &[]), "command is empty"),
            (script("m", &["", "a"]), "command is empty"),
            (script("m", &["echo", &long]), "more than 16384 bytes"),
            (hasty, "interval is too short"),
            (endless, "timeout is 0"),
        ] {
            assert!(problem(vec![wrong]).contains(words), "{words}");
        }
        let many = (0..=SCRIPTS_MAX).map(|index| script(&index.to_string(), &["true"])).collect();
        assert_eq!(problem(many), "checks.scripts has 257 entries, at most 256 are allowed");
    }
}
