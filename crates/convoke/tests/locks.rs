//! Leases, locks and elections from the command line, with holders that die, pause or lose their lock.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{Process, TestNode, until};
use serde_json::Value;
use support::{binary, convoke, fails, failure, output};

/// Prints the fence, then runs until the command that holds the lock is gone.
const HOLD: &str = "echo fence $CONVOKE_FENCE; while kill -0 $PPID 2>/dev/null; do sleep 0.1; done";

struct Node(TestNode);

impl Node {
    fn start() -> Node {
        let dev = ["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"];
        Node(TestNode::spawn(&mut convoke(&dev)).ready())
    }

    fn at(&self) -> [&str; 4] {
        ["--addr", &self.0.clients, "--timeout", "30s"]
    }

    fn run(&self, arguments: &[&str]) -> String {
        output(&[arguments, &self.at()].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat())).unwrap()
    }

    #[track_caller]
    fn fails(&self, arguments: &[&str], code: i32) -> String {
        fails(&[arguments, &self.at()].concat(), code)
    }

    /// Starts `convoke lock` with a shell script.
    fn lock(&self, arguments: &[&str], script: &str) -> Process {
        let command = [&["lock"], arguments, &self.at(), &["--", "sh", "-c", script]].concat();
        Process::spawn(convoke(&command).env("CONVOKE", binary()).env("CONVOKE_ADDR", &self.0.clients))
    }
}

impl Node {
    /// Runs `convoke lock` with a command that must not run.
    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> String {
        let command = [&["lock"], arguments, &self.at(), &["--", "echo", "it ran"]].concat();
        failure(&convoke(&command).output().unwrap(), 125)
    }
}

fn fence(process: &Process) -> u64 {
    process.line("with the fence", |line| line.starts_with("fence "))["fence ".len()..].parse().unwrap()
}

#[test]
fn leases_from_the_command_line() {
    let node = Node::start();
    let granted = node.json(&["lease", "grant", "--ttl", "60s"]);
    assert_eq!(granted["ttl_ms"], 60_000);
    let lease = granted["lease"].as_str().unwrap();
    node.run(&["kv", "put", "app/session", "here", "--lease", lease]);
    assert_eq!(node.json(&["kv", "get", "app/session"])["lease"], lease);
    let left = node.json(&["lease", "keep-alive", lease, "--once"])["left_ms"].as_u64().unwrap();
    assert!(left <= 60_000, "{left}");
    let shown = node.json(&["lease", "show", lease]);
    assert_eq!((&shown["keys"], &shown["attached"][0]), (&Value::from(1), &Value::from("app/session")));
    let listed = node.json(&["lease", "list"]);
    assert_eq!(listed["leases"].as_array().unwrap().len(), 1, "{listed}");
    assert!(node.run(&["lease", "list"]).contains("1 lease\n"));
    assert_eq!(node.run(&["lease", "revoke", lease]), format!("lease {lease} revoked, with 1 key\n"));
    node.fails(&["kv", "get", "app/session"], 4);
    for command in [&["lease", "revoke", lease][..], &["lease", "show", lease], &["lease", "keep-alive", lease]] {
        node.fails(command, 4);
    }
    // A put without a lease detaches the key.
    let lease = node.json(&["lease", "grant"])["lease"].as_str().unwrap().to_owned();
    node.run(&["kv", "put", "app/kept", "1", "--lease", &lease]);
    node.run(&["kv", "put", "app/kept", "2"]);
    node.run(&["lease", "revoke", &lease]);
    assert_eq!(node.run(&["kv", "get", "app/kept", "--raw"]), "2");
    node.fails(&["kv", "put", "app/lost", "1", "--lease", "999999"], 4);
    node.fails(&["lease", "grant", "--ttl", "1ms"], 2);
}

#[test]
fn a_lease_that_is_kept_alive_outlives_its_ttl_and_expires_afterwards() {
    let node = Node::start();
    let lease = node.json(&["lease", "grant", "--ttl", "2s"])["lease"].as_str().unwrap().to_owned();
    let kept = [&["lease", "keep-alive", &lease][..], &node.at()].concat();
    let mut keeper = Process::spawn(&mut convoke(&kept));
    keeper.line("is kept alive", |line| line.contains("is kept alive"));
    node.run(&["kv", "put", "here", "1", "--lease", &lease]);
    let since = node.json(&["lease", "show", &lease]);
    until("the ttl has passed more than twice", || {
        let now = node.json(&["lease", "list"]);
        let now = &now["leases"][0];
        assert_eq!(now["lease"], since["lease"]);
        std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()
            > u128::from(now["since"].as_u64().unwrap()) + 5_000
    });
    keeper.interrupt();
    assert_eq!(keeper.wait().code(), Some(0), "{}", keeper.stderr());
    until("the lease has expired with its key", || {
        let get = convoke(&[&["kv", "get", "here"][..], &node.at()].concat()).output().unwrap();
        get.status.code() == Some(4)
    });
}

