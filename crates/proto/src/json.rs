//! The JSON types of the HTTP interface, the command line and the SDK.
//!
//! Types for user input reject unknown fields (R-06). Types for responses of a node ignore them, because the node may
//! be newer than the reader.

mod checks;
mod coordination;
mod txn;

pub use checks::{Check, CheckReport, CheckStatus, GrpcProbe, HttpProbe, ProbeTls};
pub use convoke_filter::{Health, Status};
pub use coordination::{
    ElectedLeader, Election, ElectionList, LeaderChange, Lease, LeaseList, Lock, LockHolder, LockList, LockPlace,
    LogClock,
};
pub use txn::{
    Compare, Delete, Get, Op, OpResult, Operand, Put, Relation, Sort, TXN_OPERATIONS_MAX, Target, Txn, TxnAnswer,
    lease_id,
};

use crate::{Error, v1};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

impl From<Status> for v1::Status {
    fn from(status: Status) -> v1::Status {
        match status {
            Status::Up => v1::Status::Up,
            Status::Down => v1::Status::Down,
            Status::Left => v1::Status::Left,
        }
    }
}

/// An unknown status becomes [`Status::Down`], so that clients do not route traffic to such a member.
impl From<v1::Status> for Status {
    fn from(status: v1::Status) -> Status {
        match status {
            v1::Status::Up => Status::Up,
            v1::Status::Left => Status::Left,
            v1::Status::Down | v1::Status::Unspecified => Status::Down,
        }
    }
}

/// A member as queries and watches return it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub id: String,
    pub service: String,
    /// Free-form hierarchy with dots, for example `aws.us-east-1.a`.
    pub locality: String,
    /// Creation time in UNIX milliseconds.
    pub created: u64,
    pub revision: String,
    /// `host:port`, or empty.
    pub address: String,
    pub endpoints: BTreeMap<String, String>,
    /// At least 1.
    pub weight: u16,
    pub status: Status,
    /// Whether the member is in maintenance.
    pub drained: bool,
    /// Present if the operator gave a reason or an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,
    pub metadata: BTreeMap<String, String>,
    pub owner: Owner,
    /// Opaque; compare for equality only.
    pub version: String,
    pub client: String,
    /// The worst result of its checks.
    #[serde(default)]
    pub health: Health,
    #[serde(default)]
    pub checks: Vec<CheckStatus>,
}

impl Member {
    /// Returns whether the member is up, not drained and not critical (R-16).
    pub fn routable(&self) -> bool {
        self.status == Status::Up && !self.drained && self.health != Health::Critical
    }
}

/// Reason and end of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    /// Empty if the operator gave none.
    pub reason: String,
    /// When the drain ends by itself, in UNIX milliseconds; for display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

impl From<v1::Maintenance> for Maintenance {
    fn from(maintenance: v1::Maintenance) -> Self {
        Maintenance { reason: maintenance.reason, until: maintenance.until }
    }
}

impl From<Maintenance> for v1::Maintenance {
    fn from(maintenance: Maintenance) -> Self {
        v1::Maintenance { reason: maintenance.reason, until: maintenance.until }
    }
}

/// Body of `POST /api/v1/members/{id}/drain` and `POST /api/v1/nodes/{id}/drain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DrainRequest {
    /// After this time the drain ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The node whose session holds a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub node: String,
    /// Start of the ownership in UNIX milliseconds; for display only.
    pub since: u64,
}

