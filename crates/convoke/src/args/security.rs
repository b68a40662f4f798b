//! Flags of the commands that set up security.

use clap::{Args, Subcommand};
use convoke_cli::pair;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Directory to write; it must not contain a cluster yet
    pub(crate) directory: PathBuf,
    /// Ids of the nodes
    #[arg(long, value_name = "ID,…", value_delimiter = ',', required = true)]
    pub(crate) nodes: Vec<String>,
    /// Host name or address of a node; repeat the flag for further names
    #[arg(long, value_name = "ID=HOST", value_parser = pair)]
    pub(crate) host: Vec<(String, String)>,
    /// Cluster name
    #[arg(long, value_name = "NAME", default_value = "convoke")]
    pub(crate) cluster: String,
    /// Days for which the certificates of nodes are valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: u32,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TlsCommand {
    /// Issue a certificate for a further node or for a client
    Issue(CertificateArgs),
    /// Show the certificates in files
    Inspect {
        /// Files in PEM
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Issue all certificates of nodes again, with new keys
    Renew(RenewArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CertificateArgs {
    /// Directory that `convoke init` wrote
    pub(crate) directory: PathBuf,
    /// Id of the node
    #[arg(long, value_name = "ID", conflicts_with = "client", required_unless_present = "client")]
    pub(crate) node: Option<String>,
    /// Host name or address of the node; repeat the flag for further names
    #[arg(long, value_name = "HOST", requires = "node")]
    pub(crate) host: Vec<String>,
    /// Name of the client
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<String>,
    /// Cluster name; the default is the one of the other certificates
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// Days for which the certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: u32,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RenewArgs {
    /// Directory that `convoke init` wrote
    pub(crate) directory: PathBuf,
    /// Renew these nodes only
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub(crate) nodes: Vec<String>,
    /// Days for which the certificates are valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: u32,
    /// Add a new certificate authority, and trust both; renews nothing
    #[arg(long, conflicts_with = "drop_old_ca")]
    pub(crate) new_ca: bool,
    /// Stop trusting the earlier certificate authority; renews nothing
    #[arg(long)]
    pub(crate) drop_old_ca: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