#[test]
fn a_lock_runs_its_command_and_is_handed_over_after_its_holder_was_killed() {
    let node = Node::start();
    let mut holder = node.lock(&["jobs", "--ttl", "3s", "--value", "first"], HOLD);
    let first = fence(&holder);
    let shown = node.json(&["lock", "show", "jobs"]);
    assert_eq!((&shown["holders"][0]["fence"], &shown["holders"][0]["value"]), (&first.into(), &"first".into()));
    let held = node.refused(&["jobs", "--wait", "0s"]);
    assert!(held.contains("held"), "{held}");
    let held = node.refused(&["jobs", "--wait", "200ms"]);
    assert!(held.contains("not granted within 0.2 s"), "{held}");
    let mut waiter = node.lock(&["jobs", "--ttl", "30s"], "echo fence $CONVOKE_FENCE; exit 7");
    until("the waiter is in the queue", || node.json(&["lock", "show", "jobs"])["waiting"] == 1);
    let explained = node.run(&["explain", "--lock", "jobs"]);
    assert!(explained.contains(&format!("with fence {first}")) && explained.contains("1 lease waiting"), "{explained}");
    holder.kill();
    assert!(fence(&waiter) > first);
    assert_eq!(waiter.wait().code(), Some(7), "{}", waiter.stderr());
    until("nothing is left", || {
        node.json(&["lock", "list"])["locks"].as_array().unwrap().is_empty()
            && node.json(&["lease", "list"])["leases"].as_array().unwrap().is_empty()
    });
}

#[test]
fn a_paused_holder_cannot_write_after_it_has_lost_the_lock() {
    let node = Node::start();
    let write = r#"echo fence $CONVOKE_FENCE
        while :; do
            "$CONVOKE" kv put state old --lock db --timeout 30s >/dev/null 2>&1
            code=$?
            [ $code = 0 ] || break
            echo wrote
        done
        echo refused $code
        while kill -0 $PPID 2>/dev/null; do sleep 0.1; done"#;
    let mut paused = node.lock(&["db", "--ttl", "3s"], write);
    let first = fence(&paused);
    paused.line("wrote", |line| line == "wrote");
    paused.pause();
    // The command of the paused holder goes on writing.
    let next = r#"echo fence $CONVOKE_FENCE
        "$CONVOKE" kv put state new --lock db --timeout 30s >/dev/null && echo written
        while kill -0 $PPID 2>/dev/null; do sleep 0.1; done"#;
    let holder = node.lock(&["db", "--ttl", "60s"], next);
    assert!(fence(&holder) > first);
    holder.line("written", |line| line == "written");
    let refused = paused.line("refused", |line| line.starts_with("refused "));
    assert_eq!(refused, "refused 5");
    assert_eq!(node.run(&["kv", "get", "state", "--raw"]), "new");
    paused.resume();
    assert_eq!(paused.wait().code(), Some(125), "it ends its command: {}", paused.stderr());
    assert!(paused.stderr().contains("is lost"), "{}", paused.stderr());
    assert_eq!(node.run(&["kv", "get", "state", "--raw"]), "new");
    let stale = ["kv", "delete", "state", "--lock", "db", "--fence", &first.to_string()];
    let error = node.fails(&stale, 5);
    assert!(error.contains(&format!("not held with fence {first}")), "{error}");
}

#[test]
fn a_lost_lock_ends_its_command_with_sigterm_and_then_sigkill() {
    let node = Node::start();
    for (script, stdout) in [
        // Ends itself after SIGTERM.
        ("trap 'echo terminated; exit 3' TERM; echo fence $CONVOKE_FENCE; while :; do sleep 0.1; done", "terminated"),
        // Ignores it.
        ("trap '' TERM; echo fence $CONVOKE_FENCE; while :; do sleep 0.1; done", "fence"),
    ] {
        let mut holder = node.lock(&["jobs", "--ttl", "60s", "--grace", "500ms"], script);
        let fence = fence(&holder).to_string();
        node.fails(&["lock", "release", "jobs", "--fence", "999999"], 4);
        node.run(&["lock", "release", "jobs", "--fence", &fence]);
        assert_eq!(holder.wait().code(), Some(125), "{}", holder.stderr());
        assert!(holder.stderr().contains("is lost"), "{}", holder.stderr());
        assert!(holder.stdout().contains(stdout), "{}", holder.stdout());
    }
}

