//! Invalid filters, and nodes that die while the dashboard is open.

use super::browser::Browser;
use super::{Members, page, support};
use convoke_testkit::TestNode;
use serde_json::json;

#[test]
fn an_invalid_filter_is_marked_at_its_position() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let nodes = support::cluster(dir.path(), 1);
    let mut members = Members::at(&nodes[0]);
    members.put("orders-1", &json!({"service": "orders"}));
    browser.open(&page(&nodes[0], "members"));
    browser.wait("all are read", "document.querySelector('.vt').dataset.state === 'live'");
    browser.write_filter("service = \"orders\"");
    browser.wait(
        "the problem is shown",
        "document.querySelector('.problem:not([hidden])')?.innerText.includes('column 9')",
    );
    assert_eq!(browser.text(".problem mark"), "=", "the position is marked");
    assert_eq!(browser.run("return document.querySelector('[data-filter]').getAttribute('aria-invalid')"), "true");
    assert!(browser.text(".vt").contains("orders-1"), "the previous result stays");
    browser.picture("filter-error");
    browser.write_filter("service == \"orders\"");
    browser.wait("the problem is gone", "document.querySelector('.problem').hidden");
    browser.wait("one matches", "document.querySelector('.vt').getAttribute('aria-rowcount') === '2'");
    // A single word is a search.
    members.put("web-1", &json!({"service": "web"}));
    browser.write_filter("order");
    browser.wait(
        "the word is found in ids and services",
        "document.querySelector('.vt').innerText.includes('orders-1') && document.querySelector('.problem').hidden \
         && document.querySelector('.vt').getAttribute('aria-rowcount') === '2'",
    );
    browser.open(&page(&nodes[0], "events"));
    browser.wait("events are listed", "document.querySelectorAll('.timeline li').length > 1");
    browser.write_filter("nonsense");
    browser.wait(
        "the problem is shown",
        "document.querySelector('.problem:not([hidden])')?.innerText.includes('column 1')",
    );
    // The browser may report only the rejected request.
    assert!(browser.console().iter().all(|line| line.contains("400")));
}

#[test]
fn the_page_stays_live_while_nodes_die() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = support::cluster(dir.path(), 3);
    let mut members = Members::at(&nodes[1]);
    members.put("stays", &json!({"service": "s"}));

    // Another node dies: the graph shows it, and the page keeps working.
    browser.open(&page(&nodes[0], ""));
    browser.wait("nodes are drawn", "document.querySelectorAll('.graph-links line[data-state=up]').length === 3");
    nodes[2].process.kill();
    let dead = "document.querySelector('.graph-nodes > g[data-state=lost], .graph-nodes > g[data-state=failed]')";
    browser.wait("the dead node is shown as such", &format!("{dead}?.textContent.includes('n3')"));
    browser.wait("its links are gone", "document.querySelectorAll('.graph-links line[data-state=up]').length === 1");
    browser.wait("it is in the timeline", "document.querySelector('.timeline').innerText.includes('n3')");
    assert_eq!(browser.text("#pulse"), "Live");
    browser.wait(
        "it has failed according to the other nodes",
        "document.querySelector('.nodes').innerText.includes('failed')",
    );
    browser.picture("node-failed");
    members.put("after-1", &json!({"service": "s"}));
    browser.wait("new events still appear", "document.querySelector('.timeline').innerText.includes('after-1')");

    // The node that serves the page dies: the page shows since when its data is stale, and a link to another node.
    browser.open(&page(&nodes[0], "members"));
    browser.wait("all are read", "document.querySelector('.vt').dataset.state === 'live'");
    browser.console();
    nodes[0].process.kill();
    browser.wait(
        "the banner is shown",
        "document.querySelector('#banner').innerText.includes('Disconnected from node n1 since')",
    );
    browser.wait(
        "the state beside the title shows it too",
        "document.querySelector('#pulse').innerText.startsWith('Stale since')",
    );
    let other = browser.run("return document.querySelector('#banner a')?.href ?? ''");
    assert_eq!(other.as_str().unwrap(), page(&nodes[1], "members"), "the link to a live node");
    assert!(browser.text(".vt").contains("stays"), "the known members are still shown");
    browser.picture("disconnected");

    // The node restarts at the same address: the page reconnects and shows the changes made meanwhile.
    members.put("meanwhile", &json!({"service": "s"}));
    let port = nodes[0].clients.rsplit(':').next().unwrap().to_owned();
    let arguments = ["--id", "n1", "--join", &nodes[1].peers];
    nodes[0] = TestNode::spawn(&mut support::start_at(&dir.path().join("n1"), &port, &arguments)).ready();
    browser.wait(
        "it is live again",
        "document.querySelector('#pulse').innerText === 'Live' && document.querySelector('#banner').innerText === ''",
    );
    browser.wait("what happened meanwhile is shown", "document.querySelector('.vt').innerText.includes('meanwhile')");
    members.put("later", &json!({"service": "s"}));
    browser.wait("new changes appear", "document.querySelector('.vt').innerText.includes('later')");
    // The browser may report only rejected connections.
    let messages = browser.console();
    assert!(messages.iter().all(|line| line.contains("net::ERR_")), "{messages:?}");
}

/// The leader of the log dies: the page of another node shows the new leader, and keys work again.
#[test]
fn keys_work_after_the_leader_of_the_log_dies() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = support::founders(dir.path(), &[("n1", ""), ("n2", ""), ("n3", "")]);
    let leader = support::query(&nodes[0], &["log", "status"])["leader"].as_str().unwrap().to_owned();
    let leads = leader[1..].parse::<usize>().unwrap() - 1;
    let looked = (leads + 1) % nodes.len();
    let address = nodes[looked].clients.clone();
    let put = |value: &str| support::output(&["kv", "put", "k", value, "--timeout", "60s", "--addr", &address]);
    put("before");
    browser.open(&page(&nodes[looked], "keys"));
    browser.wait("the key is shown", "document.querySelector('.keys').innerText.includes('before')");
    browser.wait("the leader is shown", &format!("document.querySelector('.log').innerText.includes('{leader}')"));
    nodes[leads].process.kill();
    put("after");
    browser.wait("the new value is shown", "document.querySelector('.keys').innerText.includes('after')");
    let led = "[...document.querySelectorAll('.log .facts div')].find((one) => one.innerText.startsWith('Leader'))?.innerText ?? ''";
    browser.wait("another node leads", &format!("/n[123]/.test({led}) && !({led}).includes('{leader}')"));
    browser.open(&page(&nodes[looked], ""));
    browser.wait("the overview shows it too", "document.querySelector('.nodes').innerText.includes('log leader')");
    // A read may have been rejected while there was no leader.
    let messages = browser.console();
    assert!(messages.iter().all(|line| line.contains("503") || line.contains("504")), "{messages:?}");
}
