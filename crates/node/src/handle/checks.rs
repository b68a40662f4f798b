//! Checks of members: what this node runs, their results, and reports of applications (HC1 to HC5).

use super::NodeHandle;
use crate::check_feed::CheckChanges;
use convoke_core::Rejection;
use convoke_core::member::{Checks, Member, Status};
use convoke_core::node::{CheckReport, ReportDelivery};
use std::sync::Arc;

impl NodeHandle {
    /// Whether a member may receive traffic: it is routable, or so many members of its service are critical that all that are up
    /// and not drained are routable (HC6).
    pub fn may_route(&self, member: &Member) -> bool {
        member.routable()
            || member.status() == Status::Up
                && !member.drained()
                && self.shared.view.panics(member.service(), self.shared.panic_share)
    }

    /// Reports the result of a check that the application runs itself, whichever node owns the member (HC4).
    pub async fn report_check(&self, report: CheckReport) -> Result<ReportDelivery, Rejection> {
        let call = move |event_loop: &mut crate::event_loop::EventLoop, now| {
            let (core, out) = event_loop.core();
            core.report_check(now, report, out)
        };
        self.run_in_event_loop(call).await?
    }

    /// Waits for changes of the checks that this node runs. For one task only: changes are returned once.
    pub async fn check_changes(&self) -> CheckChanges {
        self.shared.checks.take().await
    }

    /// Writes the results of the checks of a member of this node. Returns whether they changed the member.
    pub async fn report_health(&self, id: &str, claim: u64, checks: Arc<Checks>) -> Result<bool, Rejection> {
        let id = id.to_owned();
        self.run_in_event_loop(move |event_loop, now| {
            let (core, out) = event_loop.core();
            core.report_health(now, &id, (claim, &checks), out)
        })
        .await
    }

    /// Deregisters a member without a client that has been critical for too long. Returns whether it was.
    pub async fn deregister_critical(&self, id: &str, claim: u64) -> Result<bool, Rejection> {
        let id = id.to_owned();
        self.run_in_event_loop(move |event_loop, now| {
            let (core, out) = event_loop.core();
            core.deregister_critical(now, &id, claim, out)
        })
        .await
    }
}
