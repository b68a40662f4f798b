//! The log plane with real processes: keys, a killed leader, backup and restore, the loss of a majority.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{Ambassador, Options, Write};
use convoke_testkit::{TestNode, free_address, skip, until};
use serde_json::Value;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;
use support::http::{raw, request};
use support::three::Three;
use support::{convoke, fails, failure, output, query, start, start_on};

/// TTL of a log session that is kept alive.
const TTL: Duration = Duration::from_secs(3);

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&output(arguments)).unwrap()
}

/// Checks for a usage error, which has no effect.
#[track_caller]
fn fails_usage(arguments: &[&str]) {
    let output = convoke(arguments).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
}

/// Runs a command that may have to wait for a leader.
fn eventually_output(arguments: &[&str]) -> String {
    let mut text = None;
    until("the command succeeds", || {
        let output = convoke(arguments).output().unwrap();
        text = output.status.success().then(|| String::from_utf8(output.stdout).unwrap());
        text.is_some()
    });
    text.unwrap()
}

#[test]
fn keys_from_the_command_line() {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let at = ["--addr", &node.clients, "--timeout", "30s"];
    let run = |arguments: &[&str]| output(&[arguments, &at].concat());
    let status = || -> Value { serde_json::from_str(&run(&["log", "status", "--json"])).unwrap() };
    assert_eq!(run(&["kv", "put", "app/limit", "10"]), "revision 1\n");
    assert_eq!(run(&["kv", "get", "app/limit", "--raw"]), "10");
    assert!(run(&["kv", "get", "app/limit"]).contains("Value     10\n"));
    let error = fails(&[&["kv", "put", "app/limit", "11", "--if-revision", "0"][..], &at].concat(), 5);
    assert!(error.contains("modify revision 1"), "{error}");
    assert_eq!(run(&["kv", "put", "app/limit", "11", "--if-revision", "1"]), "revision 2\n");
    // An argument that starts with a dash may be a mistyped flag, unless it is a number or follows --.
    fails_usage(&[&["kv", "put", "app/name", "--if-revison=7"][..], &at].concat());
    let dashed = ["kv", "put", "app/name", at[0], at[1], at[2], at[3], "--", "--x"];
    assert_eq!(output(&dashed), "revision 3\n");
    assert_eq!(run(&["kv", "get", "app/name", "--raw"]), "--x");
    let list = run(&["kv", "list", "app/"]);
    assert_eq!(list.lines().count(), 3, "{list}");
    let listed: Value = serde_json::from_str(&run(&["kv", "list", "--json"])).unwrap();
    assert_eq!((&listed["keys"][1]["key"], &listed["revision"]), (&"app/name".into(), &3.into()));
    assert_eq!(run(&["kv", "delete", "app/name"]), "deleted 1 key, revision 4\n");
    assert_eq!(fails(&[&["kv", "get", "app/name"][..], &at].concat(), 4), "no key \"app/name\"");
    let written: Value = serde_json::from_str(&run(&["kv", "put", "a", "-5", "--json"])).unwrap();
    assert_eq!(run(&["kv", "get", "a", "--raw"]), "-5");
    let request = format!("{}/{}", written["request"]["session"], written["request"]["number"]);
    let fate: Value = serde_json::from_str(&run(&["log", "resolve", &request, "--json"])).unwrap();
    assert_eq!((&fate["fate"], &fate["final"]), (&"applied".into(), &true.into()));
    // F8: no node knows of such a session, so no final fate can be given.
    let error = fails(&[&["log", "resolve", "999999/1"][..], &at].concat(), 4);
    assert!(error.contains("log session 999999 does not exist"), "{error}");
    // A1: an entry that replicas cannot decode would stop the log.
    for number in ["18446744073709551615", "72057594037927937"] {
        let error = fails(&[&["kv", "put", "a", "b", "--if-revision", number][..], &at].concat(), 2);
        assert!(error.contains("if_revision"), "{error}");
    }
    // Every command has ended its log session.
    assert_eq!(status()["sessions"], 0);
    assert!(run(&["log", "status"]).contains("available"));
    fails(&[&["log", "remove", "dev"][..], &at].concat(), 5);
    fails(&[&["log", "promote", "nobody"][..], &at].concat(), 4);
    assert_eq!(convoke(&["log", "resolve", "nonsense"]).output().unwrap().status.code(), Some(2));
    fails(&["kv", "get", "a", "--addr", &free_address(), "--timeout", "300ms"], 3);
}

