//! The packet filter: a program of classic BPF, which the kernel runs for each packet. It decides whether the packet is kept, and how many of its
//! bytes.
//!
//! The socket is one of SOCK_DGRAM, so a packet begins with its network header.

use std::net::IpAddr;

use nix::libc::sock_filter;

/// The most addresses in a program; if there are more servers, only their ports decide.
pub const MOST_HOSTS: usize = 256;

/// How much of a packet is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Snap {
    /// The headers of IP and TCP, and of the SMB2 message or RPC call at the beginning of the payload, but no data.
    Headers,
    /// This many bytes from the network header on.
    Bytes(u32),
}

/// Which packets are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPackets {
    /// Packets from or to one of these hosts; `None`: any host.
    pub hosts: Option<Vec<IpAddr>>,
    /// Packets from or to one of these ports; empty: any port.
    pub ports: Vec<u16>,
    /// How much of each packet is kept.
    pub snap: Snap,
}

// linux/filter.h and linux/bpf_common.h
const LD_W_ABS: u16 = 0x20;
const LD_H_ABS: u16 = 0x28;
const LD_B_ABS: u16 = 0x30;
const LD_H_IND: u16 = 0x48;
const LD_B_IND: u16 = 0x50;
const LD_W_IND: u16 = 0x40;
const LD_LEN: u16 = 0x80;
const LDX_IMM: u16 = 0x01;
const LDX_MSH: u16 = 0xb1;
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
const ADD_K: u16 = 0x04;
const ADD_X: u16 = 0x0c;
const SUB_X: u16 = 0x1c;
const AND_K: u16 = 0x54;
const RSH_K: u16 = 0x74;
const RET_K: u16 = 0x06;
const RET_A: u16 = 0x16;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;
/// SKF_AD_OFF: the offset of ancillary data, which are not in the packet itself.
const PROTOCOL: u32 = -0x1000_i32 as u32;
const PACKET_TYPE: u32 = PROTOCOL + 4;
const HARDWARE: u32 = PROTOCOL + 28;

const OUTGOING: u32 = 4;
const LOOPBACK: u32 = 772;
const ETH_IPV4: u32 = 0x0800;
const ETH_IPV6: u32 = 0x86dd;
const TCP: u32 = 6;
const UDP: u32 = 17;
const ICMP: u32 = 1;
const ICMP6: u32 = 58;
/// The ICMP header, and the IP header and eight bytes of the packet that the message is about.
const ICMP_BYTES: u32 = 8 + 20 + 8;
/// The SMB2 header after the four bytes of the transport header (MS-SMB2 2.2.1.2).
const SMB2_BYTES: u32 = 4 + 64;
/// The transform headers of encrypted (2.2.41) and of compressed (2.2.42) messages.
const ENCRYPTED_BYTES: u32 = 4 + 52;
const COMPRESSED_BYTES: u32 = 4 + 16;
/// The record mark and the header of an RPC call up to its procedure, or of a reply up to its status (RFC 5531).
const RPC_BYTES: u32 = 4 + 24;

/// The target of a jump.
#[derive(Clone, Copy)]
struct JumpLabel(usize);

/// A program under construction; jumps to labels are resolved at its end.
#[derive(Default)]
struct FilterProgram {
    code: Vec<sock_filter>,
    labels: Vec<usize>,
    jumps: Vec<(usize, JumpLabel)>,
}

impl FilterProgram {
    fn op(&mut self, code: u16, k: u32) {
        self.code.push(sock_filter { code, jt: 0, jf: 0, k });
    }

    fn label(&mut self) -> JumpLabel {
        self.labels.push(usize::MAX);
        JumpLabel(self.labels.len() - 1)
    }

    fn here(&mut self, label: JumpLabel) {
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = self.code.len();
        }
    }

    fn jump(&mut self, to: JumpLabel) {
        self.jumps.push((self.code.len(), to));
        self.op(JA, 0);
    }

    /// Jumps if the comparison of the accumulator with `k` holds. Conditional jumps reach 255 instructions, JA any number.
    fn jump_if(&mut self, test: u16, k: u32, to: JumpLabel) {
        self.code.push(sock_filter { code: test, jt: 0, jf: 1, k });
        self.jump(to);
    }

    fn jump_unless(&mut self, test: u16, k: u32, to: JumpLabel) {
        self.code.push(sock_filter { code: test, jt: 1, jf: 0, k });
        self.jump(to);
    }

    fn finish(mut self) -> Vec<sock_filter> {
        for (at, label) in self.jumps {
            let target = self.labels.get(label.0).copied().unwrap_or(at + 1);
            if let Some(jump) = self.code.get_mut(at) {
                jump.k = u32::try_from(target.saturating_sub(at + 1)).unwrap_or(0);
            }
        }
        self.code
    }
}

