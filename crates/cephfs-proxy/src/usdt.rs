//! Static probes (USDT), in the form of systemtap's <sys/sdt.h>. A probe is a nop, and a note in `.note.stapsdt` with
//! its address, the places of its arguments and its semaphore, a word that is not zero while a tracer is attached.
//! perf, bpftrace, gdb and `plumbline trace cephproxy` find the probes. Without a tracer, a probe costs a load of its
//! semaphore.

use std::sync::atomic::{AtomicU16, Ordering};

/// The semaphores of two probes, at the start and at the end of something. The kernel counts attached tracers in them,
/// in every process that maps the file.
///
/// They have a page of their own. Otherwise lld would map their page twice, once as part of the relocated data. In a
/// process that starts later, the kernel would count there: valid_ref_ctr_vma() in kernel/events/uprobes.c takes the
/// first mapping of the file's page.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
pub struct Semaphores {
    start: AtomicU16,
    done: AtomicU16,
}

impl Semaphores {
    /// Semaphores without a tracer.
    #[allow(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> Semaphores {
        Semaphores { start: AtomicU16::new(0), done: AtomicU16::new(0) }
    }

    /// Whether a tracer is attached to the start.
    #[inline(always)]
    pub fn start(&self) -> bool {
        self.start.load(Ordering::Relaxed) != 0
    }

    /// Whether a tracer is attached to the end.
    #[inline(always)]
    pub fn done(&self) -> bool {
        self.done.load(Ordering::Relaxed) != 0
    }
}

/// The semaphores of two probes, in the section in which tools expect them.
#[macro_export]
macro_rules! semaphores {
    ($name:ident) => {
        #[unsafe(link_section = ".probes")]
        static $name: $crate::usdt::Semaphores = $crate::usdt::Semaphores::new();
    };
}

/// A probe: provider, name, semaphores, which semaphore ("+0": start, "+2": done), and arguments, each a signed 64-bit number. Use the probe in a
/// function that is never inlined, so that the probe has one address and does not slow its callers.
#[macro_export]
macro_rules! probe {
    ($provider:literal, $name:literal, $semaphore:ident, $which:literal, $first:ident $(, $argument:ident)* $(,)?) => {
        #[cfg(target_arch = "x86_64")]
        $crate::probe!(@emit [, att_syntax] $provider, $name, $semaphore, $which, "-8@{}", $first, $(" -8@{}", $argument,)*);
        #[cfg(not(target_arch = "x86_64"))]
        $crate::probe!(@emit [] $provider, $name, $semaphore, $which, "-8@{}", $first, $(" -8@{}", $argument,)*);
    };
    (@emit [$($option:tt)*] $provider:literal, $name:literal, $semaphore:ident, $which:literal, $($place:literal, $argument:ident,)*) => {
        // SAFETY: a nop. The rest goes into sections of their own, in the form that <sys/sdt.h> of systemtap 3 and later gives them.
        unsafe {
            std::arch::asm!(
                concat!(
                    "990: nop\n",
                    ".pushsection .note.stapsdt,\"?\",\"note\"\n",
                    ".balign 4\n",
                    ".4byte 992f-991f, 994f-993f, 3\n",
                    "991: .asciz \"stapsdt\"\n",
                    "992: .balign 4\n",
                    "993: .8byte 990b, _.stapsdt.base, {}", $which, "\n",
                    ".asciz \"", $provider, "\"\n",
                    ".asciz \"", $name, "\"\n",
                    ".asciz \"", $($place,)* "\"\n",
                    "994: .balign 4\n",
                    ".popsection\n",
                    ".ifndef _.stapsdt.base\n",
                    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n",
                    ".weak _.stapsdt.base\n",
                    ".hidden _.stapsdt.base\n",
                    "_.stapsdt.base: .space 1\n",
                    ".size _.stapsdt.base, 1\n",
                    ".popsection\n",
                    ".endif\n",
                ),
                sym $semaphore,
                $(in(reg) $argument as i64,)*
                options(readonly, nostack, preserves_flags $($option)*),
            )
        }
    };
}
