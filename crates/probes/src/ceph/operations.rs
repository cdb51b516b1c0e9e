//! Which requests there are: the kernel's numbers, and what they are called here.

/// The first codes, of both objects: requests that are not known here, and a wait for capabilities (`enum` of
/// ceph.bpf.c).
const FIRST: usize = 2;

/// Requests to metadata servers by their numbers (`CEPH_MDS_OP_*` of include/linux/ceph/ceph_fs.h).
const MDS: &[(u32, &str)] = &[
    (0x00100, "MDS_LOOKUP"),
    (0x00101, "MDS_GETATTR"),
    (0x00102, "MDS_LOOKUPHASH"),
    (0x00103, "MDS_LOOKUPPARENT"),
    (0x00104, "MDS_LOOKUPINO"),
    (0x00105, "MDS_LOOKUPNAME"),
    (0x00106, "MDS_GETVXATTR"),
    (0x01105, "MDS_SETXATTR"),
    (0x01106, "MDS_RMXATTR"),
    (0x01107, "MDS_SETLAYOUT"),
    (0x01108, "MDS_SETATTR"),
    (0x01109, "MDS_SETFILELOCK"),
    (0x00110, "MDS_GETFILELOCK"),
    (0x0110a, "MDS_SETDIRLAYOUT"),
    (0x01201, "MDS_MKNOD"),
    (0x01202, "MDS_LINK"),
    (0x01203, "MDS_UNLINK"),
    (0x01204, "MDS_RENAME"),
    (0x01220, "MDS_MKDIR"),
    (0x01221, "MDS_RMDIR"),
    (0x01222, "MDS_SYMLINK"),
    (0x01301, "MDS_CREATE"),
    (0x00302, "MDS_OPEN"),
    (0x00305, "MDS_READDIR"),
    (0x00400, "MDS_LOOKUPSNAP"),
    (0x01400, "MDS_MKSNAP"),
    (0x01401, "MDS_RMSNAP"),
    (0x00402, "MDS_LSSNAP"),
    (0x01403, "MDS_RENAMESNAP"),
];

/// Requests to OSDs by the number of what they do first (`CEPH_OSD_OP_*` of include/linux/ceph/rados.h).
const OSD: &[(u32, &str)] = &[
    (0x1201, "OSD_READ"),
    (0x2201, "OSD_WRITE"),
    (0x1205, "OSD_SPARSE_READ"),
    (0x2202, "OSD_WRITEFULL"),
    (0x1202, "OSD_STAT"),
    (0x2203, "OSD_TRUNCATE"),
    (0x2204, "OSD_ZERO"),
    (0x2205, "OSD_DELETE"),
    (0x2206, "OSD_APPEND"),
    (0x220d, "OSD_CREATE"),
    (0x1301, "OSD_GETXATTR"),
    (0x1303, "OSD_CMPXATTR"),
    (0x2301, "OSD_SETXATTR"),
    (0x1401, "OSD_CALL"),
    (0x221c, "OSD_COPY_FROM"),
    (0x222d, "OSD_COPY_FROM2"),
];

/// All names, by code: the first, then those of metadata servers, then those of OSDs.
pub(super) const NAMES: [&str; FIRST + MDS.len() + OSD.len()] = {
    let mut names = [""; FIRST + MDS.len() + OSD.len()];
    names[0] = "OTHER";
    names[1] = "CAPS_WAIT";
    let mut index = 0;
    while index < MDS.len() {
        names[FIRST + index] = MDS[index].1;
        index += 1;
    }
    index = 0;
    while index < OSD.len() {
        names[FIRST + MDS.len() + index] = OSD[index].1;
        index += 1;
    }
    names
};

/// A metadata server answers this request when another client gives the lock back.
pub(super) const SETFILELOCK: u16 = 13;

/// The kernel's number of each code, for the object of metadata servers.
pub(super) fn of_mds() -> Vec<u32> {
    [0; FIRST].into_iter().chain(MDS.iter().map(|(number, _)| *number)).collect()
}

/// The same for the object of OSDs.
pub(super) fn of_osds() -> Vec<u32> {
    [0; FIRST].into_iter().chain(MDS.iter().map(|_| 0)).chain(OSD.iter().map(|(number, _)| *number)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_code_has_one_name_and_a_number_in_one_of_the_objects() {
        let names: BTreeSet<_> = NAMES.iter().collect();
        assert_eq!((names.len(), names.contains(&"")), (NAMES.len(), false));
        assert_eq!(NAMES[usize::from(SETFILELOCK)], "MDS_SETFILELOCK");
        let called =
            |numbers: Vec<u32>, wanted| numbers.iter().position(|number| *number == wanted).map(|code| NAMES[code]);
        // Two requests have the same number, one for each kind of daemon.
        assert_eq!(called(of_mds(), 0x1201), Some("MDS_MKNOD"));
        assert_eq!(called(of_osds(), 0x1201), Some("OSD_READ"));
        assert_eq!(of_osds().len(), NAMES.len());
    }
}
