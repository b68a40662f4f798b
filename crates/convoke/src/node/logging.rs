//! Diagnostics of a node: logging on stderr, and traces for a collector.

use super::Plan;
use crate::config::LogFormat;
use convoke_cli::output::colours_wanted;
use convoke_cli::{CommandError, Result};
use convoke_otlp::Exporter;
use std::io::{IsTerminal, stderr};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

/// Starts logging. Returns the exporter of traces, which must be started inside the runtime.
pub(crate) fn observe(plan: &Plan) -> Result<Option<Exporter>> {
    // Reporting an error on a closed stderr would panic.
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).log_internal_errors(false);
    let lines = match plan.log_format {
        LogFormat::Text => lines.with_target(false).with_ansi(colours_wanted() && stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = Registry::default().with(lines.with_filter(plan.log_targets.clone()));
    let (spans, exporter) = plan.parts.traces.clone().map(convoke_otlp::traces).unzip();
    let set = match spans {
        // No layer at all instead of an empty one, because every span and line passes through each layer.
        None => tracing::subscriber::set_global_default(subscriber),
        Some(spans) => {
            let wanted = Targets::new().with_target(convoke_trace::TARGET, LevelFilter::INFO);
            tracing::subscriber::set_global_default(subscriber.with(spans.with_filter(wanted)))
        }
    };
    set.map_err(|error| CommandError::failed(format!("cannot start logging: {error}")))?;
    for warning in &plan.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(traces) = &plan.parts.traces {
        tracing::info!(endpoint = %traces.endpoint, "exporting traces");
    }
    Ok(exporter)
}
