//! Third-party programs find members through a node: HAProxy by DNS, Prometheus by HTTP.
//!
//! If a program is not installed, its test reports that and passes without a check. `.ci/run` installs all of them.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, TestNode, free_address, skip, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use support::{convoke, output, query, register};

/// Whether a program is installed; otherwise the test is skipped.
fn installed(test: &str, program: &str) -> bool {
    let found =
        Command::new(program).arg("-v").output().is_ok() || Command::new(program).arg("--version").output().is_ok();
    if !found {
        skip(test, format!("needs {program} (.ci/run installs it)"));
    }
    found
}

fn node() -> TestNode {
    TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready()
}

fn dns_of(node: &TestNode) -> String {
    format!("127.0.0.1:{}", query(node, &["status"])["ports"]["dns"])
}

/// Sends a GET request. Returns `None` unless the status is 200.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split_once(' ')?.1.starts_with("200").then(|| body.to_owned())
}

/// A server that answers with its name, registered as a member of `web`.
struct Backend {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
    registration: Process,
}

impl Backend {
    fn start(node: &TestNode, name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, printed) = (stop.clone(), name.to_owned());
        let serving = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4_096]);
                let length = printed.len();
                let _ =
                    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{printed}");
            }
        });
        let registration = register(&node.clients, name, &["--address", &address.to_string()]);
        registration.line("is registered", |line| line.contains("is registered"));
        Backend { address, stop, serving: Some(serving), registration }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Unblocks the accept call.
        let _ = TcpStream::connect(self.address);
        if let Some(serving) = self.serving.take() {
            serving.join().unwrap();
        }
    }
}

/// Returns the backends that answer a series of requests, all of which must succeed.
fn answering(frontend: &str) -> BTreeSet<String> {
    (0..20).map(|_| get(frontend, "/").expect("a request through HAProxy failed")).collect()
}

#[test]
fn haproxy_follows_a_service() {
    if !installed("haproxy_follows_a_service", "haproxy") {
        return;
    }
    let node = node();
    let first = Backend::start(&node, "web-1");
    let mut second = Backend::start(&node, "web-2");
    let (frontend, dir) = (free_address(), tempfile::tempdir().unwrap());
    let config = dir.path().join("haproxy.cfg");
    let text = format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 10s\n  timeout server 10s\n\
         resolvers convoke\n  nameserver node {dns}\n  accepted_payload_size 1232\n  timeout resolve 200ms\n  \
         timeout retry 200ms\n  hold valid 200ms\n  hold nx 200ms\n  hold obsolete 0s\n\
         frontend in\n  bind {frontend}\n  default_backend web\n\
         backend web\n  balance roundrobin\n  \
         server-template web 5 _web._tcp.service.convoke resolvers convoke resolve-opts allow-dup-ip init-addr none\n",
        dns = dns_of(&node)
    );
    std::fs::write(&config, text).unwrap();
    let _haproxy = Process::spawn(Command::new("haproxy").arg("-db").arg("-f").arg(&config));
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<String>>();
    until("HAProxy has found both", || {
        get(&frontend, "/").is_some() && answering(&frontend) == names(&["web-1", "web-2"])
    });

    // A drained backend gets no more requests and is stopped only then. No request fails.
    output(&["drain", "web-2", "--addr", &node.clients]);
    until("the drained backend gets no requests", || answering(&frontend) == names(&["web-1"]));
    second.registration.terminate();
    second.registration.wait();
    drop(second);
    assert_eq!(answering(&frontend), names(&["web-1"]));

    let third = Backend::start(&node, "web-3");
    until("the new one is found", || answering(&frontend) == names(&["web-1", "web-3"]));
    output(&["drain", "web-1", "--addr", &node.clients]);
    until("the last old backend gets no requests", || answering(&frontend) == names(&["web-3"]));
    drop(first);
    assert_eq!(answering(&frontend), names(&["web-3"]));
    drop(third);
}

#[test]
fn prometheus_discovers_and_scrapes() {
    if !installed("prometheus_discovers_and_scrapes", "prometheus") {
        return;
    }
    let node = node();
    // The node itself is the scrape target.
    let mut registration = register(&node.clients, "scraped", &["--address", &node.clients, "--meta", "team=blue"]);
    registration.line("is registered", |line| line.contains("is registered"));
    let (listening, dir) = (free_address(), tempfile::tempdir().unwrap());
    let config = dir.path().join("prometheus.yml");
    let text = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n- job_name: convoke\n  http_sd_configs:\n  \
         - url: http://{}/api/v1/sd/prometheus?service=web\n    refresh_interval: 1s\n  relabel_configs:\n  \
         - source_labels: [__meta_convoke_metadata_team]\n    target_label: team\n",
        node.clients
    );
    std::fs::write(&config, text).unwrap();
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", config.display()));
    prometheus.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
    prometheus.arg(format!("--web.listen-address={listening}")).current_dir(dir.path());
    let _prometheus = Process::spawn(&mut prometheus);
    let targets = || -> Vec<(String, String)> {
        let Some(answer) = get(&listening, "/api/v1/targets") else { return Vec::new() };
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let targets = answer["data"]["activeTargets"].as_array().cloned().unwrap_or_default();
        targets.iter().map(|target| (text(&target["labels"]["team"]), text(&target["health"]))).collect()
    };
    until("the member is scraped", || targets() == [("blue".to_owned(), "up".to_owned())]);
    until("its metrics are there", || {
        get(&listening, "/api/v1/query?query=convoke_ready").is_some_and(|answer| answer.contains("\"team\":\"blue\""))
    });
    registration.terminate();
    registration.wait();
    until("unregistered members are not scraped", || targets().is_empty());
}
