//! The wire format (P7): valid frames round-trip, and invalid frames are rejected.

mod golden;
mod hostile;
mod limits;
mod round_trips;
mod samples;

use super::*;
use crate::member::RecordKind;
use crate::time::Clock;
use samples::Content;

/// Reads everything in a decoded message, so that data that decoding accepted but cannot be read later shows up.
fn walk(message: &Message<'_>) -> usize {
    let items = match message {
        Message::Push { items, .. } => items,
        Message::Chunk(chunk) => &chunk.items,
        _ => return 0,
    };
    let read = items.iter().map(|item| match item {
        Item::Record(record) => {
            record.id.len() + record.endpoints.to_metadata().len() + record.metadata.to_metadata().len()
        }
        Item::Inferred(inferred) => inferred.id.len(),
    });
    assert_eq!(items.iter().count(), items.len());
    read.sum()
}

/// Compares a decoded item with what was encoded, field by field.
#[track_caller]
fn assert_same(item: &Item<'_>, content: &Content) {
    match (item, content) {
        (Item::Record(item), Content::Stated(record)) => {
            assert_eq!((item.origin, item.n), (&record.origin.id, record.n));
            assert_eq!((item.claim, item.seq, item.predecessor), (record.claim, record.seq, record.predecessor));
            assert_eq!((item.space, item.kind), (record.space, record.kind));
            assert_eq!((item.status, item.drain, item.weight), (record.status, record.drain, record.weight));
            assert_eq!((item.client, item.nonce), (record.client.id.as_str(), record.client.nonce));
            assert_eq!((item.id, item.address), (record.id.as_str(), record.address.as_str()));
            assert_eq!(item.service, record.deployment.service);
            assert_eq!(item.locality, record.deployment.locality);
            assert_eq!(item.revision, record.deployment.revision);
            assert_eq!((item.created, item.since), (record.created, record.since));
            assert_eq!(item.endpoints.to_metadata(), record.endpoints);
            assert_eq!(item.metadata.to_metadata(), record.metadata);
            let maintenance = record.maintenance.as_deref();
            assert_eq!(item.maintenance, maintenance.map(|held| MaintenanceItem::of(held, Clock::default())));
            assert_eq!(item.age, samples::age_of(record));
        }
        (Item::Inferred(item), Content::Inferred(id, inferred)) => {
            assert_eq!((item.origin, item.n, item.id), (&inferred.origin.id, inferred.n, id.as_str()));
            assert_eq!(item.space, samples::space_of(id));
            assert_eq!((item.about, item.about_n), (&inferred.about.id, inferred.about_n));
            assert_eq!((item.claim, item.liveness_counter), (inferred.claim, inferred.liveness_counter));
            assert_eq!(item.age, samples::age_of_inferred(inferred));
        }
        _ => panic!("{item:?} was written as {content:?}"),
    }
}

#[track_caller]
fn assert_same_items(items: &Items<'_>, contents: &[Content]) {
    assert_eq!(items.len(), contents.len());
    for (item, content) in items.iter().zip(contents) {
        assert_same(&item, content);
    }
}

/// Bytes as hexadecimal text, for golden frames.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A frame of one Push with one item whose body is given, for bodies that no writer would produce.
fn push_of(body: &[u8]) -> Vec<u8> {
    let mut w = Writer::default();
    w.byte(4);
    encode_origin(&mut w, &samples::origin("a"));
    w.varint(0);
    w.varint(1);
    w.flag(false);
    w.count(1);
    encode_origin(&mut w, &samples::origin("a"));
    w.count(1);
    w.text("client");
    w.fixed64(7);
    w.count(1);
    w.raw(body);
    w.count(0);
    w.into_bytes()
}

#[test]
fn the_sample_record_matches_the_hand_made_frame() {
    // Keeps `push_of`, which most hostile frames use, consistent with the real writer.
    let record = samples::record("x");
    assert_eq!(record.kind, RecordKind::Live);
    let mut items = ItemsWriter::default();
    items.record(&record, samples::age_of(&record));
    let real = Message::encode_push(&samples::origin("a"), (0, 1), false, &items, &[]);
    assert_eq!(push_of(&samples::record_body(&record)), real);
}
