//! libcephfs_proxy.so.2: the functions of libcephfs that Samba's vfs_ceph_new uses, answered by libcephfsd.
//!
//! What the caller takes for pointers are numbers (`tables.rs`), so that a wrong one is refused and never followed. Nothing of the
//! process is touched: no signal handler, no standard stream; a thread only for asynchronous I/O, from its first use on.

mod api;
mod cache;
mod fork;
mod link;
mod reconnect;
mod reopen;
mod session;
mod tables;
mod writes;
