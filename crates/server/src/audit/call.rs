//! What one call, or one message of a stream, was allowed and denied. The gate of each interface begins a [`Recording`];
//! the caller of the request notes every decision; the end of the call writes the record.

use super::record::Record;
use super::writer::{Audit, unix_ms};
use crate::access::FORWARDED;
use crate::service::{Authenticated, ClientConnection};
use ::http::Request;
use convoke_access::{CertificateRole, Verb};
use convoke_proto::ErrorCode;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Decisions in one record. Further ones are counted.
const ALLOWED_MAX: usize = 16;
/// Parameters of paths that are recorded. The id of an HTTP session is a secret, so names are listed, not excluded.
const SHOWN: [&str; 4] = ["id", "key", "name", "number"];
/// Result of a call whose caller did not wait for the end.
const CANCELLED: &str = "CANCELLED";

/// Which calls of a route or method are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// All: they change something, or export data.
    Calls,
    /// Those that are denied.
    Denials,
}

/// Who calls, from where, and what.
#[derive(Debug)]
struct Origin {
    audit: Audit,
    principal: Option<String>,
    token: Option<String>,
    from: Option<SocketAddr>,
    via: &'static str,
    action: String,
    forwarded: bool,
    /// Why the credentials are not valid.
    reason: Option<String>,
    /// Whether another node calls.
    is_node: bool,
}

/// The decisions about one call or message.
#[derive(Debug)]
pub(crate) struct Call {
    origin: Arc<Origin>,
    request: Option<&'static str>,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    parameters: Vec<(&'static str, String)>,
    allowed: Vec<String>,
    more: u64,
    denied: Option<String>,
}

