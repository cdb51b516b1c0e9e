//! The list of the bundle's files: what each contains, its size and its beginning.

use maud::{Markup, html};
use model::text::printable;
use serde::Deserialize;

use super::units;

/// The most files that are listed.
const FILES: usize = 64;
/// The most lines, and bytes, that are shown of each.
const LINES: usize = 20;
const HEAD: usize = 4 << 10;
/// The longest line, characters; a longer one is cut.
const LINE: usize = 240;
/// The most bytes of `manifest.json` that are read; Plumbline writes fewer.
const MANIFEST: usize = 256 << 10;

/// A file of the bundle.
#[derive(Debug, Default)]
pub struct BundleFile {
    pub name: String,
    pub bytes: u64,
    /// The file's first bytes, if it is for people.
    pub head: Vec<u8>,
}

/// An action's record in `manifest.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ManifestAction {
    pub action: String,
    pub file: Option<String>,
    pub command: String,
    pub status: String,
    pub error: Option<String>,
    pub seconds: f64,
    pub truncated: bool,
}

/// All files, in the order in which they were read.
#[derive(Debug, Default)]
pub struct Evidence {
    pub files: Vec<BundleFile>,
    pub actions: Vec<ManifestAction>,
    /// Whether the page is redacted, so that it has no beginnings of files.
    pub withheld: bool,
    manifest: Vec<u8>,
    begun: ContentUse,
    left_out: u64,
}

/// How the content of the current file is used.
#[derive(Debug, Default, PartialEq)]
enum ContentUse {
    /// The content is ignored.
    #[default]
    Listed,
    /// The beginning is kept; the file is the last of the list.
    Shown,
    /// The file is `manifest.json`, which is read as a whole.
    Manifest,
}

impl Evidence {
    /// Begins a file.
    pub fn begin(&mut self, name: &str, bytes: u64) {
        self.begun = match name {
            "manifest.json" => ContentUse::Manifest,
            name if is_data(name) || self.files.len() >= FILES => ContentUse::Listed,
            _ => ContentUse::Shown,
        };
        if self.files.len() < FILES {
            self.files.push(BundleFile { name: printable(name.as_bytes()), bytes, head: Vec::new() });
        } else {
            self.left_out += 1;
        }
    }

    /// Takes further content of the current file.
    pub fn take(&mut self, bytes: &[u8]) {
        let up_to = |length: usize, limit: usize| bytes.get(..limit.saturating_sub(length)).unwrap_or(bytes);
        match self.begun {
            ContentUse::Listed => (),
            ContentUse::Shown => {
                if let Some(file) = self.files.last_mut() {
                    file.head.extend_from_slice(up_to(file.head.len(), HEAD));
                }
            }
            ContentUse::Manifest => self.manifest.extend_from_slice(up_to(self.manifest.len(), MANIFEST)),
        }
    }

    /// Ends the current file.
    pub fn end(&mut self) {
        if self.begun == ContentUse::Manifest {
            self.actions = serde_json::from_slice(&std::mem::take(&mut self.manifest)).unwrap_or_default();
            self.actions.truncate(FILES);
        }
    }

    /// The list with the files' beginnings; empty without files.
    pub fn markup(&self) -> Markup {
        if self.files.is_empty() {
            return Markup::default();
        }
        // The order must not depend on who makes the page: files for people come first, then by name.
        let mut files: Vec<&BundleFile> = self.files.iter().collect();
        files.sort_by(|one, other| (is_data(&one.name), &one.name).cmp(&(is_data(&other.name), &other.name)));
        html! {
            h2 { "The evidence in the bundle" }
            @if self.withheld { p.muted { "The beginnings of these files are left out: this page is redacted." } }
            @for file in files {
                @let action = self.actions.iter().find(|action| action.file.as_ref() == Some(&file.name));
                @if file.head.is_empty() || file.head.contains(&0) {
                    p.file { (title(file, action)) }
                } @else {
                    details { summary { (title(file, action)) } (beginning(file)) }
                }
            }
            @for action in self.actions.iter().filter(|action| action.file.is_none()) {
                p.file { (action.action) " left no file: " (action.status) @if let Some(error) = &action.error { ", " (error) } }
            }
            @if self.left_out > 0 { p.muted { "and " (units::grouped(self.left_out)) " more files" } }
        }
    }
}

