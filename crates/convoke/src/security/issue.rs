//! `convoke tls issue|inspect|renew`

use super::directory::{Directory, certificate, days, identity, read, write_ca, write_certificate};
use crate::args::{CertificateArgs, RenewArgs, TlsCommand};
use convoke_cli::output::{Palette, facts, print, print_json};
use convoke_cli::{CommandError, Result};
use convoke_core::version::NodeId;
use convoke_tls::{CertificateInfo, CertificateRequest, Identity, inspect as describe};
use std::path::{Path, PathBuf};

pub(crate) fn tls(command: &TlsCommand) -> Result {
    match command {
        TlsCommand::Issue(arguments) => issue(arguments),
        TlsCommand::Inspect { files, json } => inspect(files, *json),
        TlsCommand::Renew(arguments) => renew(arguments),
    }
}

fn issue(arguments: &CertificateArgs) -> Result {
    let directory = Directory(arguments.directory.clone());
    let authority = directory.open()?;
    let cluster = arguments.cluster.clone().map_or_else(|| directory.cluster(), Ok)?;
    let (identity, into) = match (&arguments.node, &arguments.client) {
        (Some(id), _) => {
            NodeId::new(id).map_err(|error| CommandError::usage(error.to_string()))?;
            (Identity::node(&cluster, id), directory.node(id))
        }
        (None, Some(name)) => (Identity::client(&cluster, client_name(name)?), directory.client(name)),
        (None, None) => return Err(CommandError::usage("name a node with --node, or a client with --client")),
    };
    let request = CertificateRequest { identity, hosts: arguments.host.clone() };
    write_certificate(&authority, &into, &request, days(arguments.days))?;
    if let Some(id) = &arguments.node {
        directory.write_node_keys(id)?;
    }
    written(&[into], arguments.json)
}

/// A name that is also the name of a directory.
fn client_name(name: &str) -> Result<&str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > 128 || name.starts_with('.') || !name.bytes().all(allowed) {
        return Err(CommandError::usage(format!(
            "{name:?} is not a name of a client: use 1 to 128 letters, digits, dots, underscores and hyphens, and no dot first"
        )));
    }
    Ok(name)
}

fn renew(arguments: &RenewArgs) -> Result {
    let directory = Directory(arguments.directory.clone());
    let known = directory.nodes()?;
    if let Some(unknown) = arguments.nodes.iter().find(|id| !known.contains(id)) {
        return Err(CommandError::not_found(format!("{} has no certificate of node {unknown}", directory.0.display())));
    }
    let nodes = if arguments.nodes.is_empty() { known } else { arguments.nodes.clone() };
    let paths: Vec<PathBuf> = nodes.iter().map(|id| directory.node(id)).collect();
    if arguments.new_ca || arguments.drop_old_ca {
        let trusted = if arguments.new_ca {
            directory.add_authority(&directory.cluster()?)?
        } else {
            directory.drop_old_authorities()?
        };
        for path in &paths {
            write_ca(path, &trusted)?;
        }
        return written(&paths, arguments.json);
    }
    let authority = directory.open()?;
    for path in &paths {
        let info = certificate(path)?;
        let request = CertificateRequest { identity: identity(&info)?, hosts: info.hosts };
        write_certificate(&authority, path, &request, days(arguments.days))?;
    }
    written(&paths, arguments.json)
}

/// Shows the certificates that were written.
fn written(paths: &[PathBuf], json: bool) -> Result {
    let mut shown = Vec::new();
    for path in paths {
        shown.push((path.as_path(), certificate(path)?));
    }
    if json {
        let written =
            |(path, info): &(&Path, CertificateInfo)| serde_json::json!({ "directory": path, "certificate": info });
        return print_json(&shown.iter().map(written).collect::<Vec<_>>());
    }
    let lines = shown.iter().map(|(path, info)| {
        let identity = info.identity.as_deref().unwrap_or("-");
        format!("{}  {identity}  valid until {}\n", path.display(), info.not_after)
    });
    print(&lines.collect::<String>())
}

fn inspect(files: &[PathBuf], json: bool) -> Result {
    let mut found = Vec::new();
    for file in files {
        let certificates = describe(read(file)?.as_bytes())
            .map_err(|error| CommandError::usage(format!("{}: {error}", file.display())))?;
        found.push((file, certificates));
    }
    if json {
        let shown =
            found.iter().map(|(file, certificates)| serde_json::json!({ "file": file, "certificates": certificates }));
        return print_json(&shown.collect::<Vec<_>>());
    }
    let mut text = String::new();
    for (file, certificates) in found {
        for info in certificates {
            let hosts = if info.hosts.is_empty() { "-".to_owned() } else { info.hosts.join(", ") };
            text += &format!("{}\n", file.display());
            let shown = [
                ("Identity", info.identity.unwrap_or_else(|| "-".to_owned())),
                ("Authority", if info.authority { "yes" } else { "no" }.to_owned()),
                ("Subject", info.subject),
                ("Issuer", info.issuer),
                ("Hosts", hosts),
                ("Valid", format!("{} to {}", info.not_before, info.not_after)),
                ("Serial", info.serial),
            ];
            text += &facts(&shown, Palette::of_stdout());
        }
    }
    print(&text)
}
