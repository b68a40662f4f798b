//! Leases, locks and elections over gRPC, at the leader.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::{Error, ErrorCode};
use convoke_proto::v1;
use convoke_proto::v1::fate::Kind;
use convoke_proto::v1::kept_alive::State;
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::log_request::Body;
use convoke_proto::v1::read_request::What;
use convoke_proto::v1::submit_request::Message as Sent;
use convoke_proto::v1::submit_response::Message;
use convoke_testkit::eventually;
use support::log::LogCluster;
use support::log_link::Link;
use tonic::transport::Channel;

/// A session of a link, which numbers its requests.
struct Client {
    link: Link,
    session: u64,
    number: u64,
}

impl Client {
    async fn of(address: &str) -> Client {
        let mut link = Link::to(address).await;
        let session = link.open().await;
        Client { link, session, number: 0 }
    }

    async fn request(&mut self, body: Body) -> v1::Fate {
        self.number += 1;
        self.link.submit(self.session, self.number, body);
        self.link.fate().await
    }

    async fn rejected(&mut self, body: Body) -> Error {
        self.number += 1;
        self.link.submit(self.session, self.number, body);
        self.link.rejected().await
    }

    async fn grant(&mut self, ttl_ms: u64) -> u64 {
        let fate = self.request(grant(ttl_ms)).await;
        assert_eq!((fate.kind(), fate.lease), (Kind::Applied, fate.index), "{fate:?}");
        fate.lease
    }

    /// Returns the fence, 0 for a place in the queue.
    async fn acquire(&mut self, name: &'static str, lease: u64) -> u64 {
        let fate = self.request(Body::Acquire(v1::AcquireLock { wait: true, ..lock(name, lease) })).await;
        assert_eq!(fate.kind(), Kind::Applied, "{fate:?}");
        fate.fence
    }

    async fn keep_alive(&mut self, leases: Vec<u64>) -> Vec<v1::LeaseKept> {
        self.link.send(self.keeping(leases));
        match self.link.receive().await {
            Message::LeasesKept(kept) => kept.leases,
            other => panic!("{other:?}"),
        }
    }

    fn keeping(&self, leases: Vec<u64>) -> Sent {
        Sent::LeaseKeepAlive(v1::LeaseKeepAlive { epoch: self.link.epoch, log: self.link.log, leases })
    }

    fn awaiting(&self, name: &'static str, lease: u64, fence: u64) -> Sent {
        let (epoch, log) = (self.link.epoch, self.link.log);
        Sent::AwaitPlace(v1::AwaitPlace { epoch, log, name: name.into(), election: false, lease, fence })
    }

    async fn told(&mut self) -> (u64, u64) {
        match self.link.receive_tagged().await {
            (tag, Message::PlaceChanged(changed)) => (tag, changed.fence),
            other => panic!("{other:?}"),
        }
    }
}

fn grant(ttl_ms: u64) -> Body {
    Body::Grant(v1::GrantLease { term: Some(v1::grant_lease::Term::TtlMs(ttl_ms)), ..Default::default() })
}

fn lock(name: &'static str, lease: u64) -> v1::AcquireLock {
    v1::AcquireLock { name: name.into(), lease, value: "v".into(), ..Default::default() }
}

fn release(name: &'static str, place: Option<v1::release_lock::Place>) -> Body {
    Body::Release(v1::ReleaseLock { name: name.into(), election: false, place })
}

fn attach_key(key: &'static str, lease: u64) -> Body {
    let put = v1::TxnPut { key: key.into(), value: "1".into(), lease, ..Default::default() };
    let operation = v1::TxnOperation { operation: Some(v1::txn_operation::Operation::Put(put)) };
    Body::Txn(v1::Txn { then: vec![operation], ..Default::default() })
}

async fn reader(cluster: &LogCluster, index: usize) -> LogClient<Channel> {
    let address = format!("http://{}", cluster.served(index).address());
    LogClient::new(Channel::from_shared(address).unwrap().connect().await.unwrap())
}

async fn read(client: &mut LogClient<Channel>, what: What) -> v1::ReadResponse {
    client.read(v1::ReadRequest { what: Some(what), ..Default::default() }).await.unwrap().into_inner()
}

async fn read_lease(client: &mut LogClient<Channel>, lease: u64) -> Option<v1::Lease> {
    read(client, What::Leases(v1::LeaseQuery { lease, ..Default::default() })).await.leases.pop()
}