/// Whether a file is data for programs, whose content the page itself shows.
fn is_data(name: &str) -> bool {
    [".json", ".jsonl", ".html", ".pcapng", ".dat"].iter().any(|suffix| name.ends_with(suffix))
}

fn title(file: &BundleFile, action: Option<&ManifestAction>) -> Markup {
    let what = match file.name.as_str() {
        "incident.json" => "what this page says, for programs",
        "events.jsonl" => "the slow or failed operations, one a line",
        "recorder.jsonl" => "every operation of the seconds before the incident was noticed, one a line",
        "after.jsonl" => "every operation from then until it was over, one a line",
        "manifest.json" => "how each piece of evidence was taken",
        name if name.ends_with(".pcapng") => "packets, for wireshark or tshark",
        name if name.ends_with(".dat") => "tracepoints, for trace-cmd report or kernelshark",
        "stacks.folded" => "where threads waited in the kernel, for flame graphs",
        _ => "",
    };
    html! {
        code { (file.name) } " " span.muted {
            (units::bytes(file.bytes)) " " (what)
            @if let Some(action) = action {
                @if !action.command.is_empty() { " from " code { (action.command) } }
                @if action.status != "ok" { ", " strong { (action.status) } }
                @if action.truncated { ", cut" }
                @if let Some(error) = &action.error { ": " (error) }
            }
        }
    }
}

fn beginning(file: &BundleFile) -> Markup {
    let mut lines: Vec<String> = Vec::new();
    for line in file.head.split(|byte| *byte == b'\n').take(LINES) {
        let text = printable(line);
        let is_long = text.chars().count() > LINE;
        lines.push(if is_long { text.chars().take(LINE).chain(['…']).collect() } else { text });
    }
    let shown: usize = file.head.split(|byte| *byte == b'\n').take(LINES).map(|line| line.len() + 1).sum();
    html! {
        pre { (lines.join("\n")) }
        @if (shown as u64) < file.bytes { p.muted { "… the rest is in the bundle" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_bounded_and_data_has_none() {
        let mut evidence = Evidence::default();
        for n in 0..200 {
            evidence.begin(&format!("{n}.txt"), 1 << 20);
            (0..100).for_each(|_| evidence.take(&[b'x'; 999]));
            evidence.end();
        }
        evidence.begin("incident.json", 5);
        evidence.take(b"{}");
        evidence.end();
        assert_eq!((evidence.files.len(), evidence.left_out), (FILES, 137));
        assert!(evidence.files.iter().all(|file| file.head.len() <= HEAD));
        let page = evidence.markup().into_string();
        assert!(page.len() < FILES * (HEAD + 500) && page.contains("137 more files"));
    }

    #[test]
    fn an_action_says_how_it_went() {
        let mut evidence = Evidence::default();
        evidence.begin("dmesg.txt", 9);
        evidence.take(b"<b>hung</b>\ntask");
        evidence.end();
        evidence.begin("manifest.json", 9);
        evidence.take(br#"[{"action": "dmesg", "file": "dmesg.txt", "command": "/dev/kmsg", "status": "timeout"},"#);
        evidence.take(br#"{"action": "ss", "status": "failed", "error": "no such program"}]"#);
        evidence.end();
        let page = evidence.markup().into_string();
        for said in
            ["&lt;b&gt;hung&lt;/b&gt;\ntask", "/dev/kmsg", "timeout", "ss left no file: failed, no such program"]
        {
            assert!(page.contains(said), "{said}: {page}");
        }
    }
}
