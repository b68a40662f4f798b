//! Documents that are generated from the code: `UPDATE_GOLDEN=1 cargo test -p convoke` writes them.

use crate::args::Arguments;
use crate::config::keys::{KEYS, SECTIONS};
use clap::{Arg, Command, CommandFactory};
use convoke_testkit::golden;
use std::fmt::Write;

#[test]
fn the_reference_of_the_configuration_is_up_to_date() {
    golden!("../../../docs/configuration.md", &configuration());
}

#[test]
fn the_reference_of_the_command_line_is_up_to_date() {
    golden!("../../../docs/cli.md", &command_line());
}

fn configuration() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         *Generated from the table of keys in `crates/convoke/src/config/keys.rs`.*\n\n\
         A node needs no configuration on one machine. A TOML file (`--config FILE` or `CONVOKE_CONFIG`) sets what it names; environment \
         variables override the file, flags override both. Unknown keys are errors; an unknown variable `CONVOKE_…` is a warning, because others \
         set such variables, too; what Kubernetes sets for services is passed over, and where such a service has the name of a port of ours (`convoke-peer`: \
         `CONVOKE_PEER_PORT=tcp://…`), a warning says so. `convoke config print --defaults` prints a file with \
         every key, `convoke config print` what counts here and where it comes from, `convoke config check FILE` says whether a node would \
         start with it: all that `start` refuses before it opens anything is refused. What a host name in `bind` stands for is known at the start only.\n\n\
         Times have units (`500ms`, `20s`, `5m`, `1h`, `1m30s`), sizes may have them (`64KiB`, `4MiB`), lists in variables and flags are \
         separated by commas.\n",
    );
    let settings = crate::config::Settings::default();
    for (section, about) in SECTIONS {
        let title = if section.is_empty() { "Top of the file".to_owned() } else { format!("`[{section}]`") };
        let _ =
            write!(out, "\n## {title}\n\n{about}\n\n| Key | Default | Meaning | Variable, flag |\n|---|---|---|---|\n");
        for key in KEYS.iter().filter(|key| key.parts().0 == *section) {
            let flag = key.flag.map(|flag| format!(", `{flag}`")).unwrap_or_default();
            let (name, default, variable) = (key.parts().1, (key.read)(&settings), key.environment());
            let _ = writeln!(out, "| `{name}` | `{default}` | {} | `{variable}`{flag} |", key.meaning);
        }
    }
    out
}

fn command_line() -> String {
    let mut root = Arguments::command();
    root.build();
    let mut out = String::from(
        "# Command line\n\n\
         *Generated from `crates/convoke/src/args`.*\n\n\
         One binary, `convoke`: nodes, and everything that talks to them. Commands that talk to a node take `--addr HOST:PORT,…` (or \
         `CONVOKE_ADDR`; several are tried in turn) and `--timeout`; those that show something take `--json`, in the forms of the HTTP \
         interface. Flags of a command that has others below it may be given to these, too. Colours are for terminals and honour `NO_COLOR`.\n\n",
    );
    if let Some(after) = root.get_after_help() {
        let _ = writeln!(out, "{after} Errors go to stderr, in one sentence that says what to do.");
    }
    for command in root.get_subcommands() {
        describe(&mut out, command, "convoke", &[]);
    }
    out
}

/// Flags of the commands above it, which it takes as well, are told there.
fn describe(out: &mut String, command: &Command, parent: &str, told: &[&str]) {
    let name = format!("{parent} {}", command.get_name());
    if command.get_name() == "help" {
        return;
    }
    let _ = write!(out, "\n## `{name}`\n\n{}\n", command.get_about().map(ToString::to_string).unwrap_or_default());
    // Told once for all: at the top, or with the command that they belong to.
    let known = |id: &str| ["help", "addr", "timeout", "json"].contains(&id) || told.contains(&id);
    let own = |argument: &&Arg| !argument.is_hide_set() && !known(argument.get_id().as_str());
    let arguments: Vec<&Arg> = command.get_arguments().filter(own).collect();
    if !arguments.is_empty() {
        out.push_str("\n| | |\n|---|---|\n");
    }
    for argument in arguments {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(out, "| `{}` | {} |", shown(argument), help.replace('|', "\\|"));
    }
    for inner in command.get_subcommands() {
        let global = command.get_arguments().filter(|argument| argument.is_global_set());
        let told: Vec<&str> = global.map(|argument| argument.get_id().as_str()).collect();
        describe(out, inner, &name, &told);
    }
}

fn shown(argument: &Arg) -> String {
    let value = || argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    match argument.get_long() {
        Some(long) if argument.get_action().takes_values() => format!("--{long} {}", value().unwrap_or_default()),
        Some(long) => format!("--{long}"),
        None if argument.is_last_set() => format!("-- {} …", value().unwrap_or_default()),
        None => value().unwrap_or_default(),
    }
}