fn one(name: &'static str) -> What {
    What::Locks(v1::LockQuery { name: Some(name.into()), ..Default::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_kept_alive_shown_and_revoked_with_its_keys_and_places() {
    let cluster = LogCluster::start(1).await;
    let mut client = Client::of(&cluster.served(0).address().to_string()).await;
    let mut reads = reader(&cluster, 0).await;
    let lease = client.grant(60_000).await;
    let kept = client.keep_alive(vec![lease, lease + 1_000]).await;
    assert_eq!(kept.iter().map(v1::LeaseKept::state).collect::<Vec<_>>(), [State::Kept, State::Unknown]);
    assert!(kept[0].left_ms > 0 && kept[0].left_ms <= 60_000, "{kept:?}");
    assert_eq!(client.request(attach_key("a", lease)).await.kind(), Kind::Applied);
    let fence = client.acquire("l", lease).await;
    assert_eq!(client.acquire("l", lease).await, fence, "asking again gives the same fence");
    let shown = read_lease(&mut reads, lease).await.unwrap();
    assert_eq!((shown.ttl_ms, shown.keys, shown.attached.as_slice()), (60_000, 1, &["a".into()][..]));
    assert_eq!(shown.places, [v1::LockGuard { name: "l".into(), fence, election: false }]);
    assert!(shown.left_ms.is_some_and(|left| left > 0 && left <= 60_000), "{shown:?}");
    let held = read(&mut reads, one("l")).await;
    assert_eq!((held.locks[0].permits, held.locks[0].holders[0].fence), (1, fence));
    assert_eq!((&held.locks[0].holders[0].value[..], held.log_time_us > 0), (&b"v"[..], true));
    let revoked = client.request(Body::Revoke(v1::RevokeLease { lease })).await;
    assert_eq!((revoked.kind(), revoked.keys), (Kind::Applied, 1));
    assert_eq!(read_lease(&mut reads, lease).await, None);
    assert_eq!(read(&mut reads, What::Key("a".into())).await.records, []);
    assert_eq!(read(&mut reads, one("l")).await.locks, []);
    assert_eq!(client.keep_alive(vec![lease]).await[0].state(), State::Unknown);
}

/// The leader ends a lease that nobody keeps alive, and tells the waiter that gets the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_lease_ends_and_its_lock_is_handed_over() {
    let cluster = LogCluster::start(1).await;
    let mut client = Client::of(&cluster.served(0).address().to_string()).await;
    let (short, long) = (client.grant(1_000).await, client.grant(600_000).await);
    client.request(attach_key("a", short).clone()).await;
    let fence = client.acquire("l", short).await;
    assert_eq!(client.acquire("l", long).await, 0);
    client.link.send_tagged(7, client.awaiting("l", long, 0));
    let (tag, granted) = client.told().await;
    assert!(tag == 7 && granted > fence, "{tag} {granted} {fence}");
    let mut reads = reader(&cluster, 0).await;
    assert_eq!(read(&mut reads, What::Key("a".into())).await.records, []);
    assert_eq!(read(&mut reads, one("l")).await.locks[0].holders[0].fence, granted);
}

/// A hand-over tells the client that lost the lock and the one that got it. The others wait on.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_wakes_one_waiter() {
    let cluster = LogCluster::start(1).await;
    let mut client = Client::of(&cluster.served(0).address().to_string()).await;
    let leases = [client.grant(600_000).await, client.grant(600_000).await, client.grant(600_000).await];
    let first = client.acquire("l", leases[0]).await;
    for lease in &leases[1..] {
        assert_eq!(client.acquire("l", *lease).await, 0);
    }
    let waiting = |cluster: &LogCluster| cluster.node(0).replica.handle().awaited_places();
    for (tag, lease, fence) in [(10, leases[0], first), (11, leases[1], 0), (12, leases[2], 0)] {
        client.link.send_tagged(tag, client.awaiting("l", lease, fence));
    }
    eventually("all three wait", async || waiting(&cluster) == 3).await;
    let other = Client::of(&cluster.served(0).address().to_string()).await;
    let mut other = other;
    let released = other.request(release("l", Some(v1::release_lock::Place::Fence(first)))).await;
    assert_eq!((released.kind(), released.fence), (Kind::Applied, first));
    let mut told = [client.told().await, client.told().await];
    told.sort_unstable();
    assert_eq!(told[0], (10, 0));
    assert!(told[1].0 == 11 && told[1].1 > first, "{told:?}");
    assert_eq!(waiting(&cluster), 1);
    // A client whose knowledge is old is answered at once.
    client.link.send_tagged(13, client.awaiting("l", leases[1], 0));
    assert_eq!(client.told().await, (13, told[1].1));
    // The place of a client that is gone is no longer awaited.
    drop(client);
    eventually("nobody waits", async || waiting(&cluster) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_and_its_queue_are_shown() {
    let cluster = LogCluster::start(1).await;
    let mut client = Client::of(&cluster.served(0).address().to_string()).await;
    let mut fences = Vec::new();
    for _ in 0..4 {
        let lease = client.grant(600_000).await;
        let wanted = v1::AcquireLock { permits: 2, wait: true, ..lock("s", lease) };
        fences.push(client.request(Body::Acquire(wanted)).await.fence);
    }
    assert!(fences[0] > 0 && fences[1] > fences[0] && fences[2..] == [0, 0], "{fences:?}");
    let mut reads = reader(&cluster, 0).await;
    let shown = read(&mut reads, one("s")).await.locks.remove(0);
    assert_eq!((shown.permits, shown.holders.len(), shown.waiting, shown.queue.len()), (2, 2, 2, 2));
    assert_eq!(read(&mut reads, one("none")).await.locks, []);
    for name in ["a", "b", "c"] {
        let lease = client.grant(600_000).await;
        client.acquire(name, lease).await;
    }
    let mut names = Vec::new();
    let mut after = bytes::Bytes::new();
    loop {
        let page = read(&mut reads, What::Locks(v1::LockQuery { after, limit: 2, ..Default::default() })).await;
        names.extend(page.locks.iter().map(|lock| String::from_utf8_lossy(&lock.name).into_owned()));
        after = page.locks.last().unwrap().name.clone();
        if !page.more {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c", "s"]);
    let elections = What::Locks(v1::LockQuery { election: true, ..Default::default() });
    assert_eq!(read(&mut reads, elections).await.locks, []);
    let leases = read(&mut reads, What::Leases(v1::LeaseQuery { limit: 3, ..Default::default() })).await;
    assert_eq!((leases.leases.len(), leases.more), (3, true));
    let after = leases.leases[2].lease;
    let leases = read(&mut reads, What::Leases(v1::LeaseQuery { after, ..Default::default() })).await;
    assert_eq!((leases.leases.len(), leases.more), (4, false));
}

/// Every replica serves the changes of an election, each once.
#[tokio::test(flavor = "multi_thread")]
async fn an_election_is_watched() {
    let cluster = LogCluster::start(1).await;
    let mut client = Client::of(&cluster.served(0).address().to_string()).await;
    let lease = client.grant(600_000).await;
    let campaign = v1::AcquireLock { election: true, ..lock("e", lease) };
    let fence = client.request(Body::Acquire(campaign)).await.fence;
    let proclaim = v1::Proclaim { name: "e".into(), election: true, fence, value: "w".into() };
    for _ in 0..2 {
        assert_eq!(client.request(Body::Proclaim(proclaim.clone())).await.kind(), Kind::Applied);
    }
    client.request(Body::Revoke(v1::RevokeLease { lease })).await;
    let watched = v1::LockGuard { name: "e".into(), election: true, ..Default::default() };
    let watch = v1::KeyWatch {
        which: Some(v1::key_watch::Which::Lock(watched)),
        from: Some(v1::EventPosition { revision: 1, index: 0 }),
        ..Default::default()
    };
    let request = v1::KeyWatchRequest { watches: vec![watch], ..Default::default() };
    let mut stream = reader(&cluster, 0).await.watch(request).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let message = stream.message().await.unwrap().unwrap().message.unwrap();
        let v1::key_watch_response::Message::Events(events) = message else { continue };
        for event in events.events {
            let Some(v1::key_event::Change::Lock(change)) = event.change else { panic!("{event:?}") };
            seen.push((change.kind(), change.fence, change.lease, String::from_utf8_lossy(&change.value).into_owned()));
        }
    }
    use v1::lock_event::Kind as Change;
    let expected = [
        (Change::Granted, fence, lease, "v".to_owned()),
        (Change::Proclaimed, fence, 0, "w".to_owned()),
        (Change::Released, fence, 0, String::new()),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_rejected_with_its_field_and_changes_nothing() {
    let cluster = LogCluster::start(1).await;
    let mut client = Client::of(&cluster.served(0).address().to_string()).await;
    let lease = client.grant(600_000).await;
    let fence = client.acquire("l", lease).await;
    let other = client.grant(600_000).await;
    let before = cluster.node(0).replica.handle().status().revision;
    for (body, field) in [
        (Body::Grant(v1::GrantLease::default()), "term"),
        (
            Body::Grant(v1::GrantLease {
                term: Some(v1::grant_lease::Term::Member(v1::MemberBinding::default())),
                ..Default::default()
            }),
            "member.member",
        ),
        (release("l", None), "place"),
    ] {
        let error = client.rejected(body).await;
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some(field)), "{error}");
    }
    let wrong = |wanted: v1::AcquireLock| Body::Acquire(wanted);
    for (body, code, field) in [
        (grant(0), ErrorCode::InvalidArgument, Some("ttl_ms")),
        (grant(u64::MAX), ErrorCode::InvalidArgument, Some("ttl_ms")),
        (Body::Revoke(v1::RevokeLease { lease: 1 << 40 }), ErrorCode::NotFound, Some("lease")),
        (wrong(lock("l", 1 << 40)), ErrorCode::NotFound, Some("lease")),
        (wrong(lock("", lease)), ErrorCode::InvalidArgument, Some("name")),
        (wrong(v1::AcquireLock { permits: 2, ..lock("l", other) }), ErrorCode::FailedPrecondition, Some("permits")),
        (
            wrong(v1::AcquireLock { delay_ms: u64::MAX, ..lock("m", lease) }),
            ErrorCode::InvalidArgument,
            Some("delay_ms"),
        ),
        (wrong(lock("l", other)), ErrorCode::LockHeld, None),
        (release("l", Some(v1::release_lock::Place::Fence(fence + 1))), ErrorCode::NotFound, Some("lock")),
        (release("l", Some(v1::release_lock::Place::Lease(other))), ErrorCode::NotFound, Some("lock")),
        (
            Body::Proclaim(v1::Proclaim { name: "l".into(), fence: fence + 1, ..Default::default() }),
            ErrorCode::NotFound,
            Some("lock"),
        ),
    ] {
        let fate = client.request(body).await;
        let error = Error::from(fate.reason.clone().unwrap_or_default());
        assert_eq!(fate.kind(), Kind::NotApplied, "{fate:?}");
        assert_eq!((error.code, error.field.as_deref()), (code, field), "{error}");
        if code == ErrorCode::LockHeld {
            assert_eq!(error.known, Some(fence));
        }
    }
    let stale = v1::Epoch { term: 99, replica: 1 };
    for (message, code, field) in [
        (client.keeping(vec![]), ErrorCode::InvalidArgument, Some("leases")),
        (client.keeping(vec![lease; 1_001]), ErrorCode::InvalidArgument, Some("leases")),
        (Sent::LeaseKeepAlive(v1::LeaseKeepAlive::default()), ErrorCode::InvalidArgument, Some("log")),
        (
            Sent::LeaseKeepAlive(v1::LeaseKeepAlive { log: client.link.log, epoch: None, leases: vec![lease] }),
            ErrorCode::InvalidArgument,
            Some("epoch"),
        ),
        (
            Sent::LeaseKeepAlive(v1::LeaseKeepAlive { log: client.link.log, epoch: Some(stale), leases: vec![lease] }),
            ErrorCode::StaleEpoch,
            None,
        ),
        (
            Sent::AwaitPlace(v1::AwaitPlace { log: Some(7.into()), epoch: Some(stale), ..Default::default() }),
            ErrorCode::SessionGone,
            Some("log"),
        ),
        (
            Sent::AwaitPlace(v1::AwaitPlace { log: client.link.log, epoch: Some(stale), ..Default::default() }),
            ErrorCode::StaleEpoch,
            None,
        ),
    ] {
        client.link.send(message);
        let error = client.link.rejected().await;
        assert_eq!((error.code, error.field.as_deref()), (code, field), "{error}");
    }
    let mut reads = reader(&cluster, 0).await;
    for what in [one("l"), What::Leases(v1::LeaseQuery::default())] {
        let past = v1::ReadRequest { what: Some(what), revision: 1, ..Default::default() };
        assert_eq!(Error::from(reads.read(past).await.unwrap_err()).field.as_deref(), Some("revision"));
    }
    assert_eq!(cluster.node(0).replica.handle().status().revision, before);
}

/// Places survive the leader: a client that asks the next one gets the same fence, and its waiters are told.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_asks_the_next_leader_for_its_place() {
    let mut cluster = LogCluster::start(3).await;
    let leader = cluster.leader().await;
    let mut client = Client::of(&cluster.served(leader).address().to_string()).await;
    let leases = [client.grant(600_000).await, client.grant(600_000).await];
    let fence = client.acquire("l", leases[0]).await;
    assert_eq!(client.acquire("l", leases[1]).await, 0);
    client.link.send(client.awaiting("l", leases[1], 0));
    cluster.kill(leader).await;
    let next = cluster.leader().await;
    let mut client = Client::of(&cluster.served(next).address().to_string()).await;
    assert_eq!(client.acquire("l", leases[0]).await, fence);
    client.link.send_tagged(5, client.awaiting("l", leases[1], 0));
    let handle = cluster.node(next).replica.handle();
    eventually("the waiter waits at the next leader", async || handle.awaited_places() == 1).await;
    let mut other = Client::of(&cluster.served(next).address().to_string()).await;
    other.request(Body::Revoke(v1::RevokeLease { lease: leases[0] })).await;
    let (tag, granted) = client.told().await;
    assert!(tag == 5 && granted > fence, "{tag} {granted}");
}
