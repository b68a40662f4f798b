//! What people and scripts read on stdout.

mod style;
mod table;
mod units;

pub(crate) use style::{Palette, Style, wanted as colours_wanted};
pub(crate) use table::{Table, facts};
pub(crate) use units::{ago, counted};

use crate::failure::{Failure, Outcome};
use serde::Serialize;
use std::io::{self, Write};

/// Writes to stdout. A reader who has seen enough (`| head`) ends the command, quietly.
pub(crate) fn print(text: &str) -> Outcome {
    print_bytes(text.as_bytes())
}

/// The same for what may be no text.
pub(crate) fn print_bytes(bytes: &[u8]) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure { exit: 0, message: String::new() },
        _ => Failure::failed(format!("cannot write to stdout: {error}")),
    })
}

/// One JSON value on one line.
pub(crate) fn print_json(value: &impl Serialize) -> Outcome {
    let text = serde_json::to_string(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    print(&(text + "\n"))
}
