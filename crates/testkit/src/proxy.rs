//! A way to a node that can be blocked, so that bytes wait as on a link that is too slow or swallows them, and whose
//! connections can be dropped.

use convoke_lab::{Network, Relay, Way};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Everybody in a test dials from here.
const DIALERS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Only a name for what is behind the proxy.
const BEHIND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 255, 255, 254));

/// Passes connections on to a target. Dropping it cuts them.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    network: Network,
    _relay: Relay,
}

impl Proxy {
    /// Starts passing connections on to this address.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start(target: &str) -> Self {
        let target: SocketAddr = target.parse().expect("an address of a node in this process");
        let network = Network::default();
        let relay = Relay::listen(&network, BEHIND, SocketAddr::new(DIALERS, 0)).expect("a free port");
        relay.lead_to(Some(target));
        Proxy { address: relay.address().to_string(), network, _relay: relay }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Holds everything back, or lets it flow again.
    pub fn block(&self, blocked: bool) {
        let way = Way::new(DIALERS, BEHIND);
        for way in [way, way.back()] {
            if blocked { self.network.cut(way) } else { self.network.heal(way) }
        }
    }

    /// Closes all connections there are; new ones are passed on.
    pub fn drop_connections(&self) {
        self.network.reset(Way::new(DIALERS, BEHIND));
    }
}