/// The program for the wanted packets.
pub fn program(wanted: &WantedPackets) -> Vec<sock_filter> {
    let mut program = FilterProgram::default();
    let hosts = wanted.hosts.as_deref().filter(|hosts| hosts.len() <= MOST_HOSTS);
    let [no, v4, v6, here, ports] = std::array::from_fn(|_| program.label());
    if hosts.is_some_and(<[IpAddr]>::is_empty) {
        program.op(RET_K, 0);
        return program.finish();
    }
    // On loopback, the socket gets each packet twice: as sent and as received.
    program.op(LD_W_ABS, PACKET_TYPE);
    program.jump_unless(JEQ, OUTGOING, here);
    program.op(LD_H_ABS, HARDWARE);
    program.jump_if(JEQ, LOOPBACK, no);
    program.here(here);
    program.op(LD_H_ABS, PROTOCOL);
    program.jump_if(JEQ, ETH_IPV4, v4);
    program.jump_if(JEQ, ETH_IPV6, v6);
    program.here(no);
    program.op(RET_K, 0);

    program.here(v4);
    let found = program.label();
    if let Some(hosts) = hosts {
        for offset in [12, 16] {
            program.op(LD_W_ABS, offset);
            for address in hosts.iter().filter_map(|host| if let IpAddr::V4(v4) = host { Some(v4) } else { None }) {
                program.jump_if(JEQ, u32::from(*address), found);
            }
        }
        program.op(RET_K, 0);
    }
    program.here(found);
    let whole = program.label();
    program.op(LDX_MSH, 0);
    program.op(LD_H_ABS, 6);
    program.jump_if(JSET, 0x1fff, whole); // a later fragment has no ports
    program.op(LD_B_ABS, 9);
    transport(&mut program, wanted, ports);
    program.here(whole);
    headers(&mut program, wanted.snap, 0);

    program.here(v6);
    let found = program.label();
    if let Some(hosts) = hosts {
        for offset in [8_u32, 24] {
            for address in hosts.iter().filter_map(|host| if let IpAddr::V6(v6) = host { Some(v6) } else { None }) {
                let next = program.label();
                for (at, part) in (offset..).step_by(4).zip(address.octets().chunks_exact(4)) {
                    program.op(LD_W_ABS, at);
                    let part = part.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
                    program.jump_unless(JEQ, part, next);
                }
                program.jump(found);
                program.here(next);
            }
        }
        program.op(RET_K, 0);
    }
    program.here(found);
    program.op(LDX_IMM, 40);
    program.op(LD_B_ABS, 6);
    transport(&mut program, wanted, ports);

    // X is the length of the IP header; a TCP header follows.
    program.here(ports);
    check_ports(&mut program, &wanted.ports);
    match wanted.snap {
        Snap::Bytes(bytes) => program.op(RET_K, bytes),
        Snap::Headers => application(&mut program),
    }
    program.finish()
}

/// A is the protocol, X the length of the IP header. Jumps to `tcp`, or ends.
fn transport(program: &mut FilterProgram, wanted: &WantedPackets, tcp: JumpLabel) {
    program.jump_if(JEQ, TCP, tcp);
    let [udp, icmp] = std::array::from_fn(|_| program.label());
    program.jump_if(JEQ, UDP, udp);
    program.jump_if(JEQ, ICMP, icmp);
    program.jump_if(JEQ, ICMP6, icmp);
    headers(program, wanted.snap, 8);
    program.here(icmp);
    headers(program, wanted.snap, ICMP_BYTES);
    program.here(udp);
    check_ports(program, &wanted.ports);
    headers(program, wanted.snap, 8);
}

/// Ends, and keeps the IP header and `more` bytes, or the configured number of bytes.
fn headers(program: &mut FilterProgram, snap: Snap, more: u32) {
    match snap {
        Snap::Bytes(bytes) => program.op(RET_K, bytes),
        Snap::Headers => {
            program.op(TXA, 0);
            program.op(ADD_K, more);
            program.op(RET_A, 0);
        }
    }
}

/// Continues if one of the ports at X is wanted.
fn check_ports(program: &mut FilterProgram, ports: &[u16]) {
    if ports.is_empty() {
        return;
    }
    let found = program.label();
    for offset in [0, 2] {
        program.op(LD_H_IND, offset);
        for port in ports {
            program.jump_if(JEQ, u32::from(*port), found);
        }
    }
    program.op(RET_K, 0);
    program.here(found);
}

