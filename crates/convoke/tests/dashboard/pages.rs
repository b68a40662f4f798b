//! Every page renders the current state without console messages and shows changes.

use super::browser::Browser;
use super::{Members, encoded, page, support};
use convoke_testkit::TestNode;
use serde_json::{Value, json};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A script that would run if it became part of the page.
const HOSTILE: &str = "<img src=x onerror=\"window.broken=true\">";

const SERVICES: [(&str, usize); 8] = [
    ("orders", 12),
    ("payments", 8),
    ("inventory", 15),
    ("search", 6),
    ("gateway", 10),
    ("mailer", 3),
    ("recommendations", 7),
    ("audit", 2),
];

const KEYS: [(&str, &str); 9] = [
    ("config/checkout/limit", "10"),
    ("config/checkout/currency", "EUR"),
    ("config/search/index", "products-2026-11"),
    ("feature/new-basket", "on"),
    ("feature/recommendations", "{\"share\":0.25,\"regions\":[\"eu\",\"us\"]}"),
    ("feature/express-checkout", "off"),
    ("leader/billing", "payments-3"),
    ("leader/reports", "audit-1"),
    ("migrations/orders", "0042_add_currency"),
];

fn populate(nodes: &[TestNode]) -> Vec<Members> {
    let mut members: Vec<Members> = nodes.iter().map(Members::at).collect();
    let mut number = 0;
    for (service, count) in SERVICES {
        for index in 1..=count {
            number += 1;
            let address = format!("10.0.{}.{number}:8080", number % 3);
            let locality = ["eu-west.a", "eu-west.b", "us-east.a"][number % 3];
            let version = ["v1", "v2", "v2.1"][index % 3];
            let metadata = json!({"version": version, "shard": index.to_string()});
            let member = json!({
                "service": service, "address": address, "locality": locality, "metadata": metadata,
                "endpoints": {"grpc": format!("10.0.{}.{number}:9090", number % 3)},
            });
            let at = number % members.len();
            members[at].put(&format!("{service}-{index}"), &member);
        }
    }
    for id in ["orders-3", "gateway-2"] {
        support::output(&["drain", id, "--timeout", "30s", "--addr", &nodes[0].clients]);
    }
    members
}

#[test]
fn every_page_renders_and_shows_changes() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let nodes = support::founders(dir.path(), &[("n1", "eu"), ("n2", "eu"), ("n3", "us")]);
    let mut members = populate(&nodes);
    // A member that goes down because its client sends no heartbeats.
    let mut silent = super::http::Http::connect(&nodes[1].clients);
    let (_, answer) = silent.request("POST", "/api/v1/sessions", &json!({"timeout_ms": 2_000}).to_string());
    let path = format!("/api/v1/sessions/{}/members/search-7", answer["session"].as_str().unwrap());
    silent.request("PUT", &path, &json!({"service": "search"}).to_string());
    // A member without a client whose application never reports: critical.
    let unreported = json!({"checks": [{"id": "report", "ttl_ms": 600_000, "initial": "critical"}]});
    let (status, answer) = silent.request("PUT", "/api/v1/services/mailer/members/mailer-9", &unreported.to_string());
    assert!(status < 300, "{answer}");
    let _watch = support::watch(&nodes[1].clients, "service == \"orders\" and routable");

    let (busy, ended) = mpsc::channel();
    let mut batch = Members::at(&nodes[0]);
    let churning = thread::spawn(move || churn(&mut batch, &ended));

    overview(&browser, &nodes[0]);
    services(&browser, &nodes[0], &mut members[1]);
    members_page(&browser, &nodes[0], &mut members[2]);
    member(&browser, &nodes[0], &mut members[1]);
    events(&browser, &nodes[0], &mut members[0]);

    browser.open(&page(&nodes[0], "watchers"));
    browser.wait(
        "a stream at another node is listed",
        "document.querySelector('.watchers')?.innerText.includes('routable')",
    );
    browser.wait("closed pages have no streams", "document.querySelectorAll('.watchers li').length === 1");
    assert!(browser.text(".watchers").contains("gRPC at n2"), "{}", browser.text(".watchers"));
    browser.picture("watchers");
    keys(&browser, &nodes[0]);
    locks(&browser, &nodes[0]);
    browser.open(&page(&nodes[0], "rates"));
    browser.wait("rates are drawn", "document.querySelectorAll('.chart-line').length >= 12 && /\\d\\/s/.test(document.querySelector('.rates .tile-value').innerText)");
    browser.picture("rates");

    look(&browser, &nodes[0]);
    drop(busy);
    churning.join().unwrap();
    quiet(&browser);
}

