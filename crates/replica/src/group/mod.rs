//! Group membership: finding a log, creating one, and moving the engine to the recorded configuration (M4).

pub(crate) mod driver;
pub(crate) mod founding;
pub(crate) mod level;
pub(crate) mod loss;
pub(crate) mod removal;
pub(crate) mod seek;
mod verdict;

use crate::net::client::{ANSWER_TIMEOUTS, link};
use crate::net::link::LinkError;
use crate::net::message::{Adopt, PROBE_WITH_LEVEL, Probed, Target, kind};
use crate::plane::{LocalReplica, Plane};
use convoke_log::command::ReplicaLocation;

/// Asks the node at an address about itself.
pub(crate) async fn probe(plane: &Plane, address: &str) -> Result<Probed, LinkError> {
    let timeout = ANSWER_TIMEOUTS * plane.config.timers.rpc_timeout;
    let link = link(&plane.config, &plane.dialer, &plane.counting, address, None, timeout);
    let answer = link.ask(kind::PROBE, PROBE_WITH_LEVEL.to_vec()).await?;
    Probed::decode(&answer).map_err(|error| LinkError::Rejected { address: address.to_owned(), why: error.to_string() })
}

/// Makes a node a replica of this log.
async fn adopt(plane: &Plane, local: &LocalReplica, replica: u64, place: &ReplicaLocation) -> Result<(), LinkError> {
    let timeout = ANSWER_TIMEOUTS * plane.config.timers.rpc_timeout;
    let link = link(&plane.config, &plane.dialer, &plane.counting, &place.address, None, timeout);
    let adopt = Adopt {
        target: Target { log: local.identity.log, replica },
        node: place.node.clone(),
        state: local.identity.genesis.clone(),
    };
    link.ask(kind::ADOPT, adopt.encode()).await.map(drop)
}