/// Runs `kv txn` with a transaction on stdin.
fn txn(address: &str, text: &str, flags: &[&str]) -> std::process::Output {
    use std::io::Write;
    use std::process::Stdio;
    let arguments = [&["kv", "txn", "--addr", address, "--timeout", "30s"], flags].concat();
    let mut command = convoke(&arguments);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn transactions_and_older_revisions_from_the_command_line() {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let at = ["--addr", &node.clients, "--timeout", "30s"];
    let run = |arguments: &[&str]| output(&[arguments, &at].concat());
    let text =
        "# take over\nif missing owner\nthen put owner \"n 1\"\nthen put tmp/1 x\nthen list tmp/\nelse get owner\n";
    let done = txn(&node.clients, text, &[]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let shown = String::from_utf8(done.stdout).unwrap();
    assert_eq!(shown, "then, revision 1\n1: put\n2: put\n3: 1 key\n   tmp/1 = x (revision 1)\n");
    // A compare does not hold: the answer is printed, and the exit status is 5.
    let again = txn(&node.clients, text, &[]);
    assert_eq!(again.status.code(), Some(5), "{again:?}");
    assert_eq!(String::from_utf8(again.stdout).unwrap(), "else, revision 1\n1: 1 key\n   owner = n 1 (revision 1)\n");
    assert!(String::from_utf8(again.stderr).unwrap().contains("a compare did not hold"));
    let json = r#"{"then":[{"put":{"key":"owner","value":"n2","previous":true}}]}"#;
    let done = txn(&node.clients, json, &["--json"]);
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&answer["revision"], &answer["results"][0]["put"]["previous"]["version"]), (&2.into(), &1.into()));
    for (text, words) in [
        ("then put a", "line 1: expected `put KEY VALUE"),
        ("", "a transaction has 1 to 128"),
        (r#"{"then":[{"put":{"key":"a"}}]}"#, "then[0].put.value"),
        (r#"{"then":[{"set":{"key":"a"}}]}"#, "unknown variant `set`"),
    ] {
        let output = txn(&node.clients, text, &[]);
        assert!(failure(&output, 2).contains(words), "{text}: {output:?}");
    }
    let missing = fails(&[&["kv", "txn", "/nowhere/txn"][..], &at].concat(), 2);
    assert!(missing.contains("cannot open /nowhere/txn"), "{missing}");
    assert_eq!(run(&["kv", "get", "owner", "--revision", "1", "--raw"]), "n 1");
    assert_eq!(run(&["kv", "get", "owner", "--raw"]), "n2");
    assert_eq!(run(&["kv", "list", "--count"]), "2\n");
    assert_eq!(run(&["kv", "list", "--from", "p", "--count", "--revision", "1"]), "1\n");
    let listed: Value = serde_json::from_str(&run(&["kv", "list", "--keys", "--until", "p", "--json"])).unwrap();
    assert_eq!((&listed["keys"][0]["key"], &listed["keys"][0]["value"]), (&"owner".into(), &"".into()));
    let error = fails(&[&["kv", "get", "owner", "--revision", "9"][..], &at].concat(), 2);
    assert!(error.contains("revision 9 does not exist yet"), "{error}");
    fails_usage(&[&["kv", "list", "--keys", "--count"][..], &at].concat());
    let status: Value = serde_json::from_str(&run(&["log", "status", "--json"])).unwrap();
    assert_eq!(status["sessions"], 0, "every command has ended its log session");
}

/// Returns the first lines of a command that runs until its output is closed.
fn first_lines(arguments: &[&str], count: usize, begin: impl FnOnce()) -> Vec<String> {
    use std::io::{BufRead, BufReader};
    let mut child = convoke(arguments).stdout(std::process::Stdio::piped()).spawn().unwrap();
    begin();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lines = lines.take(count).map(Result::unwrap).collect();
    until("a watch ends when nobody reads it", || child.try_wait().unwrap().is_some());
    lines
}

#[test]
fn a_watch_of_keys_from_the_command_line() {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let at = ["--addr", &node.clients, "--timeout", "30s"];
    let run = |arguments: &[&str]| drop(output(&[arguments, &at].concat()));
    run(&["kv", "put", "config/a", "1"]);
    run(&["kv", "put", "other", "1"]);
    run(&["kv", "put", "config/a", "2"]);
    run(&["kv", "delete", "config/a"]);
    let watch = [&["kv", "watch", "config/", "--from", "1"], &at[..]].concat();
    let lines = first_lines(&watch, 3, || {});
    assert_eq!(
        lines,
        ["       1  put     config/a = 1", "       3  put     config/a = 2", "       4  delete  config/a"]
    );
    let lines = first_lines(&[&watch[..], &["--json"]].concat(), 2, || {});
    let put: Value = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!((&put["event"], &put["revision"], &put["key"]), (&"put".into(), &3.into(), &"config/a".into()));
    // The command runs once for each change, and gets the value on stdin.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seen");
    let script = format!("echo $CONVOKE_EVENT $CONVOKE_KEY $CONVOKE_REVISION $(cat) >> {}", file.display());
    let command = [&watch[..], &["--", "sh", "-c", &script]].concat();
    let mut child = convoke(&command).spawn().unwrap();
    let expected = "put config/a 1 1\nput config/a 3 2\ndelete config/a 4\n";
    until("the command has seen all changes", || std::fs::read_to_string(&file).is_ok_and(|seen| seen == expected));
    child.kill().unwrap();
    child.wait().unwrap();
    let failed = convoke(&[&watch[..], &["--", "false"]].concat()).output().unwrap();
    assert!(failure(&failed, 1).contains("false failed for put at revision 1"), "{failed:?}");
}

/// A value from stdin is stored unchanged.
#[test]
fn values_from_stdin() {
    use std::io::Write;
    use std::process::Stdio;
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let value = [0, 159, 146, 150, b'\n'];
    let mut put = convoke(&["kv", "put", "raw", "--addr", &node.clients])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    put.stdin.take().unwrap().write_all(&value).unwrap();
    assert!(put.wait().unwrap().success());
    let got = convoke(&["kv", "get", "raw", "--raw", "--addr", &node.clients]).output().unwrap();
    assert_eq!(got.stdout, value);
}

#[test]
fn a_killed_leader_a_backup_and_a_restored_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut three = Three::start(dir.path());
    let leader = three.leader();
    let addresses = three.addresses();
    assert_eq!(eventually_output(&["kv", "put", "k", "1", "--addr", &addresses]), "revision 1\n");
    three.kill(leader);
    let addresses = three.addresses();
    assert_eq!(output(&["kv", "put", "k", "2", "--addr", &addresses, "--timeout", "60s"]), "revision 2\n");
    three.spawn(dir.path(), leader);
    let addresses = three.addresses();
    let file = dir.path().join("backup");
    let backed_up =
        json(&["log", "backup", file.to_str().unwrap(), "--json", "--addr", &addresses, "--timeout", "60s"]);
    assert_eq!(backed_up["bytes"], std::fs::metadata(&file).unwrap().len());
    let error = fails(&["log", "backup", file.to_str().unwrap(), "--addr", &addresses], 5);
    assert!(error.contains("--force"), "{error}");
    drop(three);

    let restored = dir.path().join("restored");
    let path = restored.to_str().unwrap();
    let address = free_address();
    let offline = ["--data-dir", path, "--id", "r1", "--address", &address];
    let text = output(&[&["log", "restore", file.to_str().unwrap()][..], &offline].concat());
    assert!(text.contains("r1 is the only replica of a new log"), "{text}");
    fails(&[&["log", "restore", file.to_str().unwrap()][..], &offline].concat(), 5);
    let port = address.rsplit_once(':').unwrap().1;
    // Another id is rejected before anything is written; without an id the node uses the one of the restore.
    let rejected = start_on(&restored, ["0", port], &["--id", "other"]).output().unwrap();
    let error = failure(&rejected, 2);
    assert!(error.contains("holds the log of node r1, not of other: start the node with --id r1"), "{error}");
    assert!(!restored.join("incarnation").exists(), "no incarnation was written");
    let node = TestNode::spawn(&mut start_on(&restored, ["0", port], &[])).ready();
    assert_eq!(eventually_output(&["kv", "get", "k", "--raw", "--addr", &node.clients]), "2");
    assert_eq!(json(&["log", "status", "--json", "--addr", &node.clients])["node"], "r1");
}

/// An archive for Consul's programs is restored like a backup, and a damaged one is not.
#[test]
fn ck7_a_snapshot_for_consuls_programs_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    eventually_output(&["kv", "put", "k", "1", "--addr", &node.clients]);
    // Without chunks.
    let answer = raw(&node.clients, b"GET /v1/snapshot HTTP/1.0\r\nhost: x\r\n\r\n");
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert!(answer[..body].starts_with(b"HTTP/1.0 200"), "{}", String::from_utf8_lossy(&answer[..body]));
    drop(node);
    let (file, restored) = (dir.path().join("snapshot.tgz"), dir.path().join("restored"));
    let address = free_address();
    let offline = ["--data-dir", restored.to_str().unwrap(), "--id", "r1", "--address", &address];
    let restore = [&["log", "restore", file.to_str().unwrap()][..], &offline].concat();
    std::fs::write(&file, &answer[body..answer.len() - 10]).unwrap();
    let error = fails(&restore, 2);
    assert!(error.contains("the archive is incomplete or damaged"), "{error}");
    std::fs::write(&file, &answer[body..]).unwrap();
    let text = output(&restore);
    assert!(text.contains("r1 is the only replica of a new log") && text.contains("1 key"), "{text}");
    let node = TestNode::spawn(&mut start_on(&restored, ["0", address.rsplit_once(':').unwrap().1], &[])).ready();
    assert_eq!(eventually_output(&["kv", "get", "k", "--raw", "--addr", &node.clients]), "1");
}

