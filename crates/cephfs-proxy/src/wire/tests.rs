//! Encoded values are decoded again; truncated, extended or arbitrary bytes are refused, without a panic.

use proptest::prelude::*;

use super::*;

fn every_text() -> Request<'static> {
    let name = c"a name";
    Request::Rename(Rename {
        mount: Handle(1),
        parent: Handle(2),
        name,
        new_parent: Handle(3),
        new_name: c"another",
        perms: Handle(u64::MAX),
    })
}

#[test]
fn a_request_is_read_as_it_was_written() {
    let mut buffer = [0; 512];
    for request in [
        every_text(),
        Request::Create(Create { id: None }),
        Request::Create(Create { id: Some(c"admin") }),
        Request::Setattr(Setattr {
            mount: Handle(1),
            inode: Handle(7),
            statx: Statx { mode: 0o644, size: 1 << 40, ..Statx::default() },
            mask: 1,
            perms: Handle(0),
        }),
    ] {
        let written = request.encode(&mut buffer).unwrap();
        assert_eq!(Request::decode(written), Ok(request));
    }
}

#[test]
fn a_request_that_is_cut_or_goes_on_is_refused() {
    let mut buffer = [0; 512];
    let written = every_text().encode(&mut buffer).unwrap().to_vec();
    for length in 0..written.len() {
        assert!(Request::decode(&written[..length]).is_err(), "{length} bytes");
    }
    assert_eq!(Request::decode(&[&written[..], &[0]].concat()), Err(Malformed::Long));
}

#[test]
fn what_changes_something_is_not_asked_for_twice() {
    let repeatable = [Lookup::REPEATABLE, Read::REPEATABLE, Setattr::REPEATABLE, Fsync::REPEATABLE];
    let once = [Unmount::REPEATABLE, Mknod::REPEATABLE, Rename::REPEATABLE, Write::REPEATABLE, Close::REPEATABLE];
    assert_eq!((repeatable, once), ([true; 4], [false; 5]));
}

#[test]
fn a_request_says_through_which_mount_it_is_made() {
    let request = Request::Statfs(Statfs { mount: Handle(7), inode: Handle(8) });
    assert_eq!((request.mount(), request.handle()), (Some(Handle(7)), 8));
    assert_eq!(Request::Identify(Identify { uid: 7, gid: 7, groups: 0 }).mount(), None);
    assert_eq!(Request::Nop(Nop {}).mount(), None);
}

#[test]
fn a_text_has_one_nul_and_that_at_its_end() {
    for text in [&b"\x03\x00ab\x00"[..], b"\x03\x00\x00a\x00", b"\x02\x00ab", b"\x00\x00"] {
        let good = text == b"\x03\x00ab\x00";
        assert_eq!(decode::<&std::ffi::CStr>(text).is_ok(), good, "{text:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    assert_eq!(every_text().encode(&mut [0; 20]), Err(Malformed::Full));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_mean_what_they_say(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(request) = Request::decode(&bytes) {
            let mut buffer = [0; 512];
            prop_assert_eq!(request.encode(&mut buffer).unwrap(), &bytes[..]);
        }
        let _ = decode::<hello::Welcome>(&bytes);
        let _ = decode::<Created>(&bytes);
        let _ = decode::<FoundInode>(&bytes);
        let _ = decode::<OpenDirectory>(&bytes);
        let _ = decode::<Xattr>(&bytes);
    }
}

#[test]
fn a_result_below_zero_is_an_errno_whatever_it_is() {
    for errno in [Errno::PERM, Errno::NOENT, Errno::SHUTDOWN, Errno::from_raw_os_error(4095)] {
        assert_eq!(errno_of(result_of(errno)), errno);
    }
    assert_eq!(result_of(Errno::NODATA), -61);
    for none in [0, 1, -4096, -65_537, i64::MIN, i64::MAX] {
        assert_eq!(errno_of(none), Errno::IO, "{none}");
    }
}
