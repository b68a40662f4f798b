//! Appends primitive values.

/// The bytes written so far.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub fn count(&mut self, count: usize) {
        self.varint(count as u64);
    }

    pub fn fixed32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    pub fn fixed64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    pub fn fixed128(&mut self, value: u128) {
        self.raw(&value.to_le_bytes());
    }

    /// Writes bytes with a preceding length.
    pub fn sized(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    pub fn text(&mut self, text: &str) {
        self.sized(text.as_bytes());
    }

    /// Writes bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
