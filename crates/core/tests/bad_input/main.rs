//! Bad input (R-06, P7): rejected with the right code, field and limit, and without a change.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod frames;
mod requests;

use convoke_core::error::{ErrorCode, Rejection};
use convoke_core::member::MemberSpec;
use convoke_core::node::{Attach, AttachMember, ConnId, Effect, LinkId, RegistryEvent, SessionId, Start};
use convoke_core::version::NodeId;
use convoke_core::{Config, Node, Output, Time};
use std::time::Duration;

/// One node without peers, serving at once, with a client that has the member `m`.
struct Lone {
    node: Node,
    out: Output,
    now: Time,
    session: SessionId,
    links: u64,
}

impl Lone {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(NodeId::new("a").unwrap());
        config.peer_address = "a:1".to_owned();
        change(&mut config);
        let now = Time::from_secs(100);
        let mut node = Node::new(config, Start { nonce: 1, ..Start::default() }, now).unwrap();
        let mut out = Output::default();
        node.begin(now, &mut out);
        assert!(node.is_serving(), "a node without seeds is serving at once (N8)");
        let attached = node.attach(now, ConnId(1), &attach("client", 1, &["m"]), &mut out).unwrap();
        node.register_name(now, "n", "here", &mut out).unwrap();
        Lone { node, out, now, session: attached.session, links: 0 }
    }

    /// The call is rejected, counted, and changes nothing.
    #[track_caller]
    fn rejected<T: std::fmt::Debug>(
        &mut self,
        call: impl FnOnce(&mut Node, Time, SessionId, &mut Output) -> Result<T, Rejection>,
    ) -> Rejection {
        let before =
            (self.node.slots(), self.node.context(), self.node.sizes(), self.node.counters().requests_rejected);
        self.out = Output::default();
        let rejection = call(&mut self.node, self.now, self.session, &mut self.out).unwrap_err();
        assert_eq!(self.node.slots(), before.0, "{rejection}");
        assert_eq!(self.node.context(), before.1, "{rejection}");
        assert_eq!(self.node.sizes(), before.2, "{rejection}");
        assert_eq!(self.node.counters().requests_rejected, before.3 + 1, "{rejection}");
        assert!(self.out.is_empty(), "{rejection}: {:?}", self.out);
        assert!(!rejection.message.is_empty());
        rejection
    }

    #[track_caller]
    fn attach_rejected(&mut self, request: &Attach) -> Rejection {
        self.rejected(|node, now, _, out| node.attach(now, ConnId(2), request, out))
    }

    /// A peer connects; returns the link.
    fn connect(&mut self) -> LinkId {
        self.links += 1;
        self.node.accepted(self.now, LinkId(self.links), &mut self.out);
        LinkId(self.links)
    }

    /// A frame on a link makes the node close it and count; everything else continues.
    #[track_caller]
    fn closes_on(&mut self, link: LinkId, frame: &[u8]) -> Vec<RegistryEvent> {
        let (slots, context) = (self.node.slots(), self.node.context());
        self.out = Output::default();
        self.node.received(self.now, link, frame, &mut self.out);
        assert!(self.out.effects.contains(&Effect::CloseLink { link }), "{:?}", self.out);
        assert_eq!((self.node.slots(), self.node.context()), (slots, context));
        assert_eq!(self.node.sizes().links, 0);
        // Frames that still arrive on it are ignored.
        let received = self.node.counters().frames_received;
        self.node.received(self.now, link, frame, &mut Output::default());
        assert_eq!(self.node.counters().frames_received, received);
        self.serves();
        std::mem::take(&mut self.out.events)
    }

    /// The node continues to serve.
    #[track_caller]
    fn serves(&mut self) {
        assert!(self.node.is_serving());
        self.node.heartbeat(self.now, self.session, &mut self.out).unwrap();
        assert_eq!(self.node.member("m").map(|member| member.routable()), Some(true));
        assert_eq!(self.node.name("n").map(|name| name.location), Some("here".to_owned()));
    }

    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while self.node.next_wake() <= end {
            self.now = self.node.next_wake();
            self.node.wake(self.now, &mut self.out);
        }
        self.now = end;
    }
}

fn attach(client: &str, claim: u64, ids: &[&str]) -> Attach {
    let members = ids.iter().map(|id| member(MemberSpec::new(*id, "s"))).collect();
    Attach { client: client.to_owned(), nonce: 1, claim, members, ..Attach::default() }
}

fn member(spec: MemberSpec) -> AttachMember {
    AttachMember { spec, takeover: false }
}

fn spec(change: impl FnOnce(&mut MemberSpec)) -> MemberSpec {
    let mut spec = MemberSpec::new("new", "s");
    change(&mut spec);
    spec
}

#[track_caller]
fn assert_rejection(rejection: &Rejection, code: ErrorCode, field: &str, limit: Option<u64>) {
    assert_eq!((rejection.code, rejection.field, rejection.limit), (code, Some(field), limit), "{rejection}");
}
