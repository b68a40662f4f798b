//! Why a command ends without success: one sentence for the person, one exit code for the script.

use convoke_proto::Error;
use std::fmt;

/// The fixed exit codes.
pub mod exit {
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const UNREACHABLE: u8 = 3;
    pub const NOT_FOUND: u8 = 4;
    pub const REFUSED: u8 = 5;
    /// A command that wraps another one failed itself.
    pub const WRAPPER: u8 = 125;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    pub exit: u8,
    pub message: String,
}

impl CommandError {
    pub fn failed(message: impl Into<String>) -> CommandError {
        CommandError { exit: exit::FAILED, message: message.into() }
    }

    /// Bad usage or configuration.
    pub fn usage(message: impl Into<String>) -> CommandError {
        CommandError { exit: exit::USAGE, message: message.into() }
    }

    pub fn unreachable(message: impl Into<String>) -> CommandError {
        CommandError { exit: exit::UNREACHABLE, message: message.into() }
    }

    pub fn not_found(message: impl Into<String>) -> CommandError {
        CommandError { exit: exit::NOT_FOUND, message: message.into() }
    }

    pub fn refused(message: impl Into<String>) -> CommandError {
        CommandError { exit: exit::REFUSED, message: message.into() }
    }

    /// The same sentence from a command that wraps another one.
    #[must_use]
    pub fn of_wrapper(self) -> CommandError {
        CommandError { exit: exit::WRAPPER, ..self }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        CommandError { exit: error.code.exit_status(), message: error.message }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Result of a command.
pub type Result<T = (), E = CommandError> = std::result::Result<T, E>;