/// SIGSTOP and SIGCONT: a leader that was replaced during its pause neither serves old state nor loses writes.
#[test]
fn a_paused_leader_is_replaced_and_serves_current_state_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let three = Three::start(dir.path());
    let leader = three.leader();
    eventually_output(&["kv", "put", "k", "1", "--addr", &three.addresses()]);
    let paused = three.nodes[leader].as_ref().unwrap();
    paused.process.pause();
    let others: Vec<&TestNode> = three.nodes.iter().flatten().filter(|node| node.clients != paused.clients).collect();
    let others = format!("{},{}", others[0].clients, others[1].clients);
    assert_eq!(output(&["kv", "put", "k", "2", "--addr", &others, "--timeout", "60s"]), "revision 2\n");
    paused.process.resume();
    // The first request after the pause goes only to this node.
    assert_eq!(eventually_output(&["kv", "get", "k", "--raw", "--addr", &paused.clients, "--timeout", "60s"]), "2");
    until("it has what it missed", || {
        let local = ["kv", "get", "k", "--raw", "--consistency", "local", "--addr", &paused.clients];
        convoke(&local).output().unwrap().stdout == b"2"
    });
}

/// Wall clocks jump by days while a log session is open and a request has a deadline. Neither is affected.
#[tokio::test(flavor = "multi_thread")]
async fn wall_clock_jumps_do_not_affect_the_log() {
    let Some(library) = support::faketime() else {
        return skip("wall_clock_jumps_do_not_affect_the_log", "needs libfaketime (package faketime)");
    };
    let dir = tempfile::tempdir().unwrap();
    let clock = |index: usize| dir.path().join(format!("n{index}.clock"));
    let set = |index: usize, time: &str| std::fs::write(clock(index), time).unwrap();
    let mut three = Three { nodes: Vec::new(), peers: (0..3).map(|_| free_address()).collect() };
    for index in 0..3 {
        set(index, ["+1h", "-1h", "+0"][index]);
        let port = three.peers[index].rsplit_once(':').unwrap().1;
        let id = format!("n{index}");
        let mut command =
            start_on(&dir.path().join(&id), ["0", port], &["--id", &id, "--join", &three.peers.join(",")]);
        command.env("LD_PRELOAD", &library).env("FAKETIME_TIMESTAMP_FILE", clock(index));
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        three.nodes.push(Some(TestNode::spawn(&mut command)));
    }
    let leader = three.leader();
    let kv = Ambassador::start(three.addresses().split(',')).unwrap().kv_with(Options::default().ttl(TTL));
    kv.put("k", "0").await.unwrap();
    let session = kv.session().unwrap();
    for (round, time) in ["+3d", "-300d", "+0"].into_iter().enumerate() {
        set(leader, time);
        set((leader + 1) % 3, ["-3d", "+10d", "-1h"][round]);
        let written = kv.write(Write::put("k", format!("{round}")).deadline(Duration::from_secs(60))).await;
        assert_eq!(written.unwrap().revision, round as u64 + 2);
        // Longer than the session's TTL and than an election.
        tokio::time::sleep(TTL + Duration::from_secs(1)).await;
        assert_eq!(kv.session(), Some(session), "the session was kept alive");
    }
}

