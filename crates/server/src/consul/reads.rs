//! What reads of the registry have in common: parameters, filters, blocking, and the index of the result.

use super::answer::{json, json_text, with_index, written};
use super::blocking::{Source, Waiter, blocking};
use super::failure::Failure;
use super::params::{Params, ReadOptions};
use super::registry::{Nodes, Registry, Row, datacenter, rows};
use super::rendered::Origin;
use crate::access::Caller;
use crate::http::Connection;
use crate::surface::Surface;
use ::http::request::Parts;
use axum::extract::FromRequestParts;
use axum::response::Response;
use bytes::Bytes;
use convoke_consul::{Expression, NODE_RECORDS, index_of_bytes};
use convoke_core::member::NODE_SERVICE;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

/// A read of the registry.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) surface: Arc<Surface>,
    pub(crate) params: Params,
    pub(crate) options: ReadOptions,
    waiter: Waiter,
}

/// The part of the registry that a result depends on.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Service(String),
    All,
}

/// A result, and when the newest record in it was written (UNIX ms).
#[derive(Debug)]
pub(crate) struct Found<T> {
    pub(crate) newest_ms: u64,
    pub(crate) shown: T,
}

/// The nodes of the instances of a service.
#[derive(Debug)]
pub(crate) struct NodesOfService {
    pub(crate) known: Nodes,
    /// Names of those with a check that does not pass.
    pub(crate) failing: BTreeSet<String>,
}

impl FromRequestParts<Arc<Surface>> for Read {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, surface: &Arc<Surface>) -> Result<Read, Failure> {
        let Ok(params) = Params::from_request_parts(parts, surface).await;
        let Ok(connection) = Connection::from_request_parts(parts, surface).await;
        let caller = Caller::of(&parts.extensions)?;
        check_datacenter(surface, params.text("dc"))?;
        let options = params.read_options()?;
        Ok(Read { surface: surface.clone(), params, options, waiter: Waiter { caller, connection } })
    }
}

/// There is one datacenter: the cluster.
pub(crate) fn check_datacenter(surface: &Surface, wanted: Option<&str>) -> Result<(), Failure> {
    match wanted {
        Some(wanted) if !wanted.is_empty() && !wanted.eq_ignore_ascii_case(&datacenter(surface)) => {
            Err(Failure::server("No path to datacenter"))
        }
        _ => Ok(()),
    }
}

impl Read {
    pub(crate) fn caller(&self) -> &Caller {
        &self.waiter.caller
    }

    pub(crate) fn registry(&self) -> Registry<'_> {
        Registry { surface: &self.surface, caller: self.caller(), mode: self.options.consistency }
    }

    /// Compiles the parameter `filter`. `fields` are the names that a selector may begin with.
    pub(crate) fn filter(&self, fields: &[&str]) -> Result<Option<Expression>, Failure> {
        self.params.text("filter").map(|text| Expression::parse(text, fields)).transpose().map_err(Failure::server)
    }

    /// Answers without an index, for what belongs to this node alone.
    pub(crate) fn plain(&self, shown: &impl Serialize) -> Response {
        json(self.options.pretty, shown)
    }

    /// Answers with the result of `find`. A blocking query waits for another result.
    pub(crate) async fn answer<T: Serialize>(
        &self,
        part: Part,
        find: impl Fn(&Registry<'_>) -> Result<Found<T>, Failure> + Send + Sync,
    ) -> Result<Response, Failure> {
        self.answer_written(part, |registry| Ok(self.write(&find(registry)?))).await
    }

    /// Answers with what `find` makes of the instances of a service and their nodes, or with what it made of the same ones
    /// before. Nothing else and no time may be part of its result.
    pub(crate) async fn answer_service<T: Serialize>(
        &self,
        route: &str,
        service: &str,
        find: impl Fn(&Registry<'_>, Vec<Row>, &NodesOfService) -> Result<Found<T>, Failure> + Send + Sync,
    ) -> Result<Response, Failure> {
        let rendered = &self.surface.consul.rendered;
        let key = self.params.of_result(format!("{route} {service}"));
        let write = |registry: &Registry<'_>| {
            let members = registry.members_of(service)?;
            if let Some(answer) = rendered.get(&key, &members, |name| registry.node_members(name)) {
                return Ok(answer);
            }
            let rows = rows(members.clone());
            let nodes = registry.nodes_of(&rows);
            let failing = nodes.iter().filter(|(_, node)| node.failing).map(|(name, _)| name.clone()).collect();
            let of_service = NodesOfService { known: registry.known_of(&nodes), failing };
            let (index, text) = self.write(&find(registry, rows, &of_service)?);
            rendered.keep(key.clone(), Origin { members, nodes }, index, text.clone());
            Ok((index, text))
        };
        self.answer_written(Part::Service(service.to_owned()), write).await
    }

    async fn answer_written(
        &self,
        part: Part,
        write: impl Fn(&Registry<'_>) -> Result<(u64, Bytes), Failure> + Send + Sync,
    ) -> Result<Response, Failure> {
        let surface = &self.surface;
        let mut changes = surface.node.changes();
        // Marked as seen before the registry is read, so that no change is missed.
        let seen = *changes.borrow_and_update();
        let mut source = RegistrySource { read: self, part, write, changes, seen };
        let (index, text) = blocking(surface, &self.waiter, &self.options, &mut source).await?;
        Ok(with_index(written(text), surface, &self.options, index))
    }

    /// Writes a result. The index is that of its text.
    fn write<T: Serialize>(&self, found: &Found<T>) -> (u64, Bytes) {
        let text = json_text(false, &found.shown);
        let index = index_of_bytes(found.newest_ms, &text);
        let text = if self.options.pretty { json_text(true, &found.shown) } else { text };
        (index, text.into())
    }
}

struct RegistrySource<'a, F> {
    read: &'a Read,
    part: Part,
    write: F,
    changes: watch::Receiver<u64>,
    /// Number of the last change that was seen.
    seen: u64,
}

impl<F> Source for RegistrySource<'_, F>
where
    F: Fn(&Registry<'_>) -> Result<(u64, Bytes), Failure> + Send + Sync,
{
    /// The result in JSON.
    type Result = Bytes;

    async fn read(&mut self) -> Result<(u64, Bytes), Failure> {
        (self.write)(&self.read.registry())
    }

    async fn changed(&mut self) {
        loop {
            if self.changes.changed().await.is_err() {
                return std::future::pending().await;
            }
            let after = self.seen;
            self.seen = *self.changes.borrow_and_update();
            if self.part.concerns(&self.read.surface, after, self.seen) {
                return;
            }
        }
    }
}

impl Part {
    /// Whether the changes `after` a number, up to `last`, can change a result.
    fn concerns(&self, surface: &Surface, after: u64, last: u64) -> bool {
        let Part::Service(service) = self else { return true };
        let changes = surface.node.changes_after(after);
        // Changes that are not kept any more may have been of this service.
        let complete = changes.len() as u64 >= last.saturating_sub(after);
        !complete
            || changes.iter().any(|change| {
                let changed = change.member.service();
                // Results contain the node of a service.
                changed == service || changed == NODE_SERVICE || changed == NODE_RECORDS
            })
    }
}

/// Keeps the rows that a filter selects.
pub(crate) fn filtered<T: Serialize>(rows: Vec<T>, filter: Option<&Expression>) -> Vec<T> {
    let Some(filter) = filter else { return rows };
    let selected = |row: &T| serde_json::to_value(row).is_ok_and(|row| filter.matches(&row));
    rows.into_iter().filter(selected).collect()
}