/// Ends, and keeps the headers of TCP and of the message after it, if a message begins there.
fn application(program: &mut FilterProgram) {
    program.op(LD_B_IND, 12);
    program.op(RSH_K, 2);
    program.op(AND_K, 0x3c);
    program.op(ADD_X, 0);
    program.op(TAX, 0);
    let [plain, smb2, encrypted, compressed, rpc, reply] = std::array::from_fn(|_| program.label());
    // A load beyond the end of the packet would end the program and reject the packet.
    program.op(LD_LEN, 0);
    program.op(SUB_X, 0);
    program.jump_unless(JGE, RPC_BYTES, plain);
    // The packet is shorter than the headers, so SUB_X wrapped around: no packet has 2 GiB.
    program.jump_if(JGE, 1 << 31, plain);
    program.op(LD_W_IND, 4);
    program.jump_if(JEQ, 0xfe53_4d42, smb2);
    program.jump_if(JEQ, 0xfd53_4d42, encrypted);
    program.jump_if(JEQ, 0xfc53_4d42, compressed);
    // An RPC message in one record: the mark has the bit of the last fragment; a call has version 2; a reply has a status and a verifier's
    // flavour.
    program.op(LD_W_IND, 0);
    program.jump_unless(JSET, 1 << 31, plain);
    program.op(LD_W_IND, 8);
    program.jump_if(JEQ, 1, reply);
    program.jump_unless(JEQ, 0, plain);
    program.op(LD_W_IND, 12);
    program.jump_if(JEQ, 2, rpc);
    program.jump(plain);
    program.here(reply);
    program.op(LD_W_IND, 12);
    program.jump_if(JGE, 2, plain);
    program.op(LD_W_IND, 16);
    program.jump_if(JGE, 8, plain);
    program.here(rpc);
    headers(program, Snap::Headers, RPC_BYTES);
    program.here(smb2);
    headers(program, Snap::Headers, SMB2_BYTES);
    program.here(encrypted);
    headers(program, Snap::Headers, ENCRYPTED_BYTES);
    program.here(compressed);
    headers(program, Snap::Headers, COMPRESSED_BYTES);
    program.here(plain);
    headers(program, Snap::Headers, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would. Returns how many bytes it keeps.
    fn kept(wanted: &WantedPackets, packet: &[u8], outgoing: bool, hardware: u32) -> u32 {
        let code = program(wanted);
        assert!(code.len() <= 4096, "{}", code.len());
        let (mut a, mut x, mut at) = (0_u32, 0_u32, 0);
        let load = |from: u32, size: usize| -> Option<u32> {
            let from = from as usize;
            let bytes = packet.get(from..from.checked_add(size)?)?;
            Some(bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
        };
        loop {
            let sock_filter { code, jt, jf, k } = code[at];
            at += 1;
            let mut jump = |taken: bool| at += usize::from(if taken { jt } else { jf });
            let loaded = match (code, k) {
                (LD_W_ABS, PACKET_TYPE) => Some(if outgoing { OUTGOING } else { 0 }),
                (LD_H_ABS, HARDWARE) => Some(hardware),
                (LD_H_ABS, PROTOCOL) => Some(if packet[0] >> 4 == 4 { ETH_IPV4 } else { ETH_IPV6 }),
                (LD_W_ABS, _) => load(k, 4),
                (LD_H_ABS, _) => load(k, 2),
                (LD_B_ABS, _) => load(k, 1),
                (LD_W_IND, _) => load(x + k, 4),
                (LD_H_IND, _) => load(x + k, 2),
                (LD_B_IND, _) => load(x + k, 1),
                (LD_LEN, _) => Some(packet.len() as u32),
                _ => Some(a),
            };
            let Some(loaded) = loaded else { return 0 };
            a = loaded;
            match code {
                LDX_IMM => x = k,
                LDX_MSH => x = u32::from(packet[k as usize] & 0xf) * 4,
                JA => at += k as usize,
                JEQ => jump(a == k),
                JGE => jump(a >= k),
                JSET => jump(a & k != 0),
                ADD_K => a = a.wrapping_add(k),
                ADD_X => a = a.wrapping_add(x),
                SUB_X => a = a.wrapping_sub(x),
                AND_K => a &= k,
                RSH_K => a >>= k,
                TAX => x = a,
                TXA => a = x,
                RET_K => return k,
                RET_A => return a.min(packet.len() as u32),
                _ => {}
            }
        }
    }

    const SERVER: [u8; 4] = [10, 0, 0, 1];

    /// A TCP segment of IPv4 to the server, with 12 bytes of TCP options.
    fn segment(port: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 9];
        packet.extend(SERVER);
        packet.extend([0xc0, 0]);
        packet.extend(port.to_be_bytes());
        packet.extend([0; 8]);
        packet.extend([0x80, 0x18]);
        packet.extend([0; 18]);
        packet.extend(payload);
        packet
    }

    fn wanted(snap: Snap) -> WantedPackets {
        WantedPackets { hosts: Some(vec![SERVER.into(), "fd00::1".parse().unwrap()]), ports: vec![445, 2049], snap }
    }

    fn smb(magic: &[u8; 4]) -> Vec<u8> {
        [&[0, 0, 4, 0][..], magic, &[0xaa; 1000]].concat()
    }

    fn rpc(head: &[u32]) -> Vec<u8> {
        head.iter().flat_map(|word| word.to_be_bytes()).chain([0xaa; 1000]).collect()
    }

    #[test]
    fn headers_end_where_the_message_header_ends_and_data_is_never_kept() {
        const TCP_IP: u32 = 20 + 32;
        let kept = |port, payload: &[u8]| kept(&wanted(Snap::Headers), &segment(port, payload), true, 1);
        assert_eq!(kept(445, &[]), TCP_IP);
        assert_eq!(kept(445, &smb(b"\xfeSMB")), TCP_IP + 68);
        assert_eq!(kept(445, &smb(b"\xfdSMB")), TCP_IP + 56);
        assert_eq!(kept(445, &smb(b"\xfcSMB")), TCP_IP + 20);
        assert_eq!(kept(2049, &rpc(&[0x8000_0400, 7, 0, 2, 100_003, 4, 1])), TCP_IP + 28);
        assert_eq!(kept(2049, &rpc(&[0x8000_0400, 7, 1, 0, 0, 0, 0])), TCP_IP + 28);
        for data in
            [vec![0xaa; 1400], vec![0; 1400], rpc(&[0x8000_0400, 7, 0, 3]), rpc(&[0x400, 7, 1, 0, 0]), vec![0xfe; 27]]
        {
            assert_eq!(kept(445, &data), TCP_IP);
        }
        assert_eq!(kept(22, &[0xaa; 100]), 0);
    }

    #[test]
    fn only_servers_of_mounts_are_seen_and_loopback_once() {
        let segment = segment(445, &[0; 100]);
        let bytes = wanted(Snap::Bytes(96));
        assert_eq!(kept(&bytes, &segment, false, 1), 96);
        let other = WantedPackets { hosts: Some(vec![[10, 0, 0, 2].into()]), ..bytes.clone() };
        assert_eq!(kept(&other, &segment, false, 1), 0);
        assert_eq!(kept(&WantedPackets { hosts: Some(vec![]), ..bytes.clone() }, &segment, false, 1), 0);
        assert_eq!(kept(&WantedPackets { hosts: None, ..bytes.clone() }, &segment, false, 1), 96);
        let many = (0..=MOST_HOSTS as u32).map(|n| IpAddr::from((n + (11 << 24)).to_be_bytes())).collect();
        assert_eq!(kept(&WantedPackets { hosts: Some(many), ..bytes.clone() }, &segment, false, 1), 96);
        assert_eq!([true, false].map(|out| kept(&bytes, &segment, out, LOOPBACK)), [0, 96]);
    }

    #[test]
    fn of_fragments_and_icmp_only_headers_are_kept() {
        let mut fragment = segment(445, &[0xaa; 100]);
        fragment[6..8].copy_from_slice(&[0x20, 1]);
        assert_eq!(kept(&wanted(Snap::Headers), &fragment, false, 1), 20);
        let mut icmp = segment(0, &[0xaa; 100]);
        icmp[9] = 1;
        assert_eq!(kept(&wanted(Snap::Headers), &icmp, false, 1), 20 + 36);
    }

    #[test]
    fn ipv6_is_as_ipv4() {
        let tcp = segment(2049, &rpc(&[0x8000_0400, 7, 0, 2, 100_003, 4, 1])).split_off(20);
        let packet = |host: &str| {
            let host: std::net::Ipv6Addr = host.parse().unwrap();
            [&[0x60, 0, 0, 0, 0, 0, 6, 64][..], &[0xfd; 16], &host.octets(), &tcp].concat()
        };
        assert_eq!(kept(&wanted(Snap::Headers), &packet("fd00::1"), true, 1), 40 + 32 + 28);
        assert_eq!(kept(&wanted(Snap::Headers), &packet("fd00::2"), true, 1), 0);
    }
}
