//! Mounts and identities.

use std::{
    env,
    ffi::{CStr, OsStr, c_char, c_int, c_uint},
    fs::File,
    io::Read,
    os::unix::ffi::OsStrExt,
    ptr,
    sync::{Arc, OnceLock},
};

use cephfs_proxy::{
    layout::DATA_SIZE,
    wire::{self, Create, Errno, errno_in, hello::LOBBY},
};

use super::{files::sync_all, guard_int, not_null, optional, place, text};
use crate::{
    fork,
    link::CallError,
    reconnect,
    session::{DEFAULT_PERMS, prepare, target, target_if_there},
    tables::{Identity, MountObject, MountStep, Pointer},
};

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> *const c_char {
    static TEXT: OnceLock<std::ffi::CString> = OnceLock::new();
    let mut said: *const c_char = c"".as_ptr();
    guard_int(|| {
        let version = reconnect::link(LOBBY).map(|link| (link.version, link.version_text.clone()));
        let (numbers, version) = version.unwrap_or_default();
        for (place, number) in [major, minor, patch].into_iter().zip(numbers) {
            // SAFETY: the pointers are valid for a number, or null.
            if let Some(place) = unsafe { place.as_mut() } {
                *place = number;
            }
        }
        // Without a daemon, the version is not known; a later call may find one.
        if !version.is_empty() {
            said = TEXT.get_or_init(|| version).as_ptr();
        }
        Ok(0)
    });
    said
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_create(cmount: *mut Pointer, id: *const c_char) -> c_int {
    guard_int(|| {
        // SAFETY: the caller passes what libcephfs's function requires.
        let (cmount, id) = unsafe { (place(cmount)?, optional(id)) };
        let link = reconnect::link(LOBBY)?;
        let remote = link.call(&Create { id })?;
        let mount = MountObject {
            link,
            remote,
            id: id.map(CStr::to_owned),
            steps: Vec::new(),
            directory: c"/".to_owned(),
            root: None,
        };
        *cmount = fork::tables().mounts.add(mount) as Pointer;
        Ok(0)
    })
}

/// Reads the first readable file of a list. This process reads it, with its own permissions; libcephfs gets the
/// contents.
fn read_first(list: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut failed = Errno::NOENT;
    for path in list.split(|byte| b",; \t".contains(byte)).filter(|path| !path.is_empty()) {
        let mut contents = Vec::new();
        match File::open(OsStr::from_bytes(path))
            .and_then(|file| file.take(DATA_SIZE as u64 + 1).read_to_end(&mut contents))
        {
            Ok(length) if length <= DATA_SIZE => return Ok(contents),
            Ok(_) => return Err(Errno::TOOBIG),
            Err(error) => failed = errno_in(&error),
        }
    }
    Err(failed)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_conf_read_file(cmount: Pointer, path_list: *const c_char) -> c_int {
    guard_int(|| {
        // SAFETY: the caller passes a C string or null.
        let list = unsafe { optional(path_list) }.map(|list| list.to_bytes().to_vec());
        let list = list.or_else(|| env::var_os("CEPH_CONF").map(|list| list.as_bytes().to_vec()));
        target(cmount)?;
        prepare(cmount, MountStep::Read(list.as_deref().map(read_first).transpose()?)).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_conf_set(cmount: Pointer, option: *const c_char, value: *const c_char) -> c_int {
    guard_int(|| {
        // SAFETY: the caller passes C strings or null.
        let (option, value) = unsafe { (text(option)?, text(value)?) };
        prepare(cmount, MountStep::Set(option.to_owned(), value.to_owned())).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_conf_get(cmount: Pointer, option: *const c_char, buf: *mut c_char, len: usize) -> c_int {
    guard_int(|| {
        // SAFETY: the caller passes a C string or null.
        let option = unsafe { text(option)? };
        let (target, room) = (target(cmount)?, len.min(DATA_SIZE));
        let buf = not_null(buf)?;
        let claim = target.link.claim()?;
        claim.call(&wire::ConfGet { mount: target.mount, option, room: room as u32 }, 0)?;
        // SAFETY: the caller's buffer has that many bytes.
        unsafe { claim.take(buf.cast(), room) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_init(cmount: Pointer) -> c_int {
    guard_int(|| prepare(cmount, MountStep::Init).map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_select_filesystem(cmount: Pointer, fs_name: *const c_char) -> c_int {
    // SAFETY: the caller passes a C string or null.
    guard_int(|| prepare(cmount, MountStep::Select(unsafe { text(fs_name)? }.to_owned())).map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_mount(cmount: Pointer, root: *const c_char) -> c_int {
    // SAFETY: the caller passes a C string or null.
    guard_int(|| prepare(cmount, MountStep::Mount(unsafe { optional(root) }.map(CStr::to_owned))).map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_unmount(cmount: Pointer) -> c_int {
    guard_int(|| {
        let mut synced = Ok(());
        // A daemon that is gone has no mounts. The next daemon receives the kept writes.
        let unconfirmed = fork::tables().has_unconfirmed(cmount as u64);
        let target = match if unconfirmed { target(cmount).map(Some) } else { Ok(None) } {
            Err(error) if error.is_gone() => return Err(CallError::NotStarted),
            Ok(Some(target)) => Some(target),
            _ => target_if_there(cmount)?,
        };
        if let Some(target) = target {
            synced = sync_all(&target);
            if synced == Err(CallError::NotStarted) {
                return synced.map(|()| 0);
            }
            target.link.call(&wire::Unmount { mount: target.mount })?;
        }
        let (mut tables, local) = (fork::tables(), cmount as u64);
        tables.inodes.remove_all(|inode| inode.mount == local);
        let lost = tables.forget_files(local);
        tables.dirs.remove_all(|dir| dir.mount == local);
        tables.recount();
        tables.known.retain(|(mount, ..), _| *mount != local);
        let mount = tables.mounts.get(local)?;
        mount.root = None;
        mount.steps.retain(|step| !matches!(step, MountStep::Mount(_) | MountStep::Chdir(_)));
        if lost { Err(Errno::IO.into()) } else { synced.map(|()| 0) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_release(cmount: Pointer) -> c_int {
    guard_int(|| {
        if let Some(target) = target_if_there(cmount)? {
            target.link.call(&wire::Release { mount: target.mount })?;
        }
        // The connection is closed if nobody else uses it.
        let mut tables = fork::tables();
        tables.mounts.remove(cmount as u64)?;
        tables.give_up_links();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_getcwd(cmount: Pointer) -> *const c_char {
    let mut here = ptr::null();
    guard_int(|| {
        // Like libcephfs's pointer, this one is valid until the next ceph_chdir.
        here = fork::tables().mounts.get(cmount as u64)?.directory.as_ptr();
        Ok(0)
    });
    here
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_chdir(cmount: Pointer, path: *const c_char) -> c_int {
    // SAFETY: the caller passes a C string or null.
    guard_int(|| prepare(cmount, MountStep::Chdir(unsafe { text(path)? }.to_owned())).map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_userperm_new(uid: c_uint, gid: c_uint, ngids: c_int, gidlist: *mut c_uint) -> Pointer {
    let mut perms = ptr::null_mut();
    guard_int(|| {
        let count = usize::try_from(ngids).map_err(|_| Errno::INVAL)?;
        let groups = match (count, gidlist.is_null()) {
            (0, _) => Vec::new(),
            (_, false) if count * 4 <= DATA_SIZE => {
                // SAFETY: the caller's array has that many elements.
                unsafe { std::slice::from_raw_parts(gidlist, count) }.to_vec()
            }
            _ => return Err(Errno::INVAL.into()),
        };
        perms = fork::tables().perms.add(Arc::new(Identity { uid, gid, groups })) as Pointer;
        Ok(0)
    });
    perms
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_userperm_destroy(perm: Pointer) {
    guard_int(|| Ok(fork::tables().perms.remove(perm as u64).map(|_| 0)?));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_mount_perms(cmount: Pointer) -> Pointer {
    let found = guard_int(|| Ok(fork::tables().mounts.get(cmount as u64).map(|_| 0)?));
    if found == 0 { DEFAULT_PERMS as Pointer } else { ptr::null_mut() }
}
