//! Signing in, and what callers with few grants see.

use super::browser::Browser;
use super::{page, support};
use convoke_testkit::{Process, TestNode};
use serde_json::json;
use std::path::{Path, PathBuf};

/// A node with access control, two members and a key, and a token for everything.
struct Guarded {
    dir: tempfile::TempDir,
    node: TestNode,
    _members: Vec<Process>,
}

impl Guarded {
    fn start() -> Guarded {
        let dir = tempfile::tempdir().unwrap();
        support::output(&["token", "keygen", path(&dir.path().join("security"))]);
        let keys = dir.path().join("keys");
        std::fs::create_dir(&keys).unwrap();
        std::fs::copy(dir.path().join("security/signing.pub"), keys.join("signing.pub")).unwrap();
        let mut command = support::start(&dir.path().join("n1"), &["--id", "n1"]);
        command.env("CONVOKE_AUTH_ENABLED", "true").env("CONVOKE_AUTH_KEYS", &keys);
        let node = TestNode::spawn(&mut command).ready();
        let mut guarded = Guarded { dir, node, _members: Vec::new() };
        let everything = guarded.issue("admin", &["* *"]);
        for (service, id) in [("orders", "orders-1"), ("payments", "payments-1")] {
            let mut command =
                support::convoke(&["register", "--service", service, "--id", id, "--addr", &guarded.node.clients]);
            let member = Process::spawn(command.arg("--token-file").arg(&everything));
            member.line("that it is registered", |line| line.contains("registered"));
            guarded._members.push(member);
        }
        let token = path(&everything);
        support::output(&["kv", "put", "config/a", "1", "--addr", &guarded.node.clients, "--token-file", token]);
        guarded
    }

    fn issue(&self, subject: &str, grants: &[&str]) -> PathBuf {
        let (key, out) = (self.dir.path().join("security/signing.key"), self.dir.path().join(subject));
        let mut arguments = vec!["token", "issue", "--key", path(&key), "--subject", subject, "--out", path(&out)];
        grants.iter().for_each(|grant| arguments.extend(["--grant", grant]));
        support::output(&arguments);
        out
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Enters a token into the dialog.
fn sign_in(browser: &Browser, token: &str) {
    let script = format!(
        "document.querySelector('.sign-in input').value = {}; document.querySelector('.sign-in button').click();",
        json!(token)
    );
    browser.wait("the dialog is open", "document.querySelector('dialog.sign-in[open]')");
    browser.run(&script);
}

#[test]
fn a_caller_signs_in_and_out() {
    let Some(browser) = Browser::start() else { return };
    let guarded = Guarded::start();
    let token = std::fs::read_to_string(guarded.issue("operator", &["* *"])).unwrap();
    browser.open(&page(&guarded.node, "members"));
    browser.wait("the dialog is open", "document.querySelector('dialog.sign-in[open]')");
    browser.picture("sign-in");
    assert!(!browser.text("#page").contains("orders-1"), "nothing is shown before");
    // A wrong token is refused with the reason, and the dialog opens again.
    sign_in(&browser, "wrong");
    browser.wait("the reason is shown", "document.querySelector('.sign-in-reason')?.innerText.includes('token')");
    sign_in(&browser, token.trim());
    browser.wait("the page is live", "document.querySelector('#pulse').innerText === 'Live'");
    browser.wait("members are shown", "document.querySelector('.vt').innerText.includes('payments-1')");
    assert_eq!(browser.run("return Object.keys(sessionStorage).length + Object.keys(localStorage).length"), 0);
    assert_eq!(browser.run("return document.cookie"), "");
    browser.open(&page(&guarded.node, "keys"));
    browser.wait("keys are shown", "document.querySelector('.keys')?.innerText.includes('config/a')");
    browser.run("document.querySelector('#sign-out').click()");
    browser.wait("the dialog is open again", "document.querySelector('dialog.sign-in[open]')");
    assert!(!browser.text("#page").contains("config/a"), "nothing is shown afterwards");
}

#[test]
fn a_caller_sees_only_what_its_grants_allow() {
    let Some(browser) = Browser::start() else { return };
    let guarded = Guarded::start();
    let token = std::fs::read_to_string(guarded.issue("reader", &["read service:orders"])).unwrap();
    browser.open(&page(&guarded.node, "services"));
    sign_in(&browser, token.trim());
    browser.wait("its service is shown", "document.querySelector('.services')?.innerText.includes('orders')");
    assert!(!browser.text("#page").contains("payments"), "other services do not exist");
    browser.wait(
        "the page says what is missing",
        "document.querySelector('#banner').innerText.includes('observe cluster')",
    );
    assert_eq!(browser.text("#pulse"), "Live");
    browser.open(&page(&guarded.node, "members"));
    browser.wait("its member is shown", "document.querySelector('.vt')?.innerText.includes('orders-1')");
    assert!(!browser.text("#page").contains("payments-1"));
    browser.open(&page(&guarded.node, "keys"));
    browser.wait("the denial is shown", "document.querySelector('#page').innerText.includes('read key:')");
    assert!(!browser.text("#page").contains("config/a"));
    browser.open(&page(&guarded.node, ""));
    // Its own member and the node: clients must be able to find nodes.
    browser.wait("the overview counts two members", "document.querySelector('#page').innerText.includes('2 up')");
}
