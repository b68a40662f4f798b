//! `convoke import consul` against recorded answers of Consul 1.8.7.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::TestNode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use support::{convoke, fails, output};

/// Answers requests as a Consul that holds these answers by path; any other path is not found. It ends with the test.
fn consul(answers: &[(&str, Value)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answers: BTreeMap<String, String> =
        answers.iter().map(|(path, answer)| ((*path).to_owned(), answer.to_string())).collect();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            while let Some(request) = lines.next() {
                let headers: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
                let token = headers.iter().any(|line| line == "x-consul-token: s3cret");
                let path = request.split(' ').nth(1).unwrap();
                let (status, body) = match answers.get(path) {
                    _ if !token => ("403 Forbidden", "Permission denied"),
                    Some(answer) => ("200 OK", answer.as_str()),
                    None => ("404 Not Found", ""),
                };
                let length = body.len();
                // The importer may be gone.
                if write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").is_err() {
                    break;
                }
            }
        }
    });
    address
}

fn key(name: &str, value: Option<&str>, flags: u64) -> Value {
    json!([{ "LockIndex": 0, "Key": name, "Flags": flags, "Value": value, "CreateIndex": 109, "ModifyIndex": 109 }])
}

fn run(arguments: &[&str]) -> Value {
    serde_json::from_str(&output(arguments)).unwrap()
}

#[test]
fn keys_of_consul_are_imported() {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let mut held = key("app/held", Some("aGVsZA=="), 0);
    held[0]["Session"] = "765ee82a-a86f-75ba-1df8-d7be474137fc".into();
    let from = consul(&[
        ("/v1/kv/app/?keys", json!(["app/bin ary?", "app/deleted", "app/empty", "app/held", "app/limit"])),
        ("/v1/kv/app/bin%20ary%3F", key("app/bin ary?", Some("/wBh"), 0)),
        ("/v1/kv/app/empty", key("app/empty", None, 0)),
        ("/v1/kv/app/held", held),
        ("/v1/kv/app/limit", key("app/limit", Some("MTA="), 42)),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let at = ["--addr", &node.clients, "--timeout", "30s"];
    let denied = [&["import", "consul", "--from", &from, "--only", "keys", "--prefix", "app/"][..], &at].concat();
    let error = fails(&denied, 5);
    assert!(error.contains("--from-token-file"), "{error}");
    let import = [&denied[..], &["--from-token-file", token.to_str().unwrap()]].concat();
    let with = |more: &[&'static str]| [&import[..], more].concat();

    let dry = run(&with(&["--dry-run", "--json"]));
    assert_eq!((&dry["keys"]["copied"], &dry["dry_run"]), (&json!(3), &json!(true)), "{dry}");
    assert_eq!(run(&[&["kv", "list", "--json"][..], &at].concat())["keys"], json!([]), "a dry run writes nothing");

    let copied = run(&with(&["--json"]));
    assert_eq!((&copied["keys"]["copied"], &copied["keys"]["conflicts"]), (&json!(3), &json!([])), "{copied}");
    assert_eq!(copied["keys"]["skipped"][0]["name"], "app/held", "{copied}");
    assert_eq!(output(&[&["kv", "get", "app/limit", "--raw"][..], &at].concat()), "10");
    let binary = run(&[&["kv", "get", "app/bin ary?", "--json"][..], &at].concat());
    assert_eq!(binary["value"], "/wBh");
    assert_eq!(output(&[&["kv", "get", "app/empty", "--raw"][..], &at].concat()), "");

    // Again: nothing changes. A key that was changed here is left alone, unless the user asks otherwise.
    assert_eq!(run(&with(&["--json"]))["keys"]["unchanged"], 3);
    output(&[&["kv", "put", "app/limit", "11"][..], &at].concat());
    let conflict = convoke(&with(&[])).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&conflict.stdout), String::from_utf8_lossy(&conflict.stderr));
    assert_eq!(conflict.status.code(), Some(5), "{stderr}");
    assert!(stdout.contains("0 keys copied, 2 unchanged, 1 left alone"), "{stdout}");
    assert!(stderr.contains("app/limit has other contents"), "{stderr}");
    assert_eq!(output(&[&["kv", "get", "app/limit", "--raw"][..], &at].concat()), "11");
    assert_eq!(run(&with(&["--overwrite", "--json"]))["keys"]["copied"], 1);
    assert_eq!(output(&[&["kv", "get", "app/limit", "--raw"][..], &at].concat()), "10");
}

#[test]
fn service_instances_of_consul_are_imported() {
    let node =
        TestNode::spawn(&mut convoke(&["dev", "--client-port", "0", "--peer-port", "0", "--dns-port", "0"])).ready();
    let row = |node: &str, id: &str, address: &str, port: u16| {
        json!({
            "ID": "58bca8c7-449a-b63e-681d-3b733d9a5f16", "Node": node, "Address": "10.0.0.1", "Datacenter": "dc1",
            "ServiceKind": "", "ServiceID": id, "ServiceName": "web", "ServiceTags": ["v1", "primary"],
            "ServiceAddress": address, "ServiceWeights": { "Passing": 1, "Warning": 1 },
            "ServiceMeta": { "version": "1.2" }, "ServicePort": port, "ServiceConnect": {}, "CreateIndex": 115,
        })
    };
    let mut proxy = row("c1", "web-proxy", "", 20_000);
    proxy["ServiceKind"] = "connect-proxy".into();
    let from = consul(&[
        ("/v1/catalog/services", json!({ "consul": [], "web": ["v1", "primary"] })),
        ("/v1/catalog/service/web", json!([row("c1", "web-1", "10.0.0.9", 8080), row("c2", "web-1", "", 80), proxy])),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "s3cret").unwrap();
    let at = ["--addr", &node.clients, "--timeout", "30s"];
    let token = token.to_str().unwrap();
    let import =
        [&["import", "consul", "--from", &from, "--only", "services", "--from-token-file", token, "--json"][..], &at]
            .concat();
    let copied = run(&import);
    assert_eq!((&copied["services"]["copied"], copied.get("keys")), (&json!(2), None), "{copied}");
    assert!(copied["services"]["skipped"][0]["reason"].as_str().unwrap().contains("connect-proxy"), "{copied}");
    let members = run(&[&["members", "--service", "web", "--json"][..], &at].concat());
    let addresses: Vec<&Value> =
        members["members"].as_array().unwrap().iter().map(|member| &member["address"]).collect();
    assert_eq!(addresses, ["10.0.0.9:8080", "10.0.0.1:80"], "{members}");
    assert_eq!(members["members"][0]["metadata"]["version"], "1.2");
    assert_eq!(run(&import)["services"]["unchanged"], 2, "a repeated import changes nothing");
}

#[test]
fn an_import_names_what_it_cannot_read() {
    let at = ["--addr", "127.0.0.1:1", "--timeout", "2s"];
    let import = |from: &'static str| [&["import", "consul", "--from", from][..], &at].concat();
    let error = fails(&import("127.0.0.1:2"), 3);
    assert!(error.contains("cannot read from Consul at 127.0.0.1:2 (connection refused)"), "{error}");
    assert!(fails(&import("ftp://a"), 2).contains("http or https"));
    assert!(fails(&import("https://127.0.0.1:2"), 2).contains("--from-ca"));
}
