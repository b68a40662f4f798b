//! Decides whether a node without a log creates one (FD2 to FD5). Pure.

use crate::config::Founding;
use crate::net::message::Probed;
use convoke_log::command::ReplicaLocation;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The nodes behind one entry of the join list.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) address: SmolStr,
    /// One answer for each process.
    pub(super) nodes: Vec<Probed>,
    /// Why an address did not answer.
    pub(super) error: String,
}

impl Entry {
    pub(super) fn missing(address: &SmolStr, error: String) -> Self {
        Entry { address: address.clone(), nodes: Vec::new(), error }
    }
}

/// All that a node without a log knows about other nodes.
#[derive(Debug)]
pub(super) struct KnownNodes<'a> {
    pub(super) node: &'a str,
    /// Where others reach this node.
    pub(super) address: &'a str,
    /// Random number of this process.
    pub(super) nonce: u64,
    pub(super) founding: Founding,
    /// As in a probe answer.
    pub(super) expected: u64,
    /// Sorted and without duplicates.
    pub(super) join: &'a [SmolStr],
    pub(super) entries: &'a [Entry],
    /// Answers of replicas that are not on the join list.
    pub(super) replicas: &'a [Probed],
    /// Nodes that are registered with a log.
    pub(super) registered: BTreeSet<&'a str>,
    /// Time since the search began.
    pub(super) waited: Duration,
    /// Whether this process has known a node with a log before.
    pub(super) has_seen_log: bool,
}

/// The next step of a node without a log.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict<'a> {
    /// A log exists; this node has the newest knowledge of its group.
    Exists(&'a Probed),
    /// This node creates a log as its only founder.
    BeginAlone,
    /// This node creates a log with these founders.
    Begin(Vec<ReplicaLocation>),
    /// This node waits, for this reason.
    Wait(String),
}

