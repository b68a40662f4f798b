//! Flags of `convoke import`.

use clap::{Args, Subcommand, ValueEnum};
use convoke_cli::Inspect;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Copy keys and services of a running Consul
    Consul(ImportConsulArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ImportConsulArgs {
    /// Address of a Consul agent or server
    #[arg(long, value_name = "[http[s]://]HOST:PORT", default_value = "127.0.0.1:8500")]
    pub(crate) from: String,
    /// What to copy
    #[arg(long, value_enum, default_value_t = Part::All)]
    pub(crate) only: Part,
    /// Copy only keys that begin with this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) prefix: String,
    /// Overwrite keys, nodes and instances that have other contents here
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Show what would be copied, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// File with an ACL token of Consul
    #[arg(long, value_name = "FILE")]
    pub(crate) from_token_file: Option<PathBuf>,
    /// Certificate authority of Consul in PEM, for https
    #[arg(long, value_name = "FILE")]
    pub(crate) from_ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    All,
    Keys,
    Services,
}
