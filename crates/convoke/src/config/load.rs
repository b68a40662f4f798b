//! Loads defaults, then a file, then the environment, then flags, and records the source of every value.

use super::keys::{self, KEYS, Key};
use super::settings::Settings;
use super::value::coerce;
use super::{file, suggest};
use convoke_cli::{CommandError, Result};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Variables of Convoke that are not configuration keys.
const OTHER_VARIABLES: &[&str] = &[
    "CONVOKE_ADDR",
    "CONVOKE_CA",
    "CONVOKE_CERT",
    "CONVOKE_CONFIG",
    "CONVOKE_CONTEXTS",
    "CONVOKE_FENCE",
    "CONVOKE_KEY",
    "CONVOKE_TOKEN",
    "CONVOKE_TOKEN_FILE",
];

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    File { path: PathBuf, line: usize },
    Environment(String),
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File { path, line } => write!(f, "{} line {line}", path.display()),
            Source::Environment(variable) => f.write_str(variable),
            Source::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A value given on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Flag {
    pub(crate) key: &'static str,
    pub(crate) flag: &'static str,
    pub(crate) value: String,
}

/// Settings, with the source of those that are not defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    sources: BTreeMap<&'static str, Source>,
    /// Warnings about variables that look like mistakes but may belong to other programs.
    pub(crate) warnings: Vec<String>,
}

impl Loaded {
    /// The settings of a node that is started now.
    pub(crate) fn effective(file: Option<&Path>, flags: &[Flag]) -> Result<Loaded> {
        let mut loaded = Loaded::default();
        if let Some(path) = file {
            loaded.file(path)?;
        }
        loaded.environment(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))),
        )?;
        loaded.flags(flags)?;
        Ok(loaded)
    }

    pub(crate) fn file(&mut self, path: &Path) -> Result {
        let text = std::fs::read_to_string(path).map_err(|error| {
            CommandError::usage(format!("cannot read configuration file {}: {error}", path.display()))
        })?;
        self.text(path, &text)
    }

    fn text(&mut self, path: &Path, text: &str) -> Result {
        let shown = path.display();
        let entries =
            file::parse(text).map_err(|(line, error)| CommandError::usage(format!("{shown} line {line}: {error}")))?;
        for entry in entries {
            let Some(key) = keys::find(&entry.name) else {
                let help = match suggest::key(&entry.name) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => "run `convoke config print --defaults` for the list of keys".to_owned(),
                };
                let (line, name) = (entry.line, entry.name);
                return Err(CommandError::usage(format!("{shown} line {line}: unknown key {name}; {help}")));
            };
            self.set(key, entry.value, Source::File { path: path.to_owned(), line: entry.line })?;
        }
        Ok(())
    }

    pub(crate) fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) -> Result {
        let mut ours: Vec<_> = variables.filter(|(name, _)| name.starts_with("CONVOKE_")).collect();
        ours.sort();
        for (name, value) in ours {
            match KEYS.iter().find(|key| key.environment() == name) {
                Some(_) if is_service_link(&name, &value) => {
                    let service = service_of(&name);
                    self.warnings.push(format!(
                        "ignored {name}={value}: Kubernetes sets it for the service {service:?} (set enableServiceLinks: false in the pod)"
                    ));
                }
                Some(key) if key.only_in_file => {
                    let error = format!("{}: only the configuration file sets it ({name})", key.name);
                    return Err(CommandError::usage(error));
                }
                Some(key) => self.set(key, value.into(), Source::Environment(name))?,
                None if OTHER_VARIABLES.contains(&name.as_str()) => {}
                None => self.warnings.extend(warning(&name, &value)),
            }
        }
        Ok(())
    }

    pub(crate) fn flags(&mut self, flags: &[Flag]) -> Result {
        for flag in flags {
            let key = keys::find(flag.key).expect("flags name keys of the table");
            self.set(key, flag.value.as_str().into(), Source::Flag(flag.flag))?;
        }
        Ok(())
    }

    /// A path from the settings. One from a file is relative to the directory of the file, so that a directory with a
    /// configuration and the files it names can be moved.
    pub(crate) fn resolve(&self, key: &str, path: &Path) -> PathBuf {
        match self.source(key) {
            Some(Source::File { path: file, .. }) if !path.as_os_str().is_empty() => {
                file.parent().map_or_else(|| path.to_owned(), |directory| directory.join(path))
            }
            _ => path.to_owned(),
        }
    }

    /// The source of a value; `None` for a default.
    pub(crate) fn source(&self, key: &str) -> Option<&Source> {
        self.sources.get(key)
    }

    fn set(&mut self, key: &'static Key, value: Value, source: Source) -> Result {
        let rejected = |error: &str| Err(CommandError::usage(format!("{}: {error} ({source})", key.name)));
        if has_control_characters(&value) {
            return rejected(&format!("{value} contains control characters: remove them"));
        }
        let mut tree = keys::tree(&self.settings);
        let slot = key.slot(&mut tree);
        *slot = coerce(value, slot);
        match Settings::deserialize(tree) {
            Ok(settings) => self.settings = settings,
            Err(error) => return rejected(&in_words(&error.to_string())),
        }
        self.sources.insert(key.name, source);
        Ok(())
    }
}