/// M5: every node in turn restarts with another peer port, as containers do with other addresses.
#[test]
fn nodes_that_restart_at_other_addresses_rejoin_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut three = Three::start(dir.path());
    three.leader();
    eventually_output(&["kv", "put", "k", "0", "--addr", &three.addresses()]);
    for index in 0..3 {
        three.kill(index);
        three.peers[index] = free_address();
        three.spawn(dir.path(), index);
        let other = (index + 1) % 3;
        // A majority now needs the node that moved.
        three.kill(other);
        eventually_output(&["kv", "put", "k", &index.to_string(), "--addr", &three.addresses()]);
        three.spawn(dir.path(), other);
        three.leader();
    }
}

#[test]
fn one_node_recovers_alone_from_the_loss_of_a_majority_with_explicit_consent() {
    let dir = tempfile::tempdir().unwrap();
    let mut three = Three::start(dir.path());
    three.leader();
    let addresses = three.addresses();
    eventually_output(&["kv", "put", "k", "1", "--addr", &addresses]);
    until("n0 has it", || {
        let at = three.nodes[0].as_ref().unwrap().clients.clone();
        let got = convoke(&["kv", "get", "k", "--raw", "--consistency", "local", "--addr", &at]).output().unwrap();
        got.stdout == b"1"
    });
    three.kill(1);
    three.kill(2);
    let alone = three.nodes[0].as_ref().unwrap().clients.clone();
    let output_of = |arguments: &[&str]| convoke(arguments).output().unwrap();
    until("it has no majority", || {
        !output_of(&["kv", "put", "k", "2", "--addr", &alone, "--timeout", "500ms"]).status.success()
    });
    let path = dir.path().join("n0");
    let path = path.to_str().unwrap();
    let address = three.peers[0].clone();
    let recover = ["log", "recover", "--data-dir", path, "--address", &address];
    let confirmed = [&recover[..], &["--i-give-up-all-other-nodes", "n0"]].concat();
    let error = fails(&recover, 2);
    assert!(error.contains("LOST") && error.contains("--i-give-up-all-other-nodes n0"), "{error}");
    let error = failure(&output_of(&confirmed), 1);
    assert!(error.contains("another process uses"), "{error}");
    three.kill(0);
    fails(&[&recover[..], &["--i-give-up-all-other-nodes", "n1"]].concat(), 2);
    let text = output(&confirmed);
    assert!(text.contains("the old log is kept in"), "{text}");
    let port = address.rsplit_once(':').unwrap().1;
    let node = TestNode::spawn(&mut start_on(Path::new(path), ["0", port], &["--id", "n0"])).ready();
    assert_eq!(eventually_output(&["kv", "get", "k", "--raw", "--addr", &node.clients]), "1");
    eventually_output(&["kv", "put", "k", "3", "--addr", &node.clients]);
}