/// Registers, updates and unregisters members until it is stopped.
fn churn(members: &mut Members, ended: &mpsc::Receiver<()>) {
    for round in 0_usize.. {
        if ended.recv_timeout(Duration::from_millis(100)) != Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
        let id = format!("batch-{}", round % 7);
        if round % 5 == 4 && round > 7 {
            members.delete(&id);
        } else {
            members.put(&id, &json!({"service": "batch", "metadata": {"round": round.to_string()}}));
        }
    }
}

/// A node without the log shows that the log is off, and no keys.
#[test]
fn a_log_that_is_off_is_shown_as_off() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut command = support::start(dir.path(), &["--id", "n1"]);
    let node = TestNode::spawn(command.env("CONVOKE_LOG_ENABLED", "false")).ready();
    browser.open(&page(&node, ""));
    browser.wait(
        "the overview shows that it is off",
        "[...document.querySelectorAll('.tile')].some((tile) => /Log\\s+off/.test(tile.innerText))",
    );
    browser.open(&page(&node, "keys"));
    browser.wait(
        "the page of keys shows it too",
        "document.querySelector('.notice:not([hidden])')?.innerText.includes('The log is off')",
    );
    assert_eq!(browser.run("return document.querySelector('[data-filter]').checkVisibility()"), false);
    browser.picture("log-off");
    quiet(&browser);
}

/// Registered text is never interpreted as markup.
#[test]
fn markup_in_members_stays_text() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let nodes = support::cluster(dir.path(), 1);
    let mut members = Members::at(&nodes[0]);
    members.put(HOSTILE, &json!({"service": HOSTILE, "locality": HOSTILE, "metadata": {(HOSTILE): HOSTILE}}));
    let member = format!("member/{}", encoded(HOSTILE));
    for path in ["", "services", "members", "events", &member] {
        browser.open(&page(&nodes[0], path));
        browser.wait("markup is shown as text", "document.querySelector('#page').innerText.includes('onerror')");
        assert_eq!(browser.run("return document.querySelectorAll('#page img').length"), 0, "{path}");
        assert_eq!(browser.run("return window.broken ?? false"), false, "{path}");
    }
    quiet(&browser);
}

#[track_caller]
fn quiet(browser: &Browser) {
    assert_eq!(browser.console(), Vec::<String>::new(), "the console has messages");
}

fn overview(browser: &Browser, node: &TestNode) {
    browser.open(&format!("http://{}/", node.clients));
    browser.wait("a browser is sent to the dashboard", "location.pathname === '/ui/'");
    browser.wait("nodes are drawn", "document.querySelectorAll('.graph-nodes > g[data-state=up]').length === 3");
    browser.wait(
        "links between all nodes are drawn, including those between other nodes",
        "document.querySelectorAll('.graph-links line[data-state=up]').length === 3",
    );
    browser.wait("counts are there", "document.querySelector('.tile-value').innerText !== '–'");
    browser.wait("events are there", "document.querySelectorAll('.timeline li').length > 3");
    browser.wait("lines are drawn", "document.querySelectorAll('.chart-line[d^=M]').length === 3");
    let tiles = browser.text(".tiles");
    assert!(tiles.contains("3 of 3") && tiles.contains("leader n") && tiles.contains("commit"), "{tiles}");
    browser.wait("the leader of the log is shown", "document.querySelector('.nodes').innerText.includes('log leader')");
    browser.wait("critical members count", "document.querySelector('.tiles').innerText.includes('1 critical')");
    browser.wait(
        "their services have problems",
        "document.querySelector('.impaired-services')?.innerText.includes('mailer')",
    );
    quiet(browser);
}

