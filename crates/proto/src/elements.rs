//! The number of elements in a message, counted on its bytes before it is decoded.
//!
//! An empty element of a repeated field has two bytes on the wire and more than 200 in memory. A message within the limit of
//! bytes could therefore need a gigabyte. The limits of members and requests apply only after decoding.

use crate::v1;

/// Largest number of elements in one message of a client: members, requests, map entries and repeated texts. Members and
/// requests count four times, because they need that much more memory.
pub const ELEMENTS_MAX: usize = 64 * 1024;
/// Elements after which the SDK starts the next part of an attach, or the next message with requests.
pub const PART_ELEMENTS: usize = ELEMENTS_MAX / 4;

/// How a field counts.
#[derive(Clone, Copy)]
struct Element {
    field: u32,
    weight: usize,
    /// Fields of the message in it.
    inner: &'static [Element],
}

const fn leaf(field: u32) -> Element {
    Element { field, weight: 1, inner: &[] }
}

const fn message(field: u32, weight: usize, inner: &'static [Element]) -> Element {
    Element { field, weight, inner }
}

const HEAVY: usize = 4;
const HTTP_PROBE: &[Element] = &[leaf(3), leaf(5)];
const CHECK: &[Element] = &[message(4, 0, HTTP_PROBE)];
const MEMBER_SPEC: &[Element] = &[leaf(7), leaf(9), message(10, HEAVY, CHECK)];
const REGISTER: &[Element] = &[message(1, 0, MEMBER_SPEC)];
const UPDATE: &[Element] = &[leaf(2), leaf(3)];
const REQUEST: &[Element] = &[message(2, 0, REGISTER), message(3, 0, UPDATE)];
const REQUESTS: &[Element] = &[message(1, HEAVY, REQUEST)];
const ATTACH: &[Element] = &[message(7, HEAVY, REGISTER), leaf(8)];
const CLIENT_MESSAGE: &[Element] = &[message(1, 0, ATTACH), message(3, 0, REQUESTS)];
const TXN: &[Element] = &[leaf(1), leaf(2), leaf(3)];
const LOG_REQUEST: &[Element] = &[message(10, 0, TXN)];
const SUBMIT_REQUEST: &[Element] = &[message(3, 0, LOG_REQUEST)];
const READ_REQUEST: &[Element] = &[message(7, 0, TXN)];
const KEY_WATCH_REQUEST: &[Element] = &[leaf(2)];
const KEY_WATCH_UNION: &[Element] = &[leaf(1), leaf(2)];
const KEY_WATCH: &[Element] = &[message(9, 0, KEY_WATCH_UNION)];
const KEY_WATCH_SELECTIONS: &[Element] = &[message(2, 0, KEY_WATCH)];

/// Largest number of watches of keys on one stream.
pub const KEY_WATCHES_MAX: usize = 128;
/// Largest number of ranges and locks in the union of several watches.
pub const UNION_MAX: usize = 1_024;

/// Largest number of compares and operations that are decoded. A transaction may have fewer; the log rejects the others
/// with the reason.
pub(crate) const TXN_ELEMENTS_MAX: usize = 1024;

/// Returns the number of elements in an encoded `ClientMessage`, or `None` above `max`. Bytes that are not a message count as
/// far as they can be read; the decoder rejects them.
pub(crate) fn in_client_message(bytes: &[u8], max: usize) -> Option<usize> {
    count(bytes, CLIENT_MESSAGE, max)
}

/// The same for the compares and operations in an encoded `SubmitRequest`.
pub(crate) fn in_submit_request(bytes: &[u8], max: usize) -> Option<usize> {
    count(bytes, SUBMIT_REQUEST, max)
}

/// The same for the compares and operations in an encoded `ReadRequest`.
pub(crate) fn in_read_request(bytes: &[u8], max: usize) -> Option<usize> {
    count(bytes, READ_REQUEST, max)
}

