//! The encoding of requests and answers. Decoding makes a value or an error from a slice, and allocates nothing.
//!
//! Numbers are little-endian. A text is its length and that many bytes, of which only the last is a NUL.

pub mod about;
pub mod hello;
mod operations;
mod types;

use std::ffi::CStr;

pub use operations::*;
pub use types::*;

/// Why bytes cannot be decoded, or a value cannot be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes end before the value does.
    #[error("it ends too early")]
    Short,
    /// There are bytes after the last value.
    #[error("it goes on after its end")]
    Long,
    /// A text without a NUL at its end, or with one inside; or an invalid boolean.
    #[error("a value is none of its kind")]
    Value,
    /// No operation has this number.
    #[error("no such operation")]
    Operation,
    /// The value does not fit into a message.
    #[error("too large for a message")]
    Full,
}

/// A value that can be encoded and decoded.
pub trait Wire<'a>: Sized {
    /// Appends the value.
    fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed>;
    /// Reads the next value.
    fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed>;
    /// The value if it is a handle.
    fn handle(&self) -> Option<Handle> {
        None
    }
}

/// Appends to a buffer that does not grow.
pub struct WireWriter<'b> {
    buffer: &'b mut [u8],
    used: usize,
}

impl<'b> WireWriter<'b> {
    /// A writer at the beginning of `buffer`.
    pub fn new(buffer: &'b mut [u8]) -> WireWriter<'b> {
        WireWriter { buffer, used: 0 }
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let end = self.used.checked_add(bytes.len()).ok_or(Malformed::Full)?;
        self.buffer.get_mut(self.used..end).ok_or(Malformed::Full)?.copy_from_slice(bytes);
        self.used = end;
        Ok(())
    }

    /// The bytes that have been written.
    pub fn written(self) -> &'b [u8] {
        &self.buffer[..self.used]
    }
}

/// Reads from bytes that the other side wrote.
pub struct WireReader<'a>(&'a [u8]);

impl<'a> WireReader<'a> {
    /// A reader at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> WireReader<'a> {
        WireReader(bytes)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Fails if bytes are left over.
    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }
}

/// Decodes one value, which must use all bytes.
pub fn decode<'a, T: Wire<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    let mut reader = WireReader::new(bytes);
    let value = T::take(&mut reader)?;
    reader.end()?;
    Ok(value)
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl<'a> Wire<'a> for $number {
            fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
                to.bytes(&self.to_le_bytes())
            }
            fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
                let bytes = from.bytes(size_of::<$number>())?.try_into().map_err(|_| Malformed::Short)?;
                Ok(<$number>::from_le_bytes(bytes))
            }
        }
    )* };
}
numbers!(u8, u16, u32, u64, i32, i64);

impl<'a> Wire<'a> for () {
    fn put(&self, _: &mut WireWriter<'_>) -> Result<(), Malformed> {
        Ok(())
    }
    fn take(_: &mut WireReader<'a>) -> Result<Self, Malformed> {
        Ok(())
    }
}

impl<'a, A: Wire<'a>, B: Wire<'a>> Wire<'a> for (A, B) {
    fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
        self.0.put(to)?;
        self.1.put(to)
    }
    fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl<'a> Wire<'a> for bool {
    fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
        u8::from(*self).put(to)
    }
    fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Value),
        }
    }
}

impl<'a> Wire<'a> for &'a CStr {
    fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
        let bytes = self.to_bytes_with_nul();
        u16::try_from(bytes.len()).map_err(|_| Malformed::Full)?.put(to)?;
        to.bytes(bytes)
    }
    fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
        let length = u16::take(from)?;
        CStr::from_bytes_with_nul(from.bytes(length.into())?).map_err(|_| Malformed::Value)
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
        self.is_some().put(to)?;
        self.as_ref().map_or(Ok(()), |value| value.put(to))
    }
    fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

#[cfg(test)]
mod tests;