fn services(browser: &Browser, node: &TestNode, members: &mut Members) {
    browser.open(&page(node, "services"));
    browser.wait("services are listed", "document.querySelectorAll('.service').length >= 9");
    browser.wait("the silent one is down", "document.querySelector('.services').innerText.includes('1 down')");
    let text = browser.text(".services");
    assert!(text.contains("orders") && text.contains("11 up") && text.contains("1 drained"), "{text}");
    browser.picture("services");
    members.put("late-1", &json!({"service": "latecomers"}));
    browser.wait("a new service appears", "document.querySelector('.services').innerText.includes('latecomers')");
    quiet(browser);
}

fn members_page(browser: &Browser, node: &TestNode, members: &mut Members) {
    browser.open(&page(node, "members"));
    browser.wait("all are read", "document.querySelector('.vt').dataset.state === 'live'");
    browser.wait("rows are drawn", "document.querySelectorAll('.vt-row:not([hidden])').length > 10");
    browser.picture("members");
    // Registrations, changes and unregistrations appear without a reload.
    browser.write_filter("service == \"web\"");
    browser.wait("nothing matches yet", "document.querySelector('.vt').getAttribute('aria-rowcount') === '1'");
    let row = "document.querySelector('.vt-row:not([hidden])')?.innerText ?? ''";
    members.put("web-1", &json!({"service": "web", "address": "10.1.1.1:80"}));
    browser.wait("it appears", &format!("({row}).includes('web-1') && ({row}).includes('up')"));
    support::output(&["drain", "web-1", "--timeout", "30s", "--addr", &node.clients]);
    browser.wait("it is drained", &format!("({row}).includes('drained')"));
    members.delete("web-1");
    browser.wait("it is gone", "document.querySelector('.vt').getAttribute('aria-rowcount') === '1'");
    assert!(browser.run("return location.hash").as_str().unwrap().contains("filter="), "the address names the filter");
    quiet(browser);
    keyboard(browser, node);
}

/// `/` focuses the filter, Tab reaches the table, arrows and Enter open a member.
fn keyboard(browser: &Browser, node: &TestNode) {
    browser.open(&page(node, "services"));
    browser.open(&page(node, "members"));
    browser.wait("all are read", "document.querySelector('.vt')?.dataset.state === 'live'");
    let press = |key: &str| {
        for kind in ["keyDown", "keyUp"] {
            let text = if key.len() == 1 { json!(key) } else { Value::Null };
            let mut event = json!({"type": kind, "key": key, "code": key});
            if kind == "keyDown" && text.is_string() {
                event["text"] = text;
            }
            if key == "Tab" {
                event["windowsVirtualKeyCode"] = json!(9);
            }
            browser.command("Input.dispatchKeyEvent", &event);
        }
    };
    press("/");
    browser.wait("the filter has the focus", "document.activeElement.matches('[data-filter]')");
    assert_eq!(browser.run("return document.activeElement.value"), "", "the key itself is not written");
    let mut steps = 0;
    while browser.run("return document.activeElement.matches('.vt')") != true {
        press("Tab");
        steps += 1;
        assert!(steps < 20, "the table cannot be reached");
    }
    press("ArrowDown");
    press("ArrowDown");
    browser.wait(
        "the second row is current",
        "document.querySelector('.vt').getAttribute('aria-activedescendant') === 'vt-row-1'",
    );
    press("Enter");
    browser.wait("the member is opened", "location.hash.startsWith('#/member/')");
    quiet(browser);
}

fn member(browser: &Browser, node: &TestNode, members: &mut Members) {
    browser.open(&page(node, "member/orders-3"));
    browser.wait("the drained one is shown", "document.querySelector('.member-status')?.innerText === 'drained'");
    browser.wait(
        "the explanation of the node is shown",
        "document.querySelector('.reasons li')?.innerText.startsWith('Its owner, node n')",
    );
    browser.wait("its timeline is there", "document.querySelector('.timeline').innerText.includes('registered at')");
    browser.picture("member");
    members.put("changing", &json!({"service": "s", "metadata": {"step": "one"}}));
    browser.open(&page(node, "member/changing"));
    browser.wait("it is shown", "document.querySelector('#page').innerText.includes('one')");
    members.put("changing", &json!({"service": "s", "metadata": {"step": "two"}}));
    browser.wait("its metadata follows", "document.querySelector('#page').innerText.includes('two')");
    browser.wait("its timeline follows", "document.querySelector('.timeline').innerText.includes('updated')");
    members.delete("changing");
    browser.wait("it has left", "document.querySelector('#page').innerText.includes('has left')");
    quiet(browser);
    browser.open(&page(node, "member/nobody"));
    browser.wait(
        "an unknown member is reported",
        "document.querySelector('#page').innerText.includes('No member \"nobody\"')",
    );
    // A page that is opened after the member has left.
    browser.open(&page(node, "member/changing"));
    browser.wait("its end is explained", "document.querySelector('.reasons').innerText.includes('unregistered it')");
    // The browser reports that nobody has no explanation.
    let messages = browser.console();
    assert!(messages.iter().all(|message| message.contains("/members/nobody/explain")), "{messages:?}");
}

