//! `convoke register`: holds a registration, alone or around a command.

use super::child;
use super::connect::attach;
use crate::args::RegisterArgs;
use crate::failure::{Failure, Outcome};
use crate::output::print;
use crate::signals::Signals;
use convoke_client::{Client, Code, ConnectionState, Error, Liveness, MemberSpec, Registration};
use std::convert::Infallible;

/// Ends with the exit code to use.
pub(crate) async fn register(arguments: &RegisterArgs) -> Outcome<u8> {
    if arguments.command.is_empty() {
        alone(arguments).await
    } else {
        around(arguments).await.map_err(Failure::of_wrapper)
    }
}

/// Until a signal comes, or somebody else takes the member.
async fn alone(arguments: &RegisterArgs) -> Outcome<u8> {
    let mut signals = Signals::listen()?;
    let (client, me) = begin(arguments, &mut signals).await?;
    let node = match client.state() {
        ConnectionState::Connected { node, .. } => format!(" at node {node}"),
        _ => String::new(),
    };
    print(&format!("{} is registered{node}; Ctrl-C unregisters it\n", me.id()))?;
    tokio::select! {
        _ = signals.next() => {
            client.close().await?;
            Ok(0)
        }
        error = me.lost() => Err(error.into()),
    }
}

/// As long as the command runs. Losing the registration does not end the command: it may be serving well.
async fn around(arguments: &RegisterArgs) -> Outcome<u8> {
    let mut signals = Signals::listen()?;
    let (client, me) = begin(arguments, &mut signals).await?;
    let mut child = match child::spawn(&arguments.command) {
        Ok(child) => child,
        Err(failure) => {
            end(&client).await;
            return Err(failure);
        }
    };
    let lost = async {
        let error = me.lost().await;
        eprintln!("convoke: {} is no longer registered by this: {}", me.id(), error.message);
        std::future::pending::<Infallible>().await
    };
    let code = tokio::select! {
        code = child::wait(&mut child, &mut signals) => code?,
        never = lost => match never {},
    };
    end(&client).await;
    Ok(code)
}

async fn begin(arguments: &RegisterArgs, signals: &mut Signals) -> Outcome<(Client, Registration)> {
    let liveness = if arguments.fast { Liveness::Fast } else { Liveness::Normal };
    let registering = async {
        let client = attach(&arguments.connect, Client::builder().liveness(liveness)).await?;
        let spec = spec(arguments);
        let me = if arguments.takeover { client.take_over(spec).await } else { client.register(spec).await };
        Ok((client, me.map_err(what_to_do)?))
    };
    tokio::select! {
        begun = registering => begun,
        signal = signals.next() => Err(Failure::failed(format!("{signal}: stopped before anything was registered"))),
    }
}

fn what_to_do(error: Error) -> Failure {
    match error.code {
        Code::AlreadyRegistered => {
            Failure::refused(format!("{}: choose another --id, or take this one with --takeover", error.message))
        }
        _ => error.into(),
    }
}

fn spec(arguments: &RegisterArgs) -> MemberSpec {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    MemberSpec {
        locality: text(&arguments.locality),
        revision: text(&arguments.revision),
        address: text(&arguments.address),
        weight: arguments.weight.unwrap_or_default(),
        metadata: arguments.metadata.iter().cloned().collect(),
        ..MemberSpec::new(&arguments.id, &arguments.service)
    }
}

/// What the command did counts more than whether the goodbye was heard.
async fn end(client: &Client) {
    if let Err(error) = client.close().await {
        eprintln!("convoke: cannot unregister: {}; it is down after the heartbeat timeout", error.message);
    }
}