impl From<v1::Member> for Member {
    fn from(member: v1::Member) -> Member {
        let (status, health) = (member.status().into(), member.health().into());
        let owner = member.owner.unwrap_or_default();
        Member {
            id: member.id,
            service: member.service,
            locality: member.locality,
            created: member.created,
            revision: member.revision,
            address: member.address,
            endpoints: member.endpoints,
            weight: u16::try_from(member.weight).unwrap_or(u16::MAX).max(1),
            status,
            drained: member.drained,
            maintenance: member.maintenance.map(Maintenance::from),
            metadata: member.metadata,
            owner: Owner { node: owner.node, since: owner.since },
            version: member.version,
            client: member.client,
            health,
            checks: member.checks.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Member> for v1::Member {
    fn from(member: Member) -> v1::Member {
        v1::Member {
            id: member.id,
            service: member.service,
            locality: member.locality,
            revision: member.revision,
            created: member.created,
            address: member.address,
            endpoints: member.endpoints,
            weight: member.weight.into(),
            metadata: member.metadata,
            status: v1::Status::from(member.status).into(),
            drained: member.drained,
            maintenance: member.maintenance.map(v1::Maintenance::from),
            owner: Some(v1::Owner { node: member.owner.node, since: member.owner.since }),
            version: member.version,
            client: member.client,
            health: v1::Health::from(member.health).into(),
            checks: member.checks.into_iter().map(Into::into).collect(),
        }
    }
}

/// The attributes of a member that its client provides at registration. It is also the body of a registration over HTTP.
///
/// The registry, not the parser, rejects an empty id or service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemberSpec {
    pub id: String,
    pub service: String,
    pub locality: String,
    /// Creation time in UNIX milliseconds. Defaults to the time of the first registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
    pub revision: String,
    /// `host:port`, or empty.
    pub address: String,
    /// Further addresses by name.
    pub endpoints: BTreeMap<String, String>,
    /// Relative share of traffic. 0 means not set and counts as 1.
    pub weight: u16,
    pub metadata: BTreeMap<String, String>,
    /// At most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

impl MemberSpec {
    pub fn new(id: impl Into<String>, service: impl Into<String>) -> MemberSpec {
        MemberSpec { id: id.into(), service: service.into(), ..MemberSpec::default() }
    }

    /// Sets the address, `host:port`.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> MemberSpec {
        self.address = address.into();
        self
    }

    /// Adds a named endpoint.
    #[must_use]
    pub fn endpoint(mut self, name: impl Into<String>, address: impl Into<String>) -> MemberSpec {
        self.endpoints.insert(name.into(), address.into());
        self
    }

    #[must_use]
    pub fn locality(mut self, locality: impl Into<String>) -> MemberSpec {
        self.locality = locality.into();
        self
    }

    #[must_use]
    pub fn revision(mut self, revision: impl Into<String>) -> MemberSpec {
        self.revision = revision.into();
        self
    }

    #[must_use]
    pub fn weight(mut self, weight: u16) -> MemberSpec {
        self.weight = weight;
        self
    }

    /// Sets one metadata key.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> MemberSpec {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Adds a check.
    #[must_use]
    pub fn check(mut self, check: Check) -> MemberSpec {
        self.checks.push(check);
        self
    }
}

impl From<MemberSpec> for v1::MemberSpec {
    fn from(spec: MemberSpec) -> v1::MemberSpec {
        v1::MemberSpec {
            id: spec.id,
            service: spec.service,
            locality: spec.locality,
            revision: spec.revision,
            created: spec.created,
            address: spec.address,
            endpoints: spec.endpoints,
            weight: spec.weight.into(),
            metadata: spec.metadata,
            checks: spec.checks.into_iter().map(Into::into).collect(),
        }
    }
}

/// `{"error":{…}}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: Error,
}

/// A page of members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberList {
    pub members: Vec<Member>,
    pub next_cursor: Option<String>,
    /// False if there may be more members than the node knows.
    pub complete: bool,
}

/// Body of `POST /api/v1/sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Liveness>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// How a lost connection affects the status of a client's members (R-12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Liveness {
    /// A lost connection changes nothing before the heartbeat timeout.
    #[default]
    Normal,
    /// A lost connection means `down` within a second.
    Fast,
}

impl From<Liveness> for v1::Liveness {
    fn from(liveness: Liveness) -> v1::Liveness {
        match liveness {
            Liveness::Normal => v1::Liveness::Normal,
            Liveness::Fast => v1::Liveness::Fast,
        }
    }
}

/// Response to `POST /api/v1/sessions`. `session` is a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionResponse {
    pub session: String,
    pub client: String,
    pub heartbeat_interval_ms: u64,
    pub timeout_ms: u64,
}

impl fmt::Debug for SessionResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionResponse").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Response to a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberWritten {
    pub version: String,
    /// Another ready node has the write.
    #[serde(default)]
    pub replicated: bool,
}

