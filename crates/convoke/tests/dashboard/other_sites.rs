//! Web pages of other sites, in a real browser: they neither change nor read anything at a node (docs/http.md).

use super::browser::Browser;
use super::{Members, support};
use serde_json::json;

/// A name of a public site that the browser resolves to this machine, as after DNS rebinding.
const REBOUND: &str = "rebound.example";

/// Ways in which a page sends a request to a node. `NODE` is replaced by its address.
const ATTEMPTS: &[&str] = &[
    "fetch('NODE/api/v1/kv/stolen', {method: 'PUT', body: '1'})",
    "fetch('NODE/api/v1/kv/stolen', {method: 'PUT', body: '1', headers: {'content-type': 'application/json'}})",
    "fetch('NODE/api/v1/kv/stolen', {method: 'POST', body: '{}', mode: 'no-cors'})",
    "fetch('NODE/api/v1/sessions', {method: 'POST', body: '{}', mode: 'no-cors'})",
    "fetch('NODE/api/v1/sessions', {method: 'POST', body: '{}', mode: 'no-cors', headers: {'content-type': 'text/plain'}})",
    "fetch('NODE/api/v1/members/m/drain', {method: 'PUT', mode: 'cors'})",
    "fetch('NODE/api/v1/kv/kept', {method: 'DELETE'})",
    "Promise.resolve(navigator.sendBeacon('NODE/api/v1/sessions', '{}'))",
    "new Promise((done) => { const form = document.createElement('form'); form.method = 'POST'; \
     form.action = 'NODE/api/v1/sessions'; form.target = 'frame'; const frame = document.createElement('iframe'); \
     frame.name = 'frame'; frame.onload = done; document.body.append(frame, form); form.submit(); })",
];

/// Sends all of them from the page that is open, and returns how many answers the page could read.
fn attack(browser: &Browser, node: &str) -> u64 {
    let mut read = 0;
    for attempt in ATTEMPTS.iter().map(|attempt| attempt.replace("NODE", node)) {
        let script = format!(
            "{attempt}.then((answer) => done(answer?.ok === true && answer.type !== 'opaque'), () => done(false))"
        );
        read += u64::from(browser.run_long(&script) == true);
    }
    let reads = format!("fetch('{node}/api/v1/kv/kept').then((answer) => done(answer.ok), () => done(false))");
    read + u64::from(browser.run_long(&reads) == true)
}

#[test]
fn pages_of_other_sites_reach_nothing() {
    let rules = format!("--host-resolver-rules=MAP {REBOUND} 127.0.0.1");
    let Some(browser) = Browser::start_with(&[&rules]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let nodes = support::cluster(dir.path(), 1);
    let mut members = Members::at(&nodes[0]);
    members.put("m", &json!({"service": "s"}));
    let address = nodes[0].clients.clone();
    support::output(&["kv", "put", "kept", "1", "--addr", &address]);
    let port = address.rsplit_once(':').unwrap().1;
    let node = format!("http://{address}");

    // A page of another site, of another port of this machine, and one without an origin.
    let other_dir = tempfile::tempdir().unwrap();
    let other = support::cluster(other_dir.path(), 1);
    for foreign in [format!("http://{}/healthz", other[0].clients), "data:text/html,<p>page</p>".to_owned()] {
        browser.open(&foreign);
        assert_eq!(attack(&browser, &node), 0, "{foreign}");
    }
    // After rebinding, the page is of the same site as the node.
    browser.open(&format!("http://{REBOUND}:{port}/healthz"));
    assert_eq!(attack(&browser, &format!("http://{REBOUND}:{port}")), 0, "rebound");
    assert_eq!(attack(&browser, &node), 0, "rebound, to the address");
    browser.open(&format!("http://{REBOUND}:{port}/ui/"));
    assert!(!browser.text("body").contains("Overview"), "no dashboard under a foreign name");

    let value = support::output(&["kv", "get", "kept", "--addr", &address]);
    assert!(value.contains('1'), "the key is unchanged: {value}");
    let keys = support::query(&nodes[0], &["kv", "list"]);
    assert!(!keys.to_string().contains("stolen"), "{keys}");
    let listed = support::query(&nodes[0], &["members"]);
    assert!(!listed.to_string().contains("\"drained\":true"), "{listed}");
    let sessions = support::query(&nodes[0], &["status"])["counts"]["sessions"].clone();
    assert_eq!(sessions, 1, "no page opened a session");

    // The checks do not stop the node's own page.
    browser.open(&format!("{node}/ui/#/members"));
    browser.wait("the dashboard works", "document.querySelector('.vt')?.innerText.includes('m')");
}
