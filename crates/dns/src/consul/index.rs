//! What cannot be looked up in the registry directly: names without regard to case, and addresses.

use crate::zone::Shown;
use convoke_consul::{
    AGENTLESS_NODE, Instance, NODE_RECORDS, NodeRecord, is_own_node, node_name, own_address, own_node_id,
};
use convoke_core::filter::Filter;
use convoke_core::member::{Member, NODE_SERVICE};
use convoke_node::NodeHandle;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Members read from the registry at once.
const PAGE: usize = 256;
/// Instances in an index. It bounds the memory and the time of building; the addresses of others have no PTR records.
pub(super) const INSTANCES_MAX: usize = 131_072;
/// Nodes of Convoke in an index, and nodes that were registered.
const NODES_MAX: usize = 65_536;
/// An index is built again after this multiple of the time that it took, so that building costs at most a twentieth of a core.
const PAUSE_FACTOR: u32 = 20;
/// After this time an index is built again, whether a change is known or not.
const AGE_MAX: Duration = Duration::from_secs(10);

/// An index that is built when it is needed and the registry has changed.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    built: RwLock<Option<Built<T>>>,
    building: Mutex<()>,
}

#[derive(Debug)]
struct Built<T> {
    index: Arc<T>,
    /// Number of the last change of the registry before it was built.
    change: u64,
    at: Instant,
    took: Duration,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Cached { built: RwLock::new(None), building: Mutex::new(()) }
    }
}

impl<T> Cached<T> {
    /// Returns the index. `change` is the number of the last change of the registry. While one query builds the index, the
    /// others use the old one.
    pub(crate) fn current(&self, change: u64, build: impl FnOnce() -> T) -> Arc<T> {
        let (old, fresh) = self.known(change);
        if fresh && let Some(old) = old {
            return old;
        }
        let building = match (self.building.try_lock(), old) {
            (Ok(building), _) => building,
            (Err(_), Some(old)) => return old,
            (Err(_), None) => self.building.lock().unwrap_or_else(PoisonError::into_inner),
        };
        // Another query may have built it meanwhile.
        if let (Some(index), true) = self.known(change) {
            return index;
        }
        let at = Instant::now();
        let index = Arc::new(build());
        let built = Built { index: index.clone(), change, took: at.elapsed(), at: Instant::now() };
        *self.built.write().unwrap_or_else(PoisonError::into_inner) = Some(built);
        drop(building);
        index
    }

    /// Returns the last index, and whether it can be used.
    fn known(&self, change: u64) -> (Option<Arc<T>>, bool) {
        let built = self.built.read().unwrap_or_else(PoisonError::into_inner);
        let Some(built) = &*built else { return (None, false) };
        let age = built.at.elapsed();
        let is_current = built.change == change && age < AGE_MAX || age < built.took * PAUSE_FACTOR;
        (Some(built.index.clone()), is_current)
    }
}

/// The services by their names in lower case.
pub(crate) type ServiceNames = HashMap<String, Vec<String>>;

pub(crate) fn services(node: &NodeHandle) -> ServiceNames {
    let mut found = ServiceNames::new();
    for view in node.services() {
        found.entry(view.service.to_ascii_lowercase()).or_default().push(view.service);
    }
    found
}

/// Nodes and addresses that callers without credentials may read.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// By the name in lower case.
    by_name: HashMap<String, NodeRecord>,
    by_address: HashMap<IpAddr, Pointer>,
}

/// Adds what a member stands for.
type Take = fn(&mut Nodes, &NodeHandle, &Member);

/// What has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    Node(String),
    Service(String),
}

impl Nodes {
    /// Reads the nodes, and at most `instances_max` members for the rest.
    pub(crate) fn build(node: &NodeHandle, shown: &Shown, instances_max: usize) -> Nodes {
        let mut nodes = Nodes::default();
        // A node of Convoke is not replaced by a record with its name, and a record not by instances that name the node.
        for (filter, max, take) in [
            (Filter::service(NODE_SERVICE), NODES_MAX, Nodes::add_own as Take),
            (Filter::service(NODE_RECORDS), NODES_MAX, Nodes::add_recorded),
            (Filter::default(), instances_max, Nodes::add_instance),
        ] {
            let (mut cursor, mut left) = (None::<String>, max);
            // Cursors come from this node and stay valid, so reading does not fail.
            while let Ok(page) = node.held_members(&filter, cursor.as_deref(), left.min(PAGE)) {
                left -= page.members.len().min(left);
                let readable = page.members.iter().filter(|member| shown.shows(member.service()));
                readable.for_each(|member| take(&mut nodes, node, member));
                cursor = page.next;
                if cursor.is_none() || left == 0 {
                    break;
                }
            }
        }
        nodes
    }

