//! Types of bpf/event.h, generated from the BTF of shared.bpf.c.

mod skeleton {
    #![allow(missing_docs, unused, clippy::all)]
    #![allow(clippy::undocumented_unsafe_blocks, clippy::panic, clippy::expect_used, clippy::unwrap_used)]
    include!(concat!(env!("OUT_DIR"), "/shared.skel.rs"));
}

pub(crate) use skeleton::types::{
    account, caller, connection, counter, ends, event, event_flags, fixed_settings, flight, flow, histogram,
    histogram_key, mapped, maps_layout, mount_entry, mount_name, named_operation, network, probe_id, progress, record,
    ring_head, ring_kind, selection, send, sends, settings, stage_times, stamp, thread, transit, usage, usage_key,
};
// Of accesses/access.h.
pub(crate) use skeleton::types::{access, access_key, access_kind, access_options, transfers};
// Of connections/interface.h.
pub(crate) use skeleton::types::interface_drops;
// Of own/own.h.
pub(crate) use skeleton::types::{own_from, own_place, own_plan};
// Of tasks/record.h.
pub(crate) use skeleton::types::{
    area_record, file_record, socket_record, stack_options, stack_record, symbol, task_record, wait_options,
    wait_record, walk_options,
};

/// Types that are nothing but bytes and integers, so that any bytes of the right length are one.
///
/// # Safety
///
/// Implement only for `repr(C)` types without padding that matters, references or invalid bit patterns.
pub(crate) unsafe trait Plain: Copy {
    /// The value whose bytes `bytes` begin with; `None` if there are too few.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: the length is checked, read_unaligned asks for no alignment, and implementors allow any bytes.
        (bytes.len() >= size_of::<Self>()).then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// The value's bytes.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the pointer is valid for size_of::<Self>() bytes, and implementors have no uninitialised padding:
        // the generated types spell theirs out.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for event {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for ring_head {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for flight {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for record {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for histogram_key {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for histogram {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for settings {}
// SAFETY: repr(C), integers only.
unsafe impl Plain for fixed_settings {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for mount_name {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for named_operation {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for thread {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for mapped {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for usage_key {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for usage {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for maps_layout {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for mount_entry {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for flow {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for sends {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for connection {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for stamp {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for selection {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for task_record {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for walk_options {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for symbol {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for file_record {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for wait_record {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for wait_options {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for stack_record {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for stack_options {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for socket_record {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for area_record {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for access_options {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for access_key {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for access {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for own_plan {}
// SAFETY: repr(C), integers and arrays of integers only.
unsafe impl Plain for interface_drops {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