/// A dead node is replaced by another one and returns. With its old log it is rejected with the reason; with an empty
/// one it joins.
#[test]
fn a_dead_node_is_replaced_and_returns_as_a_new_replica() {
    let dir = tempfile::tempdir().unwrap();
    let mut three = Three::start(dir.path());
    let dead = (three.leader() + 1) % 3;
    let dead_id = format!("n{dead}");
    eventually_output(&["kv", "put", "k", "1", "--addr", &three.addresses()]);
    three.kill(dead);
    let addresses = three.addresses();
    let join = three.peers.join(",");
    let fourth = TestNode::spawn(&mut start_on(&dir.path().join("n3"), ["0", "0"], &["--id", "n3", "--join", &join]));
    let fourth = fourth.ready();
    let at = ["--addr", &addresses, "--timeout", "60s"];
    let run = |arguments: &[&str]| output(&[arguments, &at, &["--wait", "60s"]].concat());
    let done = run(&["log", "replace", &dead_id, "n3", "--address", &fourth.peers]);
    assert!(done.starts_with(&format!("n3 has replaced {dead_id}: configuration ")), "{done}");
    let status = |addresses: &str| json(&["log", "status", "--json", "--addr", addresses]);
    let voters = status(&addresses)["voters"].clone();
    assert!(
        voters.as_array().unwrap().contains(&"n3".into())
            && !voters.as_array().unwrap().contains(&dead_id.clone().into())
    );
    assert_eq!(output(&[&["kv", "put", "k", "2"][..], &at].concat()), "revision 2\n");

    three.spawn(dir.path(), dead);
    let back = three.nodes[dead].take().unwrap().ready();
    until("it reports that it was removed", || status(&back.clients)["role"] == "removed");
    let text = output(&["log", "status", "--addr", &back.clients]);
    assert!(text.contains("move its log directory away") && text.contains("`convoke log add"), "{text}");
    assert_eq!(
        output(&["kv", "get", "k", "--raw", "--addr", &back.clients, "--timeout", "60s"]),
        "2",
        "it knows the leader"
    );
    let add = ["log", "add", &dead_id, "--address", &back.peers];
    let error = fails(&[&add[..], &at].concat(), 5);
    assert!(error.contains("still holds a replica of this log") && error.contains("move the log directory"), "{error}");
    let mut back = back;
    back.process.terminate();
    back.process.wait();
    let path = dir.path().join(&dead_id);
    std::fs::rename(path.join("log"), path.join("log.old")).unwrap();
    three.spawn(dir.path(), dead);
    let back = three.nodes[dead].as_ref().unwrap();
    until("it runs", || convoke(&["status", "--addr", &back.clients]).output().unwrap().status.success());
    let done = run(&["log", "add", &dead_id, "--address", &back.peers]);
    assert!(done.starts_with(&format!("{dead_id} is a learner: configuration ")), "{done}");
    run(&["log", "promote", &dead_id]);
    until("it has everything", || {
        let local = ["kv", "get", "k", "--raw", "--consistency", "local", "--addr", &back.clients];
        convoke(&local).output().unwrap().stdout == b"2"
    });
}

