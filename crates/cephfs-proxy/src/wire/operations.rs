//! All operations, each with its number, whether it may be repeated, its request and its answer. Numbers are never
//! reused.

use std::ffi::CStr;

use super::{
    Altered, Attributes, CachedData, ChangeMark, Created, DataMemory, Entries, FoundInode, Handle, Malformed,
    OpenDirectory, Opened, Statvfs, Statx, Wire, WireReader, WireWriter, Xattr, about,
};

/// A request, for its sender.
pub trait ProxyOperation<'a>: Wire<'a> {
    /// The operation's number.
    const CODE: u16;
    /// Whether the request may be repeated if it is not known whether the daemon has served it.
    const REPEATABLE: bool;
    /// The answer, unless the result is an errno.
    type Answer: for<'m> Wire<'m>;

    /// Writes number and request.
    fn encode<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], Malformed> {
        let mut writer = WireWriter::new(buffer);
        Self::CODE.put(&mut writer)?;
        self.put(&mut writer)?;
        Ok(writer.written())
    }
}

macro_rules! repeatable {
    (repeatable) => {
        true
    };
    (once) => {
        false
    };
}

macro_rules! operations {
    ($( $(#[$doc:meta])* $code:literal $again:ident $name:ident $(<$life:lifetime>)? { $($field:ident: $type:ty),* } -> $answer:ty; )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq)]
            #[allow(missing_docs, reason = "the fields are the parameters of the function in cephfs/libcephfs.h")]
            pub struct $name $(<$life>)? { $(pub $field: $type),* }

            impl<'a> Wire<'a> for $name $(<$life>)? {
                #[allow(unused_variables, reason = "some have no fields")]
                fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
                    $(self.$field.put(to)?;)*
                    Ok(())
                }
                #[allow(unused_variables, reason = "some have no fields")]
                fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
                    Ok(Self { $($field: Wire::take(from)?),* })
                }
                /// The handle on which it operates: the second field, since the first is the mount.
                fn handle(&self) -> Option<Handle> {
                    let fields: &[Option<Handle>] = &[$(self.$field.handle()),*];
                    fields.get(1).copied().flatten()
                }
            }

            impl<'a> ProxyOperation<'a> for $name $(<$life>)? {
                const CODE: u16 = $code;
                const REPEATABLE: bool = repeatable!($again);
                type Answer = $answer;
            }
        )*

        /// A request, for its receiver.
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[allow(missing_docs, reason = "each is documented as a struct")]
        pub enum Request<'a> { $($name($name $(<$life>)?)),* }

        impl<'a> Request<'a> {
            /// Decodes the number and the request, which must use all bytes.
            pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
                let mut reader = WireReader::new(bytes);
                let request = match u16::take(&mut reader)? {
                    $($code => Request::$name(Wire::take(&mut reader)?),)*
                    _ => return Err(Malformed::Operation),
                };
                reader.end()?;
                Ok(request)
            }

            /// Encodes the request again; for tests of decoding.
            pub fn encode<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], Malformed> {
                match self { $(Request::$name(request) => ProxyOperation::encode(request, buffer)),* }
            }

            /// The request's mount: its first field, if that is a handle.
            #[allow(unused_variables, reason = "some have no fields")]
            pub fn mount(&self) -> Option<Handle> {
                match self {
                    $(Request::$name(request) => {
                        let fields: &[Option<Handle>] = &[$(request.$field.handle()),*];
                        fields.first().copied().flatten()
                    })*
                }
            }

            /// The handle on which the request operates, besides its mount; 0: none.
            pub fn handle(&self) -> u64 {
                match self { $(Request::$name(request) => request.handle()),* }.map_or(0, |handle| handle.0)
            }
        }

        /// The operations' names, indexed by number; empty for unused numbers.
        pub static OPERATIONS: &[&str; 128] = &{
            let mut names = [""; 128];
            $(names[$code] = {
                const NAME: [u8; about::snake_length(stringify!($name))] = about::snake(stringify!($name));
                match std::str::from_utf8(&NAME) { Ok(name) => name, Err(_) => "" }
            };)*
            names
        };
    };
}

