//! Operations in flight that a probe keeps in slots: bpf/slots.h.

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use model::{Event, Nanos};

use crate::decode::decode_flight;

/// The program that looks through the slots.
const LOOK: &str = "look";
/// The section of programs that are run, and attached to nothing: this is one.
pub(super) const RUN: &str = "syscall";

/// Has the kernel side forget what has ended unseen, and list the slots of what is under way. Returns how many there are; `None` of
/// a probe without slots, or if that cannot be found out.
pub(super) fn look(object: &Object) -> Option<u32> {
    let program = object.progs_mut().find(|program| program.section() == RUN && program.name() == LOOK)?;
    match program.test_run(ProgramInput::default()) {
        Ok(run) => Some(run.return_value),
        Err(error) => {
            tracing::warn!(%error, "cannot tell whether operations in flight have ended: some may look as if they hung");
            None
        }
    }
}

/// The operations under way in this map of an object, as [`look`] finds them now; `None` where it finds none for want of slots.
pub(super) fn flights(object: &Object, map: &impl MapCore, now: Nanos) -> Option<Vec<Event>> {
    let count = look(object)?;
    let listed = object.maps().find(|map| map.name() == "under_way")?;
    let slot = |at: u32| listed.lookup(&at.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    let flight = |at: u32| {
        let index = slot(at)?;
        decode_flight(&map.lookup(&index, MapFlags::ANY).ok()??, now)
    };
    Some((0..count).filter_map(flight).collect())
}
