//! Programs and libraries made for Consul, unmodified, against Convoke.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::skip;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::Served;

fn consul() -> Option<PathBuf> {
    let program = PathBuf::from(std::env::var("CONVOKE_CONSUL").unwrap_or("consul".to_owned()));
    Command::new(&program).arg("version").output().is_ok().then_some(program)
}

/// Runs the program and returns what it prints.
async fn run(program: &Path, served: &Served, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env("CONSUL_HTTP_ADDR", served.address().to_string());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
    stdout.into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consul_program_works() {
    let Some(consul) = consul() else {
        return skip("the_consul_program_works", "needs the program consul in PATH or CONVOKE_CONSUL");
    };
    let served = Served::start("alpha", &[], |config| config.cluster = "dc1".into(), |_| {}).await;
    let run = async |arguments: &[&str]| run(&consul, &served, arguments).await;
    let members = run(&["members"]).await;
    assert!(members.contains("alpha") && members.contains("alive") && members.contains("dc1"), "{members}");
    run(&["info"]).await;
    assert_eq!(run(&["catalog", "datacenters"]).await, "dc1\n");
    assert!(run(&["catalog", "nodes"]).await.contains("alpha"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.json");
    std::fs::write(
        &file,
        r#"{"Service":{"Name":"web","ID":"w1","Port":80,"Tags":["v1"],"Check":{"TTL":"10m","Status":"passing"}}}"#,
    )
    .unwrap();
    let registered = run(&["services", "register", file.to_str().unwrap()]).await;
    assert!(registered.contains("Registered service: web"), "{registered}");
    assert_eq!(run(&["catalog", "services"]).await, "consul\nweb\n");
    assert!(run(&["catalog", "services", "-tags"]).await.contains("v1"));
    assert!(run(&["catalog", "nodes", "-service=web", "-detailed"]).await.contains("alpha"));
    // A watch prints the first answer, and then each change.
    let mut watch = Command::new(&consul);
    watch.args(["watch", "-type=service", "-service=web", "-passingonly=true", "cat"]);
    watch.env("CONSUL_HTTP_ADDR", served.address().to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watching = watch.spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let next = async |mut lines: std::io::Lines<BufReader<std::process::ChildStdout>>| {
        tokio::task::spawn_blocking(move || {
            let line = lines.next().unwrap().unwrap();
            (line, lines)
        })
        .await
        .unwrap()
    };
    let (line, rest) = next(lines).await;
    lines = rest;
    assert!(line.contains("\"w1\""), "{line}");
    run(&["maint", "-enable", "-service=w1", "-reason=test"]).await;
    let (line, rest) = next(lines).await;
    assert_eq!(line, "[]", "a service in maintenance does not pass");
    assert!(run(&["maint"]).await.contains("w1"));
    run(&["maint", "-disable", "-service=w1"]).await;
    let (line, _rest) = next(rest).await;
    assert!(line.contains("\"w1\""), "{line}");
    watching.kill().unwrap();
    watching.wait().unwrap();
    let deregistered = run(&["services", "deregister", "-id=w1"]).await;
    assert!(deregistered.contains("Deregistered service: w1"), "{deregistered}");
    assert_eq!(run(&["catalog", "services"]).await, "consul\n");
}

const PYTHON: &str = r#"
import sys, consul
host, port = sys.argv[1].rsplit(":", 1)
c = consul.Consul(host=host, port=int(port))
assert c.agent.self()["Config"]["NodeName"] == "alpha"
assert [n["Node"] for n in c.catalog.nodes()[1]] == ["alpha"]
assert c.agent.service.register("web", service_id="w1", address="10.0.0.1", port=80, tags=["a"], check=consul.Check.ttl("10m"))
index, nodes = c.health.service("web", passing=True)
assert nodes == [], nodes
assert c.agent.check.ttl_pass("service:w1", notes="fine")
# The blocking query returns at once, because the result is another one.
index, nodes = c.health.service("web", passing=True, index=index, wait="30s")
assert [n["Service"]["ID"] for n in nodes] == ["w1"], nodes
assert nodes[0]["Checks"][1]["Output"] == "fine", nodes
assert c.agent.services()["w1"]["Tags"] == ["a"]
assert c.catalog.services()[1]["web"] == ["a"]
assert c.agent.service.maintenance("w1", True, "test")
assert c.health.service("web", passing=True)[1] == []
assert c.agent.service.maintenance("w1", False)
assert c.catalog.register("ext", "10.1.1.1", service={"Service": "db", "Port": 5432})
assert c.catalog.service("db")[1][0]["Address"] == "10.1.1.1"
assert c.catalog.deregister("ext")
assert c.catalog.node("ext")[1] is None
assert c.agent.service.deregister("w1")
assert c.health.service("web")[1] == []
print("complete")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn py_consul_works() {
    let python = std::env::var("CONVOKE_PYTHON").unwrap_or("python3".to_owned());
    let has = Command::new(&python).args(["-c", "import consul"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        return skip("py_consul_works", "needs the Python package py-consul for python3 or CONVOKE_PYTHON");
    }
    let served = Served::start("alpha", &[], |config| config.cluster = "dc1".into(), |_| {}).await;
    let printed = run(Path::new(&python), &served, &["-c", PYTHON, &served.address().to_string()]).await;
    assert_eq!(printed, "complete\n");
}
