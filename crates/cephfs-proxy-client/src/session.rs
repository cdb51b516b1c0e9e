//! Maps the caller's numbers to the daemon's handles.

use std::{
    ffi::{CStr, CString},
    sync::Arc,
    thread,
    time::Duration,
};

use cephfs_proxy::wire::{self, Chdir, Errno, Handle, Identify, hello::LOBBY};
use rustix::process::{getegid, geteuid};

use crate::{
    fork,
    link::{CallError, DaemonLink},
    reconnect,
    tables::{Identity, Inode, MountObject, MountStep, Origin, Pointer},
};

/// The most identities that are registered with the daemon.
const MOST_IDENTITIES: usize = 4096;

/// How often a thread checks whether another thread has prepared the mount again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The most places to which a mount is sent in turn. The daemon normally knows the right place at once.
const MOST_PLACES: usize = 4;

/// A mount as the target of requests.
pub struct RequestTarget {
    /// The caller's number of the mount.
    pub local: u64,
    /// The connection.
    pub link: Arc<DaemonLink>,
    /// The daemon's handle of the mount.
    pub mount: Handle,
}

/// Finds a mount. If it is from before a fork, or its daemon is gone, it is prepared again at the current daemon.
pub fn target(mount: Pointer) -> Result<RequestTarget, CallError> {
    let local = mount as u64;
    loop {
        let mut tables = fork::tables();
        let found = tables.mounts.get(local)?;
        if !found.link.is_dead() {
            return Ok(RequestTarget { local, link: found.link.clone(), mount: found.remote });
        }
        let (id, steps) = (found.id.clone(), found.steps.clone());
        let mounted = steps.iter().any(|step| matches!(step, MountStep::Mount(_)));
        let place = if mounted { found.link.place } else { LOBBY };
        if tables.reviving.insert(local) {
            drop(tables);
            let _reviving = Reviving(local);
            return revive(local, id, &steps, place);
        }
        drop(tables);
        thread::sleep(LOOK_AGAIN);
    }
}

/// A mount that this thread prepares again, until this value is dropped.
struct Reviving(u64);

impl Drop for Reviving {
    fn drop(&mut self) {
        fork::tables().reviving.remove(&self.0);
    }
}

/// Finds a mount; `None` if its daemon is gone, so that nothing has to be released there.
pub fn target_if_there(mount: Pointer) -> Result<Option<RequestTarget>, Errno> {
    let local = mount as u64;
    let mut tables = fork::tables();
    let found = tables.mounts.get(local)?;
    let there = !found.link.is_dead();
    Ok(there.then(|| RequestTarget { local, link: found.link.clone(), mount: found.remote }))
}

fn revive(local: u64, id: Option<CString>, steps: &[MountStep], place: u64) -> Result<RequestTarget, CallError> {
    let (link, mount) = set_up(id.as_deref(), steps, place, reconnect::link_again)?;
    let target = RequestTarget { local, link, mount };
    // This comes before anybody uses the mount.
    let restored = target.restore_files();
    let refused = {
        let mut tables = fork::tables();
        match (restored, tables.mounts.get(local)) {
            (Ok(()), Ok(found)) => {
                (found.link, found.remote) = (target.link.clone(), mount);
                tables.give_up_links();
                return Ok(target);
            }
            (Err(error), _) => error,
            (_, Err(errno)) => errno.into(),
        }
    };
    tear_down(&target.link, mount, place != LOBBY);
    Err(refused)
}

/// Prepares a mount by these steps, first at this place. If the mount belongs to another place, starts again there.
fn set_up(
    id: Option<&CStr>,
    steps: &[MountStep],
    mut place: u64,
    connect: fn(u64) -> Result<Arc<DaemonLink>, Errno>,
) -> Result<(Arc<DaemonLink>, Handle), CallError> {
    for _ in 0..MOST_PLACES {
        let link = connect(place)?;
        let mount = link.call(&wire::Create { id })?;
        let mut mounted_at = None;
        let result = steps.iter().try_for_each(|step| {
            // The steps after mounting are for the mount's own place.
            if mounted_at.is_none_or(|there| there == place)
                && let StepOutcome::Mounted(there) = take_step(&link, mount, step)?
            {
                mounted_at = Some(there);
            }
            Ok(())
        });
        match (result, mounted_at) {
            (Ok(()), Some(there)) if there != place => {
                tear_down(&link, mount, false);
                place = there;
            }
            (Ok(()), _) => return Ok((link, mount)),
            (Err(error), there) => {
                tear_down(&link, mount, there.is_some());
                return Err(error);
            }
        }
    }
    Err(Errno::IO.into())
}

