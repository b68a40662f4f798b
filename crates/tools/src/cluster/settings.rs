//! Configuration keys that `convoke cluster create --set` accepts for all nodes of a cluster.

use crate::VariableOf;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Sections that may be set. The manager itself sets the id, the listeners and the directories of each node.
const SECTIONS: &[&str] = &["timers", "limits", "clients", "client_timeouts", "logging", "dns"];

/// Returns the settings as environment variables, or why a key cannot be set. A node checks the values when it starts.
pub(crate) fn variables(
    settings: &BTreeMap<String, String>,
    variable_of: VariableOf,
) -> Result<Vec<(OsString, OsString)>, String> {
    let variable = |(name, value): (&String, &String)| {
        let Some(variable) = variable_of(name) else {
            return Err(format!("unknown key {name}: run `convoke config print --defaults` for the list of keys"));
        };
        if !name.split_once('.').is_some_and(|(section, _)| SECTIONS.contains(&section)) {
            let sections = SECTIONS.join(", ");
            return Err(format!("{name} cannot be set for a cluster: use a key of one of the sections {sections}"));
        }
        Ok((variable.into(), value.into()))
    };
    settings.iter().map(variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_the_sections_are_accepted() {
        let known = |name: &str| {
            let known = ["timers.ping_timeout", "logging.level", "data_dir"].contains(&name);
            known.then(|| format!("VARIABLE_{name}"))
        };
        let set = |name: &str| variables(&BTreeMap::from([(name.to_owned(), "debug".to_owned())]), known);
        assert_eq!(set("logging.level"), Ok(vec![("VARIABLE_logging.level".into(), "debug".into())]));
        set("timers.ping_timeout").unwrap();
        assert!(set("data_dir").unwrap_err().starts_with("data_dir cannot be set"));
        assert!(set("timers.pong").unwrap_err().starts_with("unknown key timers.pong"));
    }
}
