//! Captures: data that are recorded all the time, so that an incident has the seconds before it.

use std::{net::IpAddr, time::Duration};

use super::{
    actions::{check_name, check_program, texts},
    node::{YamlEntry, YamlNode, YamlValue},
    reader::{ConfigReader, NumberRange, find, quoted},
};
use crate::capture::SNAP_MOST;

/// The most captures.
const MOST: usize = 8;
/// The memory that a capture may take, in MiB.
const MEMORY_MB: NumberRange = NumberRange::new(1.0, 1024.0, "MiB");
/// Names of other files in a bundle.
const TAKEN: [&str; 7] = ["incident", "manifest", "report", "events", "recorder", "after", "stacks"];
/// The default times before and after an incident.
const BEFORE: Duration = Duration::from_secs(10);
const AFTER: Duration = Duration::from_secs(5);
const MEMORY: u64 = 4 << 20;

const COMMON_KEYS: [&str; 3] = ["type", "before_sec", "after_sec"];

/// A capture.
#[derive(Debug, Clone, PartialEq)]
pub struct CaptureConfig {
    /// The capture's name, which is also that of an action.
    pub name: String,
    /// The time before an incident that is saved: up to an hour.
    pub before: Duration,
    /// The time after that, unless the rule sets another: up to five minutes.
    pub after: Duration,
    /// The type of the capture.
    pub kind: CaptureKind,
}

/// What a capture takes.
#[derive(Debug, Clone, PartialEq)]
pub enum CaptureKind {
    /// Packets.
    Packets(PacketsConfig),
    /// Tracepoints of the kernel.
    Tracepoints(TracepointsConfig),
    /// The files of an operator's program.
    Command(CommandConfig),
}

/// Packets that are captured.
#[derive(Debug, Clone, PartialEq)]
pub struct PacketsConfig {
    /// `None`: all interfaces.
    pub interface: Option<String>,
    /// The hosts.
    pub hosts: Hosts,
    /// The ports; empty: any port, or those of the mounts.
    pub ports: Vec<u16>,
    /// The bytes of each packet from the network header on; `None`: headers without data.
    pub snap: Option<u32>,
    /// The ring's size, bytes.
    pub memory: u64,
}

/// The hosts whose packets are captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// The servers of the current mounts.
    Mounts,
    /// Every address.
    Any,
    /// The addresses that the configuration names.
    Only(Vec<IpAddr>),
}

/// Tracepoints that are captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracepointsConfig {
    /// The events in the form of the kernel's `set_event`: `nfs`, `sunrpc:*`, `nfs4:nfs4_write`.
    pub events: Vec<String>,
    /// The memory that they may take.
    pub memory: TraceMemory,
}

/// Memory for tracepoints, bytes. Half of it is the kernel's ring; the other half holds the pages that an incident has read from the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceMemory {
    /// In all.
    All(u64),
    /// The ring of each processor.
    EachProcessor(u64),
}

/// A program that captures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandConfig {
    /// Program and arguments; at least the program.
    pub command: Vec<String>,
    /// The files of its directory that are evidence, by a pattern of names.
    pub files: String,
    /// The most bytes in the directory.
    pub max_bytes: u64,
}

/// Reads the section `captures`.
pub fn read(reader: &mut ConfigReader<'_>, entries: &[YamlEntry]) -> Vec<CaptureConfig> {
    if let Some(entry) = entries.get(MOST) {
        reader.refuse(entry.at, format!("there are more than {MOST} captures; remove some"));
    }
    entries.iter().filter_map(|entry| capture(reader, entry)).collect()
}