fn events(browser: &Browser, node: &TestNode, members: &mut Members) {
    browser.open(&page(node, "events"));
    browser.wait("events are listed", "document.querySelectorAll('.timeline li').length > 20");
    browser.picture("events");
    browser.write_filter("service == \"seen\"");
    browser.wait("members are filtered", "!document.querySelector('.timeline').innerText.includes('orders-1')");
    browser.wait(
        "events of nodes are always shown",
        "document.querySelector('.timeline').innerText.includes('peer n2 is up')",
    );
    members.put("seen-1", &json!({"service": "seen"}));
    browser.wait("a new event appears on top", "document.querySelector('.timeline li').innerText.includes('seen-1')");
    browser.run("[...document.querySelectorAll('button')].find((one) => one.innerText === 'Pause').click()");
    members.delete("seen-1");
    browser.wait(
        "while paused, new events are only counted",
        "document.querySelector('#page [role=status]').innerText.includes('1 new')",
    );
    assert!(!browser.text(".timeline li").contains("unregistered"));
    browser.run("[...document.querySelectorAll('button')].find((one) => one.innerText === 'Resume').click()");
    browser.wait("then it is shown", "document.querySelector('.timeline li').innerText.includes('unregistered')");
    quiet(browser);
}

/// Keys with their revisions as they are written, the leader and the voters.
fn keys(browser: &Browser, node: &TestNode) {
    let put = |key: &str, value: &str| {
        support::output(&["kv", "put", key, value, "--timeout", "30s", "--addr", &node.clients]);
    };
    browser.open(&page(node, "keys"));
    browser.wait(
        "an empty store is reported",
        "document.querySelector('#page [role=status]').innerText.includes('No keys')",
    );
    for (key, value) in KEYS {
        put(key, value);
    }
    put("config/checkout/limit", "20");
    browser.wait("keys appear without a reload", "document.querySelectorAll('.keys li').length === 9");
    let text = browser.text(".keys");
    assert!(text.contains("config/checkout/limit") && text.contains("revision 10, created at 1"), "{text}");
    browser.wait("all replicas are listed", "document.querySelectorAll('.replicas li').length === 3");
    let log = browser.text(".log");
    assert!(log.contains("leader") && log.contains("voter") && log.contains("n3"), "{log}");
    browser.wait("the log's figures follow", "document.querySelector('.log .facts').innerText.includes('9, ')");
    browser.picture("keys");
    browser.write_filter("feature/");
    browser.wait("only keys with the prefix are listed", "document.querySelectorAll('.keys li').length === 3");
    browser.write_filter("nothing/");
    browser.wait(
        "the absence of matches is reported",
        "document.querySelector('#page [role=status]').innerText.includes('No keys with this prefix')",
    );
    quiet(browser);
}

