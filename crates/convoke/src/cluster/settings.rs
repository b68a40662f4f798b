//! Keys of the configuration that may be set for all nodes of a cluster.

use crate::config::keys::{self, KEYS};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// What makes a node a node of this cluster is not for others to set: who it is, where it listens, where it writes.
const SECTIONS: &[&str] = &["timers", "limits", "network", "clients", "client_timeouts", "logging", "dns"];

/// Whether all keys are known and may be set. Whether values fit, nodes say when they start.
pub(crate) fn check(settings: &BTreeMap<String, String>) -> Result<(), String> {
    for name in settings.keys() {
        match keys::find(name) {
            None => return Err(format!("unknown key {name}: `convoke config print --defaults` lists all")),
            Some(key) if !SECTIONS.contains(&key.parts().0) => {
                let sections = SECTIONS.join(", ");
                return Err(format!("{name} cannot be set for a cluster: only keys of the sections {sections} can"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// As nodes read them.
pub(crate) fn variables(settings: &BTreeMap<String, String>) -> Vec<(OsString, OsString)> {
    let of = |name: &str| KEYS.iter().find(|key| key.name == name).map(keys::Key::environment);
    settings.iter().filter_map(|(name, value)| Some((of(name)?.into(), value.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_leave_nodes_where_they_are() {
        let check = |name: &str| check(&BTreeMap::from([(name.to_owned(), "1".to_owned())]));
        check("timers.ping_timeout").unwrap();
        assert!(check("data_dir").unwrap_err().starts_with("data_dir cannot be set"));
        assert!(check("timers.pong").unwrap_err().starts_with("unknown key timers.pong"));
        let variables = variables(&BTreeMap::from([("logging.level".to_owned(), "debug".to_owned())]));
        assert_eq!(variables, [("CONVOKE_LOG_LEVEL".into(), "debug".into())]);
    }
}
