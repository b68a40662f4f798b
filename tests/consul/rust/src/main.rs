//! Runs the crate `rs-consul` against a node: registrations in the catalog, blocking queries, keys and locks.
//!
//! usage: consul-client http://HOST:PORT

use rs_consul::{
    Config, Consul, ConsulError, CreateOrUpdateKeyRequest, DeleteKeyRequest, DeregisterEntityPayload, GetNodesRequest,
    GetServiceNodesRequest, LockExpirationBehavior, LockRequest, LockWatchRequest, QueryOptions, ReadKeyRequest,
    RegisterEntityPayload, RegisterEntityService,
};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = std::env::args().nth(1).expect("usage: consul-client http://HOST:PORT");
    let consul = Consul::new(Config { address, ..Config::default() });
    services(&consul).await;
    keys(&consul).await;
    locks(&consul).await;
    println!("complete");
}

/// Ids of the instances, after the result with this index changed.
async fn instances(consul: &Consul, index: Option<u64>) -> (Vec<String>, u64) {
    let request = GetServiceNodesRequest { service: "rs-web", passing: true, ..Default::default() };
    let options = QueryOptions { index, wait: index.map(|_| WAIT), timeout: Some(2 * WAIT), ..Default::default() };
    let answer = consul.get_service_nodes(request, Some(options)).await.expect("instances can be read");
    let mut ids: Vec<String> = answer.response.into_iter().map(|row| row.service.id).collect();
    ids.sort();
    (ids, answer.index)
}

/// Waits with blocking queries until these are the instances.
async fn until(consul: &Consul, wanted: &[&str]) {
    let (mut ids, mut index) = instances(consul, None).await;
    while ids != wanted {
        (ids, index) = instances(consul, Some(index)).await;
    }
}

fn instance(id: &str, port: u16) -> RegisterEntityPayload {
    let service = RegisterEntityService::builder()
        .ID(id.to_owned())
        .Service("rs-web".to_owned())
        .Tags(vec!["a".to_owned()])
        .Port(port)
        .build();
    RegisterEntityPayload::builder().Node("rs-node".to_owned()).Address("10.2.2.2".to_owned()).Service(service).build()
}

async fn deregister(consul: &Consul, service: Option<&str>) {
    let payload = DeregisterEntityPayload::builder()
        .Node("rs-node".to_owned())
        .maybe_ServiceID(service.map(str::to_owned))
        .build();
    consul.deregister_entity(&payload).await.expect("an instance can be deregistered");
}

async fn services(consul: &Consul) {
    let (_, index) = instances(consul, None).await;
    // The reader waits while the instance is registered.
    let registration = instance("rs-1", 80);
    let (registered, (ids, _)) = tokio::join!(consul.register_entity(&registration), instances(consul, Some(index)));
    registered.expect("an instance can be registered");
    assert!(ids.is_empty() || ids == ["rs-1"], "{ids:?}");
    until(consul, &["rs-1"]).await;
    consul.register_entity(&instance("rs-2", 81)).await.expect("a second instance can be registered");
    until(consul, &["rs-1", "rs-2"]).await;
    let mut found = consul.get_service_addresses_and_ports("rs-web", None).await.expect("addresses");
    found.sort();
    assert_eq!(found, [("10.2.2.2".to_owned(), 80), ("10.2.2.2".to_owned(), 81)]);
    let names = consul.get_all_registered_service_names(None).await.expect("names of services").response;
    assert!(names.contains(&"rs-web".to_owned()), "{names:?}");
    let nodes = consul.get_nodes(GetNodesRequest::default(), None).await.expect("nodes").response;
    assert!(nodes.iter().any(|node| node.node == "rs-node" && node.address == "10.2.2.2"), "{nodes:?}");
    deregister(consul, Some("rs-1")).await;
    until(consul, &["rs-2"]).await;
    deregister(consul, None).await;
    until(consul, &[]).await;
}

async fn put(consul: &Consul, request: CreateOrUpdateKeyRequest<'_>, value: &str) -> bool {
    consul.create_or_update_key(request, value.as_bytes().to_vec()).await.expect("a key can be written").0
}

async fn keys(consul: &Consul) {
    let write = CreateOrUpdateKeyRequest { key: "rs/a", flags: 7, ..Default::default() };
    assert!(put(consul, write.clone(), "1").await);
    let read = ReadKeyRequest { key: "rs/a", ..Default::default() };
    let found = consul.read_key(read.clone()).await.expect("the key can be read");
    let key = &found.response[0];
    assert_eq!((key.value.as_deref(), key.flags), (Some("1"), 7));
    let guarded = CreateOrUpdateKeyRequest { check_and_set: Some(key.modify_index), ..write };
    assert!(put(consul, guarded.clone(), "2").await);
    assert!(!put(consul, guarded, "3").await, "the key has changed since");
    // A blocking query returns with the change.
    let waiting = ReadKeyRequest { index: Some(found.index), wait: WAIT, ..read.clone() };
    let changed = consul.read_key(waiting).await.expect("a blocking query is answered");
    assert_eq!(changed.response[0].value.as_deref(), Some("2"));
    assert!(changed.index > found.index);
    let delete = DeleteKeyRequest { key: "rs/", recurse: true, ..Default::default() };
    assert!(consul.delete_key(delete).await.expect("keys can be deleted"));
    assert!(
        matches!(consul.read_key(read).await, Err(ConsulError::UnexpectedResponseCode(..))),
        "a deleted key is missing"
    );
}

async fn locks(consul: &Consul) {
    let request = LockRequest {
        key: "rs-lock",
        timeout: Duration::from_secs(10),
        lock_delay: Duration::from_secs(1),
        behavior: LockExpirationBehavior::Release,
        ..Default::default()
    };
    let lock = consul.get_lock(request, b"me").await.expect("a free lock is granted");
    let Err(ConsulError::LockAcquisitionFailure(index)) = consul.get_lock(request, b"you").await else {
        panic!("a held lock was granted again");
    };
    // Dropping the lock releases it, and the watch returns.
    let watch = LockWatchRequest { key: "rs-lock", index: Some(index), wait: WAIT, ..Default::default() };
    drop(lock);
    let freed = consul.watch_lock(watch).await.expect("the lock can be watched");
    assert_eq!(freed.response[0].session, None);
    let again = consul.get_lock(request, b"you").await.expect("the released lock is granted");
    drop(again);
    let delete = DeleteKeyRequest { key: "rs-lock", ..Default::default() };
    assert!(consul.delete_key(delete).await.expect("the key of the lock can be deleted"));
}
