//! Which clients get answers, and how many (Q10, Q11).
//!
//! Anyone can send a UDP query with the address of somebody else, who then gets the answer. Limiting the answers per
//! network keeps a node from flooding that network. A real client that is limited retries over TCP, whose handshake
//! proves its address.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Largest number of networks whose answers are counted. The others share one limit.
const NETWORKS_MAX: usize = 16_384;
/// Length of the prefix that makes up a network.
const PREFIX_V4: u8 = 24;
const PREFIX_V6: u8 = 56;

/// The networks whose clients get answers; all of them if it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Networks(Vec<IpNet>);

impl Networks {
    /// Parses ranges such as `10.0.0.0/8` and single addresses. Returns the first invalid one otherwise.
    pub(crate) fn parse(texts: &[String]) -> Result<Self, String> {
        let parse = |text: &String| {
            let address = || text.parse::<IpAddr>().map(IpNet::from);
            text.parse::<IpNet>().or_else(|_| address()).map_err(|_| text.clone())
        };
        texts.iter().map(parse).collect::<Result<_, _>>().map(Networks)
    }

    pub(crate) fn contain(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.0.is_empty() || self.0.iter().any(|network| network.contains(&client))
    }
}

/// How a UDP query is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    Answer,
    /// With the TC bit and no records, so that a real client retries over TCP.
    Truncate,
    Drop,
}

/// Counts the UDP answers to each network.
#[derive(Debug)]
pub(crate) struct ResponseRates {
    /// Answers per second to one network; 0 means no limit.
    per_second: u32,
    networks: HashMap<IpNet, Bucket>,
    /// For networks beyond the limit of the table.
    shared: Bucket,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// The second that is counted, since an arbitrary start.
    second: u64,
    answers: u32,
}

impl Bucket {
    fn count(&mut self, second: u64, limit: u32) -> Permission {
        if self.second != second {
            *self = Bucket { second, answers: 0 };
        }
        self.answers = self.answers.saturating_add(1);
        match self.answers.checked_sub(limit) {
            None | Some(0) => Permission::Answer,
            // Every second one: an attacker who forges addresses gets at most half of the packets back.
            Some(over) if over % 2 == 1 => Permission::Truncate,
            Some(_) => Permission::Drop,
        }
    }
}

impl ResponseRates {
    pub(crate) fn new(per_second: u32) -> Self {
        ResponseRates { per_second, networks: HashMap::new(), shared: Bucket::default() }
    }

    /// Decides about a query that arrives at `now`, a time since an arbitrary start. Clients on this machine are not
    /// limited.
    pub(crate) fn permit(&mut self, now: Duration, client: IpAddr) -> Permission {
        let client = client.to_canonical();
        if self.per_second == 0 || client.is_loopback() {
            return Permission::Answer;
        }
        let (second, network) = (now.as_secs(), network_of(client));
        if self.networks.len() >= NETWORKS_MAX && !self.networks.contains_key(&network) {
            self.networks.retain(|_, bucket| bucket.second == second);
            if self.networks.len() >= NETWORKS_MAX {
                return self.shared.count(second, self.per_second);
            }
        }
        self.networks.entry(network).or_default().count(second, self.per_second)
    }
}

fn network_of(client: IpAddr) -> IpNet {
    match client {
        IpAddr::V4(address) => Ipv4Net::new_assert(address, PREFIX_V4).trunc().into(),
        IpAddr::V6(address) => Ipv6Net::new_assert(address, PREFIX_V6).trunc().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_are_ranges_or_addresses() {
        let texts = ["10.0.0.0/8", "192.168.1.7", "2001:db8::/32"].map(str::to_owned);
        let networks = Networks::parse(&texts).unwrap();
        for inside in ["10.1.2.3", "192.168.1.7", "::ffff:10.0.0.1", "2001:db8:1::1"] {
            assert!(networks.contain(address(inside)), "{inside}");
        }
        for outside in ["11.0.0.1", "192.168.1.8", "::1", "2001:db9::1"] {
            assert!(!networks.contain(address(outside)), "{outside}");
        }
        assert!(Networks::default().contain(address("203.0.113.9")), "all without a list");
        for wrong in ["10.0.0.0/33", "localhost", ""] {
            assert_eq!(Networks::parse(&[wrong.to_owned()]), Err(wrong.to_owned()));
        }
    }

    #[test]
    fn a_network_over_its_limit_gets_truncated_answers_and_silence() {
        let mut rates = ResponseRates::new(3);
        let mut ask = |second, client| rates.permit(Duration::from_secs(second), address(client));
        let answers: Vec<Permission> = (0..7).map(|i| ask(5, ["198.51.100.1", "198.51.100.200"][i % 2])).collect();
        use Permission::{Answer, Drop, Truncate};
        assert_eq!(answers, [Answer, Answer, Answer, Truncate, Drop, Truncate, Drop]);
        assert_eq!(ask(5, "198.51.101.1"), Answer, "another network");
        assert_eq!(ask(6, "198.51.100.1"), Answer, "the next second");
        for _ in 0..10 {
            assert_eq!(ask(6, "127.0.0.1"), Answer, "this machine");
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let mut rates = ResponseRates::new(1);
        let networks = u32::try_from(NETWORKS_MAX).unwrap() + 2;
        let client = |index: u32| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + (index << 8)));
        let now = Duration::from_secs(1);
        let last = (0..networks).map(|index| rates.permit(now, client(index))).last();
        assert_eq!(rates.networks.len(), NETWORKS_MAX);
        assert_eq!(last, Some(Permission::Truncate), "the networks beyond it share one limit");
        assert_eq!(rates.permit(now + Duration::from_secs(1), client(networks)), Permission::Answer);
        assert_eq!(rates.networks.len(), 1, "earlier seconds make room");
    }
}
