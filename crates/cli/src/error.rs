//! Errors of commands: a message for people and an exit code for scripts.

use convoke_proto::Error;
use std::fmt;

/// Exit codes.
pub mod exit {
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const UNREACHABLE: u8 = 3;
    pub const NOT_FOUND: u8 = 4;
    pub const REJECTED: u8 = 5;
    /// A command that runs another command failed itself.
    pub const WRAPPER: u8 = 125;
}

/// An error that ends a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    pub exit: u8,
    pub message: String,
}

impl CommandError {
    pub fn failed(message: impl Into<String>) -> CommandError {
        CommandError { exit: exit::FAILED, message: message.into() }
    }

    /// Invalid usage or configuration.
    pub fn usage(message: impl Into<String>) -> CommandError {
        CommandError { exit: exit::USAGE, message: message.into() }
    }

    pub fn unreachable(message: impl Into<String>) -> CommandError {
        CommandError { exit: exit::UNREACHABLE, message: message.into() }
    }

    pub fn not_found(message: impl Into<String>) -> CommandError {
        CommandError { exit: exit::NOT_FOUND, message: message.into() }
    }

    pub fn rejected(message: impl Into<String>) -> CommandError {
        CommandError { exit: exit::REJECTED, message: message.into() }
    }

    /// The same error of a command that runs another command.
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
