//! Finds the leader and receives its answers.

use super::ambassador::Shared;
use super::peers;
use super::search::{LeaderLink, ProbeResult, Search};
use crate::Error;
use convoke_proto::v1;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_stream::StreamExt;

/// If requests wait for an answer and none is answered for this time, another node may lead, so all nodes are asked.
const LEADER_SILENCE: Duration = Duration::from_secs(2);
/// How often this is checked.
const SILENCE_CHECK: Duration = Duration::from_millis(500);

/// Timers stop while the machine is suspended, but leases do not, so time is checked this often while there are some.
const SUSPEND_CHECK: Duration = Duration::from_secs(1);

/// How long the ambassador runs after its last handle was dropped, so that sessions can end.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Runs until the last handle is dropped, and a little longer while sessions end.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut leaving = shared.leaving.subscribe();
    let gone = async {
        let _ = leaving.wait_for(|leaving| *leaving).await;
        let _ = tokio::time::timeout(CLOSE_GRACE, shared.ended()).await;
    };
    tokio::select! {
        biased;
        ((), ()) = async { tokio::join!(keep_time(&shared), keep_linked(&shared)) } => {}
        () = gone => {}
    }
}

/// Calls the core whenever one of its timers is due.
async fn keep_time(shared: &Shared) {
    loop {
        let next = shared.with(|core, now, out| {
            core.tick(now, out);
            let next = core.next_wake().map(|at| at.saturating_sub(now));
            if core.keeps_leases() { next.map(|next| next.min(SUSPEND_CHECK)) } else { next }
        });
        let waiting = async {
            match next {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        // A fixed order, here and below, keeps simulations reproducible.
        tokio::select! {
            biased;
            () = waiting => {}
            () = shared.timers.notified() => {}
        }
    }
}

/// Finds a leader whenever a link is needed.
async fn keep_linked(shared: &Shared) {
    let mut random = fastrand::Rng::new();
    let mut waiting = None;
    loop {
        while !shared.wants_link() {
            shared.link_requested.notified().await;
        }
        let found = match waiting.take() {
            Some(found) => Some(found),
            None => find(shared, &mut random).await,
        };
        if let Some(found) = found {
            waiting = listen(shared, found).await;
        }
    }
}

/// Asks all nodes at once, round by round, until one leads or no link is needed any more.
async fn find(shared: &Shared, random: &mut fastrand::Rng) -> Option<LeaderLink> {
    let (mut search, begun, mut hurried) = (Search::default(), Instant::now(), false);
    while shared.wants_link() {
        let mut result = search.round(shared, None).await;
        // At most once in a row: nodes that contradict each other must not cause rounds without a pause.
        hurried = !hurried && matches!(result, ProbeResult::NewReplicas);
        if !hurried && !matches!(result, ProbeResult::Leader(_)) && shared.wants_link() {
            result = pause_between_rounds(shared, &mut search, begun, random).await;
        }
        if let ProbeResult::Leader(found) = result {
            shared.peers().found();
            return Some(*found);
        }
    }
    None
}

/// Pauses after a round without a leader, unless a late answer names one. The full jitter prevents synchronized
/// requests of many clients.
async fn pause_between_rounds(
    shared: &Shared,
    search: &mut Search,
    begun: Instant,
    random: &mut fastrand::Rng,
) -> ProbeResult {
    let (rounds, now, share) = (shared.peers().record_failed_round(), Instant::now(), random.f64());
    loop {
        let pause = peers::pause(rounds, shared.pause_cap(begun)).mul_f64(share);
        tokio::select! {
            biased;
            result = search.next_result(shared), if search.is_asking() => if let ProbeResult::Leader(_) = result {
                return result;
            },
            () = tokio::time::sleep_until(now + pause) => return ProbeResult::None,
            // A new request has a shorter pause.
            () = shared.link_requested.notified() => {}
        }
    }
}

/// Receives answers of a leader until the link ends. Returns another leader if one was found in the meantime.
async fn listen(shared: &Shared, found: LeaderLink) -> Option<LeaderLink> {
    let LeaderLink { epoch, log, channel, outgoing, mut incoming } = found;
    let link = shared.link_up((epoch, log), channel, outgoing);
    let mut linked = shared.linked.subscribe();
    let link_left = async move {
        // Ends when the core has left this link.
        let _ = linked.wait_for(|linked| linked.as_ref().is_none_or(|present| present.link != link)).await;
    };
    tokio::pin!(link_left);
    let later = later_leader(shared, epoch);
    tokio::pin!(later);
    let found = loop {
        tokio::select! {
            biased;
            () = &mut link_left => break None,
            message = incoming.next() => match message {
                Some(Ok(message)) => shared.with(|core, now, out| core.received(now, link, message, out)),
                Some(Err(status)) => {
                    let error = Error::from(status);
                    shared.peers().learn(&error.log.map(|log| log.replicas).unwrap_or_default());
                    break None;
                }
                None => break None,
            },
            later = &mut later => break Some(later),
        }
    };
    shared.link_down(link);
    found
}

/// Returns a leader of a later epoch, once requests or reads have waited for the present one for [`LEADER_SILENCE`].
///
/// A leader that is cut off from the other replicas, but not from this client, answers keep-alives and welcomes new
/// links until it notices. Neither ends the doubt about it.
async fn later_leader(shared: &Shared, epoch: v1::Epoch) -> LeaderLink {
    let mut search = Search::default();
    loop {
        tokio::time::sleep(SILENCE_CHECK).await;
        if shared.unanswered_for() < LEADER_SILENCE {
            search = Search::default();
        } else if let ProbeResult::Leader(later) = search.round(shared, Some(epoch)).await {
            return *later;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ErrorCode;
    use crate::connect::{Answers, Connect, Connecting, InProcessNode, Responding, TcpConnect};
    use crate::log::{Ambassador, Options};
    use convoke_proto::v1;
    use convoke_proto::v1::submit_response::Message;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use tokio::sync::mpsc;
    use tokio::time::{Instant, sleep};
    use tokio_stream::StreamExt;
    use tonic::Status;
    use tonic::body::Body;
    use tonic::codegen::http;
    use tonic::transport::Endpoint;

    /// Connects with a given outcome, and records when each attempt began.
    #[derive(Debug)]
    struct Counted {
        outcome: ConnectOutcome,
        attempts: Mutex<Vec<Instant>>,
        done: Mutex<usize>,
    }

    #[derive(Clone, Copy, Debug)]
    enum ConnectOutcome {
        Tcp,
        /// Fails at once.
        Rejected,
        /// Takes this long, then fails.
        Slow(Duration),
    }

    impl Connect for Counted {
        fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> Connecting<'a> {
            self.attempts.lock().unwrap().push(Instant::now());
            Box::pin(async move {
                match self.outcome {
                    ConnectOutcome::Tcp => TcpConnect.connect(endpoint).await,
                    ConnectOutcome::Rejected => Err(Endpoint::new("\0").unwrap_err()),
                    ConnectOutcome::Slow(time) => {
                        sleep(time).await;
                        *self.done.lock().unwrap() += 1;
                        std::future::pending().await
                    }
                }
            })
        }
    }

    impl Counted {
        fn new(outcome: ConnectOutcome) -> Arc<Counted> {
            Arc::new(Counted { outcome, attempts: Mutex::default(), done: Mutex::default() })
        }

        fn attempts(&self) -> Vec<Instant> {
            self.attempts.lock().unwrap().clone()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_connection_to_a_node_does_for_a_whole_search() {
        let bound = convoke_server::Server::bind(convoke_server::Config::default()).await.unwrap();
        let address = bound.address().to_string();
        let node = convoke_node::Node::start(convoke_node::Config::new("n0").unwrap()).await.unwrap();
        // A node without a log rejects all requests.
        let _server = bound.serve(node.handle(), None);
        let connect = Counted::new(ConnectOutcome::Tcp);
        let ambassador = Ambassador::start_with([address], connect.clone()).unwrap();
        let kv = ambassador.kv_with(Options::default().timeout(Duration::from_secs(2)));
        assert_eq!(kv.put("a", "1").await.unwrap_err().code, ErrorCode::Timeout);
        assert_eq!(connect.attempts().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_leader_a_client_asks_often_at_first_and_seldom_later() {
        let connect = Counted::new(ConnectOutcome::Rejected);
        let ambassador = Ambassador::start_with(["a:1"], connect.clone()).unwrap();
        let kv = ambassador.kv();
        let start = Instant::now();
        let _waiting = kv.put("a", "1");
        sleep(Duration::from_secs(600)).await;
        let attempts = connect.attempts();
        let within = |seconds| attempts.iter().filter(|at| **at - start < Duration::from_secs(seconds)).count();
        assert!(within(1) >= 5, "a new leader is found soon: {}", within(1));
        assert!(
            attempts.len() < 400,
            "one in two and a half seconds on average, not {} in ten minutes",
            attempts.len()
        );

        // A new request waits no longer than in the first rounds.
        for _ in 0..20 {
            sleep(Duration::from_secs(30)).await;
            let (asked, before) = (Instant::now(), connect.attempts().len());
            let _waiting = kv.put("a", "2");
            sleep(Duration::from_millis(501)).await;
            let next = connect.attempts()[before];
            assert!(next - asked <= Duration::from_millis(500), "{:?}", next - asked);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_answers_slowly_is_waited_for_and_not_asked_twice() {
        let connect = Counted::new(ConnectOutcome::Slow(Duration::from_secs(4)));
        let ambassador = Ambassador::start_with(["a:1"], connect.clone()).unwrap();
        let kv = ambassador.kv();
        let _waiting = kv.put("a", "1");
        sleep(Duration::from_secs(600)).await;
        let (attempts, done) = (connect.attempts().len(), *connect.done.lock().unwrap());
        assert!(attempts <= 125 && done + 5 > attempts, "{done} of {attempts}");
    }

    /// The old leader is frozen: it accepts connections and does not answer. The new one rejects the first probe, because
    /// it has not committed anything yet.
    #[derive(Debug, Default)]
    struct JustElected {
        probes: Mutex<Vec<Instant>>,
    }

    impl Connect for Arc<JustElected> {
        fn connect<'a>(&'a self, _: &'a Endpoint) -> Connecting<'a> {
            Box::pin(std::future::pending())
        }

        fn local(&self, address: &str) -> Option<Arc<dyn InProcessNode>> {
            (address == "new:1").then(|| self.clone() as Arc<dyn InProcessNode>)
        }
    }

    impl InProcessNode for JustElected {
        fn call(&self, _: http::Request<Body>) -> Responding {
            Box::pin(std::future::pending())
        }

        fn submit(&self, _: mpsc::UnboundedReceiver<v1::SubmitRequest>) -> Result<Answers, Status> {
            let mut probes = self.probes.lock().unwrap();
            probes.push(Instant::now());
            if probes.len() == 1 {
                return Err(Status::unavailable("not yet"));
            }
            let (epoch, log) = (v1::Epoch { term: 2, replica: 2 }, v1::LogId { high: 1, low: 1 });
            let welcome = Message::Welcome(v1::Welcome { epoch: Some(epoch), log: Some(log) });
            let first = v1::SubmitResponse { tag: 0, message: Some(welcome) };
            Ok(Box::pin(tokio_stream::once(Ok(first)).chain(tokio_stream::pending())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_frozen_node_does_not_delay_the_search_for_its_successor() {
        let nodes = Arc::new(JustElected::default());
        let ambassador = Ambassador::start_with(["frozen:1", "new:1"], Arc::new(nodes.clone())).unwrap();
        let (kv, start) = (ambassador.kv(), Instant::now());
        let _waiting = kv.put("a", "1");
        let mut linked = ambassador.shared.linked.subscribe();
        linked.wait_for(Option::is_some).await.unwrap();
        assert_eq!(nodes.probes.lock().unwrap().len(), 2);
        assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    }
}
