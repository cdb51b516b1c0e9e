//! The state of the TCP connections to the servers.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::Result;
use probes::{filesystems, tcp};

use super::{ActionInput, heading, mounts, procfs};
use crate::evidence::command;
use crate::evidence::output::Output;

/// The usual server ports of the remote file systems (SMB, NFS).
fn ports() -> BTreeSet<u16> {
    filesystems::all().filter_map(|filesystem| filesystem.port).collect()
}

/// Lists the connections to SMB and NFS ports and to the affected servers, then the output of `ss` if it is installed.
pub fn sockets(task: &ActionInput, out: &mut Output) -> Result<()> {
    // Host names are not resolved, as that may hang for the same reason as the mount. Mountinfo has the resolved
    // addresses.
    let mut servers: Vec<IpAddr> = task.scope.servers.iter().filter_map(|server| mounts::address(server)).collect();
    let mountinfo = BufReader::new(procfs::open(&probes::mounts::mountinfo())?);
    servers.extend(mounts::addresses_in_scope(mountinfo, task.scope));
    servers.sort_unstable();
    servers.dedup();
    writeln!(out, "# Queues in bytes; timers: 0 none, 1 retransmit, 2 keepalive, 3 time-wait, 4 window probe.")?;
    writeln!(
        out,
        "{:<12} {:<44} {:<44} {:>9} {:>9} {:>5} {:>7} {:>5}",
        "STATE", "LOCAL", "REMOTE", "SENDQ", "RECVQ", "TIMER", "RETRANS", "CWND"
    )?;
    for table in ["/proc/net/tcp", "/proc/net/tcp6"].map(Path::new).into_iter().filter(|table| table.exists()) {
        print_table(procfs::open(table)?, &servers, out)?;
    }
    let filter = ports().into_iter().map(|port| format!("dport = :{port}"));
    let filter = filter.chain(servers.iter().map(|server| format!("dst [{server}]"))).collect::<Vec<_>>().join(" or ");
    let argv = ["ss", "-tinmo", &filter].map(str::to_owned);
    heading(out, &command::shown(&argv))?;
    match command::run(&argv, out) {
        Err(error) if out.stopped().is_none() => Ok(writeln!(out, "(not available: {error:#})")?),
        ran => ran,
    }
}

fn print_table(table: impl Read, servers: &[IpAddr], out: &mut Output) -> Result<()> {
    let mut lines = BufReader::new(table);
    let mut line = String::new();
    let ports = ports();
    while lines.read_line(&mut line)? > 0 {
        out.check()?;
        if let Some(socket) = ListedSocket::parse(&line)
            && (ports.contains(&socket.remote.port()) || servers.contains(&socket.remote.ip()))
        {
            writeln!(
                out,
                "{:<12} {:<44} {:<44} {:>9} {:>9} {:>5} {:>7} {:>5}",
                socket.state,
                socket.local.to_string(),
                socket.remote.to_string(),
                socket.send_queue,
                socket.receive_queue,
                socket.timer,
                socket.retransmits,
                socket.window
            )?;
        }
        line.clear();
    }
    Ok(())
}

struct ListedSocket<'a> {
    state: &'static str,
    local: SocketAddr,
    remote: SocketAddr,
    send_queue: u32,
    receive_queue: u32,
    timer: u32,
    /// How often the oldest unacknowledged segment was sent again.
    retransmits: u32,
    /// The congestion window, segments.
    window: &'a str,
}

impl<'a> ListedSocket<'a> {
    /// Parses a line of /proc/net/tcp (Documentation/networking/proc_net_tcp.rst).
    fn parse(line: &'a str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let pair = |at: usize| {
            let (first, second) = fields.get(at)?.split_once(':')?;
            Some((hex(first)?, hex(second)?))
        };
        let (send_queue, receive_queue) = pair(4)?;
        let (timer, _) = pair(5)?;
        Some(Self {
            state: tcp::state_name(hex(fields.get(3)?)?)?,
            local: socket_address(fields.get(1)?)?,
            remote: socket_address(fields.get(2)?)?,
            send_queue,
            receive_queue,
            timer,
            retransmits: hex(fields.get(6)?)?,
            window: fields.get(15).copied().unwrap_or("-"),
        })
    }
}

/// Parses an address of /proc/net/tcp: 32-bit words in the machine's byte order, and a port, all in hexadecimal.
fn socket_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words: Option<Vec<[u8; 4]>> = address
        .as_bytes()
        .chunks(8)
        .map(|word| Some(u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?.to_ne_bytes()))
        .collect();
    let bytes = words?.concat();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(v4) => IpAddr::V4(Ipv4Addr::from(v4)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?)).to_canonical(),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::output::tests::output_of;

    #[cfg(target_endian = "little")]
    #[test]
    fn connections_are_told_by_port_and_by_server() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:C350 0100007F:01BD 01 00000400:00000010 01:00000019 00000003     0        0 1 4 ffff888 21 4 30 7 -1\n\
             1: 0100007F:C351 0A00000A:0050 01 00000000:00000000 00:00000000 00000000     0        0 1 4 ffff888 21 4 30 10 -1\n\
             2: 0100007F:01BD 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 4 ffff888 21 4 30 10 -1\n\
             junk\n";
        let text = output_of(|out| print_table(table.as_bytes(), &["10.0.0.10".parse().unwrap()], out));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 2, "{text}");
        assert_eq!(rows[0], ["ESTABLISHED", "127.0.0.1:50000", "127.0.0.1:445", "1024", "16", "1", "3", "7"]);
        assert_eq!(rows[1][2], "10.0.0.10:80");
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn an_ipv4_address_in_ipv6_is_shown_as_ipv4() {
        let shown = |text| socket_address(text).unwrap().to_string();
        assert_eq!(shown("0000000000000000FFFF00000A00000A:01BD"), "10.0.0.10:445");
        assert_eq!(shown("B80D0120000000000000000001000000:01BD"), "[2001:db8::1]:445");
    }
}
