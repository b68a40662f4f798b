//! Suggestions for unknown keys and variables.

use super::keys::KEYS;

/// Similarity from which on a name is suggested.
const SIMILAR: f64 = 0.85;

/// The key with the most similar name, if it is similar enough.
pub(crate) fn key(name: &str) -> Option<&'static str> {
    // Right name, wrong section.
    let bare = name.rsplit('.').next().unwrap_or(name);
    if let Some(key) = KEYS.iter().find(|key| key.parts().1 == bare) {
        return Some(key.name);
    }
    let whole = nearest(name, KEYS.iter().map(|key| (key.name, key.name)));
    whole.or_else(|| nearest(bare, KEYS.iter().map(|key| (key.parts().1, key.name))))
}

/// The environment variable with the most similar name, if it is similar enough.
pub(crate) fn variable(name: &str) -> Option<String> {
    let variables: Vec<String> = KEYS.iter().map(super::keys::Key::environment).collect();
    nearest(name, variables.iter().map(|variable| (variable.as_str(), variable.as_str()))).map(str::to_owned)
}

fn nearest<'a>(name: &str, candidates: impl Iterator<Item = (&'a str, &'a str)>) -> Option<&'a str> {
    let rated = candidates.map(|(text, meant)| (strsim::normalized_damerau_levenshtein(name, text), meant));
    let best = rated.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(likeness, _)| *likeness >= SIMILAR).map(|(_, meant)| meant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_and_wrong_sections_get_a_suggestion() {
        for (name, meant) in [
            ("timers.heartbeat_intervall", "timers.heartbeat_interval"),
            ("heartbeat_timeout", "timers.heartbeat_timeout"),
            ("heartbeet_timeout", "timers.heartbeat_timeout"),
            ("limits.region", "region"),
            ("client-port", "client_port"),
        ] {
            assert_eq!(key(name), Some(meant), "{name}");
        }
        assert_eq!(key("colour"), None);
        assert_eq!(variable("CONVOKE_CLIENTPORT").as_deref(), Some("CONVOKE_CLIENT_PORT"));
        assert_eq!(variable("CONVOKE_PORT_7700_TCP_ADDR"), None, "set by Kubernetes for a service of this name");
    }
}
