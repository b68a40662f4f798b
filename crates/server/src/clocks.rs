//! The difference between the wall clocks of the nodes. Tokens and certificates depend on them (AU4), so operators have to know.
//!
//! The header `Date` of a health check shows the clock of another node. It needs no grant and counts seconds, which is exact
//! enough for a leeway of a minute.

use crate::http::PeerClient;
use ::http::{HeaderMap, Request, Uri, header};
use bytes::Bytes;
use convoke_core::node::{PeerState, PeerView};
use convoke_node::NodeHandle;
use http_body_util::Full;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Interval at which the clocks are compared.
const INTERVAL: Duration = Duration::from_secs(20);
const TIMEOUT: Duration = Duration::from_secs(5);
/// Nodes that are asked at once; the others follow in turn.
const ASKED_MAX: usize = 8;
/// A node is degraded above this: half of the leeway of tokens.
const DIFFERENCE_MAX: f64 = 30.0;

/// Seconds by which the clock of each connected node is ahead of that of this node.
#[derive(Debug, Default)]
pub(crate) struct Clocks(Mutex<BTreeMap<String, f64>>);

impl Clocks {
    /// Compares the clocks again and again.
    pub(crate) async fn follow(&self, node: &NodeHandle, client: &PeerClient) {
        let mut ticks = tokio::time::interval(INTERVAL);
        let mut asked = 0_usize;
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Ok(peers) = node.nodes().await else { return };
            let up = |peer: &&PeerView| peer.state == PeerState::Up && !peer.client_address.is_empty();
            let up: Vec<&PeerView> = peers.iter().filter(up).collect();
            for peer in up.iter().cycle().skip(asked % up.len().max(1)).take(up.len().min(ASKED_MAX)) {
                let found = ask(client, &peer.client_address).await;
                let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                match found {
                    Some(ahead) => all.insert(peer.node.to_string(), ahead),
                    None => all.remove(peer.node.as_str()),
                };
            }
            asked = asked.wrapping_add(ASKED_MAX);
            let there = |node: &String, _: &mut f64| up.iter().any(|peer| peer.node.as_str() == node);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(there);
        }
    }

    /// Returns the largest difference, in seconds.
    pub(crate) fn largest(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().map(|ahead| ahead.abs()).fold(0.0, f64::max)
    }

    /// Why the clocks need attention.
    pub(crate) fn degraded(&self) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let far: Vec<String> = all
            .iter()
            .filter(|(_, ahead)| ahead.abs() > DIFFERENCE_MAX)
            .map(|(node, ahead)| format!("{node} ({ahead:+.0} s)"))
            .collect();
        (!far.is_empty()).then(|| {
            format!(
                "clocks: the wall clocks differ from this node's: {}; synchronize them, tokens depend on them",
                far.join(", ")
            )
        })
    }
}

/// Asks a node for its time. Returns by how much its clock is ahead.
async fn ask(client: &PeerClient, address: &str) -> Option<f64> {
    let mut request = Request::new(Full::<Bytes>::default());
    *request.uri_mut() = Uri::from_static("/healthz");
    let before = unix_seconds();
    let response = client.send(address, request, Instant::now() + TIMEOUT).await.ok()?;
    let middle = f64::midpoint(before, unix_seconds());
    // The header has no fractions.
    Some(date(response.headers())? + 0.5 - middle)
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns the header `Date` in seconds since 1970.
fn date(headers: &HeaderMap) -> Option<f64> {
    let text = headers.get(header::DATE)?.to_str().ok()?;
    let time = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_difference_counts_and_small_ones_are_no_reason() {
        let clocks = Clocks::default();
        assert_eq!((clocks.largest(), clocks.degraded()), (0.0, None));
        *clocks.0.lock().unwrap() = BTreeMap::from([("n2".to_owned(), -29.0), ("n3".to_owned(), 0.4)]);
        assert_eq!((clocks.largest(), clocks.degraded()), (29.0, None));
        *clocks.0.lock().unwrap() = BTreeMap::from([("n2".to_owned(), -45.2), ("n3".to_owned(), 0.4)]);
        let reason = clocks.degraded().unwrap();
        assert!(reason.contains("n2 (-45 s)") && !reason.contains("n3"), "{reason}");
    }

    #[test]
    fn the_header_is_read_in_seconds() {
        let headers = HeaderMap::from_iter([(header::DATE, "Wed, 18 Nov 2026 13:40:00 GMT".parse().unwrap())]);
        assert_eq!(date(&headers), Some(1_795_009_200.0));
        assert_eq!(date(&HeaderMap::new()), None);
    }
}
