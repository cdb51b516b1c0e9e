//! The ways to attach a program to a hook, best first, and their programs.

use std::{ffi::OsStr, path::Path};

use libbpf_rs::{Link, OpenProgramMut, ProgramAttachType, ProgramMut, Result, UprobeOpts};

use super::definition::OwnHook;
use crate::probe::AttachedTo;

/// One way to attach a program to a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttachWay {
    Fentry,
    Fexit,
    TpBtf,
    Kprobe,
    Record,
    Uprobe,
    Usdt,
}

impl AttachWay {
    /// The ways to attach to a hook, best first.
    pub fn of(hook: &OwnHook) -> &'static [Self] {
        match hook {
            OwnHook::Function { only_kprobe: true, .. } => &[Self::Kprobe],
            OwnHook::Function { returns: true, .. } => &[Self::Fexit, Self::Kprobe],
            OwnHook::Function { .. } => &[Self::Fentry, Self::Kprobe],
            OwnHook::Tracepoint { .. } => &[Self::TpBtf, Self::Record],
            OwnHook::User { .. } => &[Self::Uprobe],
            OwnHook::Usdt { .. } => &[Self::Usdt],
        }
    }

    /// The pairs of ways to attach to the start and the end of an operation, best first.
    pub fn both(begin: &OwnHook, end: &OwnHook) -> Vec<(Self, Self)> {
        let pairs = Self::of(begin).iter().flat_map(|first| Self::of(end).iter().map(move |second| (*first, *second)));
        // A function's entry and its return are attached by the same means.
        pairs
            .filter(|pair| !matches!(pair, (Self::Fentry, Self::Kprobe) | (Self::Kprobe, Self::Fexit | Self::Fentry)))
            .collect()
    }

    /// The name in `doctor`.
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

    /// How its programs read arguments: the prefix of the programs' names in own.bpf.c.
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

    /// Sets what the kernel has to know before the program is loaded.
    pub fn aim(self, program: &mut OpenProgramMut<'_>, hook: &OwnHook, module: Option<&str>) -> Result<()> {
        let (kind, name) = match (self, hook) {
            (Self::Fentry, OwnHook::Function { name, .. }) => (ProgramAttachType::TraceFentry, name),
            (Self::Fexit, OwnHook::Function { name, .. }) => (ProgramAttachType::TraceFexit, name),
            (Self::TpBtf, OwnHook::Tracepoint { name, .. }) => (ProgramAttachType::TraceRawTp, name),
            _ => return Ok(()),
        };
        program.set_attach_type(kind);
        program.set_attach_target(0, Some(format!("{}:{name}", module.unwrap_or("vmlinux"))))
    }

    /// What holds the module of a hook that is attached this way, if anything does.
    pub fn attached_to(self, hook: &OwnHook) -> Option<AttachedTo> {
        match (self, hook) {
            (Self::Fentry | Self::Fexit, OwnHook::Function { name, .. }) => Some(AttachedTo::Function(name.clone())),
            (Self::TpBtf | Self::Record, _) => Some(AttachedTo::Tracepoint),
            _ => None,
        }
    }

    /// Attaches it.
    pub fn attach(self, program: &ProgramMut<'_>, hook: &OwnHook) -> Result<Link> {
        match hook {
            OwnHook::Function { name, returns, .. } if self == Self::Kprobe => program.attach_kprobe(*returns, name),
            OwnHook::Tracepoint { group, name } if self == Self::Record => {
                let group = libbpf_rs::TracepointCategory::Custom(group.clone());
                program.attach_tracepoint(group, name)
            }
            OwnHook::Function { .. } | OwnHook::Tracepoint { .. } => program.attach_trace(),
            OwnHook::User { path, name, returns } => {
                let options = UprobeOpts { retprobe: *returns, func_name: Some(name.clone()), ..UprobeOpts::default() };
                program.attach_uprobe_with_opts(-1, path, 0, options)
            }
            OwnHook::Usdt { path, provider, name } => program.attach_usdt(-1, path, provider, name),
        }
    }
}

/// Whether this is the program of an operation's beginning or end that its ways need.
pub(super) fn is_program(name: &OsStr, wanted: &str) -> bool {
    Path::new(name) == Path::new(wanted)
}
