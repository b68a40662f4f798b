//! Takes primitive values from a frame, trusting nothing.

/// Why a frame was refused. The link it came over is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the frame ends in the middle of {0}")]
    Truncated(&'static str),
    #[error("{0} is not a number that can be counted to")]
    Overflow(&'static str),
    #[error("{what} has {found} entries or bytes, at most {limit} fit")]
    TooMany { what: &'static str, found: u64, limit: u64 },
    #[error("{0} is not valid")]
    Invalid(&'static str),
    #[error("unknown message type {0}")]
    UnknownMessage(u8),
    #[error("{0} bytes are left after the message")]
    Trailing(usize),
}

/// What is left of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Trailing(self.0.len())) }
    }

    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, WireError> {
        let (&first, rest) = self.0.split_first().ok_or(WireError::Truncated(what))?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, WireError> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Invalid(what)),
        }
    }

    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(WireError::Overflow(what));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // One form per value: a padded zero byte would make two encodings of the same message.
                return if byte == 0 && shift > 0 { Err(WireError::Invalid(what)) } else { Ok(value) };
            }
        }
        Err(WireError::Overflow(what))
    }

    pub(crate) fn bounded(&mut self, what: &'static str, limit: u64) -> Result<u64, WireError> {
        let value = self.varint(what)?;
        if value > limit { Err(WireError::TooMany { what, found: value, limit }) } else { Ok(value) }
    }

    /// A count of things that each take at least `each` bytes: never more than could be in the frame.
    pub(crate) fn count(&mut self, what: &'static str, each: usize) -> Result<usize, WireError> {
        let fits = (self.len() / each.max(1)) as u64;
        Ok(self.bounded(what, fits)? as usize)
    }

    pub(crate) fn fixed64(&mut self, what: &'static str) -> Result<u64, WireError> {
        let bytes = self.bytes(what, 8)?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| WireError::Truncated(what))?))
    }

    pub(crate) fn fixed32(&mut self, what: &'static str) -> Result<u32, WireError> {
        let bytes = self.bytes(what, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| WireError::Truncated(what))?))
    }

    pub(crate) fn bytes(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], WireError> {
        if len > self.0.len() {
            return Err(WireError::Truncated(what));
        }
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn text(&mut self, what: &'static str, limit: usize) -> Result<&'a str, WireError> {
        let len = self.bounded(what, limit as u64)? as usize;
        std::str::from_utf8(self.bytes(what, len)?).map_err(|_| WireError::Invalid(what))
    }
}
