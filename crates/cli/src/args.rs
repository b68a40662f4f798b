//! Flags that select a node, and parsers of flag values.

use crate::time::duration;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Flags that select a node.
#[derive(Clone, Debug, Args)]
pub struct ConnectArgs {
    /// Client addresses of nodes, tried in turn [default: 127.0.0.1:7700]
    #[arg(
        long,
        value_name = "HOST:PORT,…",
        env = "CONVOKE_ADDR",
        hide_env_values = true,
        value_delimiter = ',',
        global = true
    )]
    pub addr: Vec<String>,
    /// File with the token to show; CONVOKE_TOKEN holds a token itself
    #[arg(long, value_name = "FILE", env = "CONVOKE_TOKEN_FILE", hide_env_values = true, global = true)]
    pub token_file: Option<PathBuf>,
    /// Certificate authority of the cluster in PEM; connections then use TLS
    #[arg(long = "ca", id = "tls_ca", value_name = "FILE", env = "CONVOKE_CA", hide_env_values = true, global = true)]
    pub ca: Option<PathBuf>,
    /// Certificate of this client in PEM, with --key
    #[arg(
        long = "cert",
        id = "tls_cert",
        value_name = "FILE",
        env = "CONVOKE_CERT",
        hide_env_values = true,
        global = true
    )]
    pub cert: Option<PathBuf>,
    /// Private key of this client in PEM, with --cert
    #[arg(
        long = "key",
        id = "tls_key",
        value_name = "FILE",
        env = "CONVOKE_KEY",
        hide_env_values = true,
        global = true
    )]
    pub key: Option<PathBuf>,
    /// Time to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = timeout, global = true)]
    pub timeout: Duration,
}

/// Flags of commands that print an answer.
#[derive(Clone, Debug, Args)]
pub struct Inspect {
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

/// Longest time; adding it to a clock does not overflow.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Parses a time; a number without a unit is in seconds.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match seconds.or_else(|| duration(text)).filter(|time| !time.is_zero()) {
        Some(time) if time > TIME_MAX => Err("use at most 365d".to_owned()),
        Some(time) => Ok(time),
        None => Err("use a time such as 5s or 500ms".to_owned()),
    }
}

/// Parses `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("use KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_limited() {
        for (text, ms) in [("5", 5_000), ("0.5", 500), ("500ms", 500), ("365d", 365 * 24 * 3_600_000)] {
            assert_eq!(timeout(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for (text, why) in [("0", "such as"), ("soon", "such as"), ("366d", "at most 365d")] {
            assert!(timeout(text).unwrap_err().contains(why), "{text}");
        }
        assert_eq!(timeout("10000000000000000000"), Err("use at most 365d".to_owned()));
    }
}
