//! libcephfs_proxy.so.2: the functions of libcephfs that Samba's vfs_ceph_new uses, answered by libcephfsd.
//!
//! The pointers that callers get are numbers (`tables.rs`), so an invalid pointer is refused and never dereferenced. The library changes no state
//! of the process: no signal handler, no standard stream. It starts a thread only for asynchronous I/O, at the first use.

mod api;
mod cache;
mod fork;
mod link;
mod reconnect;
mod reopen;
mod restore;
mod session;
mod tables;
mod writes;
