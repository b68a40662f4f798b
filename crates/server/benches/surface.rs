//! Load test of the client port: two nodes in separate processes, clients in this one.
//!
//! `cargo bench -p convoke-server --bench surface` prints rates and the CPU time of the nodes per operation. The CPU time
//! depends less on other load on the machine.

#![allow(clippy::unwrap_used, reason = "a panic shows where a benchmark failed")]

use convoke_node::{Config, Node};
use convoke_proto::v1;
use convoke_proto::v1::client_message::Message as ClientMessage;
use convoke_proto::v1::registry_client::RegistryClient;
use convoke_proto::v1::request::Operation;
use convoke_proto::v1::server_message::Message as ServerMessage;
use convoke_proto::v1::watch_event::Event;
use convoke_server::Server;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

const MEMBERS: usize = 100_000;
const CLIENTS: usize = 8;
const BATCH: usize = 64;
const IN_FLIGHT: usize = 4;
const HEARTBEAT_CLIENTS: usize = 500;
const HEARTBEATS: usize = 400_000;
const CHANGES_PER_SECOND: usize = 12_000;
const PORTIONS: usize = 100;

fn main() {
    // Cargo adds `--bench`.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    match args.next().as_deref() {
        Some("serve") if std::env::var_os("ECHO").is_some() => runtime().block_on(echo()),
        Some("serve") => runtime().block_on(serve(args.next().unwrap(), args.next())),
        chosen => runtime().block_on(load(chosen.unwrap_or_default())),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

async fn serve(id: String, join: Option<String>) {
    let bound = Server::bind(convoke_server::Config::default()).await.unwrap();
    let mut config = Config::new(&id).unwrap();
    config.client_address = bound.address().to_string();
    config.join.extend(join);
    let node = Node::start(config).await.unwrap();
    let server = bound.serve(node.handle(), None);
    node.ready().await.unwrap();
    println!("{} {}", server.address(), node.peer_address());
    node.stopped().await;
}

/// Echoes what it receives. This measures what the operating system alone needs for a heartbeat and its answer.
async fn echo() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{} -", listener.local_addr().unwrap());
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                stream.write_all(&bytes[..count]).await.unwrap();
            }
        });
    }
}

/// A node in a separate process.
struct Process {
    child: Child,
    address: String,
    peer_address: String,
}

impl Process {
    fn start(id: &str, join: Option<&str>) -> Process {
        Process::spawn(Command::new(std::env::current_exe().unwrap()), id, join)
    }

