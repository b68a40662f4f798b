//! Reference pages generated from the code. `UPDATE_GOLDEN=1 cargo test -p convoke docs` writes them.

use crate::args::Arguments;
use crate::config::keys::{KEYS, SECTIONS, of_field};
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
         *Generated from `crates/convoke/src/config/keys.rs`.*\n\n\
         A node on one machine needs no configuration.\n\n\
         - A TOML file (`--config FILE` or `CONVOKE_CONFIG`) sets the keys that it contains.\n\
         - Environment variables override the file.\n\
         - Flags override both.\n\
         - An unknown key in the file is an error.\n\
         - An unknown variable `CONVOKE_…` is a warning, because other programs may use such names.\n\
         - Variables that Kubernetes sets for services are ignored.\n  \
           If a service has the name of a port key (`convoke-peer`: `CONVOKE_PEER_PORT=tcp://…`), the node logs a warning.\n\
         - A time has a unit: `500ms`, `20s`, `5m`, `1h`, `1m30s`.\n\
         - A size may have a unit: `64KiB`, `4MiB`.\n\
         - Variables and flags separate the elements of a list with commas.\n\n\
         | Command | Output |\n|---|---|\n\
         | `convoke config print --defaults` | a file with all keys and their defaults |\n\
         | `convoke config print` | the effective values and their sources |\n\
         | `convoke config check FILE` | whether a node would accept the file |\n",
    );
    out.push_str(&users());
    let settings = crate::config::Settings::default();
    for (section, about) in SECTIONS {
        let title = if section.is_empty() { "Top of the file".to_owned() } else { format!("`[{section}]`") };
        let _ =
            write!(out, "\n## {title}\n\n{about}\n\n| Key | Default | Meaning | Variable, flag |\n|---|---|---|---|\n");
        for key in KEYS.iter().filter(|key| key.parts().0 == *section) {
            let flag = key.flag.map(|flag| format!(", `{flag}`")).unwrap_or_default();
            let (name, default) = (key.parts().1, key.read(&settings));
            let variable =
                if key.only_in_file { "only in the file".to_owned() } else { format!("`{}`", key.environment()) };
            let meaning = format!("{}. {}", key.help, key.details);
            let _ = writeln!(out, "| `{name}` | `{default}` | {} | {variable}{flag} |", meaning.trim_end());
        }
    }
    out + &constants()
}

/// The number of keys, and who changes them.
fn users() -> String {
    const SECURITY: &[&str] = &["tls", "rates", "auth", "audit"];
    let secure = KEYS.iter().filter(|key| SECURITY.contains(&key.parts().0)).count();
    format!(
        "\n## Number of keys\n\n\
         A value is a key only if some user must change it; all others are [constants](#constants).\n\
         There are {} keys.\n\
         The aim is about 60.\n\
         {secure} of them are for security (`[tls]`, `[rates]`, `[auth]`, `[audit]`): files and limits that only the operator knows.\n\
         The other {} stay below the aim.\n\n\
         | Keys | Users who must change them |\n|---|---|\n\
         | `id`, `cluster`, `region`, `data_dir`, `join`, `bootstrap`, ports and addresses | everyone who runs more than one node |\n\
         | `allowed_hosts`, `client_timeouts.headers`, `clients.connections_per_address` | users with a load balancer or a proxy |\n\
         | `rebalance` | users whose clients cannot reach every node |\n\
         | `mass_failure_share`, `[timers]` | users with slow networks, long pauses of clients, or short deadlines of the supervisor |\n\
         | `[logging]`, `[tracing]` | users who collect logs and traces |\n\
         | `[limits]`, `[clients]`, `[log_limits]` | users with more clients or less memory than the defaults allow for |\n\
         | `[tls]`, `[auth]`, `[audit]`, `[rates]` | everyone whose network is not trusted |\n\
         | `[consul]`, `[dns]` | users with resolvers of their own |\n\
         | `[checks]` | users whose checks use other networks, private certificates or scripts |\n\
         | `[log]`, `[log_timers]` | users without the log, with controlled upgrades, or with voters far from each other |\n\
         | `[log_state]` | users with large values, much data or many log clients |\n",
        KEYS.len(),
        KEYS.len() - secure,
    )
}

/// Values that follow a key.
const DERIVED: &[(&str, &str)] = &[
    ("timers.gossip_interval", "as `timers.ping_interval`"),
    ("timers.lone_start_wait", "5 × `timers.ping_interval`"),
    ("timers.forget_timeout", "7 days, or the sum of the timeouts that it must reach (D15)"),
    ("clients.attaches", "as `limits.sessions`"),
    ("clients.value_bytes", "as `log_state.value_bytes`"),
    ("log_timers.election_timeout_max", "1.75 × `log_timers.election_timeout_min`"),
    ("log_limits.snapshot_log_bytes", "an eighth of `log_limits.log_bytes`"),
];