fn has_control_characters(value: &Value) -> bool {
    match value {
        Value::String(text) => text.chars().any(char::is_control),
        Value::Array(values) => values.iter().any(has_control_characters),
        Value::Object(fields) => fields.values().any(has_control_characters),
        _ => false,
    }
}

/// Replaces the names of Rust types in an error message.
fn in_words(error: &str) -> String {
    error
        .replace("expected u16", "expected a number from 0 to 65535")
        .replace("expected usize", "expected a whole number")
}

/// The warning about a variable that is not a key, if any.
fn warning(name: &str, value: &str) -> Option<String> {
    match suggest::variable(name) {
        _ if is_service_link(name, value) => None,
        Some(meant) => Some(format!("ignored unknown variable {name}; did you mean {meant}?")),
        None => Some(format!("ignored unknown variable {name}; run `convoke config print --defaults` for the list")),
    }
}

/// Kubernetes sets such variables in every container beside a service whose name begins with `convoke`.
fn is_service_link(name: &str, value: &str) -> bool {
    let of_port = |(_, rest): (&str, &str)| rest.starts_with(|first: char| first.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.split_once("_PORT_").is_some_and(of_port)
        || name.ends_with("_PORT") && is_link(value)
}

/// Whether a value is one that Kubernetes writes into `<SERVICE>_PORT`. A variable set in the pod overrides it.
fn is_link(value: &str) -> bool {
    ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
}

/// The service for which Kubernetes sets a variable `<SERVICE>_PORT`.
fn service_of(variable: &str) -> String {
    variable.trim_end_matches("_PORT").to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str) -> Result<Loaded> {
        let mut loaded = Loaded::default();
        loaded.text(Path::new("convoke.toml"), text)?;
        Ok(loaded)
    }

    #[test]
    fn later_layers_win_and_origins_are_recorded() {
        let mut loaded = from_text("region = \"eu\"\ncluster = \"shop\"\nclient_port = 1\n").unwrap();
        let variables = [("CONVOKE_CLIENT_PORT", "2"), ("CONVOKE_CLUSTER", "bank"), ("PATH", "/bin")];
        loaded.environment(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap();
        loaded.flags(&[Flag { key: "client_port", flag: "--client-port", value: "3".to_owned() }]).unwrap();
        let settings = &loaded.settings;
        assert_eq!((settings.region.as_str(), settings.cluster.as_str(), settings.client_port), ("eu", "bank", 3));
        let source = |key| loaded.source(key).map(ToString::to_string);
        assert_eq!(source("region").as_deref(), Some("convoke.toml line 1"));
        assert_eq!(source("cluster").as_deref(), Some("CONVOKE_CLUSTER"));
        assert_eq!(source("client_port").as_deref(), Some("--client-port"));
        assert_eq!(source("peer_port"), None);
    }

    #[test]
    fn unknown_keys_are_rejected_with_a_suggestion() {
        let error = from_text("[timers]\nheartbeat_intervall = \"5s\"\n").unwrap_err();
        assert_eq!(
            error,
            CommandError::usage(
                "convoke.toml line 2: unknown key timers.heartbeat_intervall; did you mean timers.heartbeat_interval?"
            )
        );
        let error = from_text("colour = true\n").unwrap_err();
        assert!(error.message.ends_with("run `convoke config print --defaults` for the list of keys"), "{error}");
    }

    #[test]
    fn invalid_values_are_reported_with_key_and_origin() {
        let error = from_text("\nclient_port = 77000\n").unwrap_err();
        assert_eq!(
            error.message,
            "client_port: invalid value: integer `77000`, expected a number from 0 to 65535 (convoke.toml line 2)"
        );
        let error = from_text("timers.heartbeat_interval = 5\n").unwrap_err();
        assert!(error.message.contains("is not a time: use a number with a unit"), "{error}");
    }

    #[test]
    fn scripts_come_from_the_file_only() {
        let text = "[[checks.scripts]]\nmember = \"m\"\ncheck = \"c\"\ncommand = [\"true\"]\ntimeout = \"3s\"\n";
        let loaded = from_text(text).unwrap();
        assert_eq!(loaded.settings.checks.scripts.len(), 1);
        assert_eq!(loaded.source("checks.scripts").map(ToString::to_string).as_deref(), Some("convoke.toml line 1"));
        let variable = ("CONVOKE_CHECKS_SCRIPTS".to_owned(), "[]".to_owned());
        let error = Loaded::default().environment([variable].into_iter()).unwrap_err();
        assert_eq!(error.message, "checks.scripts: only the configuration file sets it (CONVOKE_CHECKS_SCRIPTS)");
        for (wrong, words) in [
            ("[[checks.scripts]]\nmember = \"m\"\n", "missing field `check`"),
            (
                "[[checks.scripts]]\nmember = \"m\"\ncheck = \"c\"\ncommand = [\"a\"]\nshell = true\n",
                "unknown field `shell`",
            ),
            ("[[checks.scripts]]\nmember = \"m\"\ncheck = \"c\"\ncommand = \"true\"\n", "checks.scripts: "),
            ("[[checks.scripts]]\nmember = \"\\u0007\"\n", "control characters"),
        ] {
            let error = from_text(wrong).unwrap_err();
            assert!(error.message.contains(words), "{error}");
        }
    }

    #[test]
    fn unknown_variables_are_warnings_unless_kubernetes_sets_them() {
        let mut loaded = Loaded::default();
        let links = [
            ("CONVOKE_PORT", "tcp://10.0.0.1:7700"),
            ("CONVOKE_PORT_7700_TCP", "tcp://10.0.0.1:7700"),
            ("CONVOKE_PORT_7700_TCP_ADDR", "10.0.0.1"),
            ("CONVOKE_PORT_7700_TCP_PROTO", "tcp"),
            ("CONVOKE_SERVICE_HOST", "10.0.0.1"),
            ("CONVOKE_SERVICE_PORT", "7700"),
            ("CONVOKE_UI_SERVICE_PORT_HTTP", "7700"),
            ("CONVOKE_UI_PORT", "tcp://10.0.0.1:7700"),
            // Similar to a variable of Convoke.
            ("CONVOKE_PEERS_PORT", "tcp://10.0.0.1:7701"),
        ];
        let ours = [("CONVOKE_ADDR", "x"), ("CONVOKE_CONFIG", "x"), ("CONVOKE_FENCE", "x")];
        let mistakes = [("CONVOKE_REGIO", "x"), ("CONVOKE_NOSUCH", "x"), ("CONVOKE_CLIENTS_PORT", "7700")];
        let variables = links.into_iter().chain(ours).chain(mistakes);
        loaded.environment(variables.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap();
        assert_eq!(
            loaded.warnings,
            [
                "ignored unknown variable CONVOKE_CLIENTS_PORT; did you mean CONVOKE_CLIENT_PORT?",
                "ignored unknown variable CONVOKE_NOSUCH; run `convoke config print --defaults` for the list",
                "ignored unknown variable CONVOKE_REGIO; did you mean CONVOKE_REGION?",
            ]
        );
    }

    /// A Kubernetes service with the name of a port must not change the ports of nodes.
    #[test]
    fn service_variables_of_kubernetes_are_ignored() {
        let mut loaded = from_text("peer_port = 7801\n").unwrap();
        let set = [("CONVOKE_DNS_PORT", "udp://10.0.0.1:7753"), ("CONVOKE_PEER_PORT", "tcp://10.0.0.1:7701")];
        loaded.environment(set.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap();
        assert_eq!((loaded.settings.peer_port, loaded.settings.dns_port), (7_801, Settings::default().dns_port));
        let warning = "ignored CONVOKE_PEER_PORT=tcp://10.0.0.1:7701: Kubernetes sets it for the service \"convoke-peer\" \
                     (set enableServiceLinks: false in the pod)";
        assert_eq!(loaded.warnings[1], warning);

        let collide: Vec<String> =
            KEYS.iter().map(Key::environment).filter(|name| is_service_link(name, "tcp://")).collect();
        assert_eq!(collide, ["CONVOKE_CLIENT_PORT", "CONVOKE_PEER_PORT", "CONVOKE_DNS_PORT", "CONVOKE_CONSUL_PORT"]);
    }
}
