//! Consul's HTTP API in terms of Convoke (docs/consul.md): how values are spelled, what a member looks like as a service
//! instance, and filters. Pure: the modules of the server that answer requests use it.

mod catalog;
mod duration;
mod event;
mod fields;
mod filter;
mod flag;
mod index;
mod instance;
mod kv;
mod session;
pub mod show;

pub use catalog::{CONSUL, datacenter_of, host_of, is_own_node, is_usable, own_node_id, port_of, recorded_node_id};
pub use duration::{InvalidDuration, format_duration, parse_duration};
pub use event::{EVENTS, EVENTS_MAX, UserEvent, events_index, next_event};
pub use fields::Fields;
pub use filter::{Expression, FILTER_BYTES_MAX};
pub use flag::parse_bool;
pub use index::{index_of, index_of_bytes};
pub use instance::{
    AGENTLESS_NODE, Instance, InvalidInstance, NODE_KEY, NODE_RECORDS, NodeRecord, Weights, has_tag, member_id,
    node_name, own_address, split_member_id,
};
pub use kv::{
    Blocked, KvOp, OpError, OpOutcome, Pair, PairView, Plan, TXN_OPERATIONS_MAX, TxnEntry, TxnError, TxnInput, Verb,
    evaluate, keys_up_to, parse_txn,
};
pub use session::{
    Behavior, ConsulSessionId, Description, InvalidSessionId, LOCK_DELAY_MAX, NODE_CHECK, NewSession, SESSION_TTL_MAX,
    SESSION_TTL_MIN, SessionRefusal, SessionRow, Ttl, sessions_index,
};
