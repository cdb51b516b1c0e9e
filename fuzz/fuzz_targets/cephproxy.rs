//! Messages between libcephfs_proxy.so.2 and libcephfsd, in both directions: refused, or understood and written again as they were.

#![no_main]

use cephfs_proxy::wire::{
    Attributes, Created, Entries, Entry, Found, Opened, Reader, Request, Statvfs, Statx, Wire, Writer, Xattr, decode,
    hello,
};

fn same<'a, T: Wire<'a>>(bytes: &'a [u8]) {
    if let Ok(value) = decode::<T>(bytes) {
        let mut room = vec![0; bytes.len()];
        let mut writer = Writer::new(&mut room);
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
    same::<Found>(bytes);
    same::<Created>(bytes);
    same::<Attributes>(bytes);
    same::<Opened>(bytes);
    same::<Entries>(bytes);
    same::<Xattr>(bytes);
    same::<Statx>(bytes);
    same::<Statvfs>(bytes);
    let mut listing = Reader::new(bytes);
    while let Ok(entry) = Entry::take(&mut listing) {
        if listing.bytes(entry.length.into()).is_err() {
            break;
        }
    }
});
