//! A packet socket with a ring of blocks in shared memory (packet_mmap of the kernel's documentation, TPACKET_V3).
//!
//! The kernel fills blocks in order, and hands over each block when it is full or old. A block keeps its content until this process hands it
//! back, so the blocks that were handed over are the history.

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::libc;

/// Offsets in a block's descriptor (struct tpacket_block_desc of linux/if_packet.h).
const STATUS: usize = 8;
const PACKETS: usize = 12;
const FIRST_PACKET: usize = 16;
const LENGTH: usize = 20;
const SEQUENCE: usize = 24;
const FIRST_TIME: usize = 32;
const LAST_TIME: usize = 40;
/// Offsets in a packet's header (struct tpacket3_hdr); the address (struct sockaddr_ll) follows the header.
const NEXT: usize = 0;
const SECONDS: usize = 4;
const NANOSECONDS: usize = 8;
const KEPT: usize = 12;
const WHOLE: usize = 16;
const NETWORK: usize = 26;
const ADDRESS: usize = 48;

/// A ring and its socket.
pub struct PacketRing {
    socket: OwnedFd,
    map: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
}

// SAFETY: the memory is mapped as long as the ring lives. The kernel and this process share it by the blocks' status,
// which is read and written atomically.
unsafe impl Send for PacketRing {}
// SAFETY: as above. The reader of a block ensures that it is not handed back meanwhile (packets/mod.rs, Owned).
unsafe impl Sync for PacketRing {}

/// The head of a block that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHead {
    /// Its number since the ring's beginning.
    pub sequence: u64,
    /// The times of the first and the last packet, nanoseconds since the epoch.
    pub times: [u64; 2],
    /// The bytes in use.
    pub length: usize,
    packets: u32,
    first: usize,
}

/// One packet of a block.
#[derive(Debug)]
pub struct RingPacket<'a> {
    /// Nanoseconds since the epoch.
    pub at: u64,
    /// The length from the network header on, before truncation.
    pub length: u32,
    /// The bytes that were kept.
    pub data: &'a [u8],
    /// The interface's number.
    pub interface: u32,
    /// The protocol (EtherType), such as 0x0800.
    pub protocol: u16,
    /// The interface's hardware type (ARPHRD_...).
    pub hardware: u16,
    /// The packet's type (PACKET_HOST, ... PACKET_OUTGOING).
    pub kind: u8,
    /// The sender's address: the number of valid bytes, and eight bytes.
    pub sender: (u8, [u8; 8]),
}

