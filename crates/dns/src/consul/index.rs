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

/// What has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    Node(String),
    Service(String),
}

impl Nodes {
    pub(crate) fn build(node: &NodeHandle, shown: &Shown) -> Nodes {
        let mut nodes = Nodes::default();
        let cluster = node.cluster();
        // A node of Convoke is not replaced by a record with its name, and a record not by instances that name the node.
        nodes.read(node, shown, &Filter::service(NODE_SERVICE), |nodes, member| {
            nodes.add(NodeRecord::of_own(member, cluster));
        });
        nodes.read(node, shown, &Filter::service(NODE_RECORDS), |nodes, member| {
            if let Some(record) = NodeRecord::of_member(member) {
                nodes.add(record);
            }
        });
        nodes.read(node, shown, &Filter::default(), |nodes, member| nodes.add_instance(node, member));
        nodes
    }

    fn read(&mut self, node: &NodeHandle, shown: &Shown, filter: &Filter, take: impl Fn(&mut Nodes, &Member)) {
        let mut cursor = None;
        loop {
            // Cursors come from this node and stay valid, so this does not fail.
            let Ok(page) = node.held_members(filter, cursor.as_deref(), PAGE) else { return };
            page.members.iter().filter(|member| shown.shows(member.service())).for_each(|member| take(self, member));
            cursor = page.next;
            if cursor.is_none() {
                return;
            }
        }
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
    use super::*;

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
