//! What changes of Consul's clients mean in the registry: registration, deregistration, maintenance.

use super::failure::Failure;
use super::params::Mode;
use super::registry::{Registry, Row, host_of, row};
use crate::access::Caller;
use crate::draining::Marked;
use crate::surface::Surface;
use convoke_consul::{Instance, NODE_RECORDS, member_id};
use convoke_core::member::{Check, Drain, Maintenance, Member, MemberSpec, Metadata, NODE_ID_PREFIX, NODE_SERVICE};

/// Changes with the rights of a caller.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    pub(crate) surface: &'a Surface,
    pub(crate) caller: &'a Caller,
}

impl Changes<'_> {
    pub(crate) fn registry(&self) -> Registry<'_> {
        Registry { surface: self.surface, caller: self.caller, mode: Mode::Default }
    }

    /// The node that was asked: to its clients, it is the agent.
    pub(crate) fn agent(&self) -> &str {
        self.surface.node.id().as_str()
    }

    pub(crate) async fn register(&self, spec: MemberSpec) -> Result<(), Failure> {
        self.surface.register_agentless(self.caller, spec).await?;
        Ok(())
    }

    /// Registers an instance at its node.
    pub(crate) async fn register_instance(
        &self,
        instance: &Instance,
        node_address: &str,
        checks: Vec<Check>,
    ) -> Result<(), Failure> {
        let spec = instance.to_member(node_address).map_err(|invalid| Failure::bad(invalid.0))?;
        self.register(MemberSpec { checks, ..spec }).await
    }

    /// Registers the member of an instance again, with other checks.
    pub(crate) async fn register_again(&self, row: &Row, checks: Vec<Check>) -> Result<(), Failure> {
        let member = &row.member;
        let pairs = |pairs: &Metadata| pairs.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let spec = MemberSpec {
            id: member.id().to_owned(),
            service: member.service().to_owned(),
            locality: member.locality().to_owned(),
            revision: member.revision().to_owned(),
            created: Some(member.created()),
            address: member.address().to_owned(),
            endpoints: pairs(member.endpoints()),
            weight: member.weight(),
            metadata: pairs(member.metadata()),
            checks,
        };
        self.register(spec).await
    }

    /// Removes the member of an instance.
    pub(crate) async fn deregister(&self, row: &Row) -> Result<(), Failure> {
        self.surface.deregister_agentless(self.caller, None, row.member.id()).await?;
        Ok(())
    }

    /// Returns the instance with a service id: that of this agent first, else the only one, else an error that lists them.
    pub(crate) fn instance(&self, service_id: &str) -> Result<Option<Row>, Failure> {
        let own = self.surface.node.member(&member_id(self.agent(), service_id));
        if let Some(member) = self.caller.visible(own) {
            return Ok(Some(row(member)));
        }
        let mut found = self.registry().all()?;
        found.retain(|row| row.instance.id == service_id && row.member.service() != NODE_SERVICE);
        if let Some(own) = found.iter().position(|row| row.instance.node == self.agent()) {
            return Ok(Some(found.swap_remove(own)));
        }
        if found.len() > 1 {
            let nodes: Vec<&str> = found.iter().map(|row| row.instance.node.as_str()).collect();
            return Err(Failure::server(format!(
                "service ID {service_id:?} exists at several nodes ({}) and not at this one: use /v1/catalog/deregister \
                 with the node, or ask one of them",
                nodes.join(", ")
            )));
        }
        Ok(found.pop())
    }

    /// Drains an instance, or ends that.
    pub(crate) async fn maintain(&self, row: &Row, wanted: Option<Drain>) -> Result<(), Failure> {
        self.mark(Marked::Member(row.member.id().to_owned()), Some(&row.member), wanted).await
    }

    /// Drains the node that was asked, or ends that.
    pub(crate) async fn maintain_node(&self, wanted: Option<Drain>) -> Result<(), Failure> {
        let node = self.surface.node.member(&format!("{NODE_ID_PREFIX}{}", self.agent()));
        self.mark(Marked::Node(String::new()), node.as_ref(), wanted).await
    }

    async fn mark(&self, target: Marked, held: Option<&Member>, wanted: Option<Drain>) -> Result<(), Failure> {
        // As in Consul, the first reason is kept. A drain that ends by itself is replaced.
        let is_kept = |held: &Member| held.drained() && held.maintenance().is_none_or(|held| held.until().is_none());
        let wanted = match (wanted, held.filter(|held| is_kept(held)).map(Member::maintenance)) {
            (Some(wanted), Some(kept)) => {
                let reason = kept.map_or("", Maintenance::reason).to_owned();
                Some(Drain { reason, ..wanted })
            }
            (wanted, _) => wanted,
        };
        Ok(self.surface.mark(self.caller, target, wanted).await?)
    }

    /// Returns the address of a node of Convoke.
    pub(crate) fn own_address(&self, node: &str) -> Option<String> {
        let member = self.surface.node.member(&format!("{NODE_ID_PREFIX}{node}"))?;
        Some(host_of(member.address()).to_owned())
    }

    /// Whether the member of a registered node exists.
    pub(crate) fn recorded(&self, node: &str) -> Option<Row> {
        let member = self.surface.node.member(&member_id(node, ""))?;
        (member.service() == NODE_RECORDS).then(|| row(member))
    }
}