impl Call {
    fn note(&self, change: impl FnOnce(&mut Noted)) {
        change(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes a decision. Reads are of interest only if they are denied.
    pub(crate) fn decided(&self, verb: Verb, resource: &dyn Display, is_allowed: bool) {
        if is_allowed && matches!(verb, Verb::Read | Verb::Observe) {
            return;
        }
        let text = format!("{verb} {resource}");
        self.note(|noted| {
            if !is_allowed {
                noted.denied.get_or_insert(text);
            } else if noted.allowed.contains(&text) {
            } else if noted.allowed.len() < ALLOWED_MAX {
                noted.allowed.push(text);
            } else {
                noted.more += 1;
            }
        });
    }

    /// Notes what the call is about.
    pub(crate) fn about(&self, name: &'static str, value: String) {
        self.note(|noted| noted.parameters.push((name, value)));
    }

    /// Returns the call for one message of a stream. Messages of nodes carry requests that the node which the client called
    /// has recorded.
    pub(crate) fn message(&self, request: &'static str) -> Option<Arc<Call>> {
        let of_stream = || Call { origin: self.origin.clone(), request: Some(request), noted: Mutex::default() };
        (!self.origin.is_node).then(|| Arc::new(of_stream()))
    }
}

/// Writes the record of a call when it is finished, or dropped without an answer.
#[derive(Debug, Default)]
pub(crate) struct Recording(Option<(Arc<Call>, Recorded)>);

impl Recording {
    pub(crate) fn of(call: Option<Arc<Call>>, recorded: Recorded) -> Recording {
        Recording(call.map(|call| (call, recorded)))
    }

    /// Begins the recording of a request, and lets its caller note decisions.
    pub(crate) fn begin<B>(
        audit: &Audit,
        request: &mut Request<B>,
        (via, action): (&'static str, impl FnOnce() -> String),
        recorded: Recorded,
    ) -> Recording {
        if !audit.is_on() {
            return Recording(None);
        }
        let forwarded = request.headers().contains_key(FORWARDED);
        let extensions = request.extensions_mut();
        let connection = extensions.get::<Arc<ClientConnection>>().cloned();
        let from = connection.as_ref().and_then(|connection| connection.address);
        let certificate = connection.as_ref().and_then(|connection| connection.certificate.as_ref());
        let is_node = certificate.is_some_and(|certificate| certificate.role == CertificateRole::Node);
        let Some(Authenticated(shown)) = extensions.get_mut::<Authenticated>() else { return Recording(None) };
        let (principal, token, reason) = match &*shown {
            Ok(caller) => {
                let principal = caller.principal();
                (Some(principal.name().to_owned()), principal.token().map(|token| token.id.clone()), None)
            }
            Err(error) => (None, None, Some(error.message.clone())),
        };
        let audit = audit.clone();
        let origin = Origin { audit, principal, token, from, via, action: action(), forwarded, reason, is_node };
        let call = Arc::new(Call { origin: Arc::new(origin), request: None, noted: Mutex::default() });
        if let Ok(caller) = shown {
            caller.note_for(call.clone());
        }
        Recording(Some((call, recorded)))
    }

    /// Notes what the call is about.
    pub(crate) fn about(&self, name: &'static str, value: impl FnOnce() -> String) {
        if let Some((call, _)) = &self.0 {
            call.about(name, value());
        }
    }

    /// Notes the parameters of a path that are not secret, as they were sent.
    pub(crate) fn path(&self, template: &str, path: &str) {
        if let Some((call, _)) = &self.0 {
            for (name, value) in parameters(template, path) {
                call.about(name, value.to_owned());
            }
        }
    }

    /// Ends the call. `None` is a success.
    pub(crate) fn finish(mut self, error: Option<ErrorCode>) {
        self.write(error.map_or("OK", ErrorCode::as_str));
    }

    fn write(&mut self, result: &'static str) {
        let Some((call, recorded)) = self.0.take() else { return };
        let mut record = Record { result, request: call.request, ..call.origin.record() };
        call.note(|noted| {
            let Noted { parameters, allowed, more, denied } = std::mem::take(noted);
            record.parameters = parameters.into_iter().collect();
            (record.allowed, record.more, record.denied) = (allowed, more, denied);
        });
        if recorded == Recorded::Calls || record.is_denial() {
            call.origin.audit.record(record);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.write(CANCELLED);
    }
}

impl Origin {
    fn record(&self) -> Record {
        Record {
            at: unix_ms(),
            principal: self.principal.clone(),
            token: self.token.clone(),
            from: self.from.map(|from| from.to_string()),
            via: self.via,
            action: self.action.clone(),
            forwarded: self.forwarded,
            reason: self.reason.clone(),
            ..Record::default()
        }
    }
}

/// Returns the parameters of a path that may be shown.
fn parameters<'a>(template: &str, path: &'a str) -> Vec<(&'static str, &'a str)> {
    let shown = |name: &str| SHOWN.into_iter().find(|shown| *shown == name);
    let mut found = Vec::new();
    let mut rest = path;
    for segment in template.split('/') {
        let (value, after) = rest.split_once('/').unwrap_or((rest, ""));
        if let Some(name) = segment.strip_prefix("{*").and_then(|name| name.strip_suffix('}')) {
            found.extend(shown(name).map(|name| (name, rest)));
            break;
        }
        let name = segment.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        found.extend(name.and_then(shown).map(|name| (name, value)));
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node that the client called has recorded what another node sends for it.
    #[test]
    fn messages_of_nodes_are_not_recorded_again() {
        let call = |is_node| {
            let (audit, action) = (Audit::default(), String::new());
            let origin = Origin {
                audit,
                principal: None,
                token: None,
                from: None,
                via: "grpc",
                action,
                forwarded: false,
                reason: None,
                is_node,
            };
            Call { origin: Arc::new(origin), request: None, noted: Mutex::default() }
        };
        assert!(call(false).message("put").is_some());
        assert!(call(true).message("put").is_none());
    }

    #[test]
    fn parameters_of_paths_are_shown_unless_they_are_secret() {
        let of = parameters;
        assert_eq!(of("/api/v1/kv/{*key}", "/api/v1/kv/config/a%20b"), [("key", "config/a%20b")]);
        assert_eq!(of("/api/v1/locks/{name}", "/api/v1/locks/jobs"), [("name", "jobs")]);
        let path = "/api/v1/sessions/{session}/members/{id}";
        assert_eq!(of(path, "/api/v1/sessions/SECRET/members/web-1"), [("id", "web-1")]);
        assert_eq!(of("/api/v1/sessions", "/api/v1/sessions"), []);
    }
}