fn capture(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<CaptureConfig> {
    check_name(reader, entry);
    let name = entry.key.as_str();
    if reader.known.actions.contains(&name)
        || reader.custom_actions.iter().any(|custom| custom == name)
        || super::aod_captures::is_one(name)
    {
        reader.refuse(entry.at, format!("`{name}` is an action already; give the capture another name"));
    }
    if TAKEN.contains(&name) {
        reader.refuse(
            entry.at,
            format!("`{name}` is the name of another file of a bundle; give the capture another name"),
        );
    }
    let entries = reader.map(&format!("the capture {}", quoted(name)), &entry.value)?;
    let Some(kind) = find(entries, "type") else {
        reader.refuse(
            entry.at,
            format!("the capture {} has no type; write `type: packets`, tracepoints or command", quoted(name)),
        );
        return None;
    };
    type ReadKind = fn(&mut ConfigReader<'_>, &YamlEntry, &[YamlEntry]) -> Option<CaptureKind>;
    let kinds: [(&str, (ReadKind, &[&str])); 3] = [
        ("packets", (packets, &["interface", "hosts", "ports", "snap_bytes", "memory_mb"])),
        ("tracepoints", (tracepoints, &["events", "memory_mb"])),
        ("command", (command, &["command", "files", "max_mb"])),
    ];
    let (read, keys) = reader.choice(kind, &kinds)?;
    reader.only_keys(entries, &[&COMMON_KEYS[..], keys].concat(), &[]);
    let before = optional(entries, "before_sec", BEFORE, |entry| reader.seconds(entry, 0.0, 3600.0));
    let after = optional(entries, "after_sec", AFTER, |entry| after_sec(reader, entry));
    let kind = read(reader, entry, entries);
    Some(CaptureConfig { name: name.to_owned(), before: before?, after: after?, kind: kind? })
}

/// How long a capture continues after an incident was noticed.
pub fn after_sec(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<Duration> {
    reader.seconds(entry, 0.0, 300.0)
}

fn packets(reader: &mut ConfigReader<'_>, _: &YamlEntry, entries: &[YamlEntry]) -> Option<CaptureKind> {
    let interface = optional(entries, "interface", None, |entry| interface(reader, entry));
    let hosts = optional(entries, "hosts", Hosts::Mounts, |entry| hosts(reader, entry));
    let ports = optional(entries, "ports", Vec::new(), |entry| {
        let nodes = reader.list(entry)?;
        let ports: Vec<_> = nodes.iter().filter_map(|node| port(reader, node)).collect();
        (ports.len() == nodes.len()).then_some(ports)
    });
    let snap = optional(entries, "snap_bytes", None, |entry| match reader.word(entry)? {
        "headers" => Some(None),
        _ => reader.whole(entry, 64..=SNAP_MOST).map(Some),
    });
    let memory = memory(reader, entries);
    Some(CaptureKind::Packets(PacketsConfig {
        interface: interface?,
        hosts: hosts?,
        ports: ports?,
        snap: snap?,
        memory: memory?,
    }))
}

fn interface(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<Option<String>> {
    let name = reader.word(entry)?;
    if name == "any" {
        return Some(None);
    }
    // dev_valid_name() of net/core/dev.c
    if name.is_empty()
        || name.len() > 15
        || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c == '\0')
    {
        reader.refuse(
            entry.value.at,
            format!("{} cannot be the name of an interface; write one such as eth0, or any", quoted(name)),
        );
        return None;
    }
    Some(Some(name.to_owned()))
}

fn hosts(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<Hosts> {
    if let YamlValue::Plain(word) | YamlValue::Quoted(word) = &entry.value.value {
        match word.as_str() {
            "mounts" => return Some(Hosts::Mounts),
            "any" => return Some(Hosts::Any),
            _ => {
                reader.refuse(
                    entry.value.at,
                    format!("`hosts` is {}; write mounts, any, or a list of addresses", quoted(word)),
                );
                return None;
            }
        }
    }
    let nodes = reader.list(entry)?;
    let mut hosts = Vec::new();
    for node in nodes {
        let text = reader.text("an address", node)?;
        match text.parse() {
            Ok(address) => hosts.push(address),
            Err(_) => reader
                .refuse(node.at, format!("{} is no address; write one such as 192.0.2.1 or 2001:db8::1", quoted(text))),
        }
    }
    if nodes.is_empty() {
        reader.refuse(entry.value.at, "`hosts` is empty; write mounts, any, or addresses");
    }
    (!hosts.is_empty() && hosts.len() == nodes.len()).then_some(Hosts::Only(hosts))
}

fn port(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<u16> {
    let text = reader.text("a port", node)?;
    let port = text.parse().ok().filter(|port| *port != 0);
    if port.is_none() {
        reader.refuse(node.at, format!("{} is no port; write a number from 1 to 65535", quoted(text)));
    }
    port
}

fn tracepoints(reader: &mut ConfigReader<'_>, capture: &YamlEntry, entries: &[YamlEntry]) -> Option<CaptureKind> {
    let Some(entry) = find(entries, "events") else {
        reader.refuse(
            capture.at,
            format!("the capture {} has no events; write `events: [nfs, sunrpc]`", quoted(&capture.key)),
        );
        return None;
    };
    let before = reader.problems.len();
    let events = texts(reader, entry);
    if events.is_empty() && reader.problems.len() == before {
        reader.refuse(entry.value.at, "`events` is empty; write names such as nfs or sunrpc:rpc_task_*");
    }
    let nodes = reader.list(entry).unwrap_or_default();
    for (event, node) in events.iter().zip(nodes) {
        if !is_event(event) {
            reader.refuse(
                node.at,
                format!("{} cannot be a tracepoint; write SYSTEM, SYSTEM:EVENT or SYSTEM:EV*", quoted(event)),
            );
        }
    }
    let memory = memory(reader, entries).map(TraceMemory::All);
    let config = TracepointsConfig { events, memory: memory? };
    (reader.problems.len() == before).then_some(CaptureKind::Tracepoints(config))
}

/// Whether the name may be written to the kernel's `set_event`: a leading `!` would disable events.
pub fn is_event(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "_-.*?".contains(c);
    let mut parts = name.split(':');
    let is_part = |part: &str| !part.is_empty() && part.chars().all(good);
    name.len() <= 128 && parts.by_ref().take(2).all(is_part) && parts.next().is_none()
}

fn command(reader: &mut ConfigReader<'_>, capture: &YamlEntry, entries: &[YamlEntry]) -> Option<CaptureKind> {
    let Some(entry) = find(entries, "command") else {
        reader.refuse(
            capture.at,
            format!("the capture {} has no command; write `command: [program, argument]`", quoted(&capture.key)),
        );
        return None;
    };
    let before = reader.problems.len();
    let command = texts(reader, entry);
    if reader.problems.len() == before {
        check_program(reader, entry, &command);
    }
    let files = optional(entries, "files", "*".to_owned(), |entry| {
        let files = reader.word(entry)?;
        if files.is_empty() || files.contains('/') {
            reader.refuse(
                entry.value.at,
                "`files` is a pattern of names in the command's own directory, without `/`; write one such as *.pcap*",
            );
            return None;
        }
        Some(files.to_owned())
    });
    let max_bytes = optional(entries, "max_mb", 16 << 20, |entry| {
        reader.number(entry, MEMORY_MB).map(|mb| (mb * 1_048_576.0) as u64)
    });
    let config = CommandConfig { command, files: files?, max_bytes: max_bytes? };
    (reader.problems.len() == before).then_some(CaptureKind::Command(config))
}

fn memory(reader: &mut ConfigReader<'_>, entries: &[YamlEntry]) -> Option<u64> {
    optional(entries, "memory_mb", MEMORY, |entry| reader.number(entry, MEMORY_MB).map(|mb| (mb * 1_048_576.0) as u64))
}

/// The value of a key, or its default.
fn optional<T>(entries: &[YamlEntry], key: &str, default: T, read: impl FnOnce(&YamlEntry) -> Option<T>) -> Option<T> {
    match find(entries, key) {
        Some(entry) => read(entry),
        None => Some(default),
    }
}
