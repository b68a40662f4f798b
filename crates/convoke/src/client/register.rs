//! `convoke register`: holds a registration, also while a command runs.

use super::child;
use crate::args::RegisterArgs;
use convoke_cli::output::{print, print_json};
use convoke_cli::{CommandError, Result, Signals, attach, report_connection};
use convoke_client::{Client, CloseOutcome, ConnectionState, Error, ErrorCode, Liveness, MemberSpec, Registration};
use serde_json::json;
use std::convert::Infallible;
use tokio::process::Child;

/// Returns the exit code.
pub(crate) async fn register(arguments: &RegisterArgs) -> Result<u8> {
    if arguments.command.is_empty() {
        hold_until_signal(arguments).await
    } else {
        hold_while_command_runs(arguments).await.map_err(CommandError::of_wrapper)
    }
}

/// Holds the registration until a signal arrives or another client takes the member over.
async fn hold_until_signal(arguments: &RegisterArgs) -> Result<u8> {
    let mut signals = Signals::listen()?;
    let (client, me) = begin(arguments, &mut signals).await?;
    if let Err(failure) = announce(arguments, &client, &me) {
        // The first error is returned; an error of unregistering is only printed.
        if let Err(failure) = end(&client, me.id(), &mut signals).await {
            eprintln!("convoke: {failure}");
        }
        return Err(failure);
    }
    let lost = tokio::select! {
        _ = signals.next() => None,
        error = me.lost() => Some(error),
        never = report_connection(&client) => match never {},
    };
    match lost {
        Some(error) => Err(error.into()),
        None => end(&client, me.id(), &mut signals).await.map(|()| 0),
    }
}

fn announce(arguments: &RegisterArgs, client: &Client, me: &Registration) -> Result {
    let node = match client.state() {
        ConnectionState::Connected { node, .. } => Some(node),
        _ => None,
    };
    if arguments.inspect.json {
        return print_json(&json!({ "registered": me.id(), "version": me.version(), "node": node }));
    }
    let node = node.map(|node| format!(" at node {node}")).unwrap_or_default();
    print(&format!("{} is registered{node}; Ctrl-C unregisters it\n", me.id()))
}

/// Holds the registration while the command runs. A lost registration does not end the command.
async fn hold_while_command_runs(arguments: &RegisterArgs) -> Result<u8> {
    let mut signals = Signals::listen()?;
    let (client, me) = begin(arguments, &mut signals).await?;
    let code = match child::spawn(&arguments.command) {
        Ok(child) => run(child, &client, &me, &mut signals).await,
        Err(failure) => Err(failure),
    };
    // The exit status of the command is returned; an error of unregistering is only printed.
    if let Err(failure) = end(&client, me.id(), &mut signals).await {
        eprintln!("convoke: {failure}");
    }
    code
}

/// Runs until the command ends.
async fn run(mut child: Child, client: &Client, me: &Registration, signals: &mut Signals) -> Result<u8> {
    let lost = async {
        let error = me.lost().await;
        eprintln!("convoke: {} is no longer registered by this client: {}", me.id(), error.message);
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        code = child::wait(&mut child, signals) => code,
        never = lost => match never {},
        never = report_connection(client) => match never {},
    }
}

async fn begin(arguments: &RegisterArgs, signals: &mut Signals) -> Result<(Client, Registration)> {
    let liveness = if arguments.fast { Liveness::Fast } else { Liveness::Normal };
    let registering = async {
        let client = attach(&arguments.inspect.connect, Client::builder().liveness(liveness)).await?;
        let spec = spec(arguments);
        let me = if arguments.takeover { client.take_over(spec).await } else { client.register(spec).await };
        Ok((client, me.map_err(what_to_do)?))
    };
    tokio::select! {
        begun = registering => begun,
        signal = signals.next() => Err(CommandError::failed(format!("{signal}: stopped before anything was registered"))),
    }
}

fn what_to_do(error: Error) -> CommandError {
    match error.code {
        ErrorCode::AlreadyRegistered => CommandError::rejected(format!(
            "{}: use another --id, or take the member over with --takeover",
            error.message
        )),
        _ => error.into(),
    }
}

fn spec(arguments: &RegisterArgs) -> MemberSpec {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    MemberSpec {
        endpoints: arguments.endpoints.iter().cloned().collect(),
        locality: text(&arguments.locality),
        revision: text(&arguments.revision),
        address: text(&arguments.address),
        weight: arguments.weight.unwrap_or_default(),
        metadata: arguments.metadata.iter().cloned().collect(),
        ..MemberSpec::new(&arguments.id, &arguments.service)
    }
}

/// Unregisters. A signal ends the wait.
async fn end(client: &Client, id: &str, signals: &mut Signals) -> Result {
    let later = "it is down after the heartbeat timeout";
    tokio::select! {
        closed = client.close() => match closed {
            Ok(CloseOutcome::Replicated) => Ok(()),
            Ok(CloseOutcome::OneNode) => {
                eprintln!(
                    "convoke: {id} is unregistered at one node, and no other node confirmed it; \
                     if that node is lost now, {id} is down at the others until it expires"
                );
                Ok(())
            }
            Err(error) => {
                let message = format!("cannot unregister: {}; {later}", error.message);
                Err(CommandError { message, ..error.into() })
            }
        },
        signal = signals.next() => Err(CommandError::failed(format!("{signal}: not unregistered; {later}"))),
    }
}
