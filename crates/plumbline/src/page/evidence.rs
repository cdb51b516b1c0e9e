//! The files of the bundle: what each is, how large, and how it begins.

use maud::{Markup, html};
use model::text::printable;
use serde::Deserialize;

use super::units;

/// Files that are listed.
const FILES: usize = 64;
/// Lines, and bytes, that are shown of each.
const LINES: usize = 20;
const HEAD: usize = 4 << 10;
/// A longer line is cut.
const LINE: usize = 240;
/// A `manifest.json` that is larger is none of ours.
const MANIFEST: usize = 256 << 10;

/// A file of the bundle.
#[derive(Debug, Default)]
pub struct File {
    pub name: String,
    pub bytes: u64,
    /// Its first bytes, where these are for people.
    pub head: Vec<u8>,
}

/// What `manifest.json` says of an action.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Action {
    pub action: String,
    pub file: Option<String>,
    pub command: String,
    pub status: String,
    pub error: Option<String>,
    pub seconds: f64,
    pub truncated: bool,
}

/// All files, as they came.
#[derive(Debug, Default)]
pub struct Evidence {
    pub files: Vec<File>,
    pub actions: Vec<Action>,
    /// Whether the beginnings of files are left out on purpose.
    pub withheld: bool,
    manifest: Vec<u8>,
    begun: Begun,
    left_out: u64,
}

/// What becomes of the file that began last.
#[derive(Debug, Default, PartialEq)]
enum Begun {
    /// Nothing more.
    #[default]
    Listed,
    /// Its beginning is kept: it is the last of the list.
    Shown,
    /// It is read as a whole.
    Manifest,
}

impl Evidence {
    /// A file begins.
    pub fn begin(&mut self, name: &str, bytes: u64) {
        self.begun = match name {
            "manifest.json" => Begun::Manifest,
            name if is_data(name) || self.files.len() >= FILES => Begun::Listed,
            _ => Begun::Shown,
        };
        if self.files.len() < FILES {
            self.files.push(File { name: printable(name.as_bytes()), bytes, head: Vec::new() });
        } else {
            self.left_out += 1;
        }
    }

    /// The file that began last goes on.
    pub fn take(&mut self, bytes: &[u8]) {
        let up_to = |length: usize, limit: usize| bytes.get(..limit.saturating_sub(length)).unwrap_or(bytes);
        match self.begun {
            Begun::Listed => (),
            Begun::Shown => {
                if let Some(file) = self.files.last_mut() {
                    file.head.extend_from_slice(up_to(file.head.len(), HEAD));
                }
            }
            Begun::Manifest => self.manifest.extend_from_slice(up_to(self.manifest.len(), MANIFEST)),
        }
    }

    /// The file that began last is over.
    pub fn end(&mut self) {
        if self.begun == Begun::Manifest {
            self.actions = serde_json::from_slice(&std::mem::take(&mut self.manifest)).unwrap_or_default();
            self.actions.truncate(FILES);
        }
    }

    /// The list, with the beginnings; nothing if there is no file.
    pub fn markup(&self) -> Markup {
        if self.files.is_empty() {
            return Markup::default();
        }
        // In one order, whoever has made the page: what is for people first.
        let mut files: Vec<&File> = self.files.iter().collect();
        files.sort_by(|one, other| (is_data(&one.name), &one.name).cmp(&(is_data(&other.name), &other.name)));
        html! {
            h2 { "The evidence in the bundle" }
            @if self.withheld { p.muted { "The beginnings of these files are left out: this page is redacted." } }
            @for file in files {
                @let action = self.actions.iter().find(|action| action.file.as_ref() == Some(&file.name));
                @if file.head.is_empty() {
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

/// Whether a file is data for programs, of which the page itself tells what it says.
fn is_data(name: &str) -> bool {
    [".json", ".jsonl", ".html"].iter().any(|suffix| name.ends_with(suffix))
}

fn title(file: &File, action: Option<&Action>) -> Markup {
    let what = match file.name.as_str() {
        "incident.json" => "what this page says, for programs",
        "events.jsonl" => "the slow or failed operations, one a line",
        "recorder.jsonl" => "every operation of the seconds before the incident was noticed, one a line",
        "after.jsonl" => "every operation from then until it was over, one a line",
        "manifest.json" => "how each piece of evidence was taken",
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

fn beginning(file: &File) -> Markup {
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
