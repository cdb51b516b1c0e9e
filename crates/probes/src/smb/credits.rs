//! The program that sees the end of waits for credits. It would run for each READ and WRITE, and while many credits are left, no
//! request waits. So it is attached only while requests find few credits. The programs that see the start of waits are attached all the
//! time, so that no wait is missed. For waits that end before this program is attached, the time until the command is made counts as
//! wait, too.

use std::time::Duration;

use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ProgramMut, Result};

use crate::{libraries::map_of, probe::Probe, probe_set::monotonic};

/// How long credits must have been plentiful before the program is detached.
const CALM: Duration = Duration::from_secs(5);

/// Attaches and detaches it.
#[derive(Default)]
pub(super) struct SmbProbe {
    ends: Option<Link>,
    scarcity: Scarcity,
    has_failed: bool,
}

/// When a request last found few credits, by the counts of the kernel side.
#[derive(Default)]
struct Scarcity {
    times_few: u64,
    last: Option<Duration>,
}

/// The object's variables in `.data.credits`, in their order there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CreditCounts {
    times_few: u64,
    waits: u64,
}

impl CreditCounts {
    fn read(object: &Object) -> Option<Self> {
        let bytes = map_of(object, ".data.credits")?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self { times_few: word(0)?, waits: word(8)? })
    }
}

impl Scarcity {
    /// Whether the program is needed; it is until something is known.
    fn is_there(&mut self, now: Duration, counts: Option<CreditCounts>) -> bool {
        let is_new = counts.is_none_or(|counts| counts.waits > 0 || counts.times_few != self.times_few);
        if is_new || self.last.is_none() {
            self.last = Some(now);
        }
        self.times_few = counts.map_or(self.times_few, |counts| counts.times_few);
        self.last.is_some_and(|last| now.saturating_sub(last) < CALM)
    }
}

fn sees_ends(program: &ProgramMut<'_>) -> bool {
    program.autoload() && program.name().to_string_lossy().ends_with("_waited_mtu")
}

impl Probe for SmbProbe {
    fn attaches(&self, program: &ProgramMut<'_>) -> bool {
        sees_ends(program)
    }

    fn attach(&mut self, object: &mut Object) -> Result<()> {
        *self = Self::default();
        self.ends = object.progs_mut().find(sees_ends).map(|program| program.attach()).transpose()?;
        Ok(())
    }

    fn detach(&mut self, _: &Object) {
        *self = Self::default();
    }

    fn tend(&mut self, object: &Object) {
        let is_scarce = self.scarcity.is_there(monotonic(), CreditCounts::read(object));
        if !is_scarce {
            self.ends = None;
        } else if self.ends.is_none() && !self.has_failed {
            match object.progs_mut().find(sees_ends).map(|program| program.attach()).transpose() {
                Ok(link) => self.ends = link,
                Err(error) => {
                    tracing::warn!(%error, "cannot see when waits for credits end: they may seem longer than they are");
                    self.has_failed = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Option<CreditCounts> = Some(CreditCounts { times_few: 7, waits: 0 });

    #[test]
    fn credits_are_scarce_until_nobody_has_found_few_for_a_while() {
        let (mut scarcity, second) = (Scarcity::default(), Duration::from_secs);
        assert!(scarcity.is_there(second(100), PLENTY), "who has just been attached does not know");
        assert!(scarcity.is_there(second(104), PLENTY));
        assert!(!scarcity.is_there(second(105), PLENTY));
        assert!(scarcity.is_there(second(106), Some(CreditCounts { times_few: 8, waits: 0 })), "somebody found few");
        assert!(!scarcity.is_there(second(111), Some(CreditCounts { times_few: 8, waits: 0 })));
    }

    #[test]
    fn a_wait_that_lasts_keeps_them_scarce() {
        let (mut scarcity, second) = (Scarcity::default(), Duration::from_secs);
        let waits = Some(CreditCounts { times_few: 7, waits: 1 });
        assert!((100..200).all(|at| scarcity.is_there(second(at), waits)));
        assert!(scarcity.is_there(second(203), PLENTY));
        assert!(!scarcity.is_there(second(204), PLENTY));
    }

    #[test]
    fn where_the_counts_cannot_be_read_they_are_scarce() {
        let mut scarcity = Scarcity::default();
        assert!((0..100).all(|at| scarcity.is_there(Duration::from_secs(at), None)));
    }
}
