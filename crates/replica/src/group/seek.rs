//! Finds or creates a log for a node without one (R-71, FD1 to FD5).
//!
//! If a node that this one knows is a replica, this node waits to be added. It never creates a log in this process
//! afterwards. Otherwise `Config::founding` decides with whom it creates a log.

use super::probe;
use super::verdict::{Entry, KnownNodes, Verdict};
use crate::net::message::Probed;
use crate::plane::Plane;
use crate::replica::{begin, founder};
use convoke_log::Level;
use convoke_log::command::ReplicaLocation;
use futures_util::future::join_all;
use smol_str::SmolStr;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Interval between log lines while the node waits.
const REMIND: Duration = Duration::from_secs(10);
/// Addresses behind one name that are asked.
const ADDRESSES_MAX: usize = 64;
/// Replicas outside the join list that are asked for their group.
const REPLICAS_ASKED: usize = 5;

/// Runs until this node is a replica.
pub(crate) async fn seek(plane: Arc<Plane>) {
    let (join, begun) = (plane.join(), Instant::now());
    let mut reminded = begun;
    let mut has_seen_log = false;
    let own = plane.place();
    while plane.engine.load().is_none() && plane.fault().is_none() {
        let entries = join_all(join.iter().map(|address| ask(&plane, address))).await;
        let logs = plane.dialer.logs();
        let addresses = logs.iter().map(|found| &found.address).filter(|address| !address.is_empty());
        let replicas = join_all(addresses.take(REPLICAS_ASKED).map(|address| probe(&plane, address))).await;
        let replicas: Vec<Probed> = replicas.into_iter().flatten().collect();
        let mut known = KnownNodes {
            node: &plane.config.node,
            address: &own.address,
            nonce: plane.nonce(),
            founding: plane.config.founding,
            expected: plane.expected(),
            join: &join,
            entries: &entries,
            replicas: &replicas,
            registered: logs.iter().map(|found| found.node.as_str()).collect(),
            waited: begun.elapsed(),
            has_seen_log,
        };
        crate::mutant::seam!(in plane.config.mutation, LogsIgnored => known.ignore_logs());
        plane.see(known.nodes().into_iter().collect());
        has_seen_log |= known.shows_log();
        let all = || known.probed();
        plane.set_group_available(all().any(|probed| probed.log.is_some() && probed.available));
        let waiting = match known.judge() {
            Verdict::Exists(probed) => {
                plane.learn(probed.group.clone());
                None
            }
            Verdict::BeginAlone => {
                begin_log(&plane, vec![plane.place()], plane.config.supported).await;
                None
            }
            Verdict::Begin(members) => {
                // Other nodes that answered may support less than the founders; the leader raises the level later.
                let level = all().map(|probed| probed.level).fold(plane.config.supported, Level::min);
                begin_log(&plane, members, level).await;
                None
            }
            Verdict::Wait(why) => Some(why),
        };
        if let Some(reason) = waiting.as_ref().filter(|_| reminded.elapsed() > REMIND) {
            reminded = Instant::now();
            tracing::warn!(node = %plane.config.node, %reason, "no log yet");
        }
        plane.obstructed(waiting);
        sleep(plane.config.timers.join_interval).await;
    }
}

/// Asks all nodes behind an entry of the join list.
async fn ask(plane: &Plane, entry: &SmolStr) -> Entry {
    let resolving = timeout(plane.config.timers.rpc_timeout, plane.dialer.resolve(entry)).await;
    let addresses: BTreeSet<String> = match resolving {
        Ok(Ok(found)) => found.into_iter().take(ADDRESSES_MAX).collect(),
        Ok(Err(error)) => return Entry::missing(entry, error.to_string()),
        Err(_) => return Entry::missing(entry, "the name was not resolved in time".to_owned()),
    };
    let answers = join_all(addresses.iter().map(|address| probe(plane, address))).await;
    let mut found = Entry::missing(entry, "the name leads to no address".to_owned());
    for answer in answers {
        match answer {
            Ok(probed) => found.nodes.push(probed),
            Err(error) => found.error = error.to_string(),
        }
    }
    // A node may have several addresses.
    found.nodes.sort_by_key(|probed| probed.nonce);
    found.nodes.dedup_by_key(|probed| probed.nonce);
    found
}

async fn begin_log(plane: &Arc<Plane>, members: Vec<ReplicaLocation>, level: Level) {
    let _becoming = plane.becoming.lock().await;
    if plane.engine.load().is_some() {
        return;
    }
    let nodes: Vec<&str> = members.iter().map(|member| member.node.as_str()).collect();
    tracing::info!(node = %plane.config.node, founders = %nodes.join(","), "creating log");
    let begun = match founder(plane, members, level) {
        Ok(identity) => begin(plane, identity).await,
        Err(error) => Err(error),
    };
    if let Err(error) = begun {
        plane.fail(error.to_string());
    }
}
