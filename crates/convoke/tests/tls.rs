//! TLS with real nodes: `convoke init`, wrong certificates checked with openssl and curl, and the conversion of a running
//! cluster.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{Ambassador, connector};
use convoke_client::{CallbackGuard, Client, ClientTls, Event, MemberSpec, Status};
use convoke_testkit::{TestNode, free_address, until};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::http_session::HttpSession;
use support::{convoke, start_on};

const IDS: [&str; 3] = ["n1", "n2", "n3"];

/// Three nodes with fixed addresses, and the directory that `convoke init` wrote for them.
struct Secured {
    dir: tempfile::TempDir,
    clients: Vec<String>,
    peers: Vec<String>,
}

impl Secured {
    fn init() -> Secured {
        let dir = tempfile::tempdir().unwrap();
        let output = run(&mut convoke(&["init", dir.path().join("security").to_str().unwrap(), "--nodes", "n1,n2,n3"]));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let addresses = || IDS.map(|_| free_address()).to_vec();
        Secured { clients: addresses(), peers: addresses(), dir }
    }

    fn security(&self) -> PathBuf {
        self.dir.path().join("security")
    }

    fn ca(&self) -> PathBuf {
        self.security().join("ca.pem")
    }

    /// Starts a node with these modes of both ports.
    fn start(&self, index: usize, mode: &str) -> TestNode {
        let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
        let (client, peer) = (port(&self.clients[index]), port(&self.peers[index]));
        let data = self.dir.path().join(IDS[index]);
        let mut command = start_on(&data, [&client, &peer], &["--id", IDS[index], "--join", &self.peers.join(",")]);
        let files = self.security().join("nodes").join(IDS[index]);
        for (name, file) in [("CA", "ca.pem"), ("CERT", "cert.pem"), ("KEY", "key.pem")] {
            command.env(format!("CONVOKE_TLS_{name}"), files.join(file));
        }
        command.env("CONVOKE_TLS_CLIENT", mode).env("CONVOKE_TLS_PEER", mode);
        command.env("CONVOKE_TIMERS_HEARTBEAT_TIMEOUT", "40s").env("CONVOKE_TIMERS_DEAD_PEER_TIMEOUT", "120s");
        TestNode::spawn(&mut command)
    }

