//! Judges operations of the libcephfs proxy, a daemon of this host that sends all clients' requests to the Ceph
//! cluster. Time in the daemon's queue belongs to this host. Time in libcephfs belongs to the cluster or to the
//! network, and nothing on this host shows to which of them.

use model::{Cause, Event, Level, Operation, PhasesMs, Verdict};

use super::{
    conclude::conclude,
    excess::{Excess, Shares},
};
use crate::units::{counted, span};

/// Whether an operation goes through the proxy. All clients share the proxy's workers and its mount, so a fault hits
/// all.
pub(super) fn is_proxied(operation: Operation) -> bool {
    operation.level() == Level::Proxy
}

/// The sentence that says how the extra time divides among the daemon's queue, libcephfs and the answer's way back.
pub(super) fn sentence(excess: &Excess, operations: u64) -> String {
    let shares = excess.shares();
    let part = |time: u64, share: f64| format!("{} ({:.0} %)", span(time / operations.max(1)), share * 100.0);
    let Shares { queue, wire, deliver, .. } = shares;
    format!(
        "Of the extra time per operation, {} passed until a worker of libcephfsd took it, {} in libcephfs, {} on the way back.",
        part(excess.queue, queue),
        part(excess.wire, wire),
        part(excess.deliver, deliver)
    )
}

/// The sentence for extra time that passed mostly in libcephfs.
pub(super) const IN_LIBCEPHFS: &str = "libcephfs waited for a metadata server, an OSD, a client that holds a capability, or the network to them. This host \
     cannot tell which; `ceph -s` and `ceph health detail` can.";

/// Judges operations in flight. `others`: how many operations the same daemon answered meanwhile.
pub(super) fn of_stalls(oldest: &Event, others: u64, mut because: Vec<String>) -> Verdict {
    let reason = if others == 0 {
        "Since then, this libcephfsd has answered no other request. Either the daemon hangs, or all its workers wait for the cluster, or the cluster hangs. \
         The daemon's own /metrics show how many workers are busy."
            .to_owned()
    } else {
        format!(
            "Meanwhile {} by the same libcephfsd, so the daemon works; {} waits for the cluster or the network to it, or for a worker if \
             all are busy.",
            if others == 1 { "1 other was answered".into() } else { format!("{others} others were answered") },
            oldest.operation.name()
        )
    };
    because.push(reason);
    Verdict { because, ..Verdict::unknown("") }
}

/// Judges failures: the daemon is to blame if it served none of the operations; else the culprit is not known.
pub(super) fn of_errors(failed: &[Event], mut because: Vec<String>) -> Verdict {
    let unserved = failed.iter().filter(|event| !event.phases.known()).count() as u64;
    if unserved == failed.len() as u64 {
        because.push(
            "Plumbline saw libcephfsd serve none of these operations. Check whether libcephfsd runs, and see its log."
                .to_owned(),
        );
        return conclude(vec![(Cause::OwnDaemon, 0.85)], because, PhasesMs::default());
    }
    because.push(format!(
        "libcephfsd served {} of {} and returned the error. Whether the daemon, libcephfs or the cluster refused is not known.",
        failed.len() as u64 - unserved,
        counted(failed.len() as u64, "operation")
    ));
    Verdict { because, ..Verdict::unknown("") }
}
