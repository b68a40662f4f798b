//! Changes of members, encoded once for all watchers that receive them.
//!
//! The registry gives every watcher the same shared record. The first watcher that writes it encodes it; the others, which do so within
//! milliseconds, copy the bytes. What is found here depends on nothing but the member, so that a miss costs time and nothing else.

use crate::convert::JsonMember;
use convoke_node::core::member::Member;
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
    json: String,
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
        // Only a place to look at: that it is this member is compared.
        let place = std::ptr::from_ref(member.shared_id()).addr() / RECORD_BYTES % PLACES;
        let mut found = self.places[place].lock().unwrap_or_else(PoisonError::into_inner);
        let encoded = match &mut *found {
            Some(encoded) if encoded.member == *member => encoded,
            other => other.insert(Encoded { member: member.clone(), json: json(member) }),
        };
        text.push_str(&encoded.json);
        if encoded.json.len() > BYTES_MAX {
            *found = None;
        }
    }

    /// Lets go of all: called now and then, so that nothing is kept that nobody watches any more.
    pub(crate) fn clear(&self) {
        for place in &self.places {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
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
            }
        }
        assert!(encoded.places.iter().any(|place| place.lock().unwrap().is_some()));
        encoded.clear();
        assert!(encoded.places.iter().all(|place| place.lock().unwrap().is_none()));
    }
}