/// Values of components that are not keys.
fn constants() -> String {
    let mut out = String::from(
        "\n## Constants\n\n\
         These values cannot be configured.\n\
         Programs that embed the node (`convoke-node`) can set them.\n\
         [Limits](limits.md) describes the ones that a client can reach.\n\n\
         | Value | Constant |\n|---|---|\n",
    );
    for (section, shown) in [
        ("timers", format!("{:#?}", convoke_core::Timers::default())),
        ("limits", format!("{:#?}", convoke_core::Limits::default())),
        ("network", format!("{:#?}", convoke_node::NetworkLimits::default())),
        ("clients", format!("{:#?}", convoke_server::ServerLimits::default())),
        ("client_timeouts", format!("{:#?}", convoke_server::Timeouts::default())),
        ("log_timers", format!("{:#?}", convoke_replica::LogTimers::default())),
        ("log_limits", format!("{:#?}", convoke_replica::ReplicaLimits::default())),
        ("log_state", format!("{:#?}", convoke_log::LogLimits::default())),
        ("log_state.coordination", format!("{:#?}", convoke_log::CoordinationLimits::default())),
    ] {
        let fields = shown.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
        // Nested limits have a section of their own.
        let fields = fields.filter(|(field, value)| !field.starts_with(' ') && !value.ends_with('{'));
        for (field, value) in fields.filter(|(field, _)| of_field(field, &[section]).is_none()) {
            let name = format!("{section}.{field}");
            let derived = DERIVED.iter().find(|(derived, _)| *derived == name);
            let value = derived.map_or_else(|| value.trim_end_matches(','), |(_, rule)| *rule);
            let _ = writeln!(out, "| `{name}` | {value} |");
        }
    }
    out
}

fn command_line() -> String {
    let mut root = Arguments::command();
    root.build();
    let mut out = String::from(
        "# Command line\n\n\
         *Generated from `crates/convoke/src/args` and `crates/tools/src/args`.*\n\n\
         The binary `convoke` starts nodes and has all client commands.\n\n\
         - Client commands take `--addr HOST:PORT,…` (or `CONVOKE_ADDR`) and `--timeout`.\n  \
           They try several addresses in turn.\n\
         - With `--ca FILE` (or `CONVOKE_CA`), they use TLS and never connect without it.\n  \
           `--cert FILE` and `--key FILE` present a certificate of the client.\n\
         - Commands that print an answer take `--json`.\n  \
           The JSON has the form of the HTTP API.\n\
         - A subcommand also takes the flags of the command above it.\n\
         - Output on a terminal is coloured unless `NO_COLOR` is set.\n\
         - `demo`, `cluster`, `top` and `bench` are development tools.\n  \
           Packages leave them out (packaging/README.md).\n\n",
    );
    if let Some(after) = root.get_after_help() {
        let _ = writeln!(out, "{}\nErrors go to stderr.", after.to_string().replace(". ", ".\n"));
    }
    for command in root.get_subcommands() {
        describe(&mut out, command, "convoke", &[]);
    }
    out
}

/// Describes a command and its subcommands. Flags of the command above are described there.
fn describe(out: &mut String, command: &Command, parent: &str, described: &[&str]) {
    let name = format!("{parent} {}", command.get_name());
    if command.get_name() == "help" {
        return;
    }
    let _ = write!(out, "\n## `{name}`\n\n{}\n", command.get_about().map(ToString::to_string).unwrap_or_default());
    // Described at the top of the page, or with the command that they belong to.
    let known = |id: &str| {
        ["help", "addr", "timeout", "json", "tls_ca", "tls_cert", "tls_key"].contains(&id) || described.contains(&id)
    };
    let own = |argument: &&Arg| !argument.is_hide_set() && !known(argument.get_id().as_str());
    let arguments: Vec<&Arg> = command.get_arguments().filter(own).collect();
    if !arguments.is_empty() {
        out.push_str("\n| | |\n|---|---|\n");
    }
    for argument in arguments {
        let mut help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
        let defaults: Vec<_> = defaults.filter(|value| !value.is_empty()).collect();
        if argument.get_action().takes_values() && !defaults.is_empty() {
            let _ = write!(help, " [default: {}]", defaults.join(","));
        }
        let _ = writeln!(out, "| `{}` | {} |", shown(argument), help.replace('|', "\\|"));
    }
    for inner in command.get_subcommands() {
        let global = command.get_arguments().filter(|argument| argument.is_global_set());
        let described: Vec<&str> = global.map(|argument| argument.get_id().as_str()).collect();
        describe(out, inner, &name, &described);
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