    fn echo() -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("ECHO", "1");
        Process::spawn(command, "", None)
    }

    fn spawn(mut command: Command, id: &str, join: Option<&str>) -> Process {
        command.args(["serve", id]).args(join).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (address, peer_address) = line.trim().split_once(' ').unwrap();
        Process { address: address.to_owned(), peer_address: peer_address.to_owned(), child }
    }

    /// Returns the CPU time used so far.
    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }

    async fn connect(&self) -> RegistryClient<Channel> {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).unwrap().tcp_nodelay(true);
        RegistryClient::new(endpoint.connect().await.unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Session {
    send: mpsc::Sender<v1::ClientMessage>,
    receive: Streaming<v1::ServerMessage>,
    seq: u64,
}

impl Session {
    async fn attach(process: &Process, client: String) -> Session {
        Session::attach_on(process.connect().await, client).await
    }

    async fn attach_on(mut connection: RegistryClient<Channel>, client: String) -> Session {
        let (send, messages) = mpsc::channel(16);
        let attach = v1::Attach { client, nonce: 1, claim: 1, ..v1::Attach::default() };
        send.send(message(ClientMessage::Attach(attach))).await.unwrap();
        let receive = connection.attach(ReceiverStream::new(messages)).await.unwrap().into_inner();
        let mut this = Session { send, receive, seq: 0 };
        assert!(matches!(this.receive().await, ServerMessage::Attached(_)));
        this
    }

    async fn receive(&mut self) -> ServerMessage {
        self.receive.message().await.unwrap().unwrap().message.unwrap()
    }

    /// Sends operations in batches, several batches concurrently, and waits for all answers.
    async fn run(&mut self, operations: impl Iterator<Item = Operation>) {
        let mut operations = operations.peekable();
        let mut in_flight = 0;
        while operations.peek().is_some() || in_flight > 0 {
            while in_flight < IN_FLIGHT && operations.peek().is_some() {
                let batch = operations.by_ref().take(BATCH).map(|operation| {
                    self.seq += 1;
                    v1::Request { seq: self.seq, operation: Some(operation) }
                });
                let requests = batch.collect();
                self.send.send(message(ClientMessage::Requests(v1::Requests { requests }))).await.unwrap();
                in_flight += 1;
            }
            let ServerMessage::Answers(answers) = self.receive().await else { panic!("no answers") };
            assert!(answers.answers.iter().all(|answer| answer.error.is_none()), "{:?}", answers.answers[0]);
            in_flight -= 1;
        }
    }
}

fn message(message: ClientMessage) -> v1::ClientMessage {
    v1::ClientMessage { message: Some(message) }
}

fn register(client: usize, index: usize) -> Operation {
    let member = v1::MemberSpec {
        id: format!("orders-{client}-{index}"),
        service: format!("orders-{}", index % 100),
        locality: "aws.us-east-1.a".into(),
        address: "10.0.0.1:8080".into(),
        metadata: [("version".to_owned(), "v1".to_owned()), ("rack".to_owned(), "r7".to_owned())].into(),
        ..v1::MemberSpec::default()
    };
    Operation::Register(v1::Register { member: Some(member), takeover: false })
}

fn update(client: usize, index: usize, round: usize) -> Operation {
    let set = [("version".to_owned(), format!("v{round}"))].into();
    Operation::Update(v1::Update { id: format!("orders-{client}-{index}"), set, ..v1::Update::default() })
}

/// Measures an operation that takes `count` steps.
struct Measure<'a> {
    processes: &'a [Process],
    begun: Instant,
    cpu: Vec<Duration>,
}

impl<'a> Measure<'a> {
    fn begin(processes: &'a [Process]) -> Self {
        Measure { processes, begun: Instant::now(), cpu: processes.iter().map(Process::cpu).collect() }
    }

    fn end(self, what: &str, count: usize) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let used = self.processes.iter().zip(&self.cpu).map(|(process, before)| process.cpu() - *before);
        let used: Vec<String> = used.map(|used| format!("{:.1} µs", used.as_secs_f64() * 1e6 / count as f64)).collect();
        println!("{what}: {:.0}/s; CPU time per operation at the nodes: {}", count as f64 / seconds, used.join(", "));
    }
}

/// Runs all benchmarks, or only the chosen one.
async fn load(chosen: &str) {
    let first = Process::start("n0", None);
    let second = Process::start("n1", Some(&first.peer_address));
    let processes = [first, second];
    if chosen != "heartbeats" {
        let sessions = registrations(&processes).await;
        changes(&processes, sessions).await;
    }
    if chosen.is_empty() || chosen == "heartbeats" {
        heartbeats(&processes, HEARTBEAT_CLIENTS).await;
        heartbeats(&processes, HEARTBEAT_CLIENTS / 50).await;
        drop(processes);
        echoes().await;
    }
}

async fn registrations(processes: &[Process]) -> Vec<Session> {
    let mut sessions = Vec::new();
    for client in 0..CLIENTS {
        sessions.push(Session::attach(&processes[0], format!("client-{client}")).await);
    }
    let measure = Measure::begin(processes);
    let each = MEMBERS / CLIENTS;
    let sessions = each_session(sessions, move |client| (0..each).map(move |index| register(client, index))).await;
    measure.end("acknowledged registrations", MEMBERS);
    sessions
}

