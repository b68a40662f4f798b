//! Changes of members, encoded once for all watchers that receive them.
//!
//! The registry gives every watcher the same shared record. The first watcher that writes it encodes it; the others, which do so within
//! milliseconds, copy the bytes. What is found here depends on nothing but the member, so that a miss costs time and nothing else.

use crate::convert::{JsonMember, wire_member};
use bytes::Bytes;
use convoke_core::member::Member;
use convoke_proto::v1;
use convoke_proto::v1::watch_event::Event;
use prost::Message;
use serde::Serialize;
use std::sync::{Mutex, PoisonError};

/// Changes that are kept. A turn of the event loop has up to some hundred of them.
const PLACES: usize = 1_024;
/// Larger ones are encoded for each watcher, so that the memory is bounded.
const BYTES_MAX: usize = 16 * 1024;
/// Records are larger than this, so that two of them rarely have the same place.
const RECORD_BYTES: usize = 64;

#[derive(Debug)]
pub(crate) struct EncodedChanges {
    places: Box<[Mutex<Option<Encoded>>]>,
}

#[derive(Debug)]
struct Encoded {
    member: Member,
    /// `{"member":{…}}`
    json: Option<String>,
    /// A whole `convoke.v1.WatchEvent`, which also says what kind of change it is.
    event: Option<(Kind, Bytes)>,
}

/// What happened to a member, for watchers over gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Registered,
    Updated,
    StatusChanged,
    OwnerChanged,
}

#[derive(Serialize)]
struct Shown<'a> {
    member: &'a JsonMember,
}

impl EncodedChanges {
    pub(crate) fn new() -> Self {
        EncodedChanges { places: (0..PLACES).map(|_| Mutex::default()).collect() }
    }

    /// Appends `{"member":{…}}`.
    pub(crate) fn write_json(&self, member: &Member, text: &mut String) {
        self.with(member, |encoded| {
            let json = encoded.json.get_or_insert_with(|| json(member));
            text.push_str(json);
            ((), json.len())
        });
    }

    /// The bytes of a `convoke.v1.WatchEvent`.
    pub(crate) fn event(&self, kind: Kind, member: &Member) -> Bytes {
        self.with(member, |encoded| {
            // A member that comes to match a filter is new to its watcher, and changed for the others.
            let event = match &encoded.event {
                Some((known, event)) if *known == kind => event.clone(),
                _ => encoded.event.insert((kind, event(kind, member))).1.clone(),
            };
            let length = event.len();
            (event, length)
        })
    }

    /// `write` also returns the size of what it encoded.
    fn with<T>(&self, member: &Member, write: impl FnOnce(&mut Encoded) -> (T, usize)) -> T {
        // Only a place to look at: that it is this member is compared.
        let place = std::ptr::from_ref(member.shared_id()).addr() / RECORD_BYTES % PLACES;
        let mut found = self.places[place].lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Lets go of all: called now and then, so that nothing is kept that nobody watches any more.
    pub(crate) fn clear(&self) {
        for place in &self.places {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

fn event(kind: Kind, member: &Member) -> Bytes {
    let member = wire_member(member);
    let event = match kind {
        Kind::Registered => Event::Registered(member),
        Kind::Updated => Event::Updated(member),
        Kind::StatusChanged => Event::StatusChanged(member),
        Kind::OwnerChanged => Event::OwnerChanged(member),
    };
    v1::WatchEvent { event: Some(event) }.encode_to_vec().into()
}

/// `{"member":{…}}`
pub(crate) fn json(member: &Member) -> String {
    // Texts, numbers and maps with text keys: nothing in them cannot be written.
    serde_json::to_string(&Shown { member: &JsonMember(member.clone()) }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use convoke_testkit::{Cluster, TestClient, member};

    #[tokio::test]
    async fn every_watcher_gets_the_text_of_its_own_change() {
        let cluster = Cluster::start(1).await;
        let node = cluster.node(0);
        // More than there are places: some of them share one.
        let ids: Vec<String> = (0..2 * PLACES).map(|number| format!("m{number}")).collect();
        let members = ids.iter().map(|id| member(id, "s")).collect();
        let _client = TestClient::attach(node, "c", members).await;
        let encoded = EncodedChanges::new();
        for _ in 0..2 {
            for id in &ids {
                let (member, mut text) = (node.member(id).unwrap(), String::from("data: "));
                encoded.write_json(&member, &mut text);
                assert_eq!(text.strip_prefix("data: "), Some(json(&member).as_str()));
                for kind in [Kind::Updated, Kind::Registered, Kind::Registered] {
                    assert_eq!(encoded.event(kind, &member), event(kind, &member));
                }
            }
        }
        assert!(encoded.places.iter().any(|place| place.lock().unwrap().is_some()));
        encoded.clear();
        assert!(encoded.places.iter().all(|place| place.lock().unwrap().is_none()));
    }
}
