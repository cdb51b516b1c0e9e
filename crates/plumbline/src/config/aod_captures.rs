//! AOD's captures, `tcpdump` and `trace-cmd` with their arguments, as captures of ours.

use std::{net::IpAddr, time::Duration};

use super::{
    captures::{CaptureConfig, CaptureKind, Hosts, PacketsConfig, TraceMemory, TracepointsConfig, is_event},
    reader::{ConfigReader, quoted},
};
use crate::capture::SNAP_MOST;

/// AOD's names of captures.
pub const NAMES: [&str; 2] = ["tcpdump", "trace-cmd"];

/// AOD has no settings for times: a file has whatever its ring still holds.
const BEFORE: Duration = Duration::from_secs(30);
const AFTER: Duration = Duration::from_secs(5);
/// tcpdump's own default, and the limits for the value of `-B`, in KiB.
const BUFFER_KB: u64 = 2048;
const MEMORY_KB: [u64; 2] = [1024, 256 << 10];
/// The ring of each CPU, in KiB; trace-cmd uses the kernel's default, 1408.
const TRACE_KB: u64 = 1408;
/// The tracepoints if trace-cmd names no event.
const EVENTS: [&str; 4] = ["nfs", "nfs4", "sunrpc", "cifs"];

/// Whether AOD has a capture of this name.
pub fn is_one(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Adds the capture that replaces this one of AOD's, unless it exists, and notes that. Returns its name.
pub fn add(reader: &mut ConfigReader<'_>, name: &str, args: &[String]) -> String {
    let (kind, said) = if name == "tcpdump" { tcpdump(reader, args) } else { trace_cmd(reader, args) };
    if let Some(known) = reader.aod_captures.iter().find(|known| known.kind == kind) {
        return known.name.clone();
    }
    let taken = |free: &str| reader.aod_captures.iter().any(|known| known.name == free);
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|free| !taken(free)).unwrap_or_default();
    reader.note(format!("`{name}` is a capture here, `{free}`: {said}"));
    reader.aod_captures.push(CaptureConfig { name: free.clone(), before: BEFORE, after: AFTER, kind });
    free
}

/// The parsed arguments of a program.
struct TcpdumpArguments<'a> {
    /// Options that take a value, each with its value.
    valued: Vec<(char, &'a str)>,
    /// Options without a value.
    plain: Vec<char>,
    /// The remaining arguments.
    rest: Vec<&'a str>,
}

/// Reads arguments as getopt(3) does, for options of one letter; `with_value` are those that take one.
fn options<'a>(args: &'a [String], with_value: &str) -> TcpdumpArguments<'a> {
    let mut options = TcpdumpArguments { valued: Vec::new(), plain: Vec::new(), rest: Vec::new() };
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        let letters = match arg.strip_prefix('-') {
            Some(letters) if options.rest.is_empty() && !letters.is_empty() && !letters.starts_with('-') => letters,
            _ => {
                options.rest.push(arg);
                continue;
            }
        };
        for (at, letter) in letters.char_indices() {
            if with_value.contains(letter) {
                let joined = letters.get(at + letter.len_utf8()..).filter(|value| !value.is_empty());
                options.valued.extend(joined.or_else(|| args.next()).map(|value| (letter, value)));
                break;
            }
            options.plain.push(letter);
        }
    }
    options
}

/// Notes that an argument is ignored, and why.
fn left_out(reader: &mut ConfigReader<'_>, program: &str, argument: &str, why: &str) {
    reader.note(format!("`{program}`: {} is left out: {why}", quoted(argument)));
}

fn number(reader: &mut ConfigReader<'_>, program: &str, letter: char, value: &str) -> Option<u64> {
    let number = value.parse().ok();
    if number.is_none() {
        left_out(reader, program, &format!("-{letter} {value}"), "it is no number");
    }
    number
}

fn tcpdump(reader: &mut ConfigReader<'_>, args: &[String]) -> (CaptureKind, String) {
    const PROGRAM: &str = "tcpdump";
    // Options that only change how packets are printed.
    const SILENT: &str = "nvqetSAxXKlNOfpUb#";
    let options = options(args, "sBCWiwrcGzZFyjEMTVmQ");
    let mut config =
        PacketsConfig { interface: None, hosts: Hosts::Mounts, ports: Vec::new(), snap: Some(SNAP_MOST), memory: 0 };
    let mut buffer = BUFFER_KB;
    let mut has_files = false;
    for (letter, value) in options.valued {
        match letter {
            's' => match number(reader, PROGRAM, letter, value) {
                Some(0) | None => {}
                Some(bytes) => config.snap = Some(u32::try_from(bytes).unwrap_or(SNAP_MOST).clamp(64, SNAP_MOST)),
            },
            'B' => buffer = number(reader, PROGRAM, letter, value).unwrap_or(buffer),
            'C' | 'W' => has_files = true,
            'i' => config.interface = Some(value.to_owned()).filter(|name| name != "any"),
            _ => left_out(reader, PROGRAM, &format!("-{letter} {value}"), "the capture has its own way"),
        }
    }
    for letter in options.plain.into_iter().filter(|letter| !SILENT.contains(*letter)) {
        left_out(reader, PROGRAM, &format!("-{letter}"), "the capture has its own way");
    }
    let expression = options.rest.join(" ");
    match understood(&expression) {
        _ if expression.is_empty() => {}
        Some((hosts, ports)) => (config.hosts, config.ports) = (hosts, ports),
        None => left_out(
            reader,
            PROGRAM,
            &expression,
            "only hosts (by address) and ports are understood, joined by `and` and `or`; the servers of mounts are captured",
        ),
    }
    let [least, most] = MEMORY_KB;
    config.memory = buffer.clamp(least, most) << 10;
    let whom = match &config.hosts {
        Hosts::Mounts => "servers of mounts",
        Hosts::Any => "any host",
        Hosts::Only(_) => "the hosts that it names",
    };
    let (bytes, kb) = (config.snap.unwrap_or(0), config.memory >> 10);
    let files = if has_files { " in place of the files of -C and -W" } else { "" };
    let interface = config.interface.as_deref().unwrap_or("any");
    let said = format!(
        "packets, interface {interface}, {whom}, {bytes} bytes of each; the last {kb} KiB of them, in memory{files}"
    );
    (CaptureKind::Packets(config), said)
}