/// Runs the operations of all sessions concurrently.
async fn each_session<I: Iterator<Item = Operation> + Send + 'static>(
    sessions: Vec<Session>,
    operations: impl Fn(usize) -> I,
) -> Vec<Session> {
    let mut running = JoinSet::new();
    for (client, mut session) in sessions.into_iter().enumerate() {
        let operations = operations(client);
        running.spawn(async move {
            session.run(operations).await;
            (client, session)
        });
    }
    let mut done = running.join_all().await;
    done.sort_by_key(|(client, _)| *client);
    done.into_iter().map(|(_, session)| session).collect()
}

/// Heartbeats of clients that share the given number of connections. Each client has one heartbeat in flight.
async fn heartbeats(processes: &[Process], connections: usize) {
    let mut sessions = Vec::new();
    let mut shared = Vec::new();
    for _ in 0..connections {
        shared.push(processes[0].connect().await);
    }
    for client in 0..HEARTBEAT_CLIENTS {
        let connection = shared[client % connections].clone();
        sessions.push(Session::attach_on(connection, format!("beating-{connections}-{client}")).await);
    }
    let each = HEARTBEATS / HEARTBEAT_CLIENTS;
    let measure = Measure::begin(processes);
    let mut running = JoinSet::new();
    for mut session in sessions {
        running.spawn(async move {
            for sent in 0..each as u64 {
                session.send.send(message(ClientMessage::Heartbeat(v1::Heartbeat { sent }))).await.unwrap();
                let ServerMessage::HeartbeatAck(ack) = session.receive().await else { panic!("no answer") };
                assert_eq!((ack.sent, ack.error), (sent, None));
            }
        });
    }
    running.join_all().await;
    let what = format!("acknowledged heartbeats of {HEARTBEAT_CLIENTS} clients on {connections} connections");
    measure.end(&what, HEARTBEATS);
}

/// The same load over plain TCP, for comparison.
async fn echoes() {
    let processes = [Process::echo()];
    let each = HEARTBEATS / HEARTBEAT_CLIENTS;
    let measure = Measure::begin(&processes);
    let mut running = JoinSet::new();
    for _ in 0..HEARTBEAT_CLIENTS {
        let mut stream = TcpStream::connect(&processes[0].address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        running.spawn(async move {
            let mut bytes = [0; 20];
            for _ in 0..each {
                stream.write_all(&bytes).await.unwrap();
                stream.read_exact(&mut bytes).await.unwrap();
            }
        });
    }
    running.join_all().await;
    measure.end("for comparison, 20 bytes echoed over TCP", HEARTBEATS);
}

/// Updates at one node, received by a watcher at the other, at the given rate per second in ten batches.
async fn changes(processes: &[Process], mut sessions: Vec<Session>) {
    let request = v1::WatchRequest { filter: "service matches \"orders-*\"".into(), resume: None };
    let mut watch = processes[1].connect().await.watch(request).await.unwrap().into_inner();
    loop {
        match watch.message().await.unwrap().unwrap().event.unwrap() {
            Event::CaughtUp(_) => break,
            Event::Reset(_) => panic!("reset"),
            _ => {}
        }
    }
    let portion = CHANGES_PER_SECOND / 10 / CLIENTS;
    let all = portion * CLIENTS * PORTIONS;
    let measure = Measure::begin(processes);
    let watching = tokio::spawn(async move {
        let mut seen = 0;
        while seen < all {
            match watch.message().await.unwrap().unwrap().event.unwrap() {
                Event::Updated(_) => seen += 1,
                Event::Reset(_) => panic!("the watcher was too slow"),
                _ => {}
            }
        }
    });
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for round in 0..PORTIONS {
        ticks.tick().await;
        sessions =
            each_session(sessions, move |client| (0..portion).map(move |index| update(client, index, round + 2))).await;
    }
    watching.await.unwrap();
    measure.end("changes seen by a watcher at the other node", all);
}
