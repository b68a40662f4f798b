//! Members as JSON.

use convoke_core::member::{Member, Metadata, Owner};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// A member that serializes in the form of `convoke_proto::json::Member` without a copy of its strings.
#[derive(Clone, Debug)]
pub(crate) struct JsonMember(pub(crate) Member);

impl JsonMember {
    /// Returns the approximate size in JSON.
    pub(crate) fn size_hint(&self) -> usize {
        let Self(member) = self;
        let pairs = member.metadata().iter().chain(member.endpoints()).map(|(key, value)| key.len() + value.len() + 6);
        300 + member.id().len() + member.service().len() + member.address().len() + pairs.sum::<usize>()
    }
}

impl Serialize for JsonMember {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(member) = self;
        let Owner { node, since } = member.owner();
        let mut out = serializer.serialize_struct("Member", 14)?;
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
        out.serialize_field("metadata", &JsonMap(member.metadata()))?;
        out.serialize_field("owner", &JsonOwner { node, since })?;
        out.serialize_field("version", &Display(member.version()))?;
        out.serialize_field("client", member.client())?;
        out.end()
    }
}

struct JsonMap<'a>(&'a Metadata);

impl Serialize for JsonMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0)
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
    use convoke_core::member::MemberSpec;
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
        };
        let plain = AttachMember { spec: MemberSpec { id: "b".to_owned(), ..MemberSpec::default() }, takeover: false };
        let plain = AttachMember { spec: MemberSpec { service: "s".to_owned(), ..plain.spec }, ..plain };
        let _client = TestClient::attach(node, "c", vec![AttachMember { spec, takeover: false }, plain]).await;
        for id in ["a \"quoted\" id", "b"] {
            let member = node.member(id).unwrap();
            let copied = serde_json::to_string(&json::Member::from(convoke_convert::member(&member))).unwrap();
            let written = JsonMember(member);
            assert_eq!(serde_json::to_string(&written).unwrap(), copied);
            assert!(copied.len() <= 2 * written.size_hint());
        }
    }
}
