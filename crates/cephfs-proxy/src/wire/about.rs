//! Describes a request for tracing: its operation, its object, and the bytes that it moves.

use super::{ProxyOperation, Request, Wire, WireReader, operations::*};

/// The description of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestDescription {
    /// The operation's number, an index into [`OPERATIONS`].
    pub operation: u16,
    /// The inode, file or directory on which it operates, as the connection's own number; 0: none.
    pub handle: u64,
    /// Bytes that it sends or requests.
    pub asked: u64,
}

impl RequestDescription {
    /// Describes a message with `data` bytes of data. An invalid message has the operation 0.
    pub fn of(message: &[u8], data: u32) -> RequestDescription {
        let Ok(request) = Request::decode(message) else { return RequestDescription::default() };
        let asked = match &request {
            Request::Read(r) => r.length,
            Request::Readdir(r) => r.room,
            Request::Readlink(r) => r.room,
            Request::Getxattr(r) => r.room,
            Request::Listxattr(r) => r.room,
            _ => data,
        };
        RequestDescription { operation: number(message), handle: request.handle(), asked: asked.into() }
    }
}

/// The number of a message's operation, which may be invalid; 0 if the message is too short.
pub fn number(message: &[u8]) -> u16 {
    u16::take(&mut WireReader::new(message)).unwrap_or_default()
}

/// The bytes that an operation with this result has moved.
pub fn moved(operation: u16, result: i64) -> u64 {
    let is_length = matches!(operation, Read::CODE | Write::CODE | Readlink::CODE | Getxattr::CODE | Listxattr::CODE);
    if is_length { u64::try_from(result).unwrap_or_default() } else { 0 }
}

/// The length of [`snake`]'s result.
pub(super) const fn snake_length(name: &str) -> usize {
    let (bytes, mut length, mut at) = (name.as_bytes(), name.len(), 1);
    while at < bytes.len() {
        length += bytes[at].is_ascii_uppercase() as usize;
        at += 1;
    }
    length
}

/// Converts a name such as `CreateFile` to `create_file`.
pub(super) const fn snake<const LENGTH: usize>(name: &str) -> [u8; LENGTH] {
    let (bytes, mut snake, mut from, mut to) = (name.as_bytes(), [b'_'; LENGTH], 0, 0);
    while from < bytes.len() {
        if from > 0 && bytes[from].is_ascii_uppercase() {
            to += 1;
        }
        snake[to] = bytes[from].to_ascii_lowercase();
        (from, to) = (from + 1, to + 1);
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Handle;

    #[test]
    fn every_operation_has_its_name() {
        let named = |code: u16| OPERATIONS[usize::from(code)];
        assert_eq!(
            [named(Nop::CODE), named(CreateFile::CODE), named(Getxattr::CODE)],
            ["nop", "create_file", "getxattr"]
        );
        assert_eq!(OPERATIONS[0], "");
        let mut names: Vec<_> = OPERATIONS.iter().filter(|name| !name.is_empty()).collect();
        assert!(names.len() >= 40);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), OPERATIONS.iter().filter(|name| !name.is_empty()).count());
    }

    #[test]
    fn a_request_is_about_what_comes_after_its_mount() {
        let mut room = [0; 512];
        let (mount, file, perms) = (Handle(1), Handle(7), Handle(9));
        let read = Read { mount, file, offset: 3, length: 4096, memory: 0 }
            .encode(&mut room)
            .map(|m| RequestDescription::of(m, 0));
        assert_eq!(read, Ok(RequestDescription { operation: 43, handle: 7, asked: 4096 }));
        let write = Write { mount, file, offset: 3 }.encode(&mut room).map(|m| RequestDescription::of(m, 512));
        assert_eq!(write, Ok(RequestDescription { operation: 44, handle: 7, asked: 512 }));
        let walk = Walk { mount, path: c"a/b", want: 0, flags: 0, perms }
            .encode(&mut room)
            .map(|m| RequestDescription::of(m, 0));
        assert_eq!(walk, Ok(RequestDescription { operation: 23, handle: 0, asked: 0 }), "a path has no handle yet");
        assert_eq!(RequestDescription::of(b"\xff\xff\x01", 5), RequestDescription::default());
        assert_eq!([moved(43, 10), moved(44, -5), moved(45, 10)], [10, 0, 0]);
    }
}
