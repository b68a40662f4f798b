//! Running a node: id, listeners, output, end.

mod announce;
mod identity;
mod logging;
mod parent;
mod plan;
mod run;

pub(crate) use identity::of_log as id_of_log;
pub(crate) use logging::observe;
pub(crate) use parent::end_with;
pub(crate) use plan::Plan;
pub(crate) use run::run;
