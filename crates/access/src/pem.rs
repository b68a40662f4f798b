//! One block of a PEM file (RFC 7468).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Returns the bytes of the first block with this label.
pub(crate) fn decode(text: &str, label: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok()
}

pub(crate) fn encode(bytes: &[u8], label: &str) -> String {
    let body = STANDARD.encode(bytes);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}
