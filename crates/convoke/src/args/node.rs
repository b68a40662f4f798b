//! Flags of the commands that start a node, made from the table of configuration keys.

use crate::config::keys::{KEYS, Key};
use crate::config::{Flag, Settings};
use clap::error::Error;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::path::PathBuf;

/// Keys whose flags `convoke dev` has: the others make no sense in memory on one machine.
const DEV: &[&str] =
    &["id", "client_port", "peer_port", "dns_port", "logging.level", "logging.format", "tracing.otlp_endpoint"];

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    pub(crate) settings: KeyFlags<true>,
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Configuration file in TOML
    #[arg(long, value_name = "FILE", env = "CONVOKE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: KeyFlags<false>,
    /// Stop when this process, the parent, ends
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) end_with: Option<i32>,
}

/// The flags of configuration keys that were given.
#[derive(Debug)]
pub(crate) struct KeyFlags<const DEV: bool>(pub(crate) Vec<Flag>);

fn keys(dev: bool) -> impl Iterator<Item = (&'static Key, &'static str)> {
    KEYS.iter().filter(move |key| !dev || DEV.contains(&key.name)).filter_map(|key| Some((key, key.flag?)))
}

impl<const DEV: bool> Args for KeyFlags<DEV> {
    fn augment_args(command: Command) -> Command {
        let defaults = Settings::default();
        keys(DEV).fold(command, |command, (key, flag)| {
            let arg = Arg::new(key.name).long(flag.trim_start_matches("--")).help(key.help);
            let default = key.read(&defaults);
            command.arg(match (default.is_boolean(), default.as_str().unwrap_or(&default.to_string())) {
                (true, _) => arg.action(ArgAction::SetTrue),
                // The number is optional: alone is the usual case.
                _ if key.name == "bootstrap" => {
                    arg.value_name(key.value_name).num_args(0..=1).default_missing_value("1")
                }
                (false, "" | "[]") => arg.value_name(key.value_name),
                (false, default) => arg.value_name(key.value_name).default_value(default.to_owned()),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const DEV: bool> FromArgMatches for KeyFlags<DEV> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = keys(DEV).filter(|(key, _)| matches.value_source(key.name) == Some(ValueSource::CommandLine));
        let flags = given.map(|(key, flag)| {
            let value = matches.try_get_one::<String>(key.name).ok().flatten();
            Flag { key: key.name, flag, value: value.map_or_else(|| "true".to_owned(), Clone::clone) }
        });
        Ok(KeyFlags(flags.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Arguments, Command};
    use crate::config::Loaded;
    use crate::config::keys::KEYS;
    use clap::Parser;

    #[test]
    fn every_flag_sets_its_key() {
        let line = "convoke start --id a --data-dir d --join x:1 --bootstrap=3 --region r --cluster c --bind b --client-port 1 \
                    --peer-port 2 --dns-port 3 --advertise h --insecure-public --log-level debug --log-format json \
                    --otlp-endpoint http://h:1";
        let Command::Start(arguments) = Arguments::parse_from(line.split_whitespace()).command else { panic!() };
        let mut loaded = Loaded::default();
        loaded.flags(&arguments.settings.0).unwrap();
        for key in KEYS {
            let source = loaded.source(key.name).map(ToString::to_string);
            assert_eq!(source.as_deref(), key.flag, "{}", key.name);
        }
        assert!(loaded.settings.insecure_public && loaded.settings.bootstrap == 3);
        let Command::Start(arguments) = Arguments::parse_from(["convoke", "start", "--bootstrap"]).command else {
            panic!()
        };
        let mut alone = Loaded::default();
        alone.flags(&arguments.settings.0).unwrap();
        assert_eq!(alone.settings.bootstrap, 1);
        let Command::Start(arguments) = Arguments::parse_from(["convoke", "start"]).command else { panic!() };
        assert!(arguments.settings.0.is_empty(), "defaults are not flags");
    }
}
