//! `convoke drain`, `convoke undrain`, `convoke nodes forget`, `convoke nodes declare-first`

use super::emptied::{Named, own_id, wait};
use crate::args::{DrainArgs, DrainTarget, UndrainArgs};
use convoke_cli::output::print_json;
use convoke_cli::{Inspect, Result, call};
use convoke_proto::v1;
use serde_json::{Value, json};

pub(crate) async fn drain(arguments: &DrainArgs) -> Result {
    use v1::drain_request::Target;
    let connect = &arguments.inspect.connect;
    let named = match &arguments.target {
        DrainTarget { id: Some(id), .. } => Named::Member(id.clone()),
        // The node that answers has to stay the same while the command waits for it.
        DrainTarget { node, .. } => match node.as_deref().unwrap_or_default() {
            "" if arguments.wait => Named::Node(own_id(connect).await?),
            node => Named::Node(node.to_owned()),
        },
    };
    let target = match named.clone() {
        Named::Member(id) => Target::Member(id),
        Named::Node(id) => Target::Node(id),
    };
    let for_ms = arguments.lasts.map(|lasts| u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX));
    let request =
        v1::DrainRequest { target: Some(target), for_ms, reason: arguments.reason.clone().unwrap_or_default() };
    call(connect, async |node| node.admin().drain(request.clone()).await).await?;
    let mut done = marked(&arguments.target, true);
    if arguments.wait {
        let left = wait(connect, &named, arguments.grace).await?;
        done["connections"] = json!(left);
    }
    confirm(&arguments.inspect, &done)
}

pub(crate) async fn undrain(arguments: &UndrainArgs) -> Result {
    use v1::undrain_request::Target;
    let target = match (&arguments.target.id, &arguments.target.node) {
        (Some(id), _) => Target::Member(id.clone()),
        (None, node) => Target::Node(node.clone().unwrap_or_default()),
    };
    let request = v1::UndrainRequest { target: Some(target) };
    call(&arguments.inspect.connect, async |node| node.admin().undrain(request.clone()).await).await?;
    confirm(&arguments.inspect, &marked(&arguments.target, false))
}

pub(crate) async fn forget(inspect: &Inspect, id: &str) -> Result {
    let request = v1::ForgetNodeRequest { id: id.to_owned() };
    call(&inspect.connect, async |node| node.admin().forget_node(request.clone()).await).await?;
    confirm(inspect, &json!({ "forgotten": id }))
}

pub(crate) async fn declare_first(inspect: &Inspect) -> Result {
    let request = v1::DeclareFirstNodeRequest {};
    call(&inspect.connect, async |node| node.admin().declare_first_node(request).await).await?;
    confirm(inspect, &json!({ "first": true }))
}

/// `node` is null for the node that answered.
fn marked(arguments: &DrainTarget, drained: bool) -> Value {
    match &arguments.id {
        Some(id) => json!({ "member": id, "drained": drained }),
        None => json!({ "node": arguments.node.as_ref().filter(|node| !node.is_empty()), "drained": drained }),
    }
}

/// Prints the answer as JSON; text output is empty on success.
fn confirm(inspect: &Inspect, done: &Value) -> Result {
    if inspect.json { print_json(done) } else { Ok(()) }
}
