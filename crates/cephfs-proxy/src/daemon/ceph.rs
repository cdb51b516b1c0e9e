//! libcephfs, loaded at run time. Versions 16.2 to 20.2 have all required functions; functions of newer ones are
//! optional.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use anyhow::Context;

use crate::wire::Statx;

/// `struct ceph_mount_info`.
pub enum CephMount {}
/// `Inode`.
pub enum CephInode {}
/// `Fh`.
pub enum CephFile {}
/// `struct ceph_dir_result`.
pub enum CephDir {}
/// `UserPerm`.
pub enum CephPerms {}

type M = *mut CephMount;
type I = *mut CephInode;
type F = *mut CephFile;
type D = *mut CephDir;
type P = *const CephPerms;
type CText = *const c_char;

/// The type of `ceph_ll_unlink` and `ceph_ll_rmdir`.
pub type TakeAway = unsafe extern "C" fn(M, I, CText, P) -> c_int;

/// `vinodeno_t`: an inode in a snapshot.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Vino {
    /// The inode's number.
    pub ino: u64,
    /// The snapshot's number.
    pub snapshot: u64,
}

macro_rules! functions {
    (needed { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)* }
     optional { $($maybe:ident: fn($($maybe_argument:ty),*) $(-> $maybe_result:ty)?;)* }) => {
        /// libcephfs's functions by their own names; cephfs/libcephfs.h documents them.
        #[allow(missing_docs)]
        pub struct Ceph {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub $maybe: Option<unsafe extern "C" fn($($maybe_argument),*) $(-> $maybe_result)?>,)*
        }

        impl Ceph {
            /// Looks up all functions. The library is never unloaded, since its threads never end.
            fn find(library: &'static libloading::Library) -> Result<Ceph, libloading::Error> {
                // SAFETY: the types are those of libcephfs.h, which has not changed any of these since 12.
                Ok(unsafe { Ceph {
                    $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                    $($maybe: library.get(concat!(stringify!($maybe), "\0").as_bytes()).map(|found| *found).ok(),)*
                } })
            }
        }
    };
}

