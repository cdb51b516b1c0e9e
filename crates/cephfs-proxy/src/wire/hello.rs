//! The first packets, the only ones on the socket. A client sends a hello; the daemon answers with the shared memory,
//! an eventfd and the version table, or refuses.
//!
//! A client's hello names the place to which the client connects. Each place is a process of the daemon: in the lobby, clients prepare their
//! mounts, and each other place has one mount. The answer to `Mount` has the number of the mount's place. If a client prepares a mount at a wrong
//! place, it is told the right one. So a number alone gives no access.

use super::{Errno, Malformed, Wire, WireReader, WireWriter};

/// The beginning of every first packet.
pub const MAGIC: u64 = u64::from_le_bytes(*b"libcephP");
/// The version of this protocol. Other versions are refused, since the library and the daemon are installed together.
pub const VERSION: u32 = 6;
/// The most bytes of a first packet.
pub const PACKET_SIZE: usize = 256;

/// The place in which clients prepare mounts.
pub const LOBBY: u64 = 0;

/// Reads the beginning of a first packet, which is the same in all versions: the magic number and the version.
///
/// # Errors
///
/// When the packet is too short.
pub fn spoken(packet: &[u8]) -> Result<(u64, u32), Malformed> {
    let mut start = WireReader::new(packet);
    Ok((Wire::take(&mut start)?, Wire::take(&mut start)?))
}

/// The client's first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// MAGIC.
    pub magic: u64,
    /// VERSION.
    pub version: u32,
    /// LOBBY, or the place of a mount.
    pub place: u64,
}

/// The daemon's answer. If `status` is 0, it carries three descriptors: the shared memory, the eventfd that wakes a
/// worker, and the version table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// MAGIC.
    pub magic: u64,
    /// VERSION, also in a refusal.
    pub version: u32,
    /// 0, or an errno: the reason of a refusal.
    pub status: i32,
    /// libcephfs's own version.
    pub ceph: [i32; 3],
    /// libcephfs's own version as text, with a NUL.
    pub text: Vec<u8>,
    /// Whether clients may cache names (--stale-ms).
    pub keeps_names: bool,
}

impl Welcome {
    /// A refusal, without libcephfs's version.
    pub fn refusal(errno: Errno) -> Welcome {
        let status = errno.raw_os_error();
        Welcome { magic: MAGIC, version: VERSION, status, ceph: [0; 3], text: vec![0], keeps_names: false }
    }
}

impl<'a> Wire<'a> for Hello {
    fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
        self.magic.put(to)?;
        self.version.put(to)?;
        self.place.put(to)
    }
    fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
        Ok(Hello { magic: Wire::take(from)?, version: Wire::take(from)?, place: Wire::take(from)? })
    }
}

impl<'a> Wire<'a> for Welcome {
    fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
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
    fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
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
