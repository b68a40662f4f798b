//! Transactions, ranges and reads of older revisions, over HTTP, gRPC and the SDK.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_client::log::{Ambassador, Compare, Consistency, Op, OpResult, Query, Relation, Sort, Txn};
use convoke_client::{Error, ErrorCode};
use convoke_proto::v1::log_client::LogClient;
use convoke_proto::v1::submit_response::Message;
use convoke_proto::v1::{self, read_request::What};
use serde_json::{Value, json};
use support::log::LogCluster;
use support::log_link::Link;

async fn txn(cluster: &LogCluster, index: usize, body: &Value) -> Value {
    cluster.http(index, "POST", "/api/v1/txn", &body.to_string()).await.ok()
}

/// The node without a replica sends transactions to the leader over gRPC.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_work_at_every_node() {
    let mut cluster = LogCluster::start(1).await;
    cluster.outsider().await;
    let mut revision = 0;
    for index in 0..2 {
        let created = txn(
            &cluster,
            index,
            &json!({"compare": [{"key": "owner", "target": "exists", "value": false}],
                "then": [{"put": {"key": "owner", "value": "a", "flags": 7}}, {"put": {"key": "tmp/1", "value_base64": "/w=="}},
                    {"get": {"key": "tmp/", "prefix": true}}]}),
        )
        .await;
        revision += 1;
        assert_eq!((&created["succeeded"], &created["revision"]), (&json!(true), &json!(revision)), "{created}");
        let written = json!({"key": "tmp/1", "value": "/w==", "create_revision": revision, "mod_revision": revision,
            "version": 1});
        assert_eq!(
            created["results"],
            json!([{"put": {}}, {"put": {}}, {"get": {"keys": [written], "count": 1, "more": false}}])
        );
        assert!(created["request"]["session"].as_u64().is_some(), "{created}");
        let read = cluster.http(index, "GET", "/api/v1/kv/owner", "").await.ok();
        assert_eq!((&read["flags"], &read["mod_revision"]), (&json!(7), &json!(revision)));

        let body = json!({"compare": [{"key": "owner", "target": "value", "op": "=", "value": "b"}],
            "then": [{"put": {"key": "owner", "value": "c"}}], "else": [{"get": {"key": "owner"}}]});
        let failed = txn(&cluster, index, &body).await;
        assert_eq!((&failed["succeeded"], &failed["revision"]), (&json!(false), &json!(revision)));
        assert_eq!(failed["results"][0]["get"]["keys"][0]["value"], "YQ==");

        let removed = txn(
            &cluster,
            index,
            &json!({"compare": [{"key": "owner", "target": "mod_revision", "value": revision}],
                "then": [{"delete": {"key": "tmp/", "prefix": true, "previous": true}}, {"delete": {"key": "owner"}}]}),
        )
        .await;
        revision += 1;
        assert_eq!(removed["revision"], revision);
        assert_eq!(
            removed["results"],
            json!([{"delete": {"deleted": 1, "previous": [written]}}, {"delete": {"deleted": 1}}])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_transaction_adds_no_entry() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    cluster.http(0, "PUT", "/api/v1/kv/a", "1").await.ok();
    let last = async || cluster.http(0, "GET", "/api/v1/log/status", "").await.ok()["last"].as_u64().unwrap();
    let before = last().await;
    let body = json!({"compare": [{"key": "a", "target": "version", "op": ">", "value": 0}],
        "then": [{"get": {"key": "a"}}, {"get": {"key": "", "prefix": true, "count": true}}]});
    for (index, query) in [(0, ""), (0, "?consistency=linearizable"), (0, "?consistency=local"), (outside, "")] {
        let path = format!("/api/v1/txn{query}");
        let read = cluster.http(index, "POST", &path, &body.to_string()).await.ok();
        assert_eq!((&read["succeeded"], &read["revision"]), (&json!(true), &json!(1)), "{read}");
        assert_eq!(read["results"][0]["get"]["keys"][0]["value"], "MQ==");
        assert_eq!(read["results"][1], json!({"get": {"keys": [], "count": 1, "more": false}}));
        assert_eq!(read["request"], Value::Null);
    }
    assert_eq!(last().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_ranges_orders_counts_and_revisions() {
    let mut cluster = LogCluster::start(1).await;
    let outside = cluster.outsider().await;
    for (key, value) in [("a", "3"), ("b", "1"), ("c", "2"), ("a", "4")] {
        cluster.http(0, "PUT", &format!("/api/v1/kv/{key}"), value).await.ok();
    }
    cluster.http(0, "DELETE", "/api/v1/kv/b", "").await.ok();
    for index in [0, outside] {
        let list = async |query: &str| cluster.http(index, "GET", &format!("/api/v1/kv?{query}"), "").await.ok();
        let keys = |page: &Value| {
            let keys = page["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap().to_owned());
            keys.collect::<Vec<_>>().join("")
        };
        assert_eq!(keys(&list("from=b").await), "c");
        assert_eq!(keys(&list("until=c&revision=4").await), "ab");
        assert_eq!(keys(&list("revision=3&sort=value").await), "bca");
        assert_eq!(keys(&list("sort=mod_revision&descending").await), "ac");
        let first = list("sort=mod_revision&descending&limit=1").await;
        assert_eq!((keys(&first).as_str(), &first["more"], &first["next_cursor"]), ("a", &json!(true), &Value::Null));
        let counted = list("count&revision=4").await;
        assert_eq!((&counted["count"], &counted["revision"], &counted["keys"]), (&json!(3), &json!(5), &json!([])));
        let bare = list("keys&limit=1").await;
        assert_eq!((&bare["keys"][0]["value"], &bare["keys"][0]["version"]), (&json!(""), &json!(2)));
        let next = format!("keys&cursor={}", bare["next_cursor"].as_str().unwrap());
        assert_eq!(keys(&list(&next).await), "c");
        let at = async |query: &str| cluster.http(index, "GET", &format!("/api/v1/kv/a?{query}"), "").await;
        assert_eq!(at("revision=3&raw").await.body_text(), "3");
        assert_eq!(at("revision=4&raw").await.body_text(), "4");
        assert_eq!(at("revision=6").await.rejected(400, "INVALID_ARGUMENT").as_deref(), Some("revision"));
        let gone = cluster.http(index, "GET", "/api/v1/kv/c?revision=2", "").await;
        gone.rejected(404, "NOT_FOUND");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_transactions_are_rejected_with_the_field() {
    let cluster = LogCluster::start(1).await;
    let many = format!(r#"{{"then":[{}]}}"#, vec![r#"{"get":{"key":"a"}}"#; 129].join(","));
    let spread = format!(
        r#"{{"compare":[{{"key":"a","target":"exists"}}],{}"#,
        many.replacen("{", "", 1).replacen(r#"{"get":{"key":"a"}},"#, "", 1)
    );
    for (body, field) in [
        ("", "operations"),
        ("[]", "body"),
        (r#"{"then":{}}"#, "then"),
        (r#"{"when":[]}"#, "when"),
        (r#"{"then":[{"set":{}}]}"#, "then[0]"),
        (r#"{"then":[{"put":{"key":"a","value":"1","ttl":3}}]}"#, "then[0].put.ttl"),
        (r#"{"then":[{"put":{"key":"a"}}]}"#, "then[0].put.value"),
        (r#"{"then":[{"put":{"key":"","value":"1"}}]}"#, "key"),
        (r#"{"then":[{"put":{"key":"a","value":"1"}},{"put":{"key":"a","value":"2"}}]}"#, "key"),
        (r#"{"compare":[{"key":"a","target":"size","value":1}]}"#, "compare[0].target"),
        (r#"{"compare":[{"key":"a","target":"version","op":"==","value":1}]}"#, "compare[0].op"),
        (
            r#"{"compare":[{"key":"a","target":"version","value":18446744073709551615}],"then":[{"delete":{"key":"a"}}]}"#,
            "version",
        ),
        (many.as_str(), "then[128]"),
        (spread.as_str(), "operations"),
    ] {
        let answer = cluster.http(0, "POST", "/api/v1/txn", body).await;
        let named = answer.rejected(400, "INVALID_ARGUMENT");
        let named = named.unwrap_or_default();
        // Serde reports some errors at the element that contains the field.
        assert!(named == field || field.starts_with(&named) && !named.is_empty(), "{body}: {answer:?}");
    }
    for (body, words) in [
        (r#"{"else":[{"put":{"key":"a","value":"1"}},{"delete":{"key":"","prefix":true}}]}"#, "changes \"a\" twice"),
        (
            r#"{"compare":[{"key":"a","target":"version","value":-1}],"then":[]}"#,
            "expected text, a number of at least 0, true or false",
        ),
    ] {
        let answer = cluster.http(0, "POST", "/api/v1/txn", body).await;
        assert_eq!(answer.status, 400, "{body}");
        let message = answer.json::<Value>()["error"]["message"].to_string().replace('\\', "");
        assert!(message.contains(words), "{body}: {message}");
    }
    let write = r#"{"then":[{"put":{"key":"a","value":"1"}}]}"#;
    let answer = cluster.http(0, "POST", "/api/v1/txn?consistency=local", write).await;
    assert_eq!(answer.rejected(400, "INVALID_ARGUMENT").as_deref(), Some("consistency"));
    let answer =
        cluster.http(0, "POST", "/api/v1/txn", r#"{"then":[{"put":{"key":"a","value":"1","lease":"99"}}]}"#).await;
    assert_eq!(answer.rejected(404, "NOT_FOUND").as_deref(), Some("lease"));
    let free = r#"{"compare":[{"key":"free","target":"lease","value":"0"}],"then":[{"get":{"key":"free"}}]}"#;
    let answer = cluster.http(0, "POST", "/api/v1/txn", free).await;
    assert_eq!(answer.json::<Value>()["succeeded"], true, "a key without a lease has the lease 0");
    let large = json!({"then": [{"put": {"key": "a", "value": "x".repeat(1024 * 1024 + 1)}}]}).to_string();
    cluster.http(0, "POST", "/api/v1/txn", &large).await.rejected(413, "TOO_LARGE");
    for (path, field) in [
        ("/api/v1/kv?sort=age", "sort"),
        ("/api/v1/kv?prefix=a&from=b", "from"),
        ("/api/v1/kv?prefix=a&until=b", "until"),
        ("/api/v1/kv?keys&count", "count"),
        ("/api/v1/kv?count&limit=3", "limit"),
        ("/api/v1/kv?cursor=YQ&descending", "cursor"),
        ("/api/v1/kv?revision=0", "revision"),
        ("/api/v1/kv/a?count", "count"),
        ("/api/v1/kv/a?sort=key", "sort"),
    ] {
        let answer = cluster.http(0, "GET", path, "").await;
        assert_eq!(answer.rejected(400, "INVALID_ARGUMENT").as_deref(), Some(field), "{path}");
    }
    assert_eq!(cluster.http(0, "GET", "/api/v1/kv", "").await.ok()["revision"], 0, "nothing was changed");
}

/// The answer of a transaction is bounded, and beyond the bound nothing is applied.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_large_changes_nothing() {
    let cluster = LogCluster::start(1).await;
    let kv = cluster.ambassador().kv();
    for key in ["a", "b", "c"] {
        kv.put(key, vec![0; 1024 * 1024]).await.unwrap();
    }
    let reading = Txn::new().then(Op::put("d", "1")).then(Op::read(Query::prefix("")));
    let error = kv.commit(reading.clone()).await.unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::TooLarge, Some("answer")), "{error}");
    assert!(error.about().is_some(), "{error}");
    assert_eq!(kv.get("d").await.unwrap(), None);
    let keys = Txn::new().then(Op::put("d", "1")).then(Op::read(Query::prefix("").keys_only()));
    assert!(kv.commit(keys).await.unwrap().succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_builds_transactions_in_order() {
    let cluster = LogCluster::start(1).await;
    let kv = cluster.ambassador().kv();
    let first = kv.put("n", "1");
    let second = kv
        .txn()
        .compare(Compare::value("n", Relation::Equal, "1"))
        .compare(Compare::missing("m"))
        .then(Op::put("n", "2").previous())
        .then(Op::get("n"))
        .otherwise(Op::get("n"))
        .commit();
    let third = kv.put("n", "3");
    let answer = second.await.unwrap();
    assert!(answer.succeeded);
    let results = answer.results.unwrap();
    let OpResult::Put { previous: Some(previous) } = &results[0] else { panic!("{results:?}") };
    let OpResult::Read { records, .. } = &results[1] else { panic!("{results:?}") };
    assert_eq!((&previous.value[..], &records[0].value[..]), (&b"1"[..], &b"2"[..]));
    let (first, third) = (first.await.unwrap(), third.await.unwrap());
    assert_eq!((first.revision, answer.revision, third.revision), (1, 2, 3));
    let held = kv.txn().compare(Compare::lock("jobs", 3)).then(Op::put("n", "4")).commit().await.unwrap();
    assert_eq!((held.succeeded, held.revision), (false, 3));
    let page = kv.query(Query::prefix("").sort(Sort::Value, true), Some(2), Consistency::Linearizable).await.unwrap();
    assert_eq!((page.records.len(), page.count, page.revision), (1, 1, 3));
    assert_eq!(&page.records[0].value[..], b"2");
    // An abandoned transaction is resolved like every request.
    let abandoned = kv.txn().then(Op::put("n", "5")).commit().abandon();
    kv.put("n", "6").await.unwrap();
    if let Some(request) = abandoned {
        let fate = cluster.ambassador().resolve(request, None).await.unwrap();
        assert!(fate.is_final(), "{fate:?}");
        assert_eq!(fate.succeeded, (fate.kind() == convoke_client::log::FateKind::Applied).then_some(true));
    }
}

/// T8: a copy of a transaction gets the results of its first execution.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_has_the_results_of_the_first_execution() {
    let cluster = LogCluster::start(1).await;
    let address = cluster.served(0).address().to_string();
    let mut link = Link::to(&address).await;
    let session = link.open().await;
    let txn = v1::Txn::try_from(
        serde_json::from_value::<convoke_proto::json::Txn>(
            json!({"then": [{"get": {"key": "a"}}, {"put": {"key": "a", "value": "1"}}]}),
        )
        .unwrap(),
    )
    .unwrap();
    let body = v1::log_request::Body::Txn(txn);
    link.submit(session, 1, body.clone());
    let Message::Answer(first) = link.receive().await else { panic!("answered") };
    let results = first.results.clone().unwrap();
    assert_eq!((results.results.len(), results.compacted), (2, None));
    cluster.http(0, "PUT", "/api/v1/kv/a", "2").await.ok();
    link.submit(session, 1, body);
    let Message::Answer(copy) = link.receive().await else { panic!("answered") };
    assert_eq!((copy.fate, copy.results), (first.fate, first.results));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_messages_are_rejected_before_they_are_decoded() {
    let cluster = LogCluster::start(1).await;
    let address = cluster.served(0).address().to_string();
    let channel = tonic::transport::Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = LogClient::new(channel);
    let mut read = async |what: What, revision| {
        let request = v1::ReadRequest { what: Some(what), revision, ..v1::ReadRequest::default() };
        Error::from(client.read(request).await.unwrap_err())
    };
    let txn = |compares, then| What::Txn(v1::Txn { compares, then, otherwise: Vec::new() });
    let error = read(txn(vec![v1::Compare::default(); 2_000], Vec::new()), 0).await;
    assert_eq!(
        (error.code, error.field.as_deref(), error.limit),
        (ErrorCode::TooLarge, Some("operations"), Some(1024))
    );
    let exists = v1::Compare {
        subject: Some(v1::compare::Subject::Key("a".into())),
        operand: Some(v1::compare::Operand::Exists(true)),
        ..v1::Compare::default()
    };
    let unknown = v1::Compare { relation: 77, ..exists.clone() };
    let less = v1::Compare { relation: v1::compare::Relation::Less.into(), ..exists.clone() };
    let put = v1::TxnOperation { operation: Some(v1::txn_operation::Operation::Put(v1::TxnPut::default())) };
    for (what, revision, field) in [
        (txn(vec![v1::Compare::default()], Vec::new()), 0, "compares[0].subject"),
        (txn(vec![exists.clone(), unknown], Vec::new()), 0, "compares[1].relation"),
        (txn(vec![less], Vec::new()), 0, "compares[0].relation"),
        (txn(Vec::new(), vec![v1::TxnOperation::default()]), 0, "then[0].operation"),
        (txn(Vec::new(), vec![put]), 0, "txn"),
        (txn(vec![exists; 129], Vec::new()), 0, "operations"),
        (txn(Vec::new(), Vec::new()), 0, "operations"),
        (txn(Vec::new(), Vec::new()), 3, "revision"),
        (What::Query(v1::KeyQuery::default()), 0, "query.which"),
        (What::Key("a".into()), 3, "revision"),
    ] {
        let error = read(what, revision).await;
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some(field)), "{error}");
    }
    // A message with too many operations ends its link, and only that.
    let mut link = Link::to(&address).await;
    let session = link.open().await;
    let body =
        v1::log_request::Body::Txn(v1::Txn { compares: vec![v1::Compare::default(); 2_000], ..v1::Txn::default() });
    link.submit(session, 1, body);
    let ended = Error::from(link.ended().await);
    assert_eq!((ended.code, ended.field.as_deref()), (ErrorCode::TooLarge, Some("operations")));
    Ambassador::start([address]).unwrap().kv().put("a", "1").await.unwrap();
}
