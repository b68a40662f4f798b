//! Golden bytes of commands, which detect format changes: old logs must stay readable.
//!
//! A command that has to change here needs a new tag or a new [`COMMAND_VERSION`], and a reader for both.

use super::hex;
use crate::codec::COMMAND_VERSION;
use crate::command::{
    Body, Command, Delete, DeleteRange, DurableClient, Expire, GroupChange, Open, Opener, Put, ReplicaLocation, Request,
};
use crate::id::{Epoch, LogSessionId, ReplicaId, RequestId};
use crate::keys::KeyRange;
use crate::time::LogTime;
use std::time::Duration;

#[track_caller]
pub(super) fn assert_golden(command: &Command, golden: &str) {
    let golden: String = golden.split_whitespace().collect();
    assert_eq!(hex(&command.encode()), golden);
    assert_eq!(Command::decode(&command.encode().into()).as_ref(), Ok(command));
}

pub(super) fn epoch() -> Epoch {
    Epoch::new(300, 2)
}

/// Version, tag, session, number, differences to abandon_below and previous, epoch, deadline.
pub(super) const REQUEST: &str = "02 01 07 ac02 00 01 ac02 02 00";

pub(super) fn request(body: Body) -> Command {
    Command::Request(Request::new(LogSessionId(7), 300, epoch(), body))
}

#[test]
fn the_golden_commands_are_of_this_version() {
    assert_eq!(COMMAND_VERSION, 2);
}

#[test]
fn open() {
    let ttl = Duration::from_secs(10);
    let open = Open::new(epoch(), ttl, 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
    assert_golden(&Command::Open(open.clone()), "02 00 ac02 02 80ade204 100f0e0d0c0b0a090807060504030201 00 00 00");
    let client = Some(DurableClient { name: "job".into(), replaces: None });
    let named = Open { client, ..open.clone() };
    assert_golden(
        &Command::Open(named),
        "02 00 ac02 02 80ade204 100f0e0d0c0b0a090807060504030201 00 00 01 036a6f62 00",
    );
    let opener = Opener { name: "ab".into(), reserved: true };
    let golden = "02 00 ac02 02 80ade204 100f0e0d0c0b0a090807060504030201 026162 01 00";
    assert_golden(&Command::Open(Open { opener, ..open.clone() }), golden);
    let client = Some(DurableClient { name: "job".into(), replaces: Some(LogSessionId(7)) });
    assert_golden(
        &Command::Open(Open { client, ..open }),
        "02 00 ac02 02 80ade204 100f0e0d0c0b0a090807060504030201 00 00 01 036a6f62 07",
    );
}

#[test]
fn expire() {
    let expire = Expire { epoch: epoch(), session: LogSessionId(7), activity: 300 };
    assert_golden(&Command::Expire(expire), "02 02 ac02 02 07 ac02");
}

#[test]
fn a_pipelined_request_with_a_deadline() {
    let Command::Request(request) = request(Body::End(LogSessionId(7))) else { unreachable!() };
    let deadline = Some(LogTime::from_micros(300));
    let request = Request { abandon_below: 295, previous: 0, deadline, ..request };
    assert_golden(&Command::Request(request), "02 01 07 ac02 05 ac02 ac02 02 01ac02 01 07");
}

#[test]
fn the_last_request_of_a_session() {
    let Command::Request(request) = request(Body::delete("k")) else { unreachable!() };
    assert_golden(&Command::Request(Request { last: true, ..request }), "02 03 07 ac02 00 01 ac02 02 00 03 016b 00 00");
}

#[test]
fn bodies() {
    let fence = Body::Fence(RequestId::new(LogSessionId(7), 299));
    assert_golden(&request(fence), &format!("{REQUEST} 00 07 ab02"));
    assert_golden(&request(Body::End(LogSessionId(9))), &format!("{REQUEST} 01 09"));
    assert_golden(&request(Body::put("k", "vw")), &format!("{REQUEST} 02 016b 027677 00 00"));
    let put = Put { key: "k".into(), value: "".into(), if_revision: Some(300), previous: true };
    assert_golden(&request(Body::Put(put)), &format!("{REQUEST} 02 016b 00 01ac02 01"));
    assert_golden(&request(Body::delete("k")), &format!("{REQUEST} 03 016b 00 00"));
    let delete = Delete { key: "k".into(), if_revision: Some(0), previous: true };
    assert_golden(&request(Body::Delete(delete)), &format!("{REQUEST} 03 016b 0100 01"));
    assert_golden(&request(Body::delete_range(KeyRange::all())), &format!("{REQUEST} 04 00 00 00"));
    let delete = DeleteRange { range: KeyRange::prefix("k"), previous: true };
    assert_golden(&request(Body::DeleteRange(delete)), &format!("{REQUEST} 04 016b 01016c 01"));
}

#[test]
fn membership() {
    let replica = |node: &str| ReplicaLocation { node: node.into(), address: "h:1".into() };
    let change = GroupChange {
        replaces: 300,
        voters: [(ReplicaId(1), replica("a")), (ReplicaId(2), replica("b"))].into(),
        learners: [(ReplicaId(300), replica("c"))].into(),
    };
    let golden = "05 ac02 02 01 0161 03683a31 02 0162 03683a31 01 ac02 0163 03683a31";
    assert_golden(&request(Body::Membership(change)), &format!("{REQUEST} {golden}"));
}