    /// Runs a client command of the binary at a node, with or without TLS.
    fn json(&self, index: usize, tls: bool, arguments: &[&str]) -> Option<Value> {
        let scheme = if tls { "https" } else { "http" };
        let address = format!("{scheme}://{}", self.clients[index]);
        let mut command = convoke(arguments);
        command.args(["--json", "--addr", &address]);
        if tls {
            command.arg("--ca").arg(self.ca());
        }
        let output = run(&mut command);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    fn all_up(&self, tls: bool) -> bool {
        (0..IDS.len()).all(|index| {
            let nodes = self.json(index, tls, &["nodes"]);
            let up = |nodes: &Value| {
                let nodes = nodes["nodes"].as_array().cloned().unwrap_or_default();
                nodes.iter().filter(|node| node["state"] == "up").count()
            };
            nodes.is_some_and(|nodes| up(&nodes) == IDS.len())
        })
    }
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// Whether a port answers openssl over TLS. A request of HTTP is answered on both ports, and ends the connection.
fn openssl(address: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", address, "-quiet"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    // A refused connection may have ended already.
    let _ = child.stdin.take().unwrap().write_all(request.as_bytes());
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains("HTTP/1.1 ")
}

/// Calls a node with grpcio and returns the name of the status. `None` without the environment of tests/python.
fn grpcio(address: &str, ca: &Path, own: Option<&(PathBuf, PathBuf)>) -> Option<String> {
    let prepared = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python");
    let generated = prepared.join("generated");
    if !generated.join("convoke").exists() {
        convoke_testkit::skip("ts3_an_independent_client with grpcio", "run tests/python/prepare first");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/python/status.py");
    let mut command = Command::new(prepared.join("bin/python"));
    command.env("PYTHONPATH", generated).env("PYTHONDONTWRITEBYTECODE", "1").arg(script).arg(address).arg(ca);
    let output = run(command.args(own.iter().flat_map(|(cert, key)| [cert, key])));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A certificate of a node that ended weeks ago. `None` without faketime.
fn expired(security: &Path) -> Option<(PathBuf, PathBuf)> {
    if !is_installed("faketime") {
        convoke_testkit::skip("ts3_an_independent_client with an expired certificate", "faketime is not installed");
        return None;
    }
    let issue = ["tls", "issue", path(security), "--node", "n9", "--days", "1"];
    let output = run(Command::new("faketime").arg("30 days ago").arg(env!("CARGO_BIN_EXE_convoke")).args(issue));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let directory = security.join("nodes/n9");
    let ended = run(Command::new("openssl").args(["x509", "-checkend", "0", "-in"]).arg(directory.join("cert.pem")));
    assert!(!ended.status.success(), "the certificate has ended");
    Some((directory.join("cert.pem"), directory.join("key.pem")))
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn ts3_an_independent_client_is_refused_with_every_wrong_certificate() {
    if !is_installed("openssl") {
        convoke_testkit::skip("ts3_an_independent_client", "openssl is not installed");
        return;
    }
    let secured = Secured::init();
    let _nodes: Vec<TestNode> = (0..3).map(|index| secured.start(index, "required")).collect();
    until("the nodes are connected over TLS", || secured.all_up(true));
    // Certificates: none, self-signed, expired, of another authority, of another cluster, of a client, of a node.
    let other = tempfile::tempdir().unwrap();
    assert!(run(&mut convoke(&["init", path(&other.path().join("x")), "--nodes", "n2"])).status.success());
    let security = secured.security();
    for arguments in [vec!["--client", "app"], vec!["--node", "n2x", "--cluster", "test"]] {
        let output = run(convoke(&["tls", "issue", path(&security)]).args(arguments));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let pair = |directory: PathBuf| (directory.join("cert.pem"), directory.join("key.pem"));
    let (node, client) = (pair(security.join("nodes/n2")), pair(security.join("clients/app")));
    let (foreign, other_cluster) = (pair(other.path().join("x/nodes/n2")), pair(security.join("nodes/n2x")));
    let self_signed = pair(other.path().to_owned());
    let request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=n2"];
    let mut command = Command::new("openssl");
    command.args(request).args(["-addext", "subjectAltName=URI:convoke://convoke/node/n2"]);
    let output = run(command.arg("-out").arg(&self_signed.0).arg("-keyout").arg(&self_signed.1));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expired = expired(&security);
    let call =
        |address: &str, own: &(PathBuf, PathBuf)| openssl(address, &["-cert", path(&own.0), "-key", path(&own.1)]);
    let (peers, clients) = (&secured.peers[0], &secured.clients[0]);
    for (what, own, peer_port, client_port) in [
        ("other authority", &foreign, false, false),
        ("other cluster", &other_cluster, false, false),
        ("self-signed", &self_signed, false, false),
        ("expired", expired.as_ref().unwrap_or(&foreign), false, false),
        ("client", &client, false, true),
        ("node", &node, true, true),
    ] {
        assert_eq!(call(peers, own), peer_port, "{what} at the peer port");
        assert_eq!(call(clients, own), client_port, "{what} at the client port");
        let code = grpcio(clients, &secured.ca(), Some(own));
        let expected = if client_port { "OK" } else { "UNAVAILABLE" };
        assert_eq!(code.as_deref().unwrap_or(expected), expected, "{what} with grpcio");
    }
    for (what, ca, expected) in [("right", secured.ca(), "OK"), ("other", other.path().join("x/ca.pem"), "UNAVAILABLE")]
    {
        assert_eq!(grpcio(clients, &ca, None).as_deref().unwrap_or(expected), expected, "{what} authority of grpcio");
    }
    assert!(!openssl(peers, &[]), "no certificate at the peer port");
    assert!(openssl(clients, &[]), "no certificate at the client port");
    assert!(!openssl(clients, &["-tls1_2"]), "TLS 1.2");
    if is_installed("curl") {
        let get = |arguments: &[&str]| run(Command::new("curl").args(["-sS", "--max-time", "60"]).args(arguments));
        let url = format!("https://{clients}/readyz");
        until("curl with the authority sees a ready node", || {
            get(&["--cacert", path(&secured.ca()), &url]).stdout == b"{\"ready\":true}"
        });
        assert!(!get(&[&url]).status.success(), "curl does not know the authority");
        let plain = get(&[&format!("http://{clients}/readyz")]);
        assert!(String::from_utf8_lossy(&plain.stdout).starts_with("this port requires TLS"));
    }
    assert!(secured.all_up(true), "the cluster did not notice");
    let refused = run(&mut convoke(&["status", "--addr", clients]));
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(3) && stderr.contains("requires TLS: use https://"), "{stderr}");
}

/// Clients during the conversion: one of the SDK with a member, one that writes keys, and one that watches both members
/// that must stay up.
struct Clients {
    _watch: CallbackGuard,
    sdk: Client,
    observer: Client,
    log: Ambassador,
    /// Id of the member of the SDK.
    member: &'static str,
}

impl Clients {
    fn start(secured: &Secured, tls: Option<&ClientTls>, member: &'static str, down: &Arc<AtomicBool>) -> Clients {
        let builder = Client::builder().seeds(secured.clients.clone()).client_id(member);
        let builder = tls.map_or(builder.clone(), |tls| builder.clone().tls(tls.clone()));
        let watching = Client::builder().seeds(secured.clients.clone());
        let watching = tls.map_or(watching.clone(), |tls| watching.clone().tls(tls.clone()));
        let log = match tls {
            Some(tls) => Ambassador::start_with(secured.clients.clone(), connector(Some(tls.clone()), None)),
            None => Ambassador::start(secured.clients.clone()),
        };
        let (observer, down) = (watching.build().unwrap(), down.clone());
        let filter = format!("id in (\"{member}\", \"{HTTP_MEMBER}\")");
        let note = move |event: Event| {
            let gone = matches!(event, Event::Unregistered { .. });
            down.fetch_or(gone || event.member().is_some_and(|member| member.status != Status::Up), Ordering::Relaxed);
        };
        let watch = observer.on_change(filter.as_str(), note).unwrap();
        Clients { _watch: watch, sdk: builder.build().unwrap(), observer, log: log.unwrap(), member }
    }
}

/// The member of the HTTP session.
const HTTP_MEMBER: &str = "h";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ts5_a_running_cluster_is_converted_without_an_interruption() {
    let secured = Arc::new(Secured::init());
    let tls = ClientTls::load(&secured.ca(), None).unwrap();
    let mut nodes: Vec<Option<TestNode>> = (0..3).map(|index| Some(secured.start(index, "off"))).collect();
    let settled = |tls| {
        let secured = secured.clone();
        async move {
            tokio::task::spawn_blocking(move || until("all nodes are connected", || secured.all_up(tls)))
                .await
                .unwrap();
        }
    };
    settled(false).await;
    let down = Arc::new(AtomicBool::new(false));
    let mut clients = Clients::start(&secured, None, "m", &down);
    let mut registration = clients.sdk.register(MemberSpec::new("m", "orders")).await.unwrap();
    let http = HttpSession::start(secured.clients.clone(), &secured.ca(), HTTP_MEMBER);
    let mut writes = 0;
    for (mode, client_tls) in [("optional", Some(&tls)), ("required", Some(&tls))] {
        for (index, slot) in nodes.iter_mut().enumerate() {
            // A graceful stop hands clients over, as in a rolling upgrade.
            let mut node = slot.take().unwrap();
            let stopping = move || {
                node.process.terminate();
                node.process.wait()
            };
            assert!(tokio::task::spawn_blocking(stopping).await.unwrap().success());
            *slot = Some(secured.start(index, mode));
            let plain_works = mode == "optional";
            settled(!plain_works).await;
            writes += 1;
            clients.log.kv().put("count", writes.to_string()).await.unwrap();
            for member in [clients.member, HTTP_MEMBER] {
                let member = clients.observer.get(member).await.unwrap();
                assert_eq!(member.status, Status::Up, "{}", member.id);
            }
        }
        let degraded = secured.json(0, mode == "required", &["status"]).unwrap()["degraded"].to_string();
        assert_eq!(degraded.contains("without TLS"), mode == "optional", "{degraded}");
        if mode == "optional" {
            // Now the clients are converted. The HTTP session continues over TLS; a new client has a member of the SDK.
            http.use_tls();
            clients = Clients::start(&secured, client_tls, "m2", &down);
            registration = clients.sdk.register(MemberSpec::new("m2", "orders")).await.unwrap();
        }
    }
    let written = http.finish();
    let shown = clients.observer.get(HTTP_MEMBER).await.unwrap();
    assert_eq!(shown.metadata.get("writes"), Some(&written.writes.to_string()), "the last write was not lost");
    assert!(written.retries > 0, "no request met a node that was stopping");
    assert!(!down.load(Ordering::Relaxed), "a member was reported down");
    drop(registration);
    let read = clients.log.kv().get("count").await.unwrap();
    assert_eq!(read.map(|entry| entry.value.to_vec()), Some(writes.to_string().into_bytes()));
    assert!(secured.json(0, false, &["status"]).is_none(), "the client port requires TLS");
    let _ = tokio::time::timeout(Duration::from_secs(60), clients.sdk.close()).await;
}
