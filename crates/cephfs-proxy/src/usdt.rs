//! Static probes (USDT), as systemtap's <sys/sdt.h> makes them: a nop, and a note in `.note.stapsdt` that says where it is, where its
//! arguments are then, and which word is not zero while somebody listens (its semaphore). perf, bpftrace, gdb and `plumbline trace
//! cephproxy` find them. Until then they cost a look at that word.

use std::sync::atomic::{AtomicU16, Ordering};

/// How many listen to the start and to the end of something: the kernel counts them in every process that has the file mapped.
///
/// On a page of its own: lld has the page before also mapped as part of the relocated data, and in a process that comes later the
/// kernel would count there (valid_ref_ctr_vma() in kernel/events/uprobes.c takes the first mapping of the file's page).
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
pub struct Semaphores {
    start: AtomicU16,
    done: AtomicU16,
}

impl Semaphores {
    /// Nobody does yet.
    #[allow(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> Semaphores {
        Semaphores { start: AtomicU16::new(0), done: AtomicU16::new(0) }
    }

    /// Whether somebody listens to the start.
    #[inline(always)]
    pub fn start(&self) -> bool {
        self.start.load(Ordering::Relaxed) != 0
    }

    /// Whether somebody listens to the end.
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

/// A probe: provider, name, semaphores and which of them ("+0": start, "+2": done), and arguments, each of which becomes 64 bits with a sign. In a function that is never inlined,
/// so that there is one place of it and what calls it is not made slower.
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