/// A command that waits for a change reports the obstacle.
#[test]
fn a_blocked_change_reports_what_it_waits_for() {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let nowhere = free_address();
    let at = ["--addr", &node.clients, "--timeout", "30s"];
    let add = [&["log", "add", "n9", "--address", &nowhere, "--wait", "6s"][..], &at].concat();
    let added = convoke(&add).output().unwrap();
    assert_eq!((added.status.code(), &added.stdout[..]), (Some(1), &b""[..]));
    let printed = String::from_utf8(added.stderr).unwrap();
    let (waiting, ended) = printed.trim_end().split_once('\n').unwrap();
    assert!(waiting.contains("waiting: ") && waiting.contains(&nowhere), "{printed}");
    assert!(ended.contains("is committed but has not taken effect yet") && ended.contains(&nowhere), "{printed}");
    let text = output(&[&["log", "status"][..], &at].concat());
    assert!(text.contains("not adopted yet: ") && text.contains(&nowhere), "{text}");
    output(&[&["log", "remove", "n9"][..], &at].concat());
}

/// Only the leader knows the obstacle; a command that uses another node reports it as well.
#[test]
fn the_obstacle_of_the_leader_is_shown_at_a_follower() {
    let dir = tempfile::tempdir().unwrap();
    let three = Three::start(dir.path());
    let follower = (three.leader() + 1) % 3;
    let nowhere = free_address();
    let at = ["--addr", &three.nodes[follower].as_ref().unwrap().clients, "--timeout", "30s"];
    output(&[&["log", "add", "n9", "--address", &nowhere, "--wait", "0s"][..], &at].concat());
    until("the obstacle is reported", || {
        let text = output(&[&["log", "status"][..], &at].concat());
        text.contains("not adopted yet: ") && text.contains(&nowhere)
    });
}

/// A paused leader sends nothing and closes nothing. An idle client that was linked to it moves to the next leader.
#[test]
fn an_idle_client_leaves_a_paused_leader() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = support::founders(dir.path(), &[("n1", ""), ("n2", ""), ("n3", "")]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let log = Ambassador::start(nodes.iter().map(|node| node.clients.clone())).unwrap();
        let kv = log.kv_with(Options::default().ttl(Duration::from_secs(300)));
        kv.put("k", "before").await.unwrap();
        for reads in [false, true] {
            let leader = log.status(None).await.unwrap().leader;
            let leads = leader[1..].parse::<usize>().unwrap() - 1;
            nodes[leads].process.pause();
            let begin = std::time::Instant::now();
            let again = async {
                if reads {
                    assert_eq!(kv.get("k").await.unwrap().unwrap().value, "after");
                } else {
                    kv.put("k", "after").await.unwrap();
                }
            };
            let again = tokio::time::timeout(convoke_testkit::TEST_TIMEOUT, again).await;
            again.expect("the client finds the new leader");
            // After two seconds it tries the other nodes. Otherwise it would wait eight seconds, until the connection
            // is closed.
            let took = begin.elapsed();
            println!("served again {took:?} after the leader was paused");
            assert!(took < Duration::from_secs(7), "{took:?}");
            nodes[leads].process.resume();
            convoke_testkit::eventually("all are there again", async || {
                let known = |node: &TestNode| support::query(node, &["log", "status"])["available"] == true;
                nodes.iter().all(known)
            })
            .await;
        }
    });
}

