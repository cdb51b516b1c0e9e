//! The one exchange over the socket: a client says hello; the daemon answers with shared memory, an eventfd and the version table, or refuses.

use super::{Malformed, Reader, Wire, Writer};

/// What every first packet begins with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"libcephP");
/// Of this protocol. Another one is refused: library and daemon are installed together.
pub const VERSION: u32 = 3;
/// Bytes of a first packet, at most.
pub const PACKET_SIZE: usize = 256;

/// From the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// MAGIC.
    pub magic: u64,
    /// VERSION.
    pub version: u32,
}

/// From the daemon. If `status` is 0, three descriptors come with it: the memory, the eventfd that wakes a worker, and the version table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// MAGIC.
    pub magic: u64,
    /// VERSION, also of one that refuses.
    pub version: u32,
    /// 0, or why not: an errno.
    pub status: i32,
    /// libcephfs's own version.
    pub ceph: [i32; 3],
    /// And how it says it, with a NUL.
    pub text: Vec<u8>,
    /// Whether names may be kept, with --stale-ms.
    pub keeps_names: bool,
}

impl<'a> Wire<'a> for Hello {
    fn put(&self, to: &mut Writer<'_>) -> Result<(), Malformed> {
        self.magic.put(to)?;
        self.version.put(to)
    }
    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Hello { magic: Wire::take(from)?, version: Wire::take(from)? })
    }
}

impl<'a> Wire<'a> for Welcome {
    fn put(&self, to: &mut Writer<'_>) -> Result<(), Malformed> {
        self.magic.put(to)?;
        self.version.put(to)?;
        self.status.put(to)?;
        for part in &self.ceph {
            part.put(to)?;
        }
        u8::try_from(self.text.len()).map_err(|_| Malformed::Full)?.put(to)?;
        to.bytes(&self.text)?;
        self.keeps_names.put(to)
    }
    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (magic, version, status) = (Wire::take(from)?, Wire::take(from)?, Wire::take(from)?);
        let ceph = [Wire::take(from)?, Wire::take(from)?, Wire::take(from)?];
        let length = u8::take(from)?;
        let text = from.bytes(length.into())?;
        let keeps_names = bool::take(from)?;
        if text.last() != Some(&0) {
            return Err(Malformed::Value);
        }
        Ok(Welcome { magic, version, status, ceph, text: text.to_vec(), keeps_names })
    }
}