/// The same for the watches in an encoded `KeyWatchRequest`.
pub(crate) fn in_key_watch_request(bytes: &[u8], max: usize) -> Option<usize> {
    count(bytes, KEY_WATCH_REQUEST, max)
}

/// The same for the ranges and locks of all unions in an encoded `KeyWatchRequest`.
pub(crate) fn in_key_watch_unions(bytes: &[u8], max: usize) -> Option<usize> {
    count(bytes, KEY_WATCH_SELECTIONS, max)
}

fn count(mut bytes: &[u8], elements: &[Element], max: usize) -> Option<usize> {
    let mut total = 0;
    while let Some((field, content)) = next_field(&mut bytes) {
        let Some(element) = elements.iter().find(|element| element.field == field) else { continue };
        total += element.weight;
        if !element.inner.is_empty() {
            total += count(content, element.inner, max.checked_sub(total)?)?;
        }
        if total > max {
            return None;
        }
    }
    Some(total)
}

/// The next field with a length, and its content. `None` at the end, or where the bytes are not a message.
fn next_field<'a>(bytes: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
    loop {
        let key = varint(bytes)?;
        let length = match key & 7 {
            0 => {
                varint(bytes)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(bytes)?).ok()?,
            5 => 4,
            // Groups do not exist in this schema.
            _ => return None,
        };
        let (content, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        if key & 7 == 2 {
            return Some((u32::try_from(key >> 3).ok()?, content));
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    prost::encoding::decode_varint(bytes).ok()
}

/// The elements of one member in an attach or of one registration.
pub fn of_register(register: &v1::Register) -> usize {
    let spec = register.member.as_ref();
    let checks = |spec: &v1::MemberSpec| spec.checks.iter().map(of_check).sum::<usize>();
    HEAVY + spec.map_or(0, |spec| spec.endpoints.len() + spec.metadata.len() + checks(spec))
}

fn of_check(check: &v1::Check) -> usize {
    match &check.probe {
        Some(v1::check::Probe::Http(http)) => HEAVY + http.headers.len() + http.expected_status.len(),
        _ => HEAVY,
    }
}

/// The elements of one request.
pub fn of_request(request: &v1::Request) -> usize {
    use v1::request::Operation;
    match &request.operation {
        Some(Operation::Register(register)) => of_register(register),
        Some(Operation::Update(update)) => HEAVY + update.set.len() + update.delete.len(),
        Some(Operation::Unregister(_)) | None => HEAVY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use v1::client_message::Message as M;

    fn register(pairs: usize) -> v1::Register {
        let metadata = (0..pairs).map(|number| (number.to_string(), String::new())).collect();
        let endpoints = [("a".to_owned(), "b".to_owned())].into();
        let http = v1::HttpProbe { headers: [("h".to_owned(), "v".to_owned())].into(), ..v1::HttpProbe::default() };
        let checks = vec![v1::Check { probe: Some(v1::check::Probe::Http(http)), ..v1::Check::default() }];
        let member =
            v1::MemberSpec { id: "m".into(), weight: 7, checks, metadata, endpoints, ..v1::MemberSpec::default() };
        v1::Register { member: Some(member), takeover: true }
    }

    fn requests(requests: Vec<v1::Request>) -> v1::ClientMessage {
        v1::ClientMessage { message: Some(M::Requests(v1::Requests { requests })) }
    }

    #[test]
    fn elements_are_counted_as_they_are_before_encoding() {
        let operations = [
            v1::request::Operation::Register(register(10)),
            v1::request::Operation::Update(v1::Update {
                id: "m".into(),
                set: [("k".to_owned(), "v".to_owned())].into(),
                delete: vec!["x".into(), String::new()],
                ..v1::Update::default()
            }),
            v1::request::Operation::Unregister(v1::Unregister { id: "m".into() }),
        ];
        let all: Vec<v1::Request> =
            operations.into_iter().map(|operation| v1::Request { seq: 300, operation: Some(operation) }).collect();
        let expected: usize = all.iter().map(of_request).sum();
        assert_eq!(expected, 4 + 11 + 5 + 4 + 3 + 4);
        assert_eq!(in_client_message(&requests(all).encode_to_vec(), 1_000), Some(expected));
        let attach = v1::Attach {
            client: "c".into(),
            nonce: 1,
            members: vec![register(2), register(0)],
            unregistered: vec!["a".into(), String::new()],
            ..v1::Attach::default()
        };
        let attach = v1::ClientMessage { message: Some(M::Attach(attach)) };
        assert_eq!(in_client_message(&attach.encode_to_vec(), 1_000), Some(12 + 10 + 2));
        let heartbeat = v1::ClientMessage { message: Some(M::Heartbeat(v1::Heartbeat { sent: u64::MAX })) };
        assert_eq!(in_client_message(&heartbeat.encode_to_vec(), 0), Some(0));
    }

    #[test]
    fn operations_of_transactions_are_counted() {
        let txn = |count| v1::Txn {
            compares: vec![v1::Compare::default(); count],
            then: vec![v1::TxnOperation::default(); count],
            otherwise: vec![v1::TxnOperation::default(); count],
        };
        let submitted = |count| {
            let body = Some(v1::log_request::Body::Txn(txn(count)));
            let request = v1::LogRequest { session: 7, body, ..v1::LogRequest::default() };
            let message = Some(v1::submit_request::Message::Request(request));
            v1::SubmitRequest { tag: 300, message, ..v1::SubmitRequest::default() }.encode_to_vec()
        };
        let read = |count| {
            let what = Some(v1::read_request::What::Txn(txn(count)));
            v1::ReadRequest { revision: 7, what, ..v1::ReadRequest::default() }.encode_to_vec()
        };
        for (count, expected) in [(0, Some(0)), (341, Some(1023)), (342, None)] {
            assert_eq!(in_submit_request(&submitted(count), TXN_ELEMENTS_MAX), expected);
            assert_eq!(in_read_request(&read(count), TXN_ELEMENTS_MAX), expected);
        }
        assert_eq!(in_submit_request(&submitted(10).repeat(100), TXN_ELEMENTS_MAX), None, "prost merges them");
    }

    #[test]
    fn selections_of_unions_are_counted() {
        let union = |count| {
            let ranges = vec![v1::KeyRange::default(); count];
            let union = v1::KeyWatchUnion { ranges, locks: vec![v1::LockGuard::default()] };
            let which = Some(v1::key_watch::Which::Union(union));
            let watches = vec![v1::KeyWatch { id: 7, which, ..v1::KeyWatch::default() }];
            v1::KeyWatchRequest { watches, stale: true, ..v1::KeyWatchRequest::default() }.encode_to_vec()
        };
        assert_eq!(in_key_watch_unions(&union(1_023), UNION_MAX), Some(UNION_MAX));
        assert_eq!(in_key_watch_unions(&union(1_024), UNION_MAX), None);
        assert_eq!(in_key_watch_unions(&union(600).repeat(2), UNION_MAX), None, "of all watches");
    }

    #[test]
    fn too_many_elements_and_garbage_are_noticed_without_decoding() {
        let empty = |count| requests(vec![v1::Request::default(); count]).encode_to_vec();
        assert_eq!(in_client_message(&empty(16_384), ELEMENTS_MAX), Some(ELEMENTS_MAX));
        assert_eq!(in_client_message(&empty(16_385), ELEMENTS_MAX), None);
        // The same field again and again: prost merges the last of a oneof.
        let repeated = empty(10).repeat(2_000);
        assert_eq!(in_client_message(&repeated, ELEMENTS_MAX), None);
        for length in 0..64 {
            let bytes: Vec<u8> = (0..length).map(|number: u8| number.wrapping_mul(151) ^ 0x5a).collect();
            assert!(in_client_message(&bytes, ELEMENTS_MAX).is_some());
        }
    }
}
