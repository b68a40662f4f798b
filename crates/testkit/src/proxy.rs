//! A proxy in front of a node that can block bytes, as on a slow or cut link, and drop connections.

use convoke_lab::{Direction, Relay, RelayNetwork};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Address that all clients of a test dial from.
const DIALERS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Address that stands for the node behind the proxy.
const BEHIND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 255, 255, 254));

/// Passes connections on to a target. Dropping it cuts them.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    network: RelayNetwork,
    relay: Relay,
    target: SocketAddr,
}

impl Proxy {
    /// Starts passing connections on to this address.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start(target: &str) -> Self {
        Self::start_at("127.0.0.1:0", target).await
    }

    /// The same at an address that is known already.
    ///
    /// # Panics
    /// If the address is in use.
    pub async fn start_at(address: &str, target: &str) -> Self {
        let address = address.parse().expect("an address to listen at");
        let target: SocketAddr = target.parse().expect("an address of a node in this process");
        let network = RelayNetwork::default();
        let relay = Relay::listen(&network, BEHIND, address).expect("a free port");
        relay.lead_to(Some(target));
        Proxy { address: relay.address().to_string(), network, relay, target }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Blocks or unblocks all bytes.
    pub fn block(&self, blocked: bool) {
        let direction = Direction::new(DIALERS, BEHIND);
        for direction in [direction, direction.back()] {
            if blocked { self.network.cut(direction) } else { self.network.heal(direction) }
        }
    }

    /// Closes all connections and rejects new ones.
    pub fn close(&self) {
        self.relay.lead_to(None);
        self.drop_connections();
    }

    /// Accepts connections again.
    pub fn open(&self) {
        self.relay.lead_to(Some(self.target));
    }

    /// Closes all connections; new ones work.
    pub fn drop_connections(&self) {
        self.network.reset(Direction::new(DIALERS, BEHIND));
    }
}
