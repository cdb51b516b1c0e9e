//! The ways to attach a program to a hook, best first, and their programs.

use std::{ffi::OsStr, path::Path};

use libbpf_rs::{Link, OpenProgramMut, ProgramAttachType, ProgramMut, Result, UprobeOpts};

use super::definition::Hook;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Fentry,
    Fexit,
    TpBtf,
    Kprobe,
    Record,
    Uprobe,
    Usdt,
}

impl Way {
    /// Those of a hook.
    pub fn of(hook: &Hook) -> &'static [Self] {
        match hook {
            Hook::Function { only_kprobe: true, .. } => &[Self::Kprobe],
            Hook::Function { returns: true, .. } => &[Self::Fexit, Self::Kprobe],
            Hook::Function { .. } => &[Self::Fentry, Self::Kprobe],
            Hook::Tracepoint { .. } => &[Self::TpBtf, Self::Record],
            Hook::User { .. } => &[Self::Uprobe],
            Hook::Usdt { .. } => &[Self::Usdt],
        }
    }

    /// Both of an operation's, best first.
    pub fn both(begin: &Hook, end: &Hook) -> Vec<(Self, Self)> {
        let pairs = Self::of(begin).iter().flat_map(|first| Self::of(end).iter().map(move |second| (*first, *second)));
        // Functions are entered by the same means as they are left.
        pairs
            .filter(|pair| !matches!(pair, (Self::Fentry, Self::Kprobe) | (Self::Kprobe, Self::Fexit | Self::Fentry)))
            .collect()
    }

    /// What doctor calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fentry | Self::Fexit => "fentry",
            Self::TpBtf => "tp_btf",
            Self::Kprobe => "kprobe",
            Self::Record => "tracepoint",
            Self::Uprobe => "uprobe",
            Self::Usdt => "usdt",
        }
    }

    /// How it gets at arguments: the beginning of its programs' names in own.bpf.c.
    pub fn program(self, ends: bool) -> &'static str {
        match (self, ends) {
            (Self::Fentry | Self::Fexit | Self::TpBtf, false) => "trampoline_begins",
            (Self::Fentry | Self::Fexit | Self::TpBtf, true) => "trampoline_ends",
            (Self::Kprobe | Self::Uprobe, false) => "registers_begins",
            (Self::Kprobe | Self::Uprobe, true) => "registers_ends",
            (Self::Record, false) => "record_begins",
            (Self::Record, true) => "record_ends",
            (Self::Usdt, false) => "usdt_begins",
            (Self::Usdt, true) => "usdt_ends",
        }
    }

    pub fn has_registers(self) -> bool {
        matches!(self, Self::Kprobe | Self::Uprobe)
    }

    /// Before it is loaded: what the kernel has to know by then.
    pub fn aim(self, program: &mut OpenProgramMut<'_>, hook: &Hook, module: Option<&str>) -> Result<()> {
        let (kind, name) = match (self, hook) {
            (Self::Fentry, Hook::Function { name, .. }) => (ProgramAttachType::TraceFentry, name),
            (Self::Fexit, Hook::Function { name, .. }) => (ProgramAttachType::TraceFexit, name),
            (Self::TpBtf, Hook::Tracepoint { name, .. }) => (ProgramAttachType::TraceRawTp, name),
            _ => return Ok(()),
        };
        program.set_attach_type(kind);
        program.set_attach_target(0, Some(format!("{}:{name}", module.unwrap_or("vmlinux"))))
    }

    /// Attaches it.
    pub fn attach(self, program: &ProgramMut<'_>, hook: &Hook) -> Result<Link> {
        match hook {
            Hook::Function { name, returns, .. } if self == Self::Kprobe => program.attach_kprobe(*returns, name),
            Hook::Tracepoint { group, name } if self == Self::Record => {
                let group = libbpf_rs::TracepointCategory::Custom(group.clone());
                program.attach_tracepoint(group, name)
            }
            Hook::Function { .. } | Hook::Tracepoint { .. } => program.attach_trace(),
            Hook::User { path, name, returns } => {
                let options = UprobeOpts { retprobe: *returns, func_name: Some(name.clone()), ..UprobeOpts::default() };
                program.attach_uprobe_with_opts(-1, path, 0, options)
            }
            Hook::Usdt { path, provider, name } => program.attach_usdt(-1, path, provider, name),
        }
    }
}

/// Whether this is the program of an operation's beginning or end that its ways need.
pub(super) fn is_program(name: &OsStr, wanted: &str) -> bool {
    Path::new(name) == Path::new(wanted)
}
