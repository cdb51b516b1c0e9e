//! Operations in flight that a probe keeps in slots: bpf/slots.h.

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use model::{Event, Nanos};

use crate::decode::decode_flight;

/// The program that looks through the slots.
const LOOK: &str = "look";
/// The section of programs that are run, and attached to nothing: this is one.
pub(super) const RUN: &str = "syscall";

/// Makes the kernel side remove operations whose end was missed, and list the slots of the operations under way. Returns how many
/// there are; `None` if the probe has no slots, or if the program cannot be run.
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

/// The operations under way in this map of an object, as [`look`] finds them now; `None` if the object has no slots.
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
