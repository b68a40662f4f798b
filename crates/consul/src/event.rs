//! User events as keys of the log (docs/consul-kv.md, "Events"): `consul/event/NAME/NUMBER`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex_lite::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

/// Prefix of the keys of events.
pub const EVENTS: &str = "consul/event/";
/// Events that are kept.
pub const EVENTS_MAX: usize = 256;
/// Bytes of name, payload and filters of an event: Consul's limit of its messages.
const EVENT_BYTES_MAX: usize = 512;
/// A transaction has room for so many deletions of old events.
const DELETED_AT_ONCE: usize = 64;
/// Size of a compiled filter. Every read compiles those of all events.
const FILTER_SIZE_MAX: usize = 64 * 1024;
/// The number of the first event. 1 is the index of a list without events.
const FIRST: u64 = 2;
const DIGITS: usize = 20;

/// An event, as its key contains it and as answers show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct UserEvent {
    #[serde(rename = "ID")]
    pub id: String,
    pub name: String,
    /// In base64.
    pub payload: Option<String>,
    pub node_filter: String,
    pub service_filter: String,
    pub tag_filter: String,
    pub version: u64,
    /// The number of the event. 0 in the answer to the request that fires it, as in Consul.
    #[serde(rename = "LTime")]
    pub number: u64,
}

impl UserEvent {
    /// Checks an event that a client fires. Errors are Consul's texts.
    pub fn new(name: &str, payload: &[u8], [node, service, tag]: [&str; 3]) -> Result<UserEvent, String> {
        if !tag.is_empty() && service.is_empty() {
            return Err("Cannot provide tag filter without service filter".to_owned());
        }
        let bytes = [name, node, service, tag].iter().map(|text| text.len()).sum::<usize>() + payload.len();
        if bytes > EVENT_BYTES_MAX {
            return Err(format!(
                "user event exceeds configured limit of {EVENT_BYTES_MAX} bytes before encoding: \
                 name, payload and filters have {bytes}"
            ));
        }
        for (kind, text) in [("node", node), ("service", service), ("tag", tag)] {
            pattern(text).map_err(|why| format!("Invalid {kind} filter: {why}"))?;
        }
        Ok(UserEvent {
            name: name.to_owned(),
            payload: (!payload.is_empty()).then(|| STANDARD.encode(payload)),
            node_filter: node.to_owned(),
            service_filter: service.to_owned(),
            tag_filter: tag.to_owned(),
            version: 1,
            ..UserEvent::default()
        })
    }

    /// Returns the event with its number, and an id from which its index follows.
    #[must_use]
    pub fn numbered(self, number: u64, random: u64) -> UserEvent {
        let digits = format!("{random:016x}{:016x}", random ^ number);
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        UserEvent { id: parts.join("-"), number, ..self }
    }

    /// Returns the prefix of the keys of events with this name. Grants name it.
    pub fn prefix(name: &str) -> String {
        format!("{EVENTS}{name}/")
    }

    /// Returns the key that contains the event.
    pub fn key(&self) -> String {
        format!("{}{:0DIGITS$}", UserEvent::prefix(&self.name), self.number)
    }

    pub fn encode(&self) -> Vec<u8> {
        // Strings and numbers always serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the event of a key. `None` if another client wrote something else.
    pub fn decode(key: &str, value: &[u8]) -> Option<UserEvent> {
        let event: UserEvent = serde_json::from_slice(value).ok()?;
        (event.key() == key && event.id.len() == 36).then_some(event)
    }

    /// Whether the event is meant for an agent: its node, and its services with their tags.
    pub fn is_for<'a>(&self, node: &str, services: impl IntoIterator<Item = (&'a str, &'a [String])>) -> bool {
        let matches = |filter: &str, text: &str| pattern(filter).is_ok_and(|filter| filter.is_match(text));
        if !matches(&self.node_filter, node) {
            return false;
        }
        let has_tag =
            |tags: &[String]| self.tag_filter.is_empty() || tags.iter().any(|tag| matches(&self.tag_filter, tag));
        let mut services = services.into_iter();
        self.service_filter.is_empty()
            || services.any(|(service, tags)| matches(&self.service_filter, service) && has_tag(tags))
    }
}

/// The index of a list of events: clients compute the same number from the id of the last one.
pub fn events_index(events: &[UserEvent]) -> u64 {
    // Halves of the id are equal except for the number.
    events.last().map_or(1, |event| event.number)
}