/// A key with its value and revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyValue {
    /// The key as text. Invalid UTF-8 is replaced.
    pub key: String,
    /// The bytes of the key, if it is not valid UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "base64_option")]
    pub key_base64: Option<Vec<u8>>,
    /// Base64 in JSON.
    #[serde(with = "base64")]
    pub value: Vec<u8>,
    pub create_revision: u64,
    pub mod_revision: u64,
    /// 1 at creation, plus one per change.
    pub version: u64,
    /// Lease that the key is attached to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// A number that a client stored with the key.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flags: u64,
}

impl From<v1::KeyValue> for KeyValue {
    fn from(record: v1::KeyValue) -> KeyValue {
        let (key, key_base64) = match String::from_utf8(record.key.into()) {
            Ok(key) => (key, None),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), Some(error.into_bytes())),
        };
        KeyValue {
            key,
            key_base64,
            value: record.value.into(),
            create_revision: record.create_revision,
            mod_revision: record.mod_revision,
            version: record.version,
            lease: (record.lease > 0).then(|| record.lease.to_string()),
            flags: record.flags,
        }
    }
}

/// A page of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyList {
    pub keys: Vec<KeyValue>,
    /// Revision of the key store when the page was read.
    pub revision: u64,
    pub next_cursor: Option<String>,
    /// Number of selected keys, if only that was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Whether there are more keys and no cursor, because the keys are not in key order.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// Data of the event `put` of a watch of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPut {
    pub revision: u64,
    /// Whether the watch has no further event of this revision.
    pub last: bool,
    #[serde(flatten)]
    pub record: KeyValue,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<KeyValue>,
}

/// Data of the event `delete` of a watch of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyDeleted {
    pub revision: u64,
    pub last: bool,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "base64_option")]
    pub key_base64: Option<Vec<u8>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<KeyValue>,
}

/// Data of the event `reset` of a watch of keys: changes may be missing. Read the keys at `revision`; the stream
/// continues after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchReset {
    /// `compacted`: the history no longer contains the position. `log`: the position belongs to another log.
    pub reason: String,
    pub revision: u64,
}

/// Response to a put or a delete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyWritten {
    /// Revision of the key store after the write.
    pub revision: u64,
    /// With a delete: number of deleted keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<u64>,
    /// Id of the request in the log.
    pub request: v1::RequestId,
    /// Previous records, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub previous: Vec<KeyValue>,
    /// Number of previous records that were omitted because of their size.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The fate of a log request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFate {
    pub request: v1::RequestId,
    /// `applied`, `not_applied`, `never`, `open` or `too_old`.
    pub fate: String,
    /// Whether the fate is final: no copy of the request can take effect later.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Log index; with `applied` and `not_applied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Revision of the key store; with `applied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// With `not_applied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Error>,
}

/// Body of `POST /api/v1/log/members`: exactly one change of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MembersChange {
    /// Number of the configuration that the change replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u64>,
    /// Maximum time to wait until the group has adopted the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Node to add as a learner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<String>,
    /// Node whose replica moves to the node in `with`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// Peer address of the new node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<String>,
    /// Voter that becomes the leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<String>,
}

/// Bytes as base64 text.
mod base64 {
    use ::base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer};
    use std::borrow::Cow;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map_err(serde::de::Error::custom)
    }
}

mod base64_option {
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        super::base64::serialize(bytes.as_deref().unwrap_or_default(), serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        super::base64::deserialize(deserializer).map(Some)
    }
}

/// Epochs as text, `term@replica`. Clients compare them for equality only.
pub(crate) mod epoch {
    use crate::v1::Epoch;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::borrow::Cow;