/// The history of a key; locks with holders and queue, elections and leases. An operator releases a permit.
fn locks(browser: &Browser, node: &TestNode) {
    browser.open(&page(node, "key/config%2Fcheckout%2Flimit"));
    browser.wait("both changes are listed", "document.querySelectorAll('.changes li').length === 2");
    support::output(&["kv", "put", "config/checkout/limit", "30", "--timeout", "30s", "--addr", &node.clients]);
    browser.wait("a new change appears on top", "document.querySelector('.changes li').innerText.includes('30')");
    browser.wait("the record follows", "document.querySelector('.value').innerText === '30'");
    browser.picture("key");

    browser.open(&page(node, "locks"));
    browser
        .wait("unused locks are reported", "document.querySelector('#page').innerText.includes('No lock is in use')");
    let body = |value: &str, wait: u64| json!({"ttl_ms": 300_000, "value": value, "wait_ms": wait}).to_string();
    let mut http = super::http::Http::connect(&node.clients);
    let (status, held) = http.request("POST", "/api/v1/locks/jobs%2Fnightly", &body("worker 1", 0));
    assert_eq!(status, 200, "{held}");
    let (status, led) = http.request("POST", "/api/v1/elections/billing", &body("10.0.0.7:8080", 0));
    assert_eq!(status, 200, "{led}");
    let mut waiter = super::http::Http::connect(&node.clients);
    waiter.send([("POST", "/api/v1/locks/jobs%2Fnightly".to_owned(), body("worker 2", 300_000))]);
    let shown = |what: &str| format!("document.querySelector('#page').innerText.includes('{what}')");
    browser.wait("the waiter is counted", &shown("1 waiting"));
    browser.wait("the leader of the election is shown", &shown("10.0.0.7:8080"));
    browser.wait("leases are listed", "document.querySelectorAll('#page section:last-child .locks li').length === 3");
    browser.picture("locks");

    let fence = held["fence"].as_u64().unwrap();
    browser.open(&page(node, "lock/locks/jobs%2Fnightly"));
    browser.wait("holder and queue are shown", &format!("{} && {}", shown("worker 1"), shown("worker 2")));
    let click = |text: &str| {
        browser.run(&format!(
            "[...document.querySelectorAll('button')].find((one) => one.innerText === '{text}').click()"
        ));
    };
    click("Release");
    browser.wait("the release must be confirmed", "!document.querySelector('button.danger').hidden");
    browser.picture("lock");
    click(&format!("Release fence {fence}"));
    let (status, next) = waiter.answer();
    assert_eq!(status, 200, "{next}");
    assert!(next["fence"].as_u64().unwrap() > fence, "{next}");
    browser.wait("the waiter holds the lock", &shown("Nobody waits"));
    quiet(browser);
}

/// Dark and light colours, chosen by the system or the user; a phone screen.
fn look(browser: &Browser, node: &TestNode) {
    let ground = || browser.run("return getComputedStyle(document.body).backgroundColor");
    browser.open(&page(node, ""));
    browser.wait("nodes are drawn", "document.querySelectorAll('.graph-nodes > g').length === 3");
    let light = ground();
    browser.picture("overview");
    browser.scheme("dark");
    let dark = ground();
    assert_ne!(light, dark);
    browser.wait("rates are drawn", "document.querySelectorAll('.chart-line[d^=M]').length === 3");
    browser.picture("overview-dark");
    browser.open(&page(node, "keys"));
    browser.wait("keys are listed", "document.querySelectorAll('.keys li').length === 9");
    browser.picture("keys-dark");
    browser.open(&page(node, ""));
    browser.run("document.querySelector('#theme').click()");
    assert_eq!(ground(), light, "the user's choice overrides the system's");
    browser.open(&page(node, "services"));
    browser.run("location.reload()");
    browser.wait("the page is there again", "document.querySelectorAll('.service').length >= 9");
    assert_eq!(ground(), light, "the choice is stored");
    browser.run(
        "document.querySelector('#theme').click(); localStorage.clear(); delete document.documentElement.dataset.theme",
    );

    browser.size(390, 844, true);
    for path in ["", "services", "members", "member/orders-1", "events", "watchers", "keys", "locks", "rates"] {
        browser.open(&page(node, path));
        browser.wait("something is shown", "document.querySelector('#page').innerText.length > 40");
        let (wide, screen) =
            (browser.run("return document.documentElement.scrollWidth"), browser.run("return innerWidth"));
        assert_eq!((wide.as_u64(), screen.as_u64()), (Some(390), Some(390)), "{path:?} fits");
        match path {
            "" => {
                browser.wait(
                    "nodes are drawn",
                    "document.querySelectorAll('.graph-links line[data-state=up]').length === 3",
                );
                browser.picture("phone-overview");
            }
            "members" => {
                browser.wait("all are read", "document.querySelector('.vt').dataset.state === 'live'");
                browser.picture("phone-members");
            }
            "keys" => {
                browser.wait("keys are listed", "document.querySelectorAll('.keys li').length === 9");
                browser.picture("phone-keys");
            }
            _ => {}
        }
    }
    browser.size(1280, 800, false);
    browser.scheme("light");
}
