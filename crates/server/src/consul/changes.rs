//! What changes of Consul's clients mean in the registry: registration, deregistration, maintenance.

use super::failure::Failure;
use super::params::Mode;
use super::registry::{Registry, Row, row};
use crate::access::Caller;
use crate::draining::Marked;
use crate::surface::Surface;
use convoke_access::{Resource, Verb};
use convoke_consul::{Instance, NODE_RECORDS, NodeRecord, host_of, member_id};
use convoke_core::filter::Health;
use convoke_core::member::{
    Check, CheckResult, Drain, Maintenance, Member, MemberSpec, Metadata, NODE_ID_PREFIX, NODE_SERVICE,
};
use convoke_core::node::CheckReport;

/// Changes with the rights of a caller.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    pub(crate) surface: &'a Surface,
    pub(crate) caller: &'a Caller,
}

impl Changes<'_> {
    /// Returns the instances that the caller may read or change. The change itself needs its own permission; one that is
    /// denied must not look like one of an instance that does not exist.
    pub(crate) fn all(&self) -> Result<Vec<Row>, Failure> {
        let everyone = Caller::unrestricted();
        let mut found = Registry { surface: self.surface, caller: &everyone, mode: Mode::Default }.all()?;
        found.retain(|row| self.concerns(&row.member));
        Ok(found)
    }

    /// Returns the members that stand for nodes, and that the caller may read or change.
    pub(crate) fn node_records(&self) -> Result<Vec<Row>, Failure> {
        let everyone = Caller::unrestricted();
        let registry = Registry { surface: self.surface, caller: &everyone, mode: Mode::Default };
        let mut found = registry.node_records()?;
        found.retain(|row| self.concerns(&row.member));
        Ok(found)
    }

    fn concerns(&self, member: &Member) -> bool {
        let may = |verb| self.caller.may(verb, Resource::Service(member.service()));
        self.caller.may_see_service(member.service()) || may(Verb::Register) || may(Verb::Drain)
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

    /// Returns the checks with which an instance is registered now.
    pub(crate) fn checks_of(&self, instance: &Instance) -> Vec<Check> {
        let member = self.surface.node.member(&member_id(&instance.node, &instance.id));
        member.map(|member| definitions(&member)).unwrap_or_default()
    }

    /// Replaces the checks of an instance, or of a node.
    pub(crate) async fn set_checks(&self, row: &Row, checks: Vec<Check>) -> Result<(), Failure> {
        if row.member.service() == NODE_RECORDS {
            self.set_node_checks(&row.instance.node, checks).await
        } else {
            self.register_again(row, checks).await
        }
    }

    /// Replaces the checks of a node. They belong to the member that stands for the node; a node of Convoke has one only while
    /// it has checks.
    pub(crate) async fn set_node_checks(&self, node: &str, checks: Vec<Check>) -> Result<(), Failure> {
        match self.recorded(node) {
            Some(row) if checks.is_empty() && self.own_address(node).is_some() => self.deregister(&row).await,
            Some(row) => self.register_again(&row, checks).await,
            None if checks.is_empty() => Ok(()),
            None => {
                let record = NodeRecord { name: node.to_owned(), ..NodeRecord::default() };
                self.register_node(&record, checks).await
            }
        }
    }

    /// Registers the member that stands for a node.
    pub(crate) async fn register_node(&self, record: &NodeRecord, checks: Vec<Check>) -> Result<(), Failure> {
        let spec = record.to_member().map_err(|invalid| Failure::bad(invalid.0))?;
        self.register(MemberSpec { checks, ..spec }).await
    }

    /// Registers the member of an instance again, with other checks.
    async fn register_again(&self, row: &Row, checks: Vec<Check>) -> Result<(), Failure> {
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

    /// Reports the result of a check that its application reports, unless it has it already.
    pub(crate) async fn report(
        &self,
        id: String,
        check: &str,
        (status, output): (Health, &str),
    ) -> Result<(), Failure> {
        let member = self.surface.node.member(&id);
        let held = member.as_ref().and_then(Member::checks).map(|checks| checks.iter()).into_iter().flatten();
        let wanted = CheckResult::new(status, output, 0);
        let mut same = held.filter(|(definition, _)| definition.id == check);
        if same.any(|(_, result)| (result.status, &result.output) == (wanted.status, &wanted.output)) {
            return Ok(());
        }
        let report = CheckReport { id: id.into(), check: check.into(), status, output: output.to_owned() };
        self.surface.report_check(self.caller, None, report).await?;
        Ok(())
    }

    /// Removes the member of an instance.
    pub(crate) async fn deregister(&self, row: &Row) -> Result<(), Failure> {
        self.surface.deregister_agentless(self.caller, None, row.member.id()).await?;
        Ok(())
    }

    /// Returns the instance with a service id at this agent, if it was registered with Consul's API.
    pub(crate) fn own_instance(&self, service_id: &str) -> Option<Row> {
        let own = self.surface.node.member(&member_id(self.agent(), service_id));
        own.filter(|member| self.concerns(member)).map(row)
    }

    /// Returns the instance with a service id: that of this agent first, else the only one, else an error that lists them.
    pub(crate) fn instance(&self, service_id: &str) -> Result<Option<Row>, Failure> {
        if let Some(own) = self.own_instance(service_id) {
            return Ok(Some(own));
        }
        let mut found = self.all()?;
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

/// Returns the checks of a member.
pub(crate) fn definitions(member: &Member) -> Vec<Check> {
    member.checks().map(|checks| checks.definitions().to_vec()).unwrap_or_default()
}

/// Returns checks with others added. An added one replaces that with its id.
pub(crate) fn merged(mut checks: Vec<Check>, added: Vec<Check>) -> Vec<Check> {
    checks.retain(|check| added.iter().all(|added| added.id != check.id));
    checks.extend(added);
    checks
}
