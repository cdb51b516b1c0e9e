//! The libcephfs proxy: the protocol between Samba's processes and the daemon, and the daemon itself.
//!
//! `crates/cephfs-proxy-client` is the library that Samba loads; docs/internals/cephfs-proxy.md describes how the two
//! work together.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("handles are 64 bits wide and pass for pointers: Linux on a 64-bit processor is needed");

pub mod adaptive_spin;
#[cfg(feature = "daemon")]
pub mod daemon;
pub mod data_pages;
pub mod layout;
mod memory;
pub mod sys;
pub mod usdt;
pub mod version_table;
pub mod wire;
