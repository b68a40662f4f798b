//! The command line. The modules of the commands interpret it.

mod access;
mod client;
mod coordination;
mod import;
mod log;
mod node;
mod security;

use clap::{Args, Parser, Subcommand};
use convoke_cli::Inspect;
use std::path::PathBuf;

pub(crate) use access::{CanArgs, ContextCommand, IssueArgs, RevokeArgs, TokenCommand, VerifyArgs};
pub(crate) use client::{
    DrainArgs, DrainTarget, ExplainArgs, Id, MembersArgs, NodesArgs, NodesCommand, RegisterArgs, ServiceCommand,
    ServiceRegisterArgs, UndrainArgs, WatchArgs, filter_of,
};
pub(crate) use coordination::{
    ElectArgs, ElectCommand, ElectRun, LeaseArgs, LeaseCommand, LeaseOf, LockArgs, LockCommand, LockRun,
};
pub(crate) use import::{ImportCommand, ImportConsulArgs, Part};
pub(crate) use log::{
    ChangeKind, Consistency, Guard, KvArgs, KvCommand, LogArgs, LogCommand, Offline, SessionsCommand,
};
pub(crate) use node::{DevArgs, StartArgs};
pub(crate) use security::{CertificateArgs, InitArgs, RenewArgs, TlsCommand};

const AFTER: &str = "\
Exit codes: 0 success, 1 error, 2 invalid usage or configuration, 3 no node reachable, ready or with a quorum, 4 not found, 5 rejected. \
Commands that run CMD exit with the status of CMD, or with 125 if they fail themselves.";

/// Service registry and coordination
#[derive(Debug, Parser)]
#[command(name = "convoke", version, after_help = AFTER, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start one node in memory with all features, on loopback only
    Dev(DevArgs),
    /// Start a node
    Start(StartArgs),
    /// Show node status
    Status(Inspect),
    /// List nodes as one node sees them, forget one, or declare the first
    Nodes(NodesArgs),
    /// List services with their member counts
    Services(Inspect),
    /// List members
    Members(MembersArgs),
    /// Show one member
    Member(Id),
    /// Explain the status of a member, or the state of a lock
    Explain(ExplainArgs),
    /// Print changes of members, one per line, until interrupted
    Watch(WatchArgs),
    /// Register a member while this command, or CMD, runs
    Register(RegisterArgs),
    /// Register, deregister and list members that no client keeps alive
    #[command(subcommand)]
    Service(ServiceCommand),
    /// Copy keys and services of another system
    #[command(subcommand)]
    Import(ImportCommand),
    /// Drain a member or a node: it stays up but gets no traffic
    Drain(DrainArgs),
    /// Undo a drain
    Undrain(UndrainArgs),
    /// Read and write keys of the replicated log
    Kv(KvArgs),
    /// Grant, keep alive, revoke or list leases
    Lease(LeaseArgs),
    /// Run CMD while holding a lock, or list, show or release locks
    Lock(LockArgs),
    /// Become the leader of an election, run CMD then, or show elections
    Elect(ElectArgs),
    /// Operate the replicated log: group, backups, request outcomes
    Log(LogArgs),
    /// Issue, inspect, verify and revoke tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Name clusters and their credentials
    #[command(subcommand)]
    Context(ContextCommand),
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tool(convoke_tools::Tool),
    /// Write certificates and configurations of a secure cluster
    Init(InitArgs),
    /// Issue, show and renew certificates
    #[command(subcommand)]
    Tls(TlsCommand),
    /// Check or print the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print shell completions
    Completions {
        /// Shell to print completions for
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one per command
    Man {
        /// Directory for the pages; created if missing
        directory: PathBuf,
    },
    /// Print the version
    Version {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file; exit 2 if it is invalid
    Check {
        /// Configuration file in TOML
        file: PathBuf,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Print the effective configuration and the source of each value
    Print(PrintArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PrintArgs {
    /// Print all keys with their meaning and default instead
    #[arg(long)]
    pub(crate) defaults: bool,
    /// Configuration file in TOML
    #[arg(long, value_name = "FILE", env = "CONVOKE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON instead of TOML
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn help_texts_are_short_phrases() {
        let mut root = Arguments::command();
        root.build();
        let mut checked = 0;
        check_texts(&root, "convoke", &mut checked);
        assert!(checked > 100, "{checked} help texts");
    }

    fn check_texts(command: &clap::Command, path: &str, checked: &mut usize) {
        let mut check = |what: &str, text: Option<String>| {
            let text = text.unwrap_or_default();
            assert!(text.starts_with(char::is_uppercase), "{path} {what}: {text:?} starts with no capital letter");
            assert!(!text.ends_with('.'), "{path} {what}: {text:?} ends with a full stop");
            assert!(text.chars().count() <= 70, "{path} {what}: {text:?} is longer than 70 characters");
            *checked += 1;
        };
        check("", command.get_about().map(ToString::to_string));
        for argument in command.get_arguments() {
            check(argument.get_id().as_str(), argument.get_help().map(ToString::to_string));
            for value in argument.get_possible_values() {
                if let Some(help) = value.get_help() {
                    check(value.get_name(), Some(help.to_string()));
                }
            }
        }
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            check_texts(inner, &format!("{path} {}", inner.get_name()), checked);
        }
    }
}