    fn add_own(&mut self, node: &NodeHandle, member: &Member) {
        self.add(NodeRecord::of_own(member, node.cluster()));
    }

    fn add_recorded(&mut self, _: &NodeHandle, member: &Member) {
        NodeRecord::of_member(member).into_iter().for_each(|record| self.add(record));
    }

    fn add(&mut self, record: NodeRecord) {
        if let Ok(address) = record.address.parse() {
            self.by_address.entry(address).or_insert_with(|| Pointer::Node(record.name.clone()));
        }
        self.by_name.entry(record.name.to_ascii_lowercase()).or_insert(record);
    }

    fn add_instance(&mut self, node: &NodeHandle, member: &Member) {
        if is_own_node(member) || member.service() == NODE_RECORDS {
            return;
        }
        let native = if member.is_agentless() { AGENTLESS_NODE } else { member.owner().node };
        let name = node_name(member).unwrap_or(native);
        // A node of Convoke that callers may not read does not get the address of an instance.
        if node.member(&own_node_id(name)).is_none() {
            let record = || NodeRecord::named_by(&Instance::shown(member), member);
            self.by_name.entry(name.to_ascii_lowercase()).or_insert_with(record);
        }
        if let Ok(address) = own_address(member).parse() {
            self.by_address.entry(address).or_insert_with(|| Pointer::Service(member.service().to_owned()));
        }
    }

    /// Returns a node by its name in lower case.
    pub(crate) fn named(&self, name: &str) -> Option<&NodeRecord> {
        self.by_name.get(name)
    }

    pub(crate) fn at(&self, address: IpAddr) -> Option<&Pointer> {
        self.by_address.get(&address)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[tokio::test]
    async fn an_index_is_bounded() {
        let mut config = convoke_node::Config::new("n0").unwrap();
        config.client_address = "10.9.0.1:7700".to_owned();
        let node = convoke_node::Node::start(config).await.unwrap();
        node.ready().await.unwrap();
        for n in 1..=9_u8 {
            let instance = Instance {
                node: format!("ext{n}"),
                id: "a".into(),
                service: "web".into(),
                address: format!("10.0.0.{n}"),
                ..Instance::default()
            };
            node.register_agentless(instance.to_member("").unwrap(), "").await.unwrap();
        }
        let size = |nodes: &Nodes| (nodes.by_name.len(), nodes.by_address.len());
        let all = Nodes::build(&node.handle(), &Shown::default(), INSTANCES_MAX);
        assert_eq!(size(&all), (10, 10));
        assert_eq!(all.at([10, 9, 0, 1].into()), Some(&Pointer::Node("n0".into())));
        // The node itself is the first of all members.
        assert_eq!(size(&Nodes::build(&node.handle(), &Shown::default(), 4)), (4, 4));
    }

    #[test]
    fn an_index_is_built_again_after_a_change_and_a_pause() {
        let cached = Cached::default();
        assert_eq!(*cached.current(1, || 10), 10);
        assert_eq!(*cached.current(1, || 11), 10, "nothing has changed");
        cached.built.write().unwrap().as_mut().unwrap().took = Duration::ZERO;
        assert_eq!(*cached.current(2, || 12), 12, "something has changed");
        cached.built.write().unwrap().as_mut().unwrap().took = Duration::from_secs(60);
        assert_eq!(*cached.current(3, || 13), 12, "building it takes too long to do it again at once");
        let _building = cached.building.lock().unwrap();
        cached.built.write().unwrap().as_mut().unwrap().took = Duration::ZERO;
        assert_eq!(*cached.current(3, || 14), 12, "another query builds it");
    }
}