/// Returns the response code and the number of answers to a question for the addresses of a service.
fn dns_answers(node: &TestNode, service: &str) -> (u8, u16) {
    let line = node.process.line("the addresses", |line| line.starts_with("ready: "));
    let (_, dns) = line.split_once("dns ").unwrap();
    let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in [service, "service", "convoke"] {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.send_to(&query, dns).unwrap();
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).unwrap();
    assert!(length > query.len() && answer[..2] == query[..2], "{answer:?}");
    (answer[3] & 0xf, u16::from_be_bytes([answer[6], answer[7]]))
}

/// R-72: no operation of the registry depends on the log. Two of three voters are dead, and a node without a replica is
/// left beside the last voter.
#[test]
fn without_a_quorum_the_registry_serves_fully() {
    let dir = tempfile::tempdir().unwrap();
    let mut three = Three::start(dir.path());
    let leader = three.leader();
    let arguments = ["--id", "other", "--join", &three.peers.join(",")];
    let other = TestNode::spawn(&mut start(&dir.path().join("other"), &arguments)).ready();
    three.kill(leader);
    three.kill((leader + 1) % 3);
    let mut voter = three.nodes[(leader + 2) % 3].take().unwrap();
    until("the log has no quorum", || request(&voter.clients, "GET", "/readyz?log", "").0 == 503);
    for node in [&voter, &other] {
        assert_eq!(request(&node.clients, "GET", "/readyz", "").0, 200);
    }
    let put = ["kv", "put", "a", "1", "--timeout", "2s", "--addr", &voter.clients];
    assert!(!convoke(&put).output().unwrap().status.success(), "the log cannot write");

    // Registration, watch, update, drain, explanation and DNS, each seen at the node that did not execute it.
    let watch = support::watch(&other.clients, "service == \"web\"");
    let both = format!("{},{}", voter.clients, other.clients);
    let web = support::register(&both, "web-1", &["--address", "127.0.0.1:80"]);
    watch.line("register", |line| line.contains("register") && line.contains("web-1"));
    until("the member is shown", || support::member_status(&other, "web-1").as_deref() == Some("up"));
    let (status, session) = request(&voter.clients, "POST", "/api/v1/sessions", "");
    assert_eq!(status, 200, "{session}");
    let session: Value = serde_json::from_str(&session).unwrap();
    let member = format!("/api/v1/sessions/{}/members/web-2", session["session"].as_str().unwrap());
    let (status, answer) = request(&voter.clients, "PUT", &member, r#"{"service":"web","address":"127.0.0.1:81"}"#);
    assert!((200..300).contains(&status), "{answer}");
    let (status, answer) = request(&voter.clients, "PATCH", &member, r#"{"k":"v"}"#);
    assert_eq!(status, 200, "{answer}");
    until("the update is seen", || query(&other, &["members"])["members"].to_string().contains(r#""k":"v""#));
    output(&["drain", "web-2", "--addr", &other.clients]);
    until("the drain is seen", || query(&voter, &["member", "web-2"])["drained"] == true);
    assert!(!query(&other, &["explain", "web-1"]).is_null());
    until("DNS has the member that is not drained", || dns_answers(&other, "web") == (0, 1));

    // A graceful stop hands the client over.
    voter.process.terminate();
    assert!(voter.process.wait().success());
    until("the client is at the other node", || query(&other, &["member", "web-1"])["owner"]["node"] == "other");
    assert!(!watch.stdout().lines().any(|line| line.contains("web-1") && line.contains("down")), "{}", watch.stdout());
    web.terminate();
    until("it is unregistered", || support::member_status(&other, "web-1").is_none());
}
