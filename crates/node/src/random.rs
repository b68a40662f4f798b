//! Randomness from the operating system.

use crate::error::StartError;

pub(crate) fn number() -> Result<u64, StartError> {
    getrandom::u64().map_err(StartError::Randomness)
}
