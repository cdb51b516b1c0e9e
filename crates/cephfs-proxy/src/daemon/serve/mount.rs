//! Mounts and identities.

use std::{
    ffi::{CStr, CString},
    sync::{Arc, Mutex},
};

use super::{Reply, RequestContext, own, weight};
use crate::{
    daemon::{
        handles::{ClientMount, HeldObject, Perms},
        lock,
        mounts::MountDraft,
        options,
    },
    wire::*,
};

impl RequestContext<'_> {
    pub(super) fn create(&self, r: &Create<'_>) -> Reply<Handle> {
        self.room_for([weight::MOUNT])?;
        let draft = MountDraft::create(self.shared.ceph, r.id)?;
        let mount = ClientMount {
            draft: Mutex::new(Some(draft)),
            mounted: Mutex::new(None),
            directory: Mutex::new(c"/".to_owned()),
        };
        Ok((0, self.hold(Handle(0), HeldObject::Mount(Arc::new(mount)))))
    }

    /// Runs a step of a mount's preparation.
    fn prepare(&self, mount: Handle, step: impl FnOnce(&mut MountDraft) -> Result<(), Errno>) -> Reply<()> {
        let mount = self.client_mount(mount)?;
        let mut draft = lock(&mount.draft);
        step(draft.as_mut().ok_or(Errno::ISCONN)?).map(|()| (0, ()))
    }

    pub(super) fn conf_read_file(&self, r: &ConfReadFile) -> Reply<()> {
        let contents = r.contents.then(|| self.copy());
        let trusted = |contents: &[u8]| self.connection.peer.is_root() || options::is_of_this_host(contents);
        self.prepare(r.mount, |draft| match contents.as_deref() {
            Some(contents) if !trusted(contents) => options::open_to_all(contents, draft.id())
                .iter()
                .try_for_each(|(option, value)| draft.set(option, value)),
            contents => draft.read_file(contents),
        })
    }

    pub(super) fn conf_set(&self, r: &ConfSet<'_>) -> Reply<()> {
        if !self.connection.peer.is_root() && !options::is_open_to_all(r.option.to_bytes()) {
            return Err(Errno::PERM);
        }
        self.prepare(r.mount, |draft| draft.set(r.option, r.value))
    }

    /// Only the lobby reports whether this call succeeds. Elsewhere, the client that mounts first makes the call, since the drafts of the other
    /// clients would start libcephfs's threads for nothing.
    pub(super) fn init(&self, r: &Init) -> Reply<()> {
        let is_lobby = self.shared.place.is_lobby();
        self.prepare(r.mount, |draft| if is_lobby { draft.init() } else { Ok(()) })
    }

    pub(super) fn select_filesystem(&self, r: &SelectFilesystem<'_>) -> Reply<()> {
        self.prepare(r.mount, |draft| draft.select(r.name))
    }

    pub(super) fn conf_get(&self, r: &ConfGet<'_>) -> Reply<()> {
        let mut value = vec![0; self.room(r.room)];
        let mount = self.client_mount(r.mount)?;
        match (&*lock(&mount.draft), &*lock(&mount.mounted)) {
            (Some(draft), _) => draft.get(r.option, &mut value)?,
            (None, Some(mounted)) => mounted.get(r.option, &mut value)?,
            (None, None) => return Err(Errno::NOTCONN),
        }
        self.fill(&value)?;
        Ok((0, ()))
    }

    /// Mounts, or tells the client at which place it has to mount.
    pub(super) fn mount_it(&self, r: &Mount<'_>) -> Reply<u64> {
        let mount = self.client_mount(r.mount)?;
        let (place, mounted) = self.shared.place.mount(&mut lock(&mount.draft), r.root)?;
        *lock(&mount.mounted) = mounted;
        Ok((0, place))
    }

    pub(super) fn unmount(&self, r: &Unmount) -> Reply<()> {
        let mount = self.client_mount(r.mount)?;
        let held = lock(&self.connection.handles).remove_all(r.mount);
        drop(held);
        let mounted = lock(&mount.mounted).take();
        mounted.map(|_| (0, ())).ok_or(Errno::NOTCONN)
    }

    pub(super) fn release(&self, r: &Release) -> Reply<()> {
        if lock(&self.client_mount(r.mount)?.mounted).is_some() {
            return Err(Errno::ISCONN);
        }
        let held = lock(&self.connection.handles).remove(Handle(0), r.mount);
        held.map(|_| (0, ()))
    }

    pub(super) fn chdir(&self, r: &Chdir<'_>) -> Reply<()> {
        let (mount, client) = (self.mount(r.mount)?, self.client_mount(r.mount)?);
        let there = own::directory(&mount, &self.path(r.mount, r.path)?)?;
        let bytes = there.as_bytes_with_nul();
        self.fill(bytes)?;
        let length = bytes.len() as i64;
        *lock(&client.directory) = there;
        Ok((length, ()))
    }

    /// A path from the root. A relative path begins at the client's working directory, since libcephfs's own working directory is the root.
    pub(super) fn path(&self, mount: Handle, path: &CStr) -> Result<CString, Errno> {
        let client = self.client_mount(mount)?;
        let directory = lock(&client.directory);
        let joined = match path.to_bytes() {
            [b'/', ..] => return Ok(path.to_owned()),
            [] => directory.to_bytes().to_vec(),
            below if directory.to_bytes() == b"/" => [b"/", below].concat(),
            below => [directory.to_bytes(), b"/", below].concat(),
        };
        CString::new(joined).map_err(|_| Errno::INVAL)
    }

    pub(super) fn identify(&self, r: &Identify) -> Reply<Handle> {
        let bytes = self.copy();
        self.room_for([weight::identity(bytes.len())])?;
        let (parts, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() || parts.len() != r.groups as usize {
            return Err(Errno::INVAL);
        }
        let groups: Box<[u32]> = parts.iter().map(|part| u32::from_le_bytes(*part)).collect();
        if !self.connection.peer.may_be(r.uid, r.gid, &groups) {
            return Err(Errno::PERM);
        }
        let perms = Perms::new(self.shared.ceph, r.uid, r.gid, groups).ok_or(Errno::NOMEM)?;
        Ok((0, self.hold(Handle(0), HeldObject::Perms(Arc::new(perms)))))
    }
}
