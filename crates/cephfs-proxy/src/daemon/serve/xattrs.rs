//! Extended attributes.

use super::{Reply, RequestContext, checked, done};
use crate::{daemon::coherence::Copied, wire::*};

/// The attribute does not exist.
const NODATA: i32 = Errno::NODATA.raw_os_error();

impl RequestContext<'_> {
    pub(super) fn getxattr(&self, r: &Getxattr<'_>) -> Reply<Xattr> {
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        let ((ceph, mount), room) = (inode.parts(), self.room(r.room));
        let (name, data) = (r.name.as_ptr(), self.data.cast());
        let stamp = inode.mount.stamp_rights(inode.ino);
        // SAFETY: both objects are held, and the buffer has that many bytes.
        match unsafe { (ceph.ceph_ll_getxattr)(mount, inode.raw, name, data, room, perms.raw()) } {
            result if result == -NODATA && stamp.life > 0 => Ok((0, Xattr { errno: NODATA, stamp })),
            result => checked(result).map(|length| (length.into(), Xattr { errno: 0, stamp })),
        }
    }

    pub(super) fn setxattr(&self, r: &Setxattr<'_>) -> Reply<ChangeMark> {
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        let ((ceph, mount), name, value) = (inode.parts(), r.name.as_ptr(), self.copy());
        let (data, size) = (value.as_ptr().cast(), value.len());
        let _change = inode.mount.change(&[Copied::Attributes(inode.ino), Copied::Rights(inode.ino)]);
        // SAFETY: both objects are held, and the value has the passed size.
        let result =
            checked(unsafe { (ceph.ceph_ll_setxattr)(mount, inode.raw, name, data, size, r.flags, perms.raw()) })?;
        Ok((result.into(), inode.mount.mark(inode.raw)))
    }

    pub(super) fn listxattr(&self, r: &Listxattr) -> Reply<Xattr> {
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        let ((ceph, mount), room, mut size) = (inode.parts(), self.room(r.room), 0);
        let (data, stamp) = (self.data.cast(), inode.mount.stamp_rights(inode.ino));
        // SAFETY: both objects are held, the buffer has that much room, and the pointer to the size is valid.
        done(unsafe { (ceph.ceph_ll_listxattr)(mount, inode.raw, data, room, &mut size, perms.raw()) })?;
        Ok((size as i64, Xattr { errno: 0, stamp }))
    }

    pub(super) fn removexattr(&self, r: &Removexattr<'_>) -> Reply<ChangeMark> {
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        let ((ceph, mount), name) = (inode.parts(), r.name.as_ptr());
        let _change = inode.mount.change(&[Copied::Attributes(inode.ino), Copied::Rights(inode.ino)]);
        // SAFETY: both objects are held.
        let result = checked(unsafe { (ceph.ceph_ll_removexattr)(mount, inode.raw, name, perms.raw()) })?;
        Ok((result.into(), inode.mount.mark(inode.raw)))
    }
}
