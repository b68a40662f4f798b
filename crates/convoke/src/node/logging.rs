//! The log, on stderr.

use super::Plan;
use crate::config::LogFormat;
use crate::failure::{Failure, Outcome};
use crate::output::colours_wanted;
use std::io::{IsTerminal, stderr};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

pub(crate) fn log_to_stderr(plan: &Plan) -> Outcome {
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr);
    let layer = match plan.log_format {
        LogFormat::Text => lines.with_target(false).with_ansi(colours_wanted() && stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = Registry::default().with(layer.with_filter(plan.log.clone()));
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|error| Failure::failed(format!("cannot write the log: {error}")))?;
    for doubt in &plan.doubts {
        tracing::warn!("{doubt}");
    }
    Ok(())
}
