//! The persistent volume of a mount, from the path that the kubelet has given it. Only the path is looked at: the mount is not touched.

/// What mounts through the container storage interface.
const CSI: &str = "kubernetes.io~csi";

/// `PV` of `.../pods/UID/volumes/kubernetes.io~csi/PV/mount`, of `.../pods/UID/volumes/kubernetes.io~nfs/PV` (and cephfs, azure-file, glusterfs), and
/// of `.../pods/UID/volume-subpaths/PV/CONTAINER/0` (kubernetes, pkg/volume/util/subpath). For a volume that a pod declares itself, `PV` is the pod's
/// name for the volume.
pub(crate) fn volume_of(path: &str) -> Option<&str> {
    let (_, below) = path.rsplit_once("/pods/")?;
    let mut parts = below.split('/');
    let uid = parts.next()?;
    let is_uid = matches!(uid.len(), 32 | 36) && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let rest: Vec<&str> = parts.collect();
    let name = match *rest.as_slice() {
        ["volumes", plugin, name] if plugin.contains('~') && plugin != CSI => name,
        ["volumes", CSI, name, "mount"] | ["volume-subpaths", name, _, _] => name,
        _ => return None,
    };
    // Where its name has a `/`, the kubelet writes `~` (k8s.io/utils/strings, EscapeQualifiedName).
    let is_name = !name.is_empty() && name.len() <= 253 && name.bytes().all(|byte| byte.is_ascii_graphic());
    (is_uid && is_name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f9b7c3e-8a51-4d52-b1de-3c2f5a6e7d80";

    #[test]
    fn a_volume_is_named_by_its_path() {
        for below in [
            "volumes/kubernetes.io~csi/pvc-1/mount",
            "volumes/kubernetes.io~nfs/pvc-1",
            "volumes/kubernetes.io~cephfs/pvc-1",
            "volumes/kubernetes.io~azure-file/pvc-1",
            "volume-subpaths/pvc-1/main/0",
        ] {
            for root in ["/var/lib/kubelet", "/var/lib/k0s/kubelet", "/mnt/pods/kubelet"] {
                let path = format!("{root}/pods/{UID}/{below}");
                assert_eq!(volume_of(&path), Some("pvc-1"), "{path}");
            }
        }
        for path in [
            "/mnt/share".to_owned(),
            format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/pvc-1"),
            format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi//mount"),
            format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/a b/mount"),
            format!("/var/lib/kubelet/pods/{UID}/volumes"),
            "/var/lib/kubelet/pods/me/volumes/kubernetes.io~nfs/pvc-1".to_owned(),
            "/var/lib/kubelet/plugins/kubernetes.io/csi/smb.csi.k8s.io/1a2b/globalmount".to_owned(),
        ] {
            assert_eq!(volume_of(&path), None, "{path}");
        }
    }
}