operations! {
    /// Does nothing. The daemon takes releases with every request, so this request makes room for releases.
    1 repeatable Nop {} -> ();
    /// `ceph_create`.
    2 repeatable Create<'a> { id: Option<&'a CStr> } -> Handle;
    /// `ceph_conf_read_file`, with the file's contents as data; without data, libcephfs reads its default files.
    3 repeatable ConfReadFile { mount: Handle, contents: bool } -> ();
    /// `ceph_conf_set`.
    4 repeatable ConfSet<'a> { mount: Handle, option: &'a CStr, value: &'a CStr } -> ();
    /// `ceph_conf_get`; the value is data, with its NUL.
    5 repeatable ConfGet<'a> { mount: Handle, option: &'a CStr, room: u32 } -> ();
    /// `ceph_init`.
    6 repeatable Init { mount: Handle } -> ();
    /// `ceph_select_filesystem`.
    7 repeatable SelectFilesystem<'a> { mount: Handle, name: &'a CStr } -> ();
    /// `ceph_mount`.
    8 repeatable Mount<'a> { mount: Handle, root: Option<&'a CStr> } -> u64;
    /// `ceph_unmount`: closes everything that was opened through the mount.
    9 once Unmount { mount: Handle } -> ();
    /// `ceph_release`.
    10 once Release { mount: Handle } -> ();
    /// `ceph_chdir`; the answer's data is the new directory as by `ceph_getcwd`, with its NUL.
    11 repeatable Chdir<'a> { mount: Handle, path: &'a CStr } -> ();
    /// `ceph_userperm_new`; groups are data, 32 bits each.
    12 repeatable Identify { uid: u32, gid: u32, groups: u32 } -> Handle;

    /// `ceph_ll_lookup_root`.
    20 repeatable LookupRoot { mount: Handle } -> Handle;
    /// `ceph_ll_lookup_inode`.
    21 repeatable LookupInode { mount: Handle, ino: u64 } -> Handle;
    /// `ceph_ll_lookup`.
    22 repeatable Lookup<'a> { mount: Handle, parent: Handle, name: &'a CStr, want: u32, flags: u32, perms: Handle } -> FoundInode;
    /// `ceph_ll_walk`.
    23 repeatable Walk<'a> { mount: Handle, path: &'a CStr, want: u32, flags: u32, perms: Handle } -> FoundInode;
    /// `ceph_ll_getattr`.
    24 repeatable Getattr { mount: Handle, inode: Handle, want: u32, flags: u32, perms: Handle } -> Attributes;
    /// `ceph_ll_setattr`.
    25 repeatable Setattr { mount: Handle, inode: Handle, statx: Statx, mask: i32, perms: Handle } -> Altered;
    /// `ceph_ll_statfs`.
    26 repeatable Statfs { mount: Handle, inode: Handle } -> Statvfs;
    /// `ceph_ll_readlink`; the target is data, the result its length.
    27 repeatable Readlink { mount: Handle, inode: Handle, room: u32, perms: Handle } -> ();

    /// `ceph_ll_mknod`.
    30 once Mknod<'a> { mount: Handle, parent: Handle, name: &'a CStr, mode: u32, rdev: u64, want: u32, flags: u32, perms: Handle } -> FoundInode;
    /// `ceph_ll_mkdir`.
    31 once Mkdir<'a> { mount: Handle, parent: Handle, name: &'a CStr, mode: u32, want: u32, flags: u32, perms: Handle } -> FoundInode;
    /// `ceph_ll_symlink`.
    32 once Symlink<'a> { mount: Handle, parent: Handle, name: &'a CStr, target: &'a CStr, want: u32, flags: u32, perms: Handle } -> FoundInode;
    /// `ceph_ll_link`.
    33 once Link<'a> { mount: Handle, inode: Handle, parent: Handle, name: &'a CStr, perms: Handle } -> ();
    /// `ceph_ll_rename`.
    34 once Rename<'a> { mount: Handle, parent: Handle, name: &'a CStr, new_parent: Handle, new_name: &'a CStr, perms: Handle } -> ();
    /// `ceph_ll_unlink`.
    35 once Unlink<'a> { mount: Handle, parent: Handle, name: &'a CStr, perms: Handle } -> ();
    /// `ceph_ll_rmdir`.
    36 once Rmdir<'a> { mount: Handle, parent: Handle, name: &'a CStr, perms: Handle } -> ();

    /// `ceph_ll_create`.
    40 once CreateFile<'a> { mount: Handle, parent: Handle, name: &'a CStr, mode: u32, oflags: i32, want: u32, flags: u32, perms: Handle } -> Created;
    /// `ceph_ll_open`.
    41 repeatable Open { mount: Handle, inode: Handle, flags: i32, perms: Handle } -> Opened;
    /// `ceph_ll_close`.
    42 once Close { mount: Handle, file: Handle } -> ();
    /// `ceph_ll_read`; the bytes read are data, the result is their number. `memory` is the number of the file's memory that the client
    /// has mapped; 0: none.
    43 repeatable Read { mount: Handle, file: Handle, offset: i64, length: u32, memory: u64 } -> CachedData;
    /// `ceph_ll_write` of the data. The mark is known if nobody else in the cluster, and no other open file of the daemon, could have changed the
    /// file at that time.
    44 once Write { mount: Handle, file: Handle, offset: i64 } -> ChangeMark;
    /// `ceph_ll_lseek`; the result is the new offset.
    45 repeatable Lseek { mount: Handle, file: Handle, offset: i64, whence: i32 } -> ();
    /// `ceph_ll_fsync`.
    46 repeatable Fsync { mount: Handle, file: Handle, data_only: i32 } -> ();
    /// `ceph_ll_fallocate`.
    47 once Fallocate { mount: Handle, file: Handle, mode: i32, offset: i64, length: i64 } -> ();
    /// Repeats a write that an earlier daemon had acknowledged, if the file's version is `version` and nobody else can change the file meanwhile.
    /// EAGAIN if others have the file open, or may have; EIO if the version differs.
    48 once Rewrite { mount: Handle, file: Handle, offset: i64, version: u64 } -> ChangeMark;
    /// Passes the descriptor of the memory that has the file's data, in a packet on the socket that is sent before the answer. A client makes one
    /// such request at a time. EAGAIN if there is no such memory, or if the client has not received earlier packets.
    49 repeatable MapData { mount: Handle, file: Handle } -> DataMemory;

    /// `ceph_ll_opendir`, and the first entries, as for `Readdir`.
    50 repeatable Opendir { mount: Handle, inode: Handle, room: u32, perms: Handle } -> OpenDirectory;
    /// Calls `ceph_readdir_r` as often as there is room. Data is a sequence of `DirectoryEntry` and name; the result is its number of bytes. With
    /// `rewind`, `ceph_rewinddir` is called first.
    51 repeatable Readdir { mount: Handle, dir: Handle, rewind: bool, room: u32 } -> Entries;
    /// `ceph_ll_releasedir`.
    52 once Releasedir { mount: Handle, dir: Handle } -> ();

    /// `ceph_ll_getxattr`; the value is data, the result its length.
    60 repeatable Getxattr<'a> { mount: Handle, inode: Handle, name: &'a CStr, room: u32, perms: Handle } -> Xattr;
    /// Looks up many names of a directory at once, for a client that goes through all of them. The request's data is
    /// `names` names, then `xattrs` names of extended attributes (an empty one is the list of names), each with its
    /// length in front. The answer's data is a `FoundInode` for each name, whose inode is idle from the beginning. For an
    /// inode, the length, an `Xattr` and the value of each extended attribute follow. The result is the number of
    /// bytes.
    64 repeatable LookupMany { mount: Handle, parent: Handle, want: u32, names: u32, xattrs: u32, perms: Handle } -> ();
    /// `ceph_ll_setxattr`; the value is data.
    61 once Setxattr<'a> { mount: Handle, inode: Handle, name: &'a CStr, flags: i32, perms: Handle } -> ChangeMark;
    /// `ceph_ll_listxattr`; the names are data, the result their length.
    62 repeatable Listxattr { mount: Handle, inode: Handle, room: u32, perms: Handle } -> Xattr;
    /// `ceph_ll_removexattr`.
    63 once Removexattr<'a> { mount: Handle, inode: Handle, name: &'a CStr, perms: Handle } -> ChangeMark;

    /// `ceph_ll_lookup_vino`: an inode by its number, in a snapshot, or its current state (CEPH_NOSNAP).
    70 repeatable LookupVino { mount: Handle, ino: u64, snapshot: u64 } -> Handle;
    /// `ceph_seekdir`, to the position `next` of an `DirectoryEntry`.
    71 repeatable Seekdir { mount: Handle, dir: Handle, offset: i64 } -> ();
}
