//! Why a command ends without success: one sentence for the person, one exit code for the script.

use convoke_proto::Error;
use std::fmt;

/// The fixed exit codes.
pub(crate) mod exit {
    pub(crate) const FAILED: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
    pub(crate) const UNREACHABLE: u8 = 3;
    pub(crate) const NOT_FOUND: u8 = 4;
    pub(crate) const REFUSED: u8 = 5;
    /// A command that wraps another one failed itself.
    pub(crate) const WRAPPER: u8 = 125;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn failed(message: impl Into<String>) -> Failure {
        Failure { exit: exit::FAILED, message: message.into() }
    }

    /// Bad usage or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: exit::USAGE, message: message.into() }
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Failure {
        Failure { exit: exit::UNREACHABLE, message: message.into() }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Failure {
        Failure { exit: exit::NOT_FOUND, message: message.into() }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Failure {
        Failure { exit: exit::REFUSED, message: message.into() }
    }

    /// The same sentence from a command that wraps another one.
    #[must_use]
    pub(crate) fn of_wrapper(self) -> Failure {
        Failure { exit: exit::WRAPPER, ..self }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { exit: error.code.exit_status(), message: error.message }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;
