//! Messages between libcephfs_proxy.so.2 and libcephfsd, in both directions: refused, or understood and written again as they were.

#![no_main]

use cephfs_proxy::wire::{
    Attributes, Created, DirectoryEntry, Entries, FoundInode, OpenDirectory, Request, Statvfs, Statx, Wire, WireReader,
    WireWriter, Xattr, decode, hello,
};

fn same<'a, T: Wire<'a>>(bytes: &'a [u8]) {
    if let Ok(value) = decode::<T>(bytes) {
        let mut room = vec![0; bytes.len()];
        let mut writer = WireWriter::new(&mut room);
        assert!(value.put(&mut writer).is_ok());
        assert_eq!(writer.written(), bytes);
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::decode(bytes) {
        let mut room = vec![0; bytes.len()];
        assert_eq!(request.encode(&mut room), Ok(bytes));
    }
    same::<hello::Hello>(bytes);
    same::<hello::Welcome>(bytes);
    same::<FoundInode>(bytes);
    same::<Created>(bytes);
    same::<Attributes>(bytes);
    same::<OpenDirectory>(bytes);
    same::<Entries>(bytes);
    same::<Xattr>(bytes);
    same::<Statx>(bytes);
    same::<Statvfs>(bytes);
    let mut listing = WireReader::new(bytes);
    while let Ok(entry) = DirectoryEntry::take(&mut listing) {
        if listing.bytes(entry.length.into()).is_err() {
            break;
        }
    }
});
