//! Messages of etcd's gRPC interface, with only the fields that are needed. Headers of responses are not used.

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::bench) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::bench) value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct PutResponse {}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::bench) key: Vec<u8>,
}

/// A comparison of the version of a key, with the relation `>`.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct Compare {
    #[prost(int32, tag = "1")]
    pub(in crate::bench) result: i32,
    #[prost(int32, tag = "2")]
    pub(in crate::bench) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(in crate::bench) key: Vec<u8>,
    #[prost(int64, optional, tag = "4")]
    pub(in crate::bench) version: Option<i64>,
}

/// `Compare.result`: greater.
pub(in crate::bench) const GREATER: i32 = 1;
/// `Compare.target`: the version of the key.
pub(in crate::bench) const VERSION: i32 = 0;

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct RequestOp {
    #[prost(message, optional, tag = "1")]
    pub(in crate::bench) range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    pub(in crate::bench) put: Option<PutRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::bench) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::bench) success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct TxnResponse {
    #[prost(bool, tag = "2")]
    pub(in crate::bench) succeeded: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::bench) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::bench) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(in crate::bench) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub(in crate::bench) created: bool,
    #[prost(bool, tag = "4")]
    pub(in crate::bench) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(in crate::bench) events: Vec<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct Event {
    #[prost(message, optional, tag = "2")]
    pub(in crate::bench) kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::bench) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(in crate::bench) value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct LeaseGrantRequest {
    /// Seconds.
    #[prost(int64, tag = "1")]
    pub(in crate::bench) ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(in crate::bench) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(in crate::bench) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "2")]
    pub(in crate::bench) id: i64,
    /// Seconds; 0 if the lease does not exist.
    #[prost(int64, tag = "3")]
    pub(in crate::bench) ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::bench) name: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(in crate::bench) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct LockResponse {
    /// The key to unlock.
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::bench) key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::bench) key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::bench) struct UnlockResponse {}
