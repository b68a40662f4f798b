//! `convoke service register`, `deregister`, `list`: members that no client keeps alive.

use super::members::members;
use crate::args::{MembersArgs, ServiceCommand, ServiceRegisterArgs};
use convoke_cli::output::{print, print_json};
use convoke_cli::{CommandError, Result, call};
use convoke_core::member::AGENTLESS_CLIENT;
use convoke_proto::{json as schema, v1};
use serde_json::json;
use std::path::Path;

pub(crate) async fn service(command: &ServiceCommand) -> Result {
    match command {
        ServiceCommand::Register(arguments) => register(arguments).await,
        ServiceCommand::Deregister(arguments) => {
            let (inspect, id) = (&arguments.inspect, &arguments.id);
            let request = v1::DeregisterMemberRequest { id: id.clone() };
            let answer =
                call(&inspect.connect, async |node| node.admin().deregister_member(request.clone()).await).await?;
            warn_unless(answer.stored, id);
            if inspect.json {
                return print_json(&json!({ "deregistered": id, "stored": answer.stored }));
            }
            print(&format!("{id} is deregistered\n"))
        }
        ServiceCommand::List(inspect) => {
            let filter = Some(format!("client == \"{AGENTLESS_CLIENT}\""));
            members(&MembersArgs { filter, service: None, partial: false, inspect: inspect.clone() }).await
        }
    }
}

async fn register(arguments: &ServiceRegisterArgs) -> Result {
    let inspect = &arguments.inspect;
    let described_members = match &arguments.file {
        Some(file) => read(file)?,
        None => vec![described(arguments)],
    };
    let mut done = Vec::new();
    for member in described_members {
        let id = member.id.clone();
        let request = v1::RegisterMemberRequest { member: Some(member.into()) };
        let answer = call(&inspect.connect, async |node| node.admin().register_member(request.clone()).await).await?;
        warn_unless(answer.stored, &id);
        if !inspect.json {
            print(&format!("{id} is registered\n"))?;
        }
        done.push(json!({ "registered": id, "version": answer.version, "stored": answer.stored }));
    }
    if inspect.json { print_json(&json!({ "members": done })) } else { Ok(()) }
}

fn described(arguments: &ServiceRegisterArgs) -> schema::MemberSpec {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    schema::MemberSpec {
        id: text(&arguments.id),
        service: text(&arguments.service),
        locality: text(&arguments.locality),
        created: None,
        revision: text(&arguments.revision),
        address: text(&arguments.address),
        endpoints: arguments.endpoints.iter().cloned().collect(),
        weight: arguments.weight.unwrap_or_default(),
        metadata: arguments.metadata.iter().cloned().collect(),
        checks: checks(arguments),
    }
}

/// The checks that are given as flags. The ids of several checks of one kind are numbered.
fn checks(arguments: &ServiceRegisterArgs) -> Vec<schema::Check> {
    let http = arguments.check_http.iter().map(schema::Check::http);
    let tcp = arguments.check_tcp.iter().map(schema::Check::tcp);
    let grpc = arguments.check_grpc.iter().map(|given| match given.split_once('/') {
        Some((address, service)) => {
            let grpc = schema::GrpcProbe { address: address.into(), service: service.into(), tls: None };
            schema::Check { grpc: Some(grpc), ..schema::Check::default() }
        }
        None => schema::Check::grpc(given),
    });
    let ttl = arguments.check_ttl.iter().map(|ttl_ms| schema::Check::ttl(*ttl_ms));
    let interval_ms = arguments.check_interval.unwrap_or_default();
    let numbered = |(index, check): (usize, schema::Check)| {
        let id = if index == 0 { String::new() } else { format!("check-{}", index + 1) };
        schema::Check { id, interval_ms, ..check }
    };
    http.chain(tcp).chain(grpc).chain(ttl).enumerate().map(numbered).collect()
}

fn read(file: &Path) -> Result<Vec<schema::MemberSpec>> {
    let name = if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let text =
        if file == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    let text = text.map_err(|error| CommandError::usage(format!("cannot read {name}: {error}")))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| CommandError::usage(format!("{name} is not JSON: {error}")))?;
    let members = match value {
        serde_json::Value::Array(members) => members,
        member => vec![member],
    };
    let parse = |member| serde_json::from_value(member);
    let members: std::result::Result<Vec<schema::MemberSpec>, _> = members.into_iter().map(parse).collect();
    members.map_err(|error| CommandError::usage(format!("{name} does not describe members: {error}")))
}

fn warn_unless(stored: bool, id: &str) {
    if !stored {
        eprintln!(
            "convoke: the node keeps {id} in memory only, because it has no data directory or cannot write to it"
        );
    }
}
