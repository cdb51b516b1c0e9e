//! The records in the ring. Each record begins with its kind and its size; a record with an unknown kind or a wrong size is
//! refused.

use std::mem::offset_of;

use model::Event;

use crate::{
    decode::decode_event,
    generated::{Plain, event, mapped, ring_head, ring_kind},
    spec::Spec,
};

// The same is asserted in C (bpf/event.h).
const _: () =
    assert!(size_of::<ring_head>() == 4 && offset_of!(ring_head, kind) == 0 && offset_of!(ring_head, size) == 2);
const _: () = assert!(size_of::<event>() == 456 && offset_of!(event, head) == 0);
const _: () = assert!(size_of::<mapped>() == 32 && offset_of!(mapped, head) == 0);

/// One record.
#[expect(clippy::large_enum_variant, reason = "it lives for a moment, on the stack")]
pub(crate) enum RingRecord<'b> {
    /// An operation that was slow, failed, or is wanted for another reason.
    Event(Event),
    /// A file that may be a library of interest is mapped for the first time.
    Mapped(mapped),
    /// What one probe alone has: see [`Probe::take`](crate::probe::Probe::take).
    Own(&'b [u8]),
}

/// The record in these bytes; `None` if their kind is unknown, their size is not that of their kind, or their values
/// are invalid.
pub(crate) fn decode(bytes: &[u8]) -> Option<RingRecord<'_>> {
    let head = ring_head::from_bytes(bytes)?;
    let is = |size: usize| bytes.len() == size && usize::from(head.size) == size;
    match ring_kind(head.kind.into()) {
        ring_kind::RING_EVENT if is(size_of::<event>()) => decode_event(bytes).map(RingRecord::Event),
        ring_kind::RING_MAPPED if is(size_of::<mapped>()) => mapped::from_bytes(bytes).map(RingRecord::Mapped),
        kind => {
            let own = crate::specs().filter_map(|spec| spec.record.as_ref()).find(|own| own.kind == kind)?;
            (is(own.size) && (own.makes_sense)(bytes)).then_some(RingRecord::Own(bytes))
        }
    }
}

/// Whether a record is of the kind that is this probe's own.
pub(crate) fn is_of(record: &[u8], spec: &Spec) -> bool {
    let kind = ring_head::from_bytes(record).map(|head| ring_kind(head.kind.into()));
    spec.record.as_ref().is_some_and(|own| Some(own.kind) == kind)
}

/// Each of several valid records, one behind the other.
pub(crate) fn each(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (record, rest) = bytes.split_at_checked(ring_head::from_bytes(bytes)?.size.into())?;
        bytes = rest;
        Some(record).filter(|record| !record.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::stamp;

    fn head(kind: ring_kind, size: usize) -> ring_head {
        ring_head { kind: kind.0 as u16, size: size as u16 }
    }

    #[test]
    fn each_record_is_what_its_head_says() {
        let event = event { head: head(ring_kind::RING_EVENT, 456), probe: 1, operation: 9, ..event::default() };
        assert!(
            matches!(decode(event.as_bytes()), Some(RingRecord::Event(event)) if event.operation.name() == "SMB2_WRITE")
        );
        let mapped = mapped { head: head(ring_kind::RING_MAPPED, 32), inode: 7, ..mapped::default() };
        assert!(matches!(decode(mapped.as_bytes()), Some(RingRecord::Mapped(mapped)) if mapped.inode == 7));
        let stamp = stamp { head: head(ring_kind::RING_STAMP, 40), cookie: 8, ..stamp::default() };
        assert!(matches!(decode(stamp.as_bytes()), Some(RingRecord::Own(bytes)) if bytes == stamp.as_bytes()));
        let both = [stamp.as_bytes(), stamp.as_bytes()].concat();
        assert_eq!(each(&both).map(<[u8]>::len).collect::<Vec<_>>(), [40, 40]);
    }

    #[test]
    fn a_record_of_no_kind_or_of_another_size_is_refused() {
        let good = event { head: head(ring_kind::RING_EVENT, 456), probe: 1, operation: 9, ..event::default() };
        assert!(decode(&good.as_bytes()[..343]).is_none());
        assert!(decode(&[good.as_bytes(), &[0; 8]].concat()).is_none());
        for head in [
            head(ring_kind(0), 456),
            head(ring_kind(4), 456),
            head(ring_kind::RING_STAMP, 456),
            head(ring_kind::RING_EVENT, 40),
        ] {
            assert!(decode(event { head, ..good }.as_bytes()).is_none());
        }
        assert!(decode(&[]).is_none() && decode(&[1, 0, 88]).is_none());
    }
}
