//! Members as JSON.

use convoke_core::member::{Checks, Maintenance, Member, Metadata, Owner};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// A member that serializes in the form of `convoke_proto::json::Member` without a copy of its strings.
#[derive(Clone, Debug)]
pub(crate) struct JsonMember(pub(crate) Member);

impl JsonMember {
    /// Returns the approximate size in JSON.
    pub(crate) fn size_hint(&self) -> usize {
        let Self(member) = self;
        let pairs = member.metadata().iter().chain(member.endpoints()).map(|(key, value)| key.len() + value.len() + 6);
        let checks = member.checks().into_iter().flat_map(|checks| checks.iter());
        let checks = checks.map(|(check, result)| 300 + check.notes.len() + result.output.len()).sum::<usize>();
        330 + member.id().len() + member.service().len() + member.address().len() + pairs.sum::<usize>() + checks
    }
}

impl Serialize for JsonMember {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(member) = self;
        let Owner { node, since } = member.owner();
        let mut out = serializer.serialize_struct("Member", 17)?;
        out.serialize_field("id", member.id())?;
        out.serialize_field("service", member.service())?;
        out.serialize_field("locality", member.locality())?;
        out.serialize_field("created", &member.created())?;
        out.serialize_field("revision", member.revision())?;
        out.serialize_field("address", member.address())?;
        out.serialize_field("endpoints", &JsonMap(member.endpoints()))?;
        out.serialize_field("weight", &member.weight())?;
        out.serialize_field("status", member.status().as_str())?;
        out.serialize_field("drained", &member.drained())?;
        match member.maintenance() {
            Some(maintenance) => out.serialize_field("maintenance", &JsonMaintenance::from(maintenance))?,
            None => out.skip_field("maintenance")?,
        }
        out.serialize_field("metadata", &JsonMap(member.metadata()))?;
        out.serialize_field("owner", &JsonOwner { node, since })?;
        out.serialize_field("version", &Display(member.version()))?;
        out.serialize_field("client", member.client())?;
        out.serialize_field("health", member.health().as_str())?;
        out.serialize_field("checks", &JsonChecks(member.checks()))?;
        out.end()
    }
}

struct JsonMap<'a>(&'a Metadata);

impl Serialize for JsonMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0)
    }
}

/// The checks in the form of `convoke_proto::json::CheckStatus`: without what they send, such as headers.
struct JsonChecks<'a>(Option<&'a Arc<Checks>>);

impl Serialize for JsonChecks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let checks = self.0.into_iter().flat_map(|checks| checks.iter());
        serializer.collect_seq(checks.map(|(check, result)| JsonCheck {
            id: &check.id,
            name: &check.name,
            notes: &check.notes,
            kind: check.probe.kind(),
            target: check.probe.target(),
            status: result.status.as_str(),
            output: &result.output,
            since: result.since,
            interval_ms: check.interval_ms,
            timeout_ms: check.timeout_ms,
            ttl_ms: check.probe.ttl_ms().unwrap_or_default(),
        }))
    }
}

#[derive(Serialize)]
struct JsonCheck<'a> {
    id: &'a str,
    name: &'a str,
    notes: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    target: String,
    status: &'static str,
    output: &'a str,
    since: u64,
    interval_ms: u64,
    timeout_ms: u64,
    ttl_ms: u64,
}

#[derive(Serialize)]
struct JsonMaintenance<'a> {
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
}

impl<'a> From<&'a Maintenance> for JsonMaintenance<'a> {
    fn from(maintenance: &'a Maintenance) -> Self {
        JsonMaintenance { reason: maintenance.reason(), until: maintenance.until() }
    }
}

#[derive(Serialize)]
struct JsonOwner<'a> {
    node: &'a str,
    since: u64,
}

struct Display<T>(T);

impl<T: std::fmt::Display> Serialize for Display<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use convoke_core::member::{Check, Drain, MemberSpec, Probe};
    use convoke_core::node::AttachMember;
    use convoke_proto::json;
    use convoke_testkit::{Cluster, TestClient};

    #[tokio::test]
    async fn a_member_serializes_like_the_json_type_of_the_interface() {
        let cluster = Cluster::start(1).await;
        let node = cluster.node(0);
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let spec = MemberSpec {
            id: "a \"quoted\" id".to_owned(),
            service: "größe".to_owned(),
            locality: "eu.fra".to_owned(),
            revision: "1.2".to_owned(),
            created: Some(7),
            address: "10.0.0.1:80".to_owned(),
            endpoints: pairs(&[("admin", "10.0.0.1:81"), ("metrics", "h:9")]),
            weight: 3,
            metadata: pairs(&[("a", "1"), ("b", "two \"words\" \\ é")]),
            checks: vec![Check::new("a \"check\"", Probe::Tcp { address: "10.0.0.1:80".to_owned() })],
        };
        let plain = AttachMember { spec: MemberSpec { id: "b".to_owned(), ..MemberSpec::default() }, takeover: false };
        let plain = AttachMember { spec: MemberSpec { service: "s".to_owned(), ..plain.spec }, ..plain };
        let _client = TestClient::attach(node, "c", vec![AttachMember { spec, takeover: false }, plain]).await;
        let drain = Drain { lasts: Some(std::time::Duration::from_secs(60)), reason: "disk".into(), until: 9 };
        node.mark("b", Some(drain)).await.unwrap();
        for id in ["a \"quoted\" id", "b"] {
            let member = node.member(id).unwrap();
            let copied = serde_json::to_string(&json::Member::from(convoke_convert::member(&member))).unwrap();
            let written = JsonMember(member);
            assert_eq!(serde_json::to_string(&written).unwrap(), copied);
            assert!(copied.len() <= 2 * written.size_hint());
        }
    }
}