    pub(crate) fn serialize<S: Serializer>(epoch: &Option<Epoch>, serializer: S) -> Result<S::Ok, S::Error> {
        match epoch {
            Some(epoch) => serializer.collect_str(epoch),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Epoch>, D::Error> {
        let text = Option::<Cow<str>>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

/// `data` of an `unregister` event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnregisterEvent {
    pub id: String,
    pub version: String,
}

/// JSON form of a status in generated messages.
pub(crate) mod status {
    use super::{Status, v1};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(status: &i32, serializer: S) -> Result<S::Ok, S::Error> {
        Status::from(v1::Status::try_from(*status).unwrap_or_default()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
        Ok(v1::Status::from(Status::deserialize(deserializer)?).into())
    }
}

/// JSON form of a node state in generated messages: the enum's name without its prefix, in lower case.
pub(crate) mod node_state {
    use crate::v1::NodeState;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::borrow::Cow;

    const PREFIX: &str = "NODE_STATE_";

    pub(crate) fn serialize<S: Serializer>(state: &i32, serializer: S) -> Result<S::Ok, S::Error> {
        let name = NodeState::try_from(*state).unwrap_or_default().as_str_name();
        serializer.serialize_str(&name.trim_start_matches(PREFIX).to_lowercase())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Ok(NodeState::from_str_name(&format!("{PREFIX}{}", text.to_uppercase())).unwrap_or_default().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_str, to_string};

    fn member() -> Member {
        Member {
            id: "orders-1".into(),
            service: "orders".into(),
            locality: "aws.us-east-1.a".into(),
            created: 1_700_000_000_000,
            revision: "r7".into(),
            address: "10.0.0.1:80".into(),
            endpoints: [("grpc".to_owned(), "10.0.0.1:81".to_owned())].into(),
            weight: 2,
            status: Status::Up,
            drained: true,
            maintenance: Some(Maintenance { reason: "disk".into(), until: Some(1_700_000_000_002) }),
            metadata: [("version".to_owned(), "v1".to_owned())].into(),
            owner: Owner { node: "n1".into(), since: 1_700_000_000_001 },
            version: "3.1.0000abcd".into(),
            client: "shop".into(),
            health: Health::Warning,
            checks: vec![CheckStatus { id: "web".into(), kind: "http".into(), ..CheckStatus::default() }],
        }
    }

    #[test]
    fn a_member_has_the_fields_of_the_interface_in_their_order() {
        assert_eq!(
            to_string(&member()).unwrap(),
            concat!(
                r#"{"id":"orders-1","service":"orders","locality":"aws.us-east-1.a","created":1700000000000,"revision":"r7","#,
                r#""address":"10.0.0.1:80","endpoints":{"grpc":"10.0.0.1:81"},"weight":2,"status":"up","drained":true,"#,
                r#""maintenance":{"reason":"disk","until":1700000000002},"#,
                r#""metadata":{"version":"v1"},"owner":{"node":"n1","since":1700000000001},"version":"3.1.0000abcd","#,
                r#""client":"shop","health":"warning","checks":[{"id":"web","name":"","notes":"","type":"http","target":"","#,
                r#""status":"passing","output":"","since":0,"interval_ms":0,"timeout_ms":0,"ttl_ms":0}]}"#
            )
        );
    }

    #[test]
    fn a_member_round_trips_through_json_and_protobuf() {
        assert_eq!(from_str::<Member>(&to_string(&member()).unwrap()).unwrap(), member());
        assert_eq!(Member::from(v1::Member::from(member())), member());
    }

    #[test]
    fn input_may_omit_fields_and_rejects_unknown_ones() {
        let spec: MemberSpec = from_str(r#"{"id":"a","service":"s"}"#).unwrap();
        assert_eq!(spec, MemberSpec::new("a", "s"));
        assert_eq!(from_str::<MemberSpec>("{}").unwrap(), MemberSpec::default());
        for (bad, named) in [
            (r#"{"id":"a","service":"s","status":"up"}"#, "status"),
            (r#"{"id":"a","service":"s","owner":{}}"#, "owner"),
            (r#"{"id":"a","service":"s","weight":70000}"#, "70000"),
        ] {
            let error = from_str::<MemberSpec>(bad).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        assert!(from_str::<SessionRequest>(r#"{"clint":"x"}"#).is_err());
    }

    #[test]
    fn generated_messages_write_enums_as_names() {
        let node = v1::Node { id: "n1".into(), state: v1::NodeState::Up.into(), ..v1::Node::default() };
        let text = to_string(&node).unwrap();
        assert!(text.starts_with(r#"{"id":"n1","state":"up","region":"""#), "{text}");
        assert_eq!(from_str::<v1::Node>(&text).unwrap(), node);
        let explained = v1::ExplainResponse { status: v1::Status::Down.into(), ..v1::ExplainResponse::default() };
        assert!(to_string(&explained).unwrap().contains(r#""status":"down""#));
    }

    #[test]
    fn an_unknown_status_is_not_up() {
        let shown = v1::Member { status: 77, ..v1::Member::from(member()) };
        assert_eq!(Member::from(shown).status, Status::Down);
    }
}
