//! Writes a file of packets: each packet of the ring becomes a block of pcapng.

use std::io::Write;

use anyhow::Result;
use nix::net::if_::if_indextoname;

use super::super::CaptureSpan;
use super::super::pcapng::{PacketBlock, PcapngWriter, SLL2_BYTES, Statistics};
use super::ring::RingPacket;

/// The most interfaces that a file distinguishes.
const INTERFACES: usize = 64;

/// A file of packets that is being written.
pub struct PacketFile<'a> {
    writer: PcapngWriter<&'a mut dyn Write>,
    interfaces: Vec<u32>,
    snap: u32,
}

impl<'a> PacketFile<'a> {
    /// Begins a file. `about`: the description of its content. `snap`: the most bytes of each packet; 0: no limit.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(out: &'a mut dyn Write, about: &str, snap: u32) -> Result<Self> {
        let program = concat!("plumbline ", env!("CARGO_PKG_VERSION"));
        let writer = PcapngWriter::new(out, program, about)?;
        Ok(Self { writer, interfaces: Vec::new(), snap })
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&mut self, packet: &RingPacket<'_>) -> Result<()> {
        const OUTGOING: u8 = 4;
        let interface = match self.interfaces.iter().position(|index| *index == packet.interface) {
            Some(known) => known,
            None if self.interfaces.len() < INTERFACES => {
                self.interface(packet.interface)?;
                self.interfaces.len() - 1
            }
            None => INTERFACES - 1,
        };
        let mut header = [0; SLL2_BYTES];
        let (halen, address) = packet.sender;
        let parts: [&[u8]; 7] = [
            &packet.protocol.to_be_bytes(),
            &[0, 0],
            &packet.interface.to_be_bytes(),
            &packet.hardware.to_be_bytes(),
            &[packet.kind],
            &[halen],
            &address,
        ];
        header.iter_mut().zip(parts.concat()).for_each(|(to, from)| *to = from);
        Ok(self.writer.packet(&PacketBlock {
            interface: u32::try_from(interface)?,
            at: packet.at,
            length: packet.length,
            header,
            data: packet.data,
            outgoing: packet.kind == OUTGOING,
        })?)
    }

    fn interface(&mut self, index: u32) -> Result<()> {
        let name = if_indextoname(index).ok().and_then(|name| name.into_string().ok());
        self.writer.interface(&name.unwrap_or_else(|| format!("interface {index}")), self.snap)?;
        self.interfaces.push(index);
        Ok(())
    }

    /// Ends the file with the counts of the capture.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end(mut self, span: CaptureSpan, received: u64, dropped: u64) -> Result<()> {
        if self.interfaces.is_empty() {
            // Counts in pcapng belong to an interface.
            self.writer.interface("any", self.snap)?;
        }
        Ok(self.writer.statistics(&Statistics { times: [span.from, span.to], received, dropped })?)
    }
}
