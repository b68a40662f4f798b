//! `convoke drain`, `convoke undrain`, `convoke nodes forget`

use super::connect::call;
use crate::args::{Connect, DrainArgs};
use crate::failure::Outcome;
use convoke_proto::v1;

pub(crate) async fn drain(arguments: &DrainArgs) -> Outcome {
    use v1::drain_request::Target;
    let target = match (&arguments.id, &arguments.node) {
        (Some(id), _) => Target::Member(id.clone()),
        (None, node) => Target::Node(node.clone().unwrap_or_default()),
    };
    let request = v1::DrainRequest { target: Some(target) };
    call(&arguments.connect, async |node| node.admin().drain(request.clone()).await).await.map(|_| ())
}

pub(crate) async fn undrain(arguments: &DrainArgs) -> Outcome {
    use v1::undrain_request::Target;
    let target = match (&arguments.id, &arguments.node) {
        (Some(id), _) => Target::Member(id.clone()),
        (None, node) => Target::Node(node.clone().unwrap_or_default()),
    };
    let request = v1::UndrainRequest { target: Some(target) };
    call(&arguments.connect, async |node| node.admin().undrain(request.clone()).await).await.map(|_| ())
}

pub(crate) async fn forget(connect: &Connect, id: &str) -> Outcome {
    let request = v1::ForgetNodeRequest { id: id.to_owned() };
    call(connect, async |node| node.admin().forget_node(request.clone()).await).await.map(|_| ())
}
