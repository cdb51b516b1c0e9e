//! The reasons why a request has no result.

use cephfs_proxy::wire::Errno;

/// Why a request has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// The request failed: callers get this errno.
    Errno(Errno),
    /// The daemon is gone. Either it has not begun the request, or a repetition does no harm: so the request can be made at another daemon. Callers
    /// never see this error: see `reconnect::again`.
    NotStarted,
    /// The daemon is gone, and it is not known whether it has served the request. Callers get EIO.
    Unknown,
}

impl From<Errno> for CallError {
    fn from(errno: Errno) -> CallError {
        CallError::Errno(errno)
    }
}

impl CallError {
    /// Whether the daemon is gone.
    pub fn is_gone(self) -> bool {
        matches!(self, CallError::NotStarted | CallError::Unknown)
    }
}
