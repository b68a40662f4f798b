//! Flags of the commands for tokens and contexts.

use clap::{Args, Subcommand};
use convoke_cli::{Inspect, timeout};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a signing key: signing.key and signing.pub
    Keygen {
        /// Directory for the two files
        directory: PathBuf,
    },
    /// Sign a token and write it to a file
    Issue(IssueArgs),
    /// Show what a token states, without verifying it
    Inspect {
        /// File with the token; standard input if it is `-`
        file: PathBuf,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Verify a token with public keys, as a node does
    Verify(VerifyArgs),
    /// Revoke a token or all tokens of a principal, at every node
    Revoke(RevokeArgs),
    /// Ask whether a token allows an action; exit 5 if it does not
    Can(CanArgs),
}

#[derive(Debug, Args)]
pub(crate) struct IssueArgs {
    /// File with the signing key
    #[arg(long, value_name = "FILE", default_value = "signing.key")]
    pub(crate) key: PathBuf,
    /// Name of the principal
    #[arg(long, value_name = "NAME")]
    pub(crate) subject: String,
    /// Grant, such as: read service:*; repeatable
    #[arg(long = "grant", value_name = "GRANT")]
    pub(crate) grants: Vec<String>,
    /// Lifetime of the token
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = timeout)]
    pub(crate) ttl: Duration,
    /// Cluster that accepts the token
    #[arg(long, value_name = "ID", default_value = "convoke")]
    pub(crate) cluster: String,
    /// File for the token, readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// File with the token; standard input if it is `-`
    pub(crate) file: PathBuf,
    /// Directory with the public keys, *.pub
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: PathBuf,
    /// Cluster that accepts the token
    #[arg(long, value_name = "ID", default_value = "convoke")]
    pub(crate) cluster: String,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Id of the token, as `convoke token inspect` shows it
    #[arg(long, value_name = "ID", required_unless_present = "principal")]
    pub(crate) id: Option<String>,
    /// Subject whose tokens are revoked, or ISSUER/SUBJECT
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub(crate) principal: Option<String>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

#[derive(Debug, Args)]
pub(crate) struct CanArgs {
    /// Verb, such as: read
    pub(crate) verb: String,
    /// Resource, such as: service:orders or key:config/a
    pub(crate) resource: String,
    /// File with the token; otherwise CONVOKE_TOKEN or the context
    #[arg(long, value_name = "FILE", env = "CONVOKE_TOKEN_FILE", hide_env_values = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Add or replace a context; the first one is used at once
    Add {
        /// Name of the context
        name: String,
        /// Client addresses of nodes
        #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', required = true)]
        addr: Vec<String>,
        /// File with the token to show
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// File with the certificates of the CA
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// File with the certificate of the client
        #[arg(long, value_name = "FILE")]
        cert: Option<PathBuf>,
        /// File with the private key of the client
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Use a context for the following commands
    Use {
        /// Name of the context
        name: String,
    },
    /// List contexts
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
}
