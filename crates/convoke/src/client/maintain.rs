//! `convoke drain`, `convoke undrain`, `convoke nodes forget`, `convoke nodes declare-first`

use crate::args::DrainArgs;
use convoke_cli::output::print_json;
use convoke_cli::{Inspect, Result, call};
use convoke_proto::v1;
use serde_json::{Value, json};

pub(crate) async fn drain(arguments: &DrainArgs) -> Result {
    use v1::drain_request::Target;
    let target = match (&arguments.id, &arguments.node) {
        (Some(id), _) => Target::Member(id.clone()),
        (None, node) => Target::Node(node.clone().unwrap_or_default()),
    };
    let request = v1::DrainRequest { target: Some(target) };
    call(&arguments.inspect.connect, async |node| node.admin().drain(request.clone()).await).await?;
    confirm(&arguments.inspect, &marked(arguments, true))
}

pub(crate) async fn undrain(arguments: &DrainArgs) -> Result {
    use v1::undrain_request::Target;
    let target = match (&arguments.id, &arguments.node) {
        (Some(id), _) => Target::Member(id.clone()),
        (None, node) => Target::Node(node.clone().unwrap_or_default()),
    };
    let request = v1::UndrainRequest { target: Some(target) };
    call(&arguments.inspect.connect, async |node| node.admin().undrain(request.clone()).await).await?;
    confirm(&arguments.inspect, &marked(arguments, false))
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
fn marked(arguments: &DrainArgs, drained: bool) -> Value {
    match &arguments.id {
        Some(id) => json!({ "member": id, "drained": drained }),
        None => json!({ "node": arguments.node.as_ref().filter(|node| !node.is_empty()), "drained": drained }),
    }
}

/// Prints the answer as JSON; text output is empty on success.
fn confirm(inspect: &Inspect, done: &Value) -> Result {
    if inspect.json { print_json(done) } else { Ok(()) }
}
