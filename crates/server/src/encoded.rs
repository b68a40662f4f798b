//! A cache of encoded member changes, shared by all watchers that receive them.
//!
//! The registry gives every watcher the same shared record. The first watcher that writes it encodes it. The others
//! write it within milliseconds and copy the bytes. An entry depends only on the member, so a miss costs time and
//! nothing else.

use crate::convert::{JsonMember, change};
use bytes::Bytes;
use convoke_core::member::{ChangeKind, Member};
use prost::Message;
use serde::Serialize;
use std::sync::{Mutex, PoisonError};

/// Number of cached changes. One turn of the event loop produces at most a few hundred changes.
const ENTRIES: usize = 1_024;
/// Larger changes are encoded for each watcher, which bounds the memory of the cache.
const BYTES_MAX: usize = 16 * 1024;
/// Records are larger than this, so two of them rarely share an entry.
const RECORD_BYTES: usize = 64;

#[derive(Debug)]
pub(crate) struct EncodedChanges {
    entries: Box<[Mutex<Option<Encoded>>]>,
}

#[derive(Debug)]
struct Encoded {
    member: Member,
    /// `{"member":{…}}`
    json: Option<String>,
    /// A whole `convoke.v1.WatchEvent`, which also contains the kind of the change.
    event: Option<(ChangeKind, Bytes)>,
}

#[derive(Serialize)]
struct Shown<'a> {
    member: &'a JsonMember,
}

impl EncodedChanges {
    pub(crate) fn new() -> Self {
        EncodedChanges { entries: (0..ENTRIES).map(|_| Mutex::default()).collect() }
    }

    /// Appends `{"member":{…}}`.
    pub(crate) fn write_json(&self, member: &Member, text: &mut String) {
        self.with(member, |encoded| {
            let json = encoded.json.get_or_insert_with(|| json(member));
            text.push_str(json);
            ((), json.len())
        });
    }

    /// Returns the bytes of a `convoke.v1.WatchEvent`.
    pub(crate) fn event(&self, kind: ChangeKind, member: &Member) -> Bytes {
        self.with(member, |encoded| {
            // The kind depends on the filter: a member that starts to match is new to one watcher and changed for
            // another.
            let event = match &encoded.event {
                Some((known, event)) if *known == kind => event.clone(),
                _ => encoded.event.insert((kind, event(kind, member))).1.clone(),
            };
            let length = event.len();
            (event, length)
        })
    }

    /// `write` also returns the size of the encoded change.
    fn with<T>(&self, member: &Member, write: impl FnOnce(&mut Encoded) -> (T, usize)) -> T {
        // The address only selects the entry. The member is compared below.
        let index = std::ptr::from_ref(member.shared_id()).addr() / RECORD_BYTES % ENTRIES;
        let mut found = self.entries[index].lock().unwrap_or_else(PoisonError::into_inner);
        let encoded = match &mut *found {
            Some(encoded) if encoded.member == *member => encoded,
            other => other.insert(Encoded { member: member.clone(), json: None, event: None }),
        };
        let (written, bytes) = write(encoded);
        if bytes > BYTES_MAX {
            *found = None;
        }
        written
    }

    /// Empties the cache. Called regularly, so that members without watchers do not stay in memory.
    pub(crate) fn clear(&self) {
        for entry in &self.entries {
            *entry.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

fn event(kind: ChangeKind, member: &Member) -> Bytes {
    change(kind, member).encode_to_vec().into()
}

/// `{"member":{…}}`
pub(crate) fn json(member: &Member) -> String {
    // Strings, numbers and maps with string keys always serialize.
    serde_json::to_string(&Shown { member: &JsonMember(member.clone()) }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use convoke_testkit::{Cluster, TestClient, member};

    #[tokio::test]
    async fn members_that_share_an_entry_get_their_own_text() {
        let cluster = Cluster::start(1).await;
        let node = cluster.node(0);
        // More members than entries, so that some of them share one.
        let ids: Vec<String> = (0..2 * ENTRIES).map(|number| format!("m{number}")).collect();
        let members = ids.iter().map(|id| member(id, "s")).collect();
        let _client = TestClient::attach(node, "c", members).await;
        let encoded = EncodedChanges::new();
        for _ in 0..2 {
            for id in &ids {
                let (member, mut text) = (node.member(id).unwrap(), String::from("data: "));
                encoded.write_json(&member, &mut text);
                assert_eq!(text.strip_prefix("data: "), Some(json(&member).as_str()));
                for kind in [ChangeKind::Updated, ChangeKind::Registered, ChangeKind::Registered] {
                    assert_eq!(encoded.event(kind, &member), event(kind, &member));
                }
            }
        }
        assert!(encoded.entries.iter().any(|index| index.lock().unwrap().is_some()));
        encoded.clear();
        assert!(encoded.entries.iter().all(|index| index.lock().unwrap().is_none()));
    }
}
