//! Types of bpf/event.h, generated from the BTF of shared.bpf.c.

mod skeleton {
    #![allow(missing_docs, unused, clippy::all)]
    #![allow(clippy::undocumented_unsafe_blocks, clippy::panic, clippy::expect_used, clippy::unwrap_used)]
    include!(concat!(env!("OUT_DIR"), "/shared.skel.rs"));
}

pub(crate) use skeleton::types::{
    caller, counter, event, event_flags, flight, histogram, histogram_key, mount_name, probe_id, record, settings,
    thread,
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
// SAFETY: as above.
unsafe impl Plain for flight {}
// SAFETY: as above.
unsafe impl Plain for record {}
// SAFETY: as above.
unsafe impl Plain for histogram_key {}
// SAFETY: as above.
unsafe impl Plain for histogram {}
// SAFETY: as above.
unsafe impl Plain for settings {}
// SAFETY: as above.
unsafe impl Plain for mount_name {}
// SAFETY: as above.
unsafe impl Plain for thread {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
