//! Output on stdout, for people and for scripts.

mod closed;
mod style;
mod table;
mod units;

pub use closed::stdout_closed;
pub use style::{Palette, Style, wanted as colours_wanted};
pub use table::{Table, facts};
pub use units::{ago, clock_time, counted, unix_ms};

use crate::{CommandError, Result};
use serde::Serialize;
use std::io::{self, Write};

/// Writes a text to stdout. A closed pipe (`| head`) ends the command without an error message.
pub fn print(text: &str) -> Result {
    print_bytes(text.as_bytes())
}

/// Writes bytes to stdout.
pub fn print_bytes(bytes: &[u8]) -> Result {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => CommandError { exit: 0, message: String::new() },
        _ => CommandError::failed(format!("cannot write to stdout: {error}")),
    })
}

/// Writes a JSON value on one line.
pub fn print_json(value: &impl Serialize) -> Result {
    let text =
        serde_json::to_string(value).map_err(|error| CommandError::failed(format!("cannot write JSON: {error}")))?;
    print(&(text + "\n"))
}
