//! The operations that have not returned: from the probes' maps, and from an iterator over tasks.

use std::{collections::HashMap, os::unix::fs::MetadataExt, time::Duration};

use libbpf_rs::{Link, MapCore, MapFlags};
use model::{Event, Level, MountKey, Nanos, Protocol, Requester, text::Text};

use super::{ProbeSet, at_work::AtWork, attach::Attached, nanos_now, slots};
use crate::{
    batches,
    decode::{decode_flight, decode_pending},
    generated::event,
    iterator,
    threads::{self, ThreadIterator},
};

/// How old an operation is for which the kernel side may say that its end was missed: UNSEEN_NS of bpf/ended.h.
const UNSEEN: Nanos = 1_000_000_000;

impl ProbeSet {
    /// Operations of the `wanted` protocols that have not returned and are at least `age` old, as far as their probes can list these: the
    /// oldest first, and at most `limit` of each protocol. Operations that have returned, and whose end was missed, are left out: their thread
    /// is elsewhere, or the kernel has released the operation.
    pub fn in_flight(&self, wanted: impl Fn(&Protocol) -> bool, age: Duration, limit: usize) -> Vec<Event> {
        let now = nanos_now();
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let mut events = self.pending_calls(&wanted, age, now);
        for (probe, map) in self.inflight_maps().filter(|(probe, _)| wanted(probe.spec.protocol)) {
            if let Some(found) = probe.attached.as_ref().and_then(|of| slots::flights(&of.object, &map, now)) {
                events.extend(found.into_iter().filter(|event| event.duration >= age));
                continue;
            }
            // Entries of a killed process are swept only seconds later.
            let hangs = |key: &[u8], event: &Event| event.duration >= age && !probe.probe.has_ended(key);
            let old = || flights(&map, now, hangs);
            let found = old();
            let forgets = probe.attached.as_ref().and_then(|attached| attached.forgets_ended.as_ref());
            match forgets.filter(|_| found.iter().any(|event| event.duration >= UNSEEN)) {
                Some(forgets) => {
                    forget_ended(forgets);
                    events.extend(old());
                }
                None => events.extend(found),
            }
        }
        self.drop_what_has_ended(&mut events);
        events.sort_by_key(|event| event.start);
        let mut seen: HashMap<&str, usize> = HashMap::new();
        events.retain(|event| {
            let of_protocol = seen.entry(event.operation.protocol().name).or_default();
            *of_protocol += 1;
            *of_protocol <= limit
        });
        self.add_send_timing(&mut events, now);
        for event in &mut events {
            if event.requester.comm.is_empty() {
                name_requester(&mut event.requester);
            }
            self.complete(event);
        }
        events
    }

    /// The calls that the probes with an iterator list. A call by path whose file system the kernel does not know yet is
    /// left out, unless an operation below the call, in flight too, shows the file system.
    fn pending_calls(&self, wanted: impl Fn(&Protocol) -> bool, age: u64, now: Nanos) -> Vec<Event> {
        let attached = self.probes.iter().filter(|probe| wanted(probe.spec.protocol));
        let attached = attached.filter_map(|probe| probe.attached.as_ref()).filter(|attached| may_be_pending(attached));
        let listed = attached.filter_map(|attached| iterator::read_all::<event>(attached.in_flight.as_ref()?).ok());
        let pending = listed.flatten().filter_map(|raw| decode_pending(&raw, now));
        let mut calls: Vec<_> = pending.filter(|call| call.duration >= age).collect();
        if calls.iter().any(|call| call.mount == MountKey::NONE) {
            let all = |(probe, map): (&AtWork, libbpf_rs::Map<'_>)| {
                let slots = probe.attached.as_ref().and_then(|of| slots::flights(&of.object, &map, now));
                slots.unwrap_or_else(|| flights(&map, now, |_, _| true))
            };
            let below: Vec<_> = self.inflight_maps().flat_map(all).collect();
            for call in calls.iter_mut().filter(|call| call.mount == MountKey::NONE) {
                let is_below = |event: &&Event| event.requester.tid == call.requester.tid && event.start >= call.start;
                let mount = below.iter().find(is_below).and_then(|event| self.mounts.get(event.mount));
                call.mount = mount.map_or(MountKey::NONE, |point| point.device);
            }
        }
        calls.retain(|call| call.mount != MountKey::NONE);
        calls
    }

    /// An operation of a protocol goes on without its thread; a call of the thread's own does not. For an operation that a site has
    /// defined, it is not known what the thread does meanwhile.
    fn drop_what_has_ended(&self, events: &mut Vec<Event>) {
        let is_call = |event: &Event| event.operation.level() < Level::Own;
        if !events.iter().any(is_call) {
            return;
        }
        let load =
            || ThreadIterator::load().inspect_err(|error| tracing::warn!(%error, "cannot see where threads are")).ok();
        let Some(Ok(all)) = self.threads.get_or_init(load).as_ref().map(ThreadIterator::look) else { return };
        events.retain(|event| !is_call(event) || threads::can_be_in(event, all.get(&event.requester.tid)));
    }
}

/// The `wanted` operations in a map of operations in flight, by key and event. A map that cannot be read now is read at the next
/// call.
fn flights(map: &impl MapCore, now: Nanos, wanted: impl Fn(&[u8], &Event) -> bool) -> Vec<Event> {
    let mut found = Vec::new();
    let read = batches::each(map, |key, value| {
        found.extend(decode_flight(value, now).filter(|event| wanted(key, event)));
    });
    if let Err(error) = read {
        tracing::debug!(%error, "cannot read what is in flight");
    }
    found
}

/// Makes the kernel side remove operations whose end was missed.
fn forget_ended(iterator: &Link) {
    if let Err(error) = iterator::read_all::<event>(iterator) {
        tracing::warn!(%error, "cannot tell whether operations in flight have ended: some may look as if they hung");
    }
}

/// A probe with an iterator may count the pending calls in its only variables: if all of them are zero, no task need be looked
/// at.
fn may_be_pending(attached: &Attached) -> bool {
    let counts = attached.object.maps().find(|map| map.name().as_encoded_bytes().ends_with(b".bss"));
    let read = counts.and_then(|map| map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten());
    read.is_none_or(|counts| counts.iter().any(|byte| *byte != 0))
}

/// Reads who the requester is, as long as its thread exists: until an operation has finished, the kernel side keeps
/// only the requester's numbers.
pub(super) fn name_requester(requester: &mut Requester) {
    let task = format!("/proc/{}/task/{}", requester.pid, requester.tid);
    if let Ok(comm) = std::fs::read(format!("{task}/comm")) {
        requester.comm = Text::new(comm.strip_suffix(b"\n").unwrap_or(&comm));
    }
    requester.uid = std::fs::metadata(task).map(|task| task.uid()).unwrap_or_default();
}