functions! {
    needed {
        ceph_version: fn(*mut c_int, *mut c_int, *mut c_int) -> CText;
        ceph_create: fn(*mut M, CText) -> c_int;
        ceph_conf_read_file: fn(M, CText) -> c_int;
        ceph_conf_set: fn(M, CText, CText) -> c_int;
        ceph_conf_get: fn(M, CText, *mut c_char, usize) -> c_int;
        ceph_init: fn(M) -> c_int;
        ceph_select_filesystem: fn(M, CText) -> c_int;
        ceph_mount: fn(M, CText) -> c_int;
        ceph_unmount: fn(M) -> c_int;
        ceph_release: fn(M) -> c_int;
        ceph_userperm_new: fn(c_uint, c_uint, c_int, *mut c_uint) -> *mut CephPerms;
        ceph_userperm_destroy: fn(*mut CephPerms);
        ceph_ll_lookup_root: fn(M, *mut I) -> c_int;
        ceph_ll_lookup_inode: fn(M, u64, *mut I) -> c_int;
        ceph_ll_lookup: fn(M, I, CText, *mut I, *mut Statx, c_uint, c_uint, P) -> c_int;
        ceph_ll_put: fn(M, I) -> c_int;
        ceph_ll_walk: fn(M, CText, *mut I, *mut Statx, c_uint, c_uint, P) -> c_int;
        ceph_ll_getattr: fn(M, I, *mut Statx, c_uint, c_uint, P) -> c_int;
        ceph_ll_setattr: fn(M, I, *mut Statx, c_int, P) -> c_int;
        ceph_ll_statfs: fn(M, I, *mut libc::statvfs) -> c_int;
        ceph_ll_readlink: fn(M, I, *mut c_char, usize, P) -> c_int;
        ceph_ll_mknod: fn(M, I, CText, libc::mode_t, libc::dev_t, *mut I, *mut Statx, c_uint, c_uint, P) -> c_int;
        ceph_ll_mkdir: fn(M, I, CText, libc::mode_t, *mut I, *mut Statx, c_uint, c_uint, P) -> c_int;
        ceph_ll_symlink: fn(M, I, CText, CText, *mut I, *mut Statx, c_uint, c_uint, P) -> c_int;
        ceph_ll_link: fn(M, I, I, CText, P) -> c_int;
        ceph_ll_rename: fn(M, I, CText, I, CText, P) -> c_int;
        ceph_ll_unlink: fn(M, I, CText, P) -> c_int;
        ceph_ll_rmdir: fn(M, I, CText, P) -> c_int;
        ceph_ll_create: fn(M, I, CText, libc::mode_t, c_int, *mut I, *mut F, *mut Statx, c_uint, c_uint, P) -> c_int;
        ceph_ll_open: fn(M, I, c_int, *mut F, P) -> c_int;
        ceph_ll_close: fn(M, F) -> c_int;
        ceph_ll_read: fn(M, F, i64, u64, *mut c_char) -> c_int;
        ceph_ll_write: fn(M, F, i64, u64, *const c_char) -> c_int;
        ceph_ll_lseek: fn(M, F, i64, c_int) -> i64;
        ceph_ll_fsync: fn(M, F, c_int) -> c_int;
        ceph_ll_fallocate: fn(M, F, c_int, i64, i64) -> c_int;
        ceph_ll_delegation: fn(M, F, c_uint, unsafe extern "C" fn(F, *mut c_void), *mut c_void) -> c_int;
        ceph_set_deleg_timeout: fn(M, u32) -> c_int;
        ceph_ll_opendir: fn(M, I, *mut D, P) -> c_int;
        ceph_readdir_r: fn(M, D, *mut libc::dirent) -> c_int;
        ceph_rewinddir: fn(M, D);
        ceph_seekdir: fn(M, D, i64);
        ceph_ll_releasedir: fn(M, D) -> c_int;
        ceph_ll_getxattr: fn(M, I, CText, *mut c_void, usize, P) -> c_int;
        ceph_ll_setxattr: fn(M, I, CText, *const c_void, usize, c_int, P) -> c_int;
        ceph_ll_listxattr: fn(M, I, *mut c_char, usize, *mut usize, P) -> c_int;
        ceph_ll_removexattr: fn(M, I, CText, P) -> c_int;
    }
    optional {
        ceph_ll_lookup_vino: fn(M, Vino, *mut I) -> c_int;
        ceph_start_reclaim: fn(M, CText, c_uint) -> c_int;
        ceph_finish_reclaim: fn(M);
        ceph_set_uuid: fn(M, CText);
    }
}

/// The version of libcephfs.
#[derive(Clone)]
pub struct Version {
    /// Major, minor and patch.
    pub numbers: [i32; 3],
    /// What `ceph_version` returns.
    pub text: std::ffi::CString,
}

impl Ceph {
    /// Loads libcephfs from `path`, or from the system's library path if it is a bare name.
    ///
    /// # Errors
    ///
    /// When the library cannot be loaded, or lacks a required function.
    pub fn load(path: &std::path::Path) -> anyhow::Result<&'static Ceph> {
        // SAFETY: libcephfs's initialisers start no thread and have no preconditions.
        let library = unsafe { libloading::Library::new(path) }.with_context(|| {
            format!("cannot load {}; on Debian and Ubuntu: apt-get install libcephfs2", path.display())
        })?;
        let ceph = Ceph::find(Box::leak(Box::new(library)))
            .with_context(|| format!("{} lacks a function that libcephfs 16.2 has", path.display()))?;
        Ok(Box::leak(Box::new(ceph)))
    }

    /// Calls `ceph_version`.
    pub fn version(&self) -> Version {
        let mut numbers = [0; 3];
        let [major, minor, patch] = &mut numbers;
        // SAFETY: the three pointers are valid; the text is a constant of the library.
        let text = unsafe {
            let text = (self.ceph_version)(major, minor, patch);
            if text.is_null() { c"" } else { CStr::from_ptr(text) }
        };
        Version { numbers, text: text.into() }
    }
}
