//! Turns the configuration into the plan of a node.

use super::identity;
use crate::config::{DEV_CONSUL_PORT, Loaded, LogFormat, Parts, build, resolve_port_conflicts};
use convoke_cli::{CommandError, Result};
use std::str::FromStr;
use tracing_subscriber::filter::{LevelFilter, Targets};

const ENGINE: &str = "openraft";

/// All decisions that are made before a file or a socket is opened.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Parts,
    pub(crate) log_targets: Targets,
    pub(crate) log_format: LogFormat,
    /// Warnings to log once logging runs.
    pub(crate) warnings: Vec<String>,
    /// Use a free port if the default port is in use. Only for ports that are not configured.
    pub(crate) any_client_port: bool,
    pub(crate) any_peer_port: bool,
    pub(crate) any_dns_port: bool,
    pub(crate) any_consul_port: bool,
    /// `convoke dev`: print hints for a person.
    pub(crate) dev: bool,
}

impl Plan {
    pub(crate) fn start(loaded: &Loaded) -> Result<Plan> {
        let mut loaded = loaded.clone();
        // Several nodes on one machine need different client and peer ports; any free port does for DNS.
        let yielding = unset(&loaded, &["dns_port"]);
        resolve_port_conflicts(&mut loaded, &yielding)?;
        let id = identity::of(&loaded.settings)?;
        Plan::of(&loaded, build(&loaded, &id)?, &yielding)
    }

    /// A node in memory on loopback, whatever the configuration of addresses is.
    pub(crate) fn dev(loaded: &Loaded) -> Result<Plan> {
        let mut loaded = loaded.clone();
        let settings = &mut loaded.settings;
        let defaults = crate::config::Settings::default();
        settings.bind = defaults.bind;
        settings.join.clear();
        settings.bootstrap = 0;
        settings.advertise.clear();
        let id = if settings.id.is_empty() { "dev".to_owned() } else { settings.id.clone() };
        let yielding = unset(&loaded, &["client_port", "peer_port", "dns_port", "consul.port"]);
        resolve_port_conflicts(&mut loaded, &yielding)?;
        if loaded.source("consul.port").is_none() {
            loaded.settings.consul.port = DEV_CONSUL_PORT;
        }
        if loaded.source("consul.dns").is_none() {
            loaded.settings.consul.dns = true;
        }
        let mut parts = build(&loaded, &id)?;
        parts.node.data_dir = None;
        if let Some(log) = &mut parts.log {
            log.data_dir = None;
        }
        Ok(Plan { dev: true, ..Plan::of(&loaded, parts, &yielding)? })
    }

    /// `any`: keys of ports that are not configured.
    fn of(loaded: &Loaded, parts: Parts, any: &[&str]) -> Result<Plan> {
        let logging = &loaded.settings.logging;
        let targets = Targets::from_str(&logging.level).map_err(|_| {
            let source = loaded.source("logging.level").map(|source| format!(" ({source})")).unwrap_or_default();
            let level = &logging.level;
            CommandError::usage(format!(
                "logging.level {level:?} is not a log level: use error, warn, info, debug, trace or off, or \
                 levels by module such as \"info,convoke_node=debug\"{source}"
            ))
        })?;
        // The Raft engine logs for its developers. The replica logs the events that operators need.
        let targets =
            if logging.level.contains(ENGINE) { targets } else { targets.with_target(ENGINE, LevelFilter::OFF) };
        // Spans are for the trace collector only.
        let targets = targets.with_target(convoke_trace::TARGET, LevelFilter::OFF);
        Ok(Plan {
            parts,
            log_targets: targets,
            log_format: logging.format,
            warnings: loaded.warnings.clone(),
            any_client_port: any.contains(&"client_port"),
            any_peer_port: any.contains(&"peer_port"),
            any_dns_port: any.contains(&"dns_port"),
            any_consul_port: any.contains(&"consul.port"),
            dev: false,
        })
    }
}

/// The keys that are not set.
fn unset(loaded: &Loaded, keys: &[&'static str]) -> Vec<&'static str> {
    keys.iter().copied().filter(|key| loaded.source(key).is_none()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use crate::config::Flag;

    #[test]
    fn a_development_node_answers_names_of_consul_unless_it_is_told_otherwise() {
        let answers = |flags: &[Flag]| {
            let mut loaded = Loaded::default();
            loaded.flags(flags).unwrap();
            Plan::dev(&loaded).unwrap().parts.server.dns.unwrap().consul
        };
        assert!(answers(&[]));
        assert!(!answers(&[Flag { key: "consul.dns", flag: "-", value: "false".to_owned() }]));
        assert!(!build(&Loaded::default(), "n1").unwrap().server.dns.unwrap().consul);
    }
}
