//! The system under a load of keys: a log of Convoke over the SDK, or etcd.

use super::cluster::Cluster;
use super::{etcd, tls};
use crate::args::BenchCommon;
use convoke_cli::{CommandError, Result};
use convoke_client::log::{Ambassador, Compare, Consistency, Kv, Op, Options, Relation, Txn, connector};
use convoke_proto::{Error, ErrorCode};
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::transport::Channel;

/// Time for a log of new nodes to elect a leader.
const LEADER_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum Target {
    Convoke(Vec<Ambassador>),
    Etcd(Vec<Channel>),
}

impl Target {
    /// Connects to etcd if addresses are given, and otherwise to given or new nodes of Convoke.
    pub(super) async fn connect(common: &BenchCommon, etcd: &[String], connections: u32) -> Result<(Cluster, Target)> {
        if etcd.is_empty() {
            let new = common.nodes_given.is_empty();
            let cluster = if new { Cluster::start_log(common).await? } else { Cluster::of(common).await? };
            let links = (0..connections)
                .map(|_| Ambassador::start_with(cluster.addresses(), connector(tls::current(), tls::token())))
                .collect::<Result<_, _>>()?;
            return Ok((cluster, Target::Convoke(links)));
        }
        let cluster = Cluster::given(&BenchCommon { nodes_given: etcd.to_vec(), ..common.clone() })?;
        let mut channels = Vec::new();
        for link in 0..connections as usize {
            channels.push(etcd::connect(&etcd[link % etcd.len()]).await?);
        }
        Ok((cluster, Target::Etcd(channels)))
    }

    /// Returns the name of the benchmark in the report.
    pub(super) fn name(&self, convoke: &'static str, etcd: &'static str) -> &'static str {
        match self {
            Target::Convoke(_) => convoke,
            Target::Etcd(_) => etcd,
        }
    }

    /// Returns clients that share the connections, after their first request was answered.
    pub(super) async fn clients(&self, count: u32, pipeline: u32) -> Result<Vec<KeyClient>> {
        let options = || Options::default().window(pipeline as usize);
        let clients: Vec<KeyClient> = (0..count as usize)
            .map(|client| match self {
                Target::Convoke(links) => KeyClient::Convoke(links[client % links.len()].kv_with(options())),
                Target::Etcd(channels) => KeyClient::Etcd(channels[client % channels.len()].clone()),
            })
            .collect();
        let opening = async {
            for client in &clients {
                client.put("bench/warm-up".to_owned(), b"x").await?;
            }
            Ok(())
        };
        match tokio::time::timeout(LEADER_WITHIN, opening).await {
            Ok(opened) => opened.map_err(|error: Error| CommandError::from(error))?,
            Err(_) => return Err(CommandError::unreachable(format!("the log has no leader after {LEADER_WITHIN:?}"))),
        }
        Ok(clients)
    }
}

/// A client that writes and reads keys.
#[derive(Clone, Debug)]
pub(super) enum KeyClient {
    Convoke(Kv),
    Etcd(Channel),
}

impl KeyClient {
    pub(super) async fn put(&self, key: String, value: &[u8]) -> Result<(), Error> {
        match self {
            KeyClient::Convoke(kv) => kv.put(key, value.to_vec()).await.map(drop),
            KeyClient::Etcd(channel) => etcd::put(channel, key.into(), value.to_vec()).await,
        }
    }

    /// A linearizable read, of Convoke only.
    pub(super) async fn get(&self, key: String) -> Result<(), Error> {
        match self {
            KeyClient::Convoke(kv) => kv.get_with(key, Consistency::Linearizable).await.map(drop),
            KeyClient::Etcd(_) => Err(Error::new(ErrorCode::InvalidArgument, "reads of etcd are not measured")),
        }
    }

    /// A transaction of four operations: if the first key exists, three puts and a read.
    pub(super) async fn txn(&self, keys: [String; 4], value: &[u8]) -> Result<(), Error> {
        let [first, second, third, fourth] = keys;
        let succeeded = match self {
            KeyClient::Convoke(kv) => {
                let mut txn = Txn::new().compare(Compare::version(first.clone(), Relation::Greater, 0));
                for key in [first, second, third] {
                    txn = txn.then(Op::put(key, value.to_vec()));
                }
                kv.commit(txn.then(Op::get(fourth))).await?.succeeded
            }
            KeyClient::Etcd(channel) => {
                let put = |key: String| etcd::PutRequest { key: key.into(), value: value.to_vec() };
                let compare = etcd::Compare {
                    result: etcd::GREATER,
                    target: etcd::VERSION,
                    key: first.clone().into(),
                    version: Some(0),
                };
                let puts = [first, second, third].map(|key| etcd::RequestOp { put: Some(put(key)), range: None });
                let range = Some(etcd::RangeRequest { key: fourth.into() });
                let read = etcd::RequestOp { put: None, range };
                let success = puts.into_iter().chain([read]).collect();
                etcd::txn(channel, etcd::TxnRequest { compare: vec![compare], success }).await?.succeeded
            }
        };
        let failed = || Error::new(ErrorCode::FailedPrecondition, "the compare of a transaction failed");
        succeeded.then_some(()).ok_or_else(failed)
    }
}

/// Ends all sessions; those that cannot be ended expire.
pub(super) async fn close(clients: Vec<KeyClient>) {
    let mut ending = JoinSet::new();
    for client in clients {
        if let KeyClient::Convoke(kv) = client {
            ending.spawn(kv.close(Duration::from_secs(2)));
        }
    }
    while ending.join_next().await.is_some() {}
}
