//! Reads primitive values from untrusted bytes.

/// The reason why bytes were rejected. The state has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error("the bytes end in the middle of {0}")]
    Truncated(&'static str),
    #[error("{0} does not fit into 64 bits")]
    Overflow(&'static str),
    #[error("{what} is {found}; the limit is {limit}")]
    TooLarge { what: &'static str, found: u64, limit: u64 },
    #[error("{0} is not valid")]
    Invalid(&'static str),
    #[error("{what} has version {found}; this node knows version {known}")]
    Version { what: &'static str, found: u8, known: u8 },
    #[error("message type {0} is unknown")]
    UnknownMessage(u8),
    #[error("{0} bytes follow the end of the message")]
    Trailing(usize),
}

impl CodecError {
    /// Returns the part that was rejected, if the error concerns one part.
    pub fn part(&self) -> Option<&'static str> {
        match self {
            CodecError::Truncated(what) | CodecError::Overflow(what) | CodecError::Invalid(what) => Some(what),
            CodecError::TooLarge { what, .. } | CodecError::Version { what, .. } => Some(what),
            CodecError::UnknownMessage(_) | CodecError::Trailing(_) => None,
        }
    }
}

/// Counters cannot reach larger numbers by counting; such numbers are rejected as hostile.
pub const COUNTER_MAX: u64 = 1 << 56;

/// The bytes that are left to read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Succeeds if nothing is left.
    pub fn end(&self) -> Result<(), CodecError> {
        if self.0.is_empty() { Ok(()) } else { Err(CodecError::Trailing(self.0.len())) }
    }

    pub fn byte(&mut self, what: &'static str) -> Result<u8, CodecError> {
        let (&first, rest) = self.0.split_first().ok_or(CodecError::Truncated(what))?;
        self.0 = rest;
        Ok(first)
    }

    pub fn flag(&mut self, what: &'static str) -> Result<bool, CodecError> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError::Invalid(what)),
        }
    }

    pub fn varint(&mut self, what: &'static str) -> Result<u64, CodecError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(CodecError::Overflow(what));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // One encoding per value: a padded zero byte would make two encodings of the same message.
                return if byte == 0 && shift > 0 { Err(CodecError::Invalid(what)) } else { Ok(value) };
            }
        }
        Err(CodecError::Overflow(what))
    }

    /// Reads a number up to `limit`.
    pub fn bounded(&mut self, what: &'static str, limit: u64) -> Result<u64, CodecError> {
        let found = self.varint(what)?;
        if found > limit { Err(CodecError::TooLarge { what, found, limit }) } else { Ok(found) }
    }

    /// Reads a counter: the number of a write, an index, a revision.
    pub fn counter(&mut self, what: &'static str) -> Result<u64, CodecError> {
        self.bounded(what, COUNTER_MAX)
    }

    /// Reads a number of items that take at least `each` bytes. It is at most `limit` and at most what the remaining
    /// bytes can hold.
    pub fn count(&mut self, what: &'static str, each: usize, limit: u64) -> Result<usize, CodecError> {
        let fits = (self.0.len() / each.max(1)) as u64;
        Ok(self.bounded(what, fits.min(limit))? as usize)
    }

    pub fn fixed32(&mut self, what: &'static str) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub fn fixed64(&mut self, what: &'static str) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub fn fixed128(&mut self, what: &'static str) -> Result<u128, CodecError> {
        Ok(u128::from_le_bytes(self.array(what)?))
    }

    /// Reads bytes with a preceding length.
    pub fn sized(&mut self, what: &'static str, limit: u64) -> Result<&'a [u8], CodecError> {
        let len = self.bounded(what, limit)?;
        let len = usize::try_from(len).map_err(|_| CodecError::Overflow(what))?;
        self.raw(what, len)
    }

    pub fn text(&mut self, what: &'static str, limit: u64) -> Result<&'a str, CodecError> {
        std::str::from_utf8(self.sized(what, limit)?).map_err(|_| CodecError::Invalid(what))
    }

    pub fn option<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, CodecError>,
    ) -> Result<Option<T>, CodecError> {
        if self.flag(what)? { read(self).map(Some) } else { Ok(None) }
    }

    /// Reads the next `len` bytes.
    pub fn raw(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], CodecError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(CodecError::Truncated(what))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], CodecError> {
        self.raw(what, N)?.try_into().map_err(|_| CodecError::Truncated(what))
    }
}