impl<'a> KnownNodes<'a> {
    /// Returns all answers.
    pub(super) fn probed(&self) -> impl Iterator<Item = &'a Probed> {
        self.entries.iter().flat_map(|entry| &entry.nodes).chain(self.replicas)
    }

    /// Returns the ids of the nodes behind the join list.
    pub(super) fn nodes(&self) -> BTreeSet<SmolStr> {
        self.entries.iter().flat_map(|entry| &entry.nodes).map(|probed| probed.node.clone()).collect()
    }

    /// Returns whether another node holds a replica of a log.
    pub(super) fn shows_log(&self) -> bool {
        !self.registered.is_empty() || self.probed().any(|probed| probed.log.is_some())
    }

    pub(super) fn ignore_logs(&mut self) {
        self.registered.clear();
        self.replicas = &[];
    }

    pub(super) fn judge(&self) -> Verdict<'a> {
        // Prefer the replica with the newest leader: a replica that was removed long ago knows less.
        let replicas = self.probed().filter(|probed| probed.log.is_some());
        if let Some(replica) = replicas.max_by_key(|probed| probed.group.epoch) {
            return Verdict::Exists(replica);
        }
        if self.shows_log() || self.has_seen_log {
            let nodes: Vec<&str> = self.registered.iter().copied().collect();
            let nodes = if nodes.is_empty() { "nodes that are gone now".to_owned() } else { nodes.join(", ") };
            return Verdict::Wait(format!(
                "a log exists on {nodes}; add this node with `convoke log add {}`",
                self.node
            ));
        }
        let knows = self.probed().filter(|probed| !probed.group.replicas.is_empty());
        if let Some(knows) = knows.max_by_key(|probed| probed.group.epoch) {
            return Verdict::Exists(knows);
        }
        let may_begin = match self.founding {
            Founding::Alone { after } => return self.judge_alone(after),
            Founding::Expected(nodes) => self.check_expected(nodes),
            Founding::AtOnce | Founding::Listed => self.check_list(),
        };
        match may_begin.and_then(|()| self.founders()) {
            Ok(members) => match members.keys().next() {
                Some(lowest) if lowest == self.node => Verdict::Begin(members.into_values().collect()),
                Some(lowest) => Verdict::Wait(format!("node {lowest} creates the log")),
                None => Verdict::Wait("no node answers".to_owned()),
            },
            Err(why) => Verdict::Wait(why),
        }
    }

    /// FD4.
    fn judge_alone(&self, after: Duration) -> Verdict<'a> {
        let others = self.probed().filter(|probed| probed.nonce != self.nonce && probed.expected == 1);
        if let Some(lower) = others.map(|probed| &probed.node).find(|node| node.as_str() < self.node) {
            return Verdict::Wait(format!("node {lower} creates the log: it has bootstrap = 1, too"));
        }
        if self.waited < after {
            return Verdict::Wait(format!(
                "this node creates a log alone if no node with a log appears within {after:?}"
            ));
        }
        Verdict::BeginAlone
    }

    /// FD2: every entry of the list leads to one node.
    fn check_list(&self) -> Result<(), String> {
        match self.join {
            [] => {
                return Err(
                    "this node knows no other node; start one node of a new cluster with --bootstrap".to_owned()
                );
            }
            [name] => {
                return Err(format!(
                    "the join list has only {name}; set --bootstrap=NODES to the number of nodes that create the log, \
                     or add this node to a log with `convoke log add {}`",
                    self.node
                ));
            }
            _ => {}
        }
        let missing: Vec<String> = self.entries.iter().filter(|entry| entry.nodes.is_empty()).map(unanswered).collect();
        if !missing.is_empty() {
            return Err(format!("waiting for founders of the log: {}", missing.join("; ")));
        }
        match self.entries.iter().find(|entry| entry.nodes.len() > 1) {
            Some(entry) => Err(format!(
                "{} leads to {} nodes; set --bootstrap=NODES to the number of nodes that create the log",
                entry.address,
                entry.nodes.len()
            )),
            None => Ok(()),
        }
    }

    /// FD3: there are exactly as many nodes as expected, and each sees the same ones.
    fn check_expected(&self, expected: usize) -> Result<(), String> {
        let nodes = self.nodes();
        if nodes.len() != expected {
            let found = nodes.iter().map(SmolStr::as_str).collect::<Vec<_>>().join(", ");
            let silent: Vec<String> =
                self.entries.iter().filter(|entry| entry.nodes.is_empty()).map(unanswered).collect();
            let silent =
                if silent.is_empty() { String::new() } else { format!("; no answer from {}", silent.join("; ")) };
            return Err(format!("found {} of {expected} expected nodes ({found}){silent}", nodes.len()));
        }
        let differs = |probed: &&Probed| probed.nonce != self.nonce && !nodes.iter().eq(&probed.sees);
        match self.probed().find(differs) {
            Some(other) => Err(format!("node {} does not find the same nodes yet", other.node)),
            None => Ok(()),
        }
    }

    /// Returns the founders by id: the nodes behind the join list and, if it leads to the other nodes only, this node.
    fn founders(&self) -> Result<BTreeMap<SmolStr, ReplicaLocation>, String> {
        let mut members: BTreeMap<SmolStr, (u64, ReplicaLocation)> = BTreeMap::new();
        let list = self.full_list();
        for (entry, probed) in self.behind() {
            self.agrees(&list, entry, probed)?;
            let place = ReplicaLocation { node: probed.node.clone(), address: probed.address.clone() };
            match members.insert(probed.node.clone(), (probed.nonce, place)) {
                Some((nonce, _)) if nonce != probed.nonce => {
                    return Err(format!("two processes have the node id {}", probed.node));
                }
                Some(_) if self.expected == 0 => {
                    return Err(format!("node {} occurs twice in the join list", probed.node));
                }
                _ => {}
            }
        }
        if !members.values().any(|(nonce, _)| *nonce == self.nonce) {
            if self.expected > 0 {
                return Err(
                    "the join list does not lead to this node; add it to a log with `convoke log add`".to_owned()
                );
            }
            let place = ReplicaLocation { node: self.node.into(), address: self.address.into() };
            if members.insert(self.node.into(), (self.nonce, place)).is_some() {
                return Err(format!("two processes have the node id {}", self.node));
            }
        }
        Ok(members.into_iter().map(|(node, (_, place))| (node, place)).collect())
    }

    /// Returns the answers with the entry of the join list that led to each.
    fn behind(&self) -> impl Iterator<Item = (&'a Entry, &'a Probed)> {
        self.entries.iter().flat_map(|entry| entry.nodes.iter().map(move |probed| (entry, probed)))
    }

    /// Returns the addresses of all founders: the join list and, if it does not lead to this node, its own address.
    fn full_list(&self) -> BTreeSet<&str> {
        let mut list: BTreeSet<&str> = self.join.iter().map(SmolStr::as_str).collect();
        if !self.behind().any(|(_, probed)| probed.nonce == self.nonce) {
            list.insert(self.address);
        }
        list
    }

    /// Returns an error if a node has another list of founders than this node.
    fn agrees(&self, list: &BTreeSet<&str>, entry: &Entry, probed: &Probed) -> Result<(), String> {
        let mut theirs: BTreeSet<&str> = probed.join.iter().map(SmolStr::as_str).collect();
        let same = if self.expected > 0 {
            probed.join == self.join
        } else {
            theirs.insert(&entry.address);
            theirs == *list
        };
        if same && probed.expected == self.expected {
            return Ok(());
        }
        if probed.expected != self.expected {
            return Err(format!(
                "node {} has another bootstrap number; start all nodes with the same one",
                probed.node
            ));
        }
        Err(format!(
            "node {} has the join list {}, this node has {}; start all nodes with the same list, or add this node to a log \
             with `convoke log add {}`",
            probed.node,
            written(&probed.join),
            written(self.join),
            self.node
        ))
    }
}

fn written(join: &[SmolStr]) -> String {
    if join.is_empty() { "(empty)".to_owned() } else { join.join(",") }
}

fn unanswered(entry: &Entry) -> String {
    format!("{} ({})", entry.address, entry.error)
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
