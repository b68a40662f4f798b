//! Bodies and parameters of leases, locks and elections with arbitrary content: a typed error or a valid request.

use super::body::parse;
use super::leases::{GrantBody, lease_id};
use super::locks::{AcquireBody, ProclaimBody, after, value};
use bytes::Bytes;
use convoke_proto::{Error, ErrorCode};
use serde::de::DeserializeOwned;

fn check<T: DeserializeOwned>(text: &str) {
    typed(parse::<T>(&Bytes::copy_from_slice(text.as_bytes())));
}

/// An error states the field.
fn typed<T>(parsed: Result<T, Error>) -> Option<T> {
    parsed.map_err(|error| assert!(error.code == ErrorCode::InvalidArgument && error.field.is_some(), "{error:?}")).ok()
}

#[test]
fn fuzz_bodies() {
    let corpus = [
        r#"{"ttl_ms":10000,"end":"release"}"#,
        r#"{"member":"orders-1","end":"delete"}"#,
        r#"{"lease":"12","wait_ms":3000,"permits":3,"delay_ms":5,"value":"here"}"#,
        r#"{"ttl_ms":18446744073709551615,"value_base64":"/w=="}"#,
        r#"{"fence":9,"value":"größe","value_base64":null}"#,
        "{}",
        "",
    ];
    convoke_fuzz::texts(&corpus, |text| {
        check::<GrantBody>(text);
        check::<AcquireBody>(text);
        check::<ProclaimBody>(text);
    });
}

#[test]
fn fuzz_parameters() {
    convoke_fuzz::texts(&["12", "18446744073709551615", "bG9jay8x", "/w==", "_-8"], |text| {
        if let Some(id) = typed(lease_id(text)) {
            assert_eq!(lease_id(&id.to_string()).ok(), Some(id));
        }
        typed(after(Some(text)));
        typed(value(None, Some(text.to_owned())));
        assert!(value(Some(text.to_owned()), Some(text.to_owned())).is_err());
        assert_eq!(value(Some(text.to_owned()), None).ok().as_deref(), Some(text.as_bytes()));
    });
}