/// Releases a mount at the daemon.
fn tear_down(link: &DaemonLink, mount: Handle, mounted: bool) {
    if mounted {
        let _ = link.call(&wire::Unmount { mount });
    }
    let _ = link.call(&wire::Release { mount });
}

/// The outcome of a step.
pub enum StepOutcome {
    /// Nothing to note.
    Done,
    /// The mount belongs to this place. If the client is connected to another place, it has to reconnect to this one.
    Mounted(u64),
    /// The new working directory.
    Moved(CString),
}

/// Runs one step of a mount's preparation.
fn take_step(link: &DaemonLink, mount: Handle, step: &MountStep) -> Result<StepOutcome, CallError> {
    match step {
        MountStep::Read(None) => link.call(&wire::ConfReadFile { mount, contents: false })?,
        MountStep::Read(Some(contents)) => {
            let claim = link.claim()?;
            // SAFETY: pointer and length are those of a slice.
            unsafe { claim.give(contents.as_ptr(), contents.len()) };
            claim.call(&wire::ConfReadFile { mount, contents: true }, contents.len())?.1
        }
        MountStep::Set(option, value) => link.call(&wire::ConfSet { mount, option, value })?,
        MountStep::Init => link.call(&wire::Init { mount })?,
        MountStep::Select(name) => link.call(&wire::SelectFilesystem { mount, name })?,
        MountStep::Mount(root) => {
            return link.call(&wire::Mount { mount, root: root.as_deref() }).map(StepOutcome::Mounted);
        }
        MountStep::Chdir(path) => {
            let claim = link.claim()?;
            let (length, ()) = claim.call(&Chdir { mount, path }, 0)?;
            let directory = CString::from_vec_with_nul(claim.copy(length as usize)).map_err(|_| Errno::PROTO)?;
            return Ok(StepOutcome::Moved(directory));
        }
    }
    Ok(StepOutcome::Done)
}

/// Runs a step of a mount's preparation, and records the step.
pub fn prepare(mount: Pointer, step: MountStep) -> Result<(), CallError> {
    let target = target(mount)?;
    let outcome = take_step(&target.link, target.mount, &step)?;
    if let StepOutcome::Mounted(place) = outcome
        && place != target.link.place
    {
        return leave_for(place, target, step);
    }
    let mut tables = fork::tables();
    let MountObject { steps, directory: here, .. } = tables.mounts.get(target.local)?;
    if let StepOutcome::Moved(directory) = outcome {
        steps.retain(|step| !matches!(step, MountStep::Chdir(_)));
        *here = directory;
    }
    steps.push(step);
    Ok(())
}

/// Mounts at the mount's place, and releases what was prepared in the lobby.
fn leave_for(place: u64, target: RequestTarget, step: MountStep) -> Result<(), CallError> {
    let (id, mut steps) = {
        let mut tables = fork::tables();
        let found = tables.mounts.get(target.local)?;
        (found.id.clone(), found.steps.clone())
    };
    steps.push(step);
    let (link, mount) = set_up(id.as_deref(), &steps, place, reconnect::link)?;
    tear_down(&target.link, target.mount, false);
    let local = target.local;
    drop(target);
    let mut tables = fork::tables();
    match tables.mounts.get(local) {
        Ok(found) => (found.link, found.remote, found.steps) = (link, mount, steps),
        Err(errno) => {
            drop(tables);
            tear_down(&link, mount, true);
            return Err(errno.into());
        }
    }
    tables.give_up_links();
    Ok(())
}