/// The hosts and ports of a filter expression; `None` if it contains anything else. `and` and `or` have the same precedence, and associate
/// to the left (pcap-filter(7)).
fn understood(expression: &str) -> Option<(Hosts, Vec<u16>)> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for (at, part) in words.split(|word| *word == "and").enumerate() {
        let (part, in_brackets) = match part {
            ["(", inner @ .., ")"] => (inner, true),
            part => (part, false),
        };
        let mut items = part.split(|word| *word == "or").peekable();
        let first = item(items.next()?)?;
        let rest: Vec<_> = items.map(item).collect::<Option<_>>()?;
        if !rest.is_empty() && at > 0 && !in_brackets {
            return None;
        }
        for one in std::iter::once(first).chain(rest) {
            match (first, one) {
                (FilterTerm::Host(_), FilterTerm::Host(host)) => hosts.push(host),
                (FilterTerm::Port(_), FilterTerm::Port(port)) => ports.push(port),
                _ => return None,
            }
        }
        // Two parts about hosts, or two about ports, would both have to hold.
        let twice = |part: FilterTerm| if matches!(part, FilterTerm::Host(_)) { hosts.len() } else { ports.len() };
        if twice(first) > part.split(|word| *word == "or").count() {
            return None;
        }
    }
    Some((if hosts.is_empty() { Hosts::Any } else { Hosts::Only(hosts) }, ports))
}

#[derive(Clone, Copy)]
enum FilterTerm {
    Host(IpAddr),
    Port(u16),
}

fn item(words: &[&str]) -> Option<FilterTerm> {
    match words {
        ["host", address] => Some(FilterTerm::Host(address.parse().ok()?)),
        ["port", port] | ["tcp", "port", port] => Some(FilterTerm::Port(port.parse().ok().filter(|port| *port != 0)?)),
        _ => None,
    }
}

fn trace_cmd(reader: &mut ConfigReader<'_>, args: &[String]) -> (CaptureKind, String) {
    const PROGRAM: &str = "trace-cmd";
    let args = match args {
        [command, rest @ ..] if ["record", "start"].contains(&command.as_str()) => rest,
        args => args,
    };
    // Options without a meaning here: missing events never stop a capture (-i), and there is no prompt (-q).
    const SILENT: &str = "iqT";
    let options = options(args, "ebpgnlOPsrfoNmtCRvBk");
    let mut events = Vec::new();
    let mut kb = TRACE_KB;
    for (letter, value) in options.valued {
        match letter {
            'e' if value == "all" => events.push("*:*".to_owned()),
            'e' if is_event(value) => events.push(value.to_owned()),
            'b' => kb = number(reader, PROGRAM, letter, value).unwrap_or(kb),
            'e' => left_out(reader, PROGRAM, &format!("-e {value}"), "it is not the name of a tracepoint"),
            _ => left_out(
                reader,
                PROGRAM,
                &format!("-{letter} {value}"),
                "the capture takes tracepoints, and all of each",
            ),
        }
    }
    let plain = options.plain.into_iter().filter(|letter| !SILENT.contains(*letter)).map(|letter| format!("-{letter}"));
    for argument in plain.chain(options.rest.into_iter().map(str::to_owned)) {
        left_out(reader, PROGRAM, &argument, "the capture has its own way");
    }
    if events.is_empty() {
        events = EVENTS.map(str::to_owned).to_vec();
    }
    let kb = kb.clamp(16, 64 << 10);
    let said = format!("tracepoints of {}, {kb} KiB for each processor", events.join(", "));
    let memory = TraceMemory::EachProcessor(kb << 10);
    (CaptureKind::Tracepoints(TracepointsConfig { events, memory }), said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_hosts_and_ports_are_understood_and_others_are_not() {
        let host: IpAddr = [10, 0, 0, 1].into();
        let cases = [
            ("port 445", Some((Hosts::Any, vec![445]))),
            ("tcp port 445 or port 2049", Some((Hosts::Any, vec![445, 2049]))),
            ("host 10.0.0.1 and port 445", Some((Hosts::Only(vec![host]), vec![445]))),
            ("host 10.0.0.1 and (port 445 or port 139)", Some((Hosts::Only(vec![host]), vec![445, 139]))),
            ("port 445 or port 139 and host 10.0.0.1", Some((Hosts::Only(vec![host]), vec![445, 139]))),
            ("host 10.0.0.1 and port 445 or port 139", None),
            ("host 10.0.0.1 or port 445", None),
            ("port 445 and port 139", None),
            ("host server", None),
            ("not port 22", None),
            ("port 0", None),
            ("", None),
        ];
        for (expression, expected) in cases {
            assert_eq!(understood(expression), expected, "{expression}");
        }
    }
}
