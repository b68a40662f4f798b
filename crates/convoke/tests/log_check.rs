//! `convoke log check` on the directory of a stopped node.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{TestNode, until};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use support::{convoke, output, query, start};

fn check(dir: &Path, arguments: &[&str]) -> (i32, Value) {
    let mut command = convoke(&["log", "check", "--json"]);
    let done = command.arg(dir).args(arguments).output().unwrap();
    (done.status.code().unwrap(), serde_json::from_slice(&done.stdout).unwrap_or_default())
}

/// Returns the error of a check without `--json`.
#[track_caller]
fn rejected(dir: &Path, arguments: &[&str], code: i32) -> String {
    let done = convoke(&["log", "check"]).arg(dir).args(arguments).output().unwrap();
    assert_eq!(done.status.code(), Some(code));
    String::from_utf8(done.stderr).unwrap()
}

fn run_and_stop(dir: &Path, act: impl Fn(&TestNode)) {
    let mut node = TestNode::spawn(&mut start(dir, &["--id", "n1"])).ready();
    until("the log works", || query(&node, &["log", "status"])["available"] == true);
    act(&node);
    node.process.terminate();
    node.process.wait();
}

fn last_segment(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "log")).max().unwrap()
}

#[test]
fn tears_and_damage_are_found_and_an_unsynced_tail_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let put = |node: &TestNode| drop(output(&["kv", "put", "k", "v", "--addr", &node.clients]));
    run_and_stop(dir, |node| {
        put(node);
        assert!(rejected(dir, &[], 1).contains("another process uses"));
    });
    let (code, fine) = check(dir, &[]);
    assert_eq!((code, &fine["node"], &fine["damage"]), (0, &"n1".into(), &serde_json::json!([])), "{fine}");
    assert!(fine["last"].as_u64().unwrap() > 0 && fine["committed"].as_u64().unwrap() > 0, "{fine}");

    // A short file is a tear, which a start cuts. The check changes nothing.
    let segment = last_segment(dir);
    let whole = fs::read(&segment).unwrap();
    fs::write(&segment, [&whole[..], b"cvkb"].concat()).unwrap();
    let (code, torn) = check(dir, &[]);
    assert!(code == 0 && torn["tear"]["what"].as_str().unwrap().contains("never synced"), "{torn}");
    assert_eq!(fs::read(&segment).unwrap().len(), whole.len() + 4);

    // Stale blocks after the last batch look like damage.
    fs::write(&segment, [&whole[..], &[0x5a; 512]].concat()).unwrap();
    let (code, damaged) = check(dir, &[]);
    assert!(code == 1 && damaged["damage"][0]["what"].as_str().unwrap().contains("at byte"), "{damaged}");
    assert!(rejected(dir, &[], 1).contains("--cut-tail"));
    let (code, cut) = check(dir, &["--cut-tail"]);
    assert_eq!((code, &cut["cut"]["after"]), (0, &whole.len().into()), "{cut}");
    assert_eq!(fs::read(cut["cut"]["kept_in"].as_str().unwrap()).unwrap(), [0x5a; 512]);
    assert_eq!(fs::read(&segment).unwrap(), whole);
    run_and_stop(dir, |node| assert_eq!(output(&["kv", "get", "k", "--raw", "--addr", &node.clients]), "v"));

    // Damage before a complete batch is not a tail.
    let segment = last_segment(dir);
    let mut bytes = fs::read(&segment).unwrap();
    bytes[40] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    assert_eq!(check(dir, &[]).0, 1);
    assert!(rejected(dir, &["--cut-tail"], 1).contains("damaged"));
    bytes[40] ^= 1;
    fs::write(&segment, &bytes).unwrap();

    fs::rename(dir.join("log/identity"), dir.join("identity-elsewhere")).unwrap();
    let (code, missing) = check(dir, &[]);
    assert!(code == 1 && missing["damage"][0]["path"].as_str().unwrap().ends_with("identity"), "{missing}");
    assert_eq!(check(&dir.join("log"), &[]).1, missing, "the log directory itself");
    assert!(rejected(&dir.join("none"), &[], 4).contains("contains no log"));
}
