//! Linux's error numbers, by name.

use nix::errno::Errno;

/// The name of an error number, as in errno(3); the number itself if it has no name; `None` for 0.
pub fn errno_name(errno: u32) -> Option<String> {
    let number = i32::try_from(errno).ok().filter(|number| *number != 0)?;
    Some(match Errno::from_raw(number) {
        Errno::UnknownErrno => number.to_string(),
        named => format!("{named:?}"),
    })
}
