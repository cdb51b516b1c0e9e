//! A mounted file system, and the key by which events name it.

use serde::{Deserialize, Serialize};

/// How the kernel side names a mount.
///
/// Two kinds share one number space: a superblock's device (`major << 20 | minor`, below 2^32), and, where the protocol
/// has no superblock at hand, a hash of what was mounted with bit 63 set (SMB: of `\\server\share`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MountKey(pub u64);

impl MountKey {
    /// Operations that belong to no mount, such as setting up an SMB session.
    pub const NONE: Self = Self(0);

    /// The key of a superblock's device number.
    pub fn device(major: u32, minor: u32) -> Self {
        Self(u64::from(major) << 20 | u64::from(minor))
    }

    /// The key of a source such as `//server/share`: FNV-1a over its bytes, slashes as `\`, ASCII letters lower-cased.
    /// The kernel side computes the same over `cifs_tcon.tree_name`.
    pub fn source(source: &[u8]) -> Self {
        let hash = source.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            let byte = if *byte == b'/' { b'\\' } else { byte.to_ascii_lowercase() };
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self(hash | 1 << 63)
    }
}

/// A mount's properties that are known without access to its file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    /// The mount point; empty if this process sees none.
    pub mountpoint: String,
    /// What is mounted: `//server/share`, `server:/export`.
    pub source: String,
    /// The server's name or address; empty for local file systems.
    pub server: String,
    /// File system type: `cifs`, `nfs4`, `fuse.sshfs`.
    pub fstype: String,
    /// Kubernetes: its persistent volume, if the kubelet has mounted it; empty for other mounts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pv: String,
}

impl Mount {
    /// The source, if it is on a server, whatever the mount point; else the mount point. Empty if neither is known.
    pub fn name(&self) -> &str {
        if self.server.is_empty() { &self.mountpoint } else { &self.source }
    }

    /// Kubernetes: the claim of the persistent volume, if the folder on the server is named after the claim: nfs-subdir-external-provisioner
    /// names the folder `NAMESPACE-CLAIM-VOLUME`. `namespace` is that of a pod that uses the volume.
    pub fn claim(&self, namespace: &str) -> Option<&str> {
        let folder = self.source.rsplit('/').next()?;
        let named = !self.pv.is_empty() && !namespace.is_empty();
        let both = folder.strip_suffix(&self.pv).filter(|_| named)?.strip_suffix('-')?;
        both.strip_prefix(namespace)?.strip_prefix('-').filter(|claim| !claim.is_empty())
    }

    /// The name to show: the mount point, else the source, else `-`.
    pub fn label(&self) -> &str {
        [&self.mountpoint, &self.source].into_iter().find(|name| !name.is_empty()).map_or("-", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_one_key_however_its_slashes_and_case_are_written() {
        assert_eq!(MountKey::source(b"//Srv/Share"), MountKey::source(br"\\srv\share"));
        assert_ne!(MountKey::source(b"//srv/share"), MountKey::source(b"//srv/share2"));
    }

    #[test]
    fn a_claim_is_what_stands_between_namespace_and_volume() {
        let claim = |source: &str, pv: &str, namespace: &str| {
            let mount = Mount { source: source.into(), pv: pv.into(), ..Mount::default() };
            mount.claim(namespace).map(str::to_owned)
        };
        assert_eq!(claim("srv:/export/shop-data-web-0-pvc-1", "pvc-1", "shop").as_deref(), Some("data-web-0"));
        for (source, pv, namespace) in [
            ("srv:/export/pvc-1", "pvc-1", "shop"),
            ("srv:/export/shop-pvc-1", "pvc-1", "shop"),
            ("srv:/export/shop-data-pvc-1", "pvc-2", "shop"),
            ("srv:/export/shop-data-pvc-1", "pvc-1", ""),
            ("srv:/export/-data-", "", ""),
            ("", "pvc-1", "shop"),
        ] {
            assert_eq!(claim(source, pv, namespace), None, "{source} {pv} {namespace}");
        }
    }

    #[test]
    fn a_device_key_never_meets_a_source_key() {
        assert_eq!(MountKey::device(0, 49), MountKey(49));
        assert!(MountKey::device(0xfff, 0xf_ffff).0 < 1 << 32);
        assert!(MountKey::source(b"").0 >= 1 << 63);
    }
}