impl PacketRing {
    /// Opens a ring, which receives nothing yet. The kernel hands over a block with a packet after `retire` at the latest.
    ///
    /// # Errors
    /// If the kernel refuses: no CAP_NET_RAW, or no memory.
    pub fn open(block_bytes: usize, blocks: usize, retire: Duration) -> Result<Self> {
        // SAFETY: socket(2) takes no pointer.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("cannot open a packet socket; it takes CAP_NET_RAW");
        }
        // SAFETY: the descriptor is new, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        set(&socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as libc::c_int))
            .context("this kernel has no TPACKET_V3")?;
        let frame = 2048;
        let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let request = libc::tpacket_req3 {
            tp_block_size: number(block_bytes),
            tp_block_nr: number(blocks),
            tp_frame_size: number(frame),
            tp_frame_nr: number(block_bytes / frame * blocks),
            tp_retire_blk_tov: u32::try_from(retire.as_millis()).unwrap_or(u32::MAX),
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let bytes = block_bytes * blocks;
        set(&socket, libc::PACKET_RX_RING, &request)
            .with_context(|| format!("the kernel gives no ring of {} KiB", bytes >> 10))?;
        // SAFETY: a new mapping of the ring's size; nothing is mapped over.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        let map = NonNull::new(map.cast::<u8>()).filter(|_| map != libc::MAP_FAILED);
        let map = map.ok_or_else(io::Error::last_os_error).context("cannot map the ring")?;
        Ok(Self { socket, map, block_bytes, blocks })
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Makes the kernel run this program for each packet from now on.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn set_filter(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let fprog = libc::sock_fprog {
            len: u16::try_from(program.len()).unwrap_or(u16::MAX),
            filter: program.as_ptr().cast_mut(),
        };
        set_at(&self.socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &fprog)
    }

    /// Receives from an interface; 0: from all.
    ///
    /// # Errors
    /// If there is no such interface, or it is down.
    pub fn bind(&self, interface: i32) -> io::Result<()> {
        // SAFETY: all zeroes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = interface;
        // SAFETY: the address is valid, and of that size.
        let bound = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast::<libc::sockaddr>(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The socket's error since the last call; the interface's removal is such an error.
    pub fn take_error(&self) -> Option<io::Error> {
        let mut error: libc::c_int = 0;
        get(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut error).ok()?;
        (error != 0).then(|| io::Error::from_raw_os_error(error))
    }

    /// The number of packets that passed the filter since the last call, and the number of those that were dropped for lack of room.
    pub fn take_counts(&self) -> (u64, u64) {
        let mut counts = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        match get(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counts) {
            Ok(()) => (u64::from(counts.tp_packets), u64::from(counts.tp_drops)),
            Err(_) => (0, 0),
        }
    }

    /// The head of a block; `None` if the kernel has not handed it over.
    pub fn head(&self, index: usize) -> Option<BlockHead> {
        if self.status(index)?.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let block = self.block(index)?;
        let time = |at| Some(u64::from(u32_at(block, at)?) * 1_000_000_000 + u64::from(u32_at(block, at + 4)?));
        let low = u64::from(u32_at(block, SEQUENCE)?);
        Some(BlockHead {
            sequence: low | u64::from(u32_at(block, SEQUENCE + 4)?) << 32,
            times: [time(FIRST_TIME)?, time(LAST_TIME)?],
            length: (u32_at(block, LENGTH)? as usize).min(self.block_bytes),
            packets: u32_at(block, PACKETS)?,
            first: u32_at(block, FIRST_PACKET)? as usize,
        })
    }

    /// Copies a block that was handed over.
    pub fn copy(&self, index: usize, head: &BlockHead, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(self.block(index).and_then(|block| block.get(..head.length)).unwrap_or_default());
    }

    /// Hands a block back to the kernel.
    pub fn release(&self, index: usize) {
        if let Some(status) = self.status(index) {
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }

    fn block(&self, index: usize) -> Option<&[u8]> {
        if index >= self.blocks {
            return None;
        }
        // SAFETY: the block lies within the mapping. It was handed over (`head`), so the kernel does not write to it.
        Some(unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(index * self.block_bytes), self.block_bytes) })
    }

    fn status(&self, index: usize) -> Option<&AtomicU32> {
        if index >= self.blocks {
            return None;
        }
        // SAFETY: the word lies within the mapping and is aligned; the kernel writes it in one access.
        Some(unsafe { AtomicU32::from_ptr(self.map.as_ptr().add(index * self.block_bytes + STATUS).cast::<u32>()) })
    }
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast::<c_void>(), self.block_bytes * self.blocks) };
    }
}

/// Calls `see` for each packet of a copied block, until it fails.
///
/// # Errors
/// The error of `see`.
pub fn each_packet<E>(
    block: &[u8],
    head: &BlockHead,
    mut see: impl FnMut(RingPacket<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = head.first;
    for _ in 0..head.packets {
        let Some((packet, next)) = block.get(at..).and_then(packet) else { break };
        see(packet)?;
        if next == 0 {
            break;
        }
        at = at.saturating_add(next);
    }
    Ok(())
}

/// The packet at the beginning of `bytes`, and the offset of the next one.
fn packet(bytes: &[u8]) -> Option<(RingPacket<'_>, usize)> {
    let kept = u32_at(bytes, KEPT)? as usize;
    let network = usize::from(u16_at(bytes, NETWORK)?);
    let address = bytes.get(ADDRESS..ADDRESS + size_of::<libc::sockaddr_ll>())?;
    let packet = RingPacket {
        at: u64::from(u32_at(bytes, SECONDS)?) * 1_000_000_000 + u64::from(u32_at(bytes, NANOSECONDS)?),
        length: u32_at(bytes, WHOLE)?,
        data: bytes.get(network..network.checked_add(kept)?)?,
        protocol: u16::from_be(u16_at(address, 2)?),
        interface: u32_at(address, 4)?,
        hardware: u16_at(address, 8)?,
        kind: *address.get(10)?,
        sender: (*address.get(11)?, address.get(12..20)?.try_into().ok()?),
    };
    Some((packet, u32_at(bytes, NEXT)? as usize))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn set<T>(socket: &OwnedFd, name: libc::c_int, value: &T) -> io::Result<()> {
    set_at(socket, libc::SOL_PACKET, name, value)
}

fn set_at<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is valid for as long as the call takes, and of that size.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast::<c_void>(), length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn get<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to a value of that size, of plain numbers.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, std::ptr::from_mut(value).cast::<c_void>(), &mut length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
