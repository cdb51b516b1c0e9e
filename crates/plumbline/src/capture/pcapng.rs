//! Writes pcapng, the file format of packets (IETF draft-ietf-opsawg-pcapng): one section, little-endian.
//!
//! The link type of each interface is LINKTYPE_LINUX_SLL2, so that packets of all interfaces have the same header, which
//! also names the direction.

use std::io::{self, Write};

const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const STATISTICS: u32 = 5;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
/// <https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL2.html>
const LINUX_SLL2: u16 = 276;
/// The size of its header, bytes.
pub const SLL2_BYTES: usize = 20;
/// The size of a packet's block beyond its data and header: the block itself, its flags, the end of its options, and padding.
pub const PACKET_OVERHEAD: u64 = 32 + 8 + 4 + 3;

/// An option of a block: its code and value.
type BlockOption<'a> = (u16, &'a [u8]);

const COMMENT: u16 = 1;
const END: u16 = 0;

/// One packet.
pub struct PacketBlock<'a> {
    /// The index of the interface, in the order in which interfaces were written.
    pub interface: u32,
    /// Nanoseconds since the epoch.
    pub at: u64,
    /// Its length on the wire from the network header on, bytes.
    pub length: u32,
    /// The header of LINUX_SLL2.
    pub header: [u8; SLL2_BYTES],
    /// What was captured, from the network header on.
    pub data: &'a [u8],
    /// Whether this host sent it.
    pub outgoing: bool,
}

/// Counts of a capture.
pub struct Statistics {
    /// The times of the first and the last packet, nanoseconds since the epoch.
    pub times: [u64; 2],
    /// Packets that passed the filter.
    pub received: u64,
    /// Packets that passed the filter and were dropped, since the ring was full.
    pub dropped: u64,
}

/// Writes the blocks of one section.
pub struct PcapngWriter<W> {
    out: W,
    block: Vec<u8>,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a section; `about` describes its content.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(out: W, program: &str, about: &str) -> io::Result<Self> {
        let mut writer = Self { out, block: Vec::new() };
        writer.begin(SECTION);
        writer.u32(BYTE_ORDER);
        writer.block.extend_from_slice(&1_u16.to_le_bytes()); // major
        writer.block.extend_from_slice(&0_u16.to_le_bytes()); // minor
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes()); // the section's length is not told
        writer.end(&[(COMMENT, about.as_bytes()), (4, program.as_bytes())])?;
        Ok(writer)
    }

    /// Adds an interface; call this before its first packet is added. `snap`: the most bytes that are kept of a packet; 0: no limit.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn interface(&mut self, name: &str, snap: u32) -> io::Result<()> {
        self.begin(INTERFACE);
        self.block.extend_from_slice(&LINUX_SLL2.to_le_bytes());
        self.block.extend_from_slice(&[0, 0]);
        self.u32(if snap == 0 { 0 } else { snap + SLL2_BYTES as u32 });
        self.end(&[(2, name.as_bytes()), (9, &[9])]) // if_tsresol: nanoseconds
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn packet(&mut self, packet: &PacketBlock<'_>) -> io::Result<()> {
        self.begin(PACKET);
        self.u32(packet.interface);
        self.time(packet.at);
        let header = SLL2_BYTES as u32;
        self.u32(header + packet.data.len() as u32);
        self.u32(header + packet.length);
        self.block.extend_from_slice(&packet.header);
        self.block.extend_from_slice(packet.data);
        self.pad();
        let direction: u32 = if packet.outgoing { 2 } else { 1 };
        self.end(&[(2, &direction.to_le_bytes())]) // epb_flags
    }

    /// Adds the counts. They are of all interfaces together, but the block names the first one.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn statistics(&mut self, counts: &Statistics) -> io::Result<()> {
        self.begin(STATISTICS);
        self.u32(0);
        self.time(counts.times[1]);
        let [first, last] = counts.times.map(split);
        let (received, dropped) = (counts.received.to_le_bytes(), counts.dropped.to_le_bytes());
        let about = b"of all interfaces, since the capture began";
        self.end(&[(COMMENT, about), (2, &first), (3, &last), (4, &received), (5, &dropped)])
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0); // the length, once it is known
    }

    fn u32(&mut self, value: u32) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn time(&mut self, at: u64) {
        self.block.extend_from_slice(&split(at));
    }

    fn pad(&mut self) {
        let length = self.block.len().next_multiple_of(4);
        self.block.resize(length, 0);
    }

    /// Adds the options, fills in the length and writes the block.
    fn end(&mut self, options: &[BlockOption<'_>]) -> io::Result<()> {
        for (code, value) in options {
            let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
            self.block.extend_from_slice(&code.to_le_bytes());
            self.block.extend_from_slice(&length.to_le_bytes());
            self.block.extend(value.iter().take(usize::from(length)));
            self.pad();
        }
        self.u32(u32::from(END));
        let length = u32::try_from(self.block.len() + 4).unwrap_or(u32::MAX);
        if let Some(place) = self.block.get_mut(4..8) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        self.u32(length);
        self.out.write_all(&self.block)
    }
}

/// A time in the form of pcapng: the upper half first.
fn split(at: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    let (upper, lower) = bytes.split_at_mut(4);
    upper.copy_from_slice(&((at >> 32) as u32).to_le_bytes());
    lower.copy_from_slice(&(at as u32).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The type and the content of each block, with the lengths checked.
    fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
        let u32_at = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let length = u32_at(&file[4..8]) as usize;
            assert_eq!((length % 4, u32_at(&file[length - 4..length]) as usize), (0, length));
            blocks.push((u32_at(&file[..4]), &file[8..length - 4]));
            file = &file[length..];
        }
        blocks
    }

    #[test]
    fn each_block_has_its_length_at_both_ends_and_a_packet_its_time_length_and_direction() {
        let mut file = Vec::new();
        let mut writer = PcapngWriter::new(&mut file, "plumbline", "a test").unwrap();
        writer.interface("eth0", 128).unwrap();
        let at = 1_700_000_000_123_456_789;
        let packet =
            PacketBlock { interface: 0, at, length: 1500, header: [7; SLL2_BYTES], data: b"12345", outgoing: true };
        writer.packet(&packet).unwrap();
        writer.statistics(&Statistics { times: [at, at + 1], received: 3, dropped: 2 }).unwrap();
        let blocks = blocks(&file);
        assert_eq!(blocks.iter().map(|block| block.0).collect::<Vec<_>>(), [SECTION, INTERFACE, PACKET, STATISTICS]);
        assert_eq!(blocks[1].1[..8], [20, 1, 0, 0, 148, 0, 0, 0]);
        let packet = blocks[2].1;
        let u32_at = |from: usize| u32::from_le_bytes(packet[from..from + 4].try_into().unwrap());
        assert_eq!((u64::from(u32_at(4)) << 32 | u64::from(u32_at(8)), u32_at(12), u32_at(16)), (at, 25, 1520));
        assert_eq!(packet[20..48], [&[7; 20][..], b"12345", &[0; 3]].concat()[..]);
        assert_eq!(packet[48..], [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert!(packet.len() as u64 + 12 <= 5 + SLL2_BYTES as u64 + PACKET_OVERHEAD);
    }
}