#[test]
fn a_semaphore_has_as_many_holders_as_permits() {
    let node = Node::start();
    let permits = ["pool", "--permits", "2", "--ttl", "60s"];
    let holders: Vec<Process> = (0..2).map(|_| node.lock(&permits, HOLD)).collect();
    let fences: Vec<u64> = holders.iter().map(fence).collect();
    assert_ne!(fences[0], fences[1]);
    node.refused(&["pool", "--permits", "2", "--wait", "0s"]);
    let other = node.refused(&["pool", "--permits", "3", "--wait", "0s"]);
    assert!(other.contains('2'), "the error names the permits of the lock: {other}");
    let mut third = node.lock(&permits, "echo fence $CONVOKE_FENCE");
    until("it waits", || node.json(&["lock", "show", "pool"])["waiting"] == 1);
    holders[0].terminate();
    assert!(fence(&third) > fences[0].max(fences[1]));
    assert_eq!(third.wait().code(), Some(0));
}

#[test]
fn a_waiter_that_is_interrupted_leaves_the_queue() {
    let node = Node::start();
    let holder = node.lock(&["jobs", "--ttl", "60s"], HOLD);
    fence(&holder);
    let mut waiter = node.lock(&["jobs", "--ttl", "60s"], "echo never");
    until("it waits", || node.json(&["lock", "show", "jobs"])["waiting"] == 1);
    waiter.terminate();
    assert_eq!(waiter.wait().code(), Some(125));
    assert_eq!(waiter.stdout(), "");
    // Not only when its lease ends.
    assert_eq!(node.json(&["lock", "show", "jobs"])["waiting"], 0);
    assert_eq!(node.json(&["lease", "list"])["leases"].as_array().unwrap().len(), 1, "that of the holder");
}

#[test]
fn elections_from_the_command_line() {
    let node = Node::start();
    let watch = [&["elect", "watch", "workers", "--json"][..], &node.at()].concat();
    let watch = Process::spawn(&mut convoke(&watch));
    watch.line("the start", |line| line.contains(r#""leader":null"#) && line.contains(r#""reset":true"#));
    let elect = |value: &str| {
        let command = [&["elect", "workers", "--value", value, "--ttl", "60s"][..], &node.at()].concat();
        Process::spawn(&mut convoke(&command))
    };
    let mut first = elect("one");
    first.line("is held", |line| line.contains("is held with fence"));
    watch.line("the first leader", |line| line.contains(r#""value":"one""#));
    let mut second = elect("two");
    until("there is a candidate", || node.json(&["elect", "show", "workers"])["candidates"] == 1);
    assert!(node.run(&["elect", "list"]).contains("one"));
    first.interrupt();
    assert_eq!(first.wait().code(), Some(0), "{}", first.stderr());
    second.line("is held", |line| line.contains("is held with fence"));
    watch.line("the second leader", |line| line.contains(r#""value":"two""#));
    let leader = node.json(&["elect", "show", "workers"]);
    let fence = leader["leader"]["fence"].to_string();
    node.run(&["kv", "put", "plan", "b", "--election", "workers", "--fence", &fence]);
    node.run(&["elect", "resign", "workers", "--fence", &fence]);
    assert_eq!(second.wait().code(), Some(4), "{}", second.stderr());
    watch.line("no leader", |line| line.contains(r#""leader":null"#) && !line.contains("reset"));
    node.fails(&["kv", "put", "plan", "c", "--election", "workers", "--fence", &fence], 5);
    assert_eq!(watch.stdout().lines().count(), 4, "exactly one line per change: {}", watch.stdout());
}

#[test]
fn a_lock_of_a_member_is_held_with_its_registration() {
    let node = Node::start();
    let mut holder = node.lock(&["jobs", "--member", "worker-1", "--service", "workers"], HOLD);
    let held = fence(&holder);
    let shown = node.json(&["lock", "show", "jobs"]);
    assert_eq!((&shown["holders"][0]["fence"], &shown["holders"][0]["member"]), (&held.into(), &"worker-1".into()));
    assert_eq!(node.json(&["member", "worker-1"])["status"], "up");
    assert!(node.run(&["explain", "--lock", "jobs"]).contains("bound to member worker-1"));
    holder.terminate();
    holder.wait();
    until("the lock is free", || node.json(&["lock", "list"])["locks"].as_array().unwrap().is_empty());
    node.fails(&["member", "worker-1"], 4);
}