/// What a new event changes among the keys of events: its number, and the keys that it replaces.
pub fn next_event<'a>(keys: impl IntoIterator<Item = &'a str>) -> (u64, Vec<String>) {
    let numbered = |key: &'a str| Some((key.rsplit_once('/')?.1.parse::<u64>().ok()?, key));
    let mut held: Vec<(u64, &str)> = keys.into_iter().filter_map(numbered).collect();
    held.sort_unstable();
    let number = held.last().map_or(FIRST, |(last, _)| last.saturating_add(1).max(FIRST));
    let surplus = (held.len() + 1).saturating_sub(EVENTS_MAX).min(DELETED_AT_ONCE);
    (number, held[..surplus].iter().map(|(_, key)| (*key).to_owned()).collect())
}

/// Compiles a filter. An empty one matches everything.
fn pattern(text: &str) -> Result<Regex, String> {
    let compiled = RegexBuilder::new(text).size_limit(FILTER_SIZE_MAX).build();
    compiled.map_err(|why| format!("error parsing regexp: {why}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn event(name: &str, filters: [&str; 3]) -> UserEvent {
        UserEvent::new(name, b"", filters).unwrap()
    }

    /// The index as Consul's clients compute it.
    fn index_of_id(id: &str) -> u64 {
        let digits = id.replace('-', "");
        let half = |text: &str| u64::from_str_radix(text, 16).unwrap();
        half(&digits[..16]) ^ half(&digits[16..])
    }

    #[test]
    fn the_index_follows_from_the_id() {
        for (number, random) in [(2, 0), (77, u64::MAX), (1 << 52, 0x75bb_845d_652e_2bda)] {
            let event = event("deploy", ["", "", ""]).numbered(number, random);
            assert_eq!((index_of_id(&event.id), events_index(std::slice::from_ref(&event))), (number, number));
            assert_eq!(event.id.len(), 36);
        }
        assert_eq!(events_index(&[]), 1);
    }

    #[test]
    fn an_event_is_its_key() {
        let fired = UserEvent::new("a/b", b"hello", ["n.*", "web", "x"]).unwrap().numbered(9, 5);
        assert_eq!(fired.key(), "consul/event/a/b/00000000000000000009");
        assert_eq!(UserEvent::decode(&fired.key(), &fired.encode()), Some(fired.clone()));
        assert_eq!(UserEvent::decode("consul/event/a/00000000000000000009", &fired.encode()), None);
        assert_eq!(UserEvent::decode(&fired.key(), b"{}"), None);
        let shown = serde_json::to_string(&fired).unwrap();
        let begin =
            r#"{"ID":"00000000-0000-0005-0000-00000000000c","Name":"a/b","Payload":"aGVsbG8=","NodeFilter":"n.*""#;
        assert!(shown.starts_with(begin) && shown.ends_with(r#""Version":1,"LTime":9}"#), "{shown}");
    }

    #[test]
    fn the_oldest_events_are_replaced() {
        let keys = |numbers: std::ops::Range<u64>| -> Vec<String> {
            numbers
                .map(|number| event(if number % 2 == 0 { "a" } else { "b" }, [""; 3]).numbered(number, 0).key())
                .collect()
        };
        let next = |held: Vec<String>| next_event(held.iter().map(String::as_str));
        assert_eq!(next(Vec::new()), (2, Vec::new()));
        assert_eq!(next(keys(2..257)), (257, Vec::new()));
        assert_eq!(next(keys(2..258)), (258, keys(2..3)));
        // Another client wrote more.
        assert_eq!(next(keys(2..1_000)), (1_000, keys(2..66)));
        assert_eq!(next(vec!["consul/event/x/none".to_owned()]), (2, Vec::new()));
    }

    #[test]
    fn filters_are_checked_and_select_agents() {
        let tags = ["v1".to_owned()];
        let services = [("web", &tags[..]), ("db", &[])];
        for (filters, is_meant) in [
            (["", "", ""], true),
            (["n", "", ""], true),
            (["^n$", "", ""], false),
            (["", "web|api", ""], true),
            (["", "api", ""], false),
            (["", "web", "v[12]"], true),
            (["", "db", "v1"], false),
            (["x", "web", ""], false),
        ] {
            assert_eq!(event("e", filters).is_for("n1", services), is_meant, "{filters:?}");
        }
        let refused = |payload: &[u8], filters| UserEvent::new("e", payload, filters).unwrap_err();
        assert!(refused(b"", ["[", "", ""]).starts_with("Invalid node filter: error parsing regexp: "));
        assert!(refused(b"", ["", "(", ""]).starts_with("Invalid service filter: "));
        assert!(refused(b"", ["", "((a{100}){100}){100}", ""]).starts_with("Invalid service filter: "));
        assert_eq!(refused(b"", ["", "", "t"]), "Cannot provide tag filter without service filter");
        assert!(refused(&[0; 512], [""; 3]).contains("512 bytes before encoding"));
        assert!(UserEvent::new("e", &[0; 511], [""; 3]).is_ok());
    }
}
