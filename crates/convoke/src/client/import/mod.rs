//! `convoke import`: copies what another system holds.
//!
//! An import reads with the other system's own API and writes like any other client. It can be repeated: what was copied
//! before is recognised, and nothing that differs is overwritten unless the user asks for it.

mod consul;
mod keys;
mod members;
mod nodes;
mod services;

use crate::args::{ImportCommand, ImportConsulArgs, Part};
use consul::Consul;
use convoke_cli::output::{counted, print, print_json};
use convoke_cli::{CommandError, Result};
use serde::Serialize;

pub(crate) async fn import(command: &ImportCommand) -> Result {
    let ImportCommand::Consul(arguments) = command;
    let mut consul = Consul::connect(arguments).await?;
    let mut report = Report { dry_run: arguments.dry_run, ..Report::default() };
    if arguments.only != Part::Services {
        report.keys = Some(keys::import(arguments, &mut consul).await?);
    }
    if arguments.only != Part::Keys {
        let instances = services::import(arguments, &mut consul).await?;
        report.nodes = Some(nodes::import(arguments, &mut consul, &instances).await?);
        report.services = Some(instances.copied);
    }
    finish(arguments, &report)
}

/// What an import did.
#[derive(Debug, Default, Serialize)]
struct Report {
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<Copied>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Copied>,
    #[serde(skip_serializing_if = "Option::is_none")]
    services: Option<Copied>,
}

/// The fate of the things of one kind.
#[derive(Debug, Default, Serialize)]
struct Copied {
    /// Written now; in a dry run, those that would be.
    copied: u64,
    /// Already here, with the same contents.
    unchanged: u64,
    /// Here with other contents, and left alone.
    conflicts: Vec<String>,
    /// Not copied, with the reason.
    skipped: Vec<Skipped>,
}

#[derive(Debug, Serialize)]
struct Skipped {
    name: String,
    reason: String,
}

impl Copied {
    fn skip(&mut self, name: &str, reason: impl Into<String>) {
        self.skipped.push(Skipped { name: name.to_owned(), reason: reason.into() });
    }

    fn describe(&self, noun: &str, dry_run: bool) -> String {
        let verb = if dry_run { "would be copied" } else { "copied" };
        let mut text = format!("{} {verb}, {} unchanged", counted(self.copied, noun), self.unchanged);
        if !self.conflicts.is_empty() {
            text += &format!(", {} left alone because of other contents here", self.conflicts.len());
        }
        if !self.skipped.is_empty() {
            text += &format!(", {} skipped", self.skipped.len());
        }
        text + "\n"
    }
}

fn finish(arguments: &ImportConsulArgs, report: &Report) -> Result {
    let parts = [("key", &report.keys), ("node", &report.nodes), ("instance", &report.services)];
    if arguments.inspect.json {
        print_json(report)?;
    } else {
        for (noun, copied) in parts {
            let Some(copied) = copied else { continue };
            for Skipped { name, reason } in &copied.skipped {
                eprintln!("convoke: {noun} {name} is skipped: {reason}");
            }
            for name in &copied.conflicts {
                eprintln!("convoke: {noun} {name} has other contents here");
            }
            print(&copied.describe(noun, report.dry_run))?;
        }
    }
    let conflicts: usize =
        parts.iter().filter_map(|(_, copied)| copied.as_ref()).map(|copied| copied.conflicts.len()).sum();
    if conflicts == 0 {
        return Ok(());
    }
    Err(CommandError::rejected(format!(
        "{conflicts} of them exist here with other contents: compare them, or use --overwrite"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_what_was_not_copied() {
        let mut copied = Copied { copied: 1, unchanged: 2, ..Copied::default() };
        assert_eq!(copied.describe("key", false), "1 key copied, 2 unchanged\n");
        copied.conflicts.push("a".to_owned());
        copied.skip("b", "held by a session");
        assert_eq!(
            copied.describe("key", true),
            "1 key would be copied, 2 unchanged, 1 left alone because of other contents here, 1 skipped\n"
        );
    }
}
