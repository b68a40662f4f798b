//! The cursor of a list: the service and id of the last member. It therefore works at every node.

use convoke_core::{ErrorCode, Rejection};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor<'a> {
    pub(super) service: &'a str,
    pub(super) id: &'a str,
}

impl<'a> Cursor<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, Rejection> {
        let cursor = text.split_once(':').and_then(|(length, rest)| {
            let (service, id) = rest.split_at_checked(length.parse().ok()?)?;
            Some(Cursor { service, id })
        });
        cursor.ok_or_else(|| {
            let message = "invalid cursor: copy it unchanged from next_cursor of the previous page";
            Rejection::new(ErrorCode::InvalidArgument, message).field("cursor")
        })
    }
}

impl fmt::Display for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}", self.service.len(), self.service, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_as_text() {
        for (service, id) in [("orders", "o-1"), ("", ""), ("7:a", "8:b"), ("größe", "ü")] {
            let cursor = Cursor { service, id };
            assert_eq!(Cursor::parse(&cursor.to_string()), Ok(cursor));
        }
        for bad in ["", "orders", "-1:a", "9:short", "1:ü", "x:y"] {
            assert_eq!(Cursor::parse(bad).map_err(|rejection| rejection.field), Err(Some("cursor")), "{bad}");
        }
    }

    #[test]
    fn fuzz_cursors() {
        convoke_fuzz::texts(&["6:orderso-1", "0:", "7:größeü", "18446744073709551615:x"], |text| {
            if let Ok(cursor) = Cursor::parse(text) {
                assert_eq!(Cursor::parse(&cursor.to_string()), Ok(cursor));
            }
        });
    }
}
