//! Writes trace.dat, version 6: the format that `trace-cmd report` and KernelShark read (trace-cmd.dat.v6(5)).

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};

use anyhow::{Context, Result};

use super::super::page_bytes;
use super::instance::Instance;
use super::pages::Chosen;

/// The most bytes of symbols, which are those of the modules that have the tracepoints.
const SYMBOLS: usize = 2 << 20;
/// Options (trace-cmd's lib/trace-cmd/include/private/trace-cmd-private.h).
const END: u16 = 0;
const CLOCK: u16 = 4;
const OFFSET: u16 = 7;

/// The content of a file except its pages.
pub struct TraceHead {
    header_page: Vec<u8>,
    header_event: Vec<u8>,
    ftrace: Vec<Vec<u8>>,
    systems: BTreeMap<String, Vec<Vec<u8>>>,
    symbols: Vec<u8>,
    printk: Vec<u8>,
    names: Vec<u8>,
    /// The difference between the time of day and the times of events, nanoseconds.
    offset: i64,
}

impl TraceHead {
    /// Reads the formats of these tracepoints, the symbols of their modules, and the names of processes.
    ///
    /// # Errors
    /// If a file of the kernel cannot be read.
    pub fn read(instance: &Instance, enabled: &[(String, String)], offset: i64) -> Result<Self> {
        let mut systems: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for (system, event) in enabled {
            // A tracepoint whose module was just unloaded is left out.
            if let Ok(format) = instance.shared(&format!("events/{system}/{event}/format")) {
                systems.entry(system.clone()).or_default().push(format);
            }
        }
        let ftrace = instance.names("events/ftrace")?;
        let ftrace = ftrace.iter().filter_map(|event| instance.shared(&format!("events/ftrace/{event}/format")).ok());
        Ok(Self {
            header_page: instance.shared("events/header_page")?,
            header_event: instance.shared("events/header_event")?,
            ftrace: ftrace.collect(),
            symbols: symbols(&systems).unwrap_or_default(),
            systems,
            printk: instance.shared("printk_formats").unwrap_or_default(),
            names: instance.shared("saved_cmdlines").unwrap_or_default(),
            offset,
        })
    }

    fn bytes(&self, processors: usize) -> Result<Vec<u8>> {
        let mut head = Vec::new();
        head.extend_from_slice(b"\x17\x08\x44tracing6\0");
        head.push(u8::from(cfg!(target_endian = "big")));
        head.push(u8::try_from(size_of::<usize>())?);
        head.extend_from_slice(&u32::try_from(page_bytes())?.to_ne_bytes());
        for (name, content) in [(&b"header_page\0"[..], &self.header_page), (b"header_event\0", &self.header_event)] {
            head.extend_from_slice(name);
            sized(&mut head, content);
        }
        counted(&mut head, &self.ftrace)?;
        head.extend_from_slice(&u32::try_from(self.systems.len())?.to_ne_bytes());
        for (system, formats) in &self.systems {
            head.extend_from_slice(system.as_bytes());
            head.push(0);
            counted(&mut head, formats)?;
        }
        for content in [&self.symbols, &self.printk] {
            head.extend_from_slice(&u32::try_from(content.len())?.to_ne_bytes());
            head.extend_from_slice(content);
        }
        sized(&mut head, &self.names);
        head.extend_from_slice(&u32::try_from(processors)?.to_ne_bytes());
        head.extend_from_slice(b"options  \0");
        option(&mut head, CLOCK, b"[mono]\0")?;
        option(&mut head, OFFSET, format!("{}\0", self.offset).as_bytes())?;
        head.extend_from_slice(&END.to_ne_bytes());
        head.extend_from_slice(b"flyrecord\0");
        Ok(head)
    }
}

/// Writes the file.
///
/// # Errors
/// If it cannot be written.
pub fn write(out: &mut dyn Write, head: &TraceHead, pages: &Chosen<'_>) -> Result<()> {
    let page = page_bytes();
    let mut bytes = head.bytes(pages.len())?;
    let start = (bytes.len() + pages.len() * 16).next_multiple_of(page);
    let mut at = start;
    for pages in pages {
        let length = pages.len() * page;
        bytes.extend_from_slice(&(at as u64).to_ne_bytes());
        bytes.extend_from_slice(&(length as u64).to_ne_bytes());
        at += length;
    }
    bytes.resize(start, 0);
    out.write_all(&bytes)?;
    for page in pages.iter().flatten() {
        out.write_all(page)?;
    }
    Ok(())
}

fn sized(head: &mut Vec<u8>, content: &[u8]) {
    head.extend_from_slice(&(content.len() as u64).to_ne_bytes());
    head.extend_from_slice(content);
}

fn counted(head: &mut Vec<u8>, formats: &[Vec<u8>]) -> Result<()> {
    head.extend_from_slice(&u32::try_from(formats.len())?.to_ne_bytes());
    formats.iter().for_each(|format| sized(head, format));
    Ok(())
}

fn option(head: &mut Vec<u8>, number: u16, value: &[u8]) -> Result<()> {
    head.extend_from_slice(&number.to_ne_bytes());
    head.extend_from_slice(&u32::try_from(value.len())?.to_ne_bytes());
    head.extend_from_slice(value);
    Ok(())
}

/// The functions of the modules that have these systems' tracepoints, such as `nfsv4` for `nfs4`. Those of the kernel itself would take ten MiB, and
/// events of these modules refer to the modules' functions.
fn symbols(systems: &BTreeMap<String, Vec<Vec<u8>>>) -> Result<Vec<u8>> {
    let stems: Vec<&str> = systems.keys().map(|system| system.trim_end_matches(|c: char| c.is_ascii_digit())).collect();
    let file = fs::File::open("/proc/kallsyms").context("cannot read /proc/kallsyms")?;
    let mut found = Vec::new();
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut line = Vec::new();
    while found.len() < SYMBOLS && reader.read_until(b'\n', &mut line)? > 0 {
        let text = std::str::from_utf8(&line).unwrap_or_default();
        let module = text.trim_end().strip_suffix(']').and_then(|text| text.rsplit_once('[')).map(|(_, module)| module);
        let is_function = matches!(text.split(' ').nth(1), Some("t" | "T"));
        if is_function && module.is_some_and(|module| stems.iter().any(|stem| module.starts_with(stem))) {
            found.extend_from_slice(&line);
        }
        line.clear();
    }
    Ok(found)
}