impl RequestTarget {
    /// The daemon's handle of an identity.
    pub fn perms(&self, perms: Pointer) -> Result<Handle, CallError> {
        self.register(&identity(perms)?)
    }

    /// The daemon's handle of an identity, which is registered at its first use.
    pub fn register(&self, identity: &Arc<Identity>) -> Result<Handle, CallError> {
        {
            let tables = fork::tables();
            if tables.is_current(&self.link) {
                let known = tables.identities.get(&self.link.id);
                if let Some(&handle) = known.and_then(|known| known.get(identity)) {
                    return Ok(handle);
                }
                if known.is_some_and(|known| known.len() >= MOST_IDENTITIES) {
                    return Err(Errno::NOMEM.into());
                }
            }
        }
        let groups: Vec<u8> = identity.groups.iter().flat_map(|group| group.to_le_bytes()).collect();
        let claim = self.link.claim()?;
        // SAFETY: pointer and length are those of a vector.
        unsafe { claim.give(groups.as_ptr(), groups.len()) };
        let request = Identify { uid: identity.uid, gid: identity.gid, groups: identity.groups.len() as u32 };
        let (_, handle) = claim.call(&request, groups.len())?;
        drop(claim);
        let mut tables = fork::tables();
        if tables.is_current(&self.link) {
            tables.identities.entry(self.link.id).or_default().insert(identity.clone(), handle);
        }
        Ok(handle)
    }

    /// The caller's number for an inode that the daemon has returned. If the caller already has the inode, the number stays the same.
    pub fn hand_out(&self, remote: Handle, origin: Origin) -> Pointer {
        let mut tables = fork::tables();
        let key = (self.local, self.link.id, remote);
        if let Some(&number) = tables.known.get(&key)
            && let Ok(inode) = tables.inodes.get(number)
        {
            inode.held += 1;
            inode.owed += 1;
            return number as Pointer;
        }
        let number = tables.inodes.add(Inode::new(self.local, self.link.id, remote, origin, 1));
        tables.known.insert(key, number);
        number as Pointer
    }
}

/// Releases one of the caller's references to an inode. Returns whether it was the last one, as libcephfs does. The daemon is told without waiting.
pub fn put_back(mount: Pointer, inode: Pointer) -> Result<bool, CallError> {
    let (gone, link) = {
        let mut tables = fork::tables();
        tables.mounts.get(mount as u64)?;
        let number = inode as u64;
        let found = tables.inode(number)?;
        if found.mount != mount as u64 {
            return Err(Errno::BADF.into());
        }
        found.held -= 1;
        if found.held > 0 {
            return Ok(false);
        }
        if found.pinned || tables.retire(number) {
            return Ok(true);
        }
        let gone = tables.inodes.remove(number)?;
        tables.names = tables.names.saturating_sub(gone.names.len());
        let key = (gone.mount, gone.link, gone.remote);
        if tables.known.get(&key) == Some(&number) {
            tables.known.remove(&key);
        }
        match tables.live(gone.link) {
            Some(link) => {
                if link.release(gone.remote, gone.owed) {
                    return Ok(true);
                }
                (gone, link)
            }
            None => return Ok(true),
        }
    };
    match link.give_back(gone.remote, gone.owed) {
        // The daemon is gone, and its inode is gone, too.
        Ok(()) | Err(CallError::NotStarted) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The origin of an inode, by which it can be found again.
pub fn origin(inode: Pointer) -> Result<Origin, Errno> {
    fork::tables().inode(inode as u64).map(|inode| inode.origin)
}

/// The identity with this number of the caller.
pub fn identity(perms: Pointer) -> Result<Arc<Identity>, Errno> {
    match perms as u64 {
        DEFAULT_PERMS => Ok(Arc::new(own_identity())),
        number => Ok(fork::tables().perms.get(number)?.clone()),
    }
}

/// The number that `ceph_mount_perms` returns. It stands for the process's current identity.
pub const DEFAULT_PERMS: u64 = 0x16 << 56;

fn own_identity() -> Identity {
    Identity { uid: geteuid().as_raw(), gid: getegid().as_raw(), groups: Vec::new() }
}
