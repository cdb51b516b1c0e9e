//! Names of the status codes of NFS (RFC 7530 13, RFC 8881 15.1, RFC 8276 8.4 and RFC 1813 2.6).

use model::Code;

/// Set in a status of version 3, where 4 uses some numbers for something else.
const VERSION_3: u32 = 3 << 16;
/// RPC failed: NFS has given no status.
const RPC: u32 = 1 << 16;

/// The name of `status`, as the kernel side encodes it, if it is one that is known.
pub fn name(status: u32) -> Option<&'static str> {
    match status {
        0 => Some("NFS_OK"),
        RPC => Some("RPC_FAILED"),
        _ => find(V4, status).or_else(|| find(V3, status.checked_sub(VERSION_3)?)),
    }
}

/// The status called `name`.
pub fn named(name: &str) -> Option<u32> {
    let code = |names: &[(u32, &str)]| names.iter().find(|(_, known)| *known == name).map(|(code, _)| *code);
    code(V4).or_else(|| Some(VERSION_3 | code(V3)?))
}

/// The errno that the client makes of the status; 0 for a status that the client handles itself, or maps to several
/// errnos.
pub fn errno(status: u32) -> u32 {
    let errno = match status & !VERSION_3 {
        63 => libc::ENAMETOOLONG,
        66 => libc::ENOTEMPTY,
        69 => libc::EDQUOT,
        70 => libc::ESTALE,
        71 => libc::EREMOTE,
        same @ 1..=31 => return same,
        _ => 0,
    };
    errno.cast_unsigned()
}

/// The server asks to be asked again later (RFC 8881 15.1.1.3 and 15.1.9.2, RFC 1813 2.6).
pub const LATER: &[u32] = &[10008, VERSION_3 | 10008, 10013]; // NFS4ERR_DELAY, NFS3ERR_JUKEBOX, NFS4ERR_GRACE

/// The server has done the request and kept no copy of its answer (RFC 8881 15.1.10.6): NFS4ERR_RETRY_UNCACHED_REP.
pub const REPEATED: &[u32] = &[10068];

/// Results that are normal: a name that does not exist, or exists already; a directory that is not empty; a lock that
/// another process holds; and answers that put the client off.
pub const ORDINARY: &[Code] = &[
    Code::Status(2),                 // NFS4ERR_NOENT
    Code::Status(VERSION_3 | 2),     // NFS3ERR_NOENT
    Code::Status(17),                // NFS4ERR_EXIST
    Code::Status(VERSION_3 | 17),    // NFS3ERR_EXIST
    Code::Status(66),                // NFS4ERR_NOTEMPTY
    Code::Status(VERSION_3 | 66),    // NFS3ERR_NOTEMPTY
    Code::Status(10004),             // NFS4ERR_NOTSUPP
    Code::Status(VERSION_3 | 10004), // NFS3ERR_NOTSUPP
    Code::Status(10008),             // NFS4ERR_DELAY
    Code::Status(VERSION_3 | 10008), // NFS3ERR_JUKEBOX
    Code::Status(10010),             // NFS4ERR_DENIED
    Code::Status(10095),             // NFS4ERR_NOXATTR
    // A lease, a session or state is lost: the client sets it up again, and the application sees nothing of it.
    Code::Status(10011), // NFS4ERR_EXPIRED
    Code::Status(10013), // NFS4ERR_GRACE
    Code::Status(10022), // NFS4ERR_STALE_CLIENTID
    Code::Status(10023), // NFS4ERR_STALE_STATEID
    Code::Status(10024), // NFS4ERR_OLD_STATEID
    Code::Status(10025), // NFS4ERR_BAD_STATEID
    Code::Status(10033), // NFS4ERR_NO_GRACE
    Code::Status(10047), // NFS4ERR_ADMIN_REVOKED
    Code::Status(10052), // NFS4ERR_BADSESSION
    Code::Status(10055), // NFS4ERR_CONN_NOT_BOUND_TO_SESSION
    Code::Status(10063), // NFS4ERR_SEQ_MISORDERED
    Code::Status(10078), // NFS4ERR_DEADSESSION
];

fn find(names: &[(u32, &'static str)], status: u32) -> Option<&'static str> {
    let index = names.binary_search_by_key(&status, |(code, _)| *code).ok()?;
    names.get(index).map(|(_, name)| *name)
}

/// Sorted by code.
const V3: &[(u32, &str)] = &[
    (1, "NFS3ERR_PERM"),
    (2, "NFS3ERR_NOENT"),
    (5, "NFS3ERR_IO"),
    (6, "NFS3ERR_NXIO"),
    (13, "NFS3ERR_ACCES"),
    (17, "NFS3ERR_EXIST"),
    (18, "NFS3ERR_XDEV"),
    (19, "NFS3ERR_NODEV"),
    (20, "NFS3ERR_NOTDIR"),
    (21, "NFS3ERR_ISDIR"),
    (22, "NFS3ERR_INVAL"),
    (27, "NFS3ERR_FBIG"),
    (28, "NFS3ERR_NOSPC"),
    (30, "NFS3ERR_ROFS"),
    (31, "NFS3ERR_MLINK"),
    (63, "NFS3ERR_NAMETOOLONG"),
    (66, "NFS3ERR_NOTEMPTY"),
    (69, "NFS3ERR_DQUOT"),
    (70, "NFS3ERR_STALE"),
    (71, "NFS3ERR_REMOTE"),
    (10001, "NFS3ERR_BADHANDLE"),
    (10002, "NFS3ERR_NOT_SYNC"),
    (10003, "NFS3ERR_BAD_COOKIE"),
    (10004, "NFS3ERR_NOTSUPP"),
    (10005, "NFS3ERR_TOOSMALL"),
    (10006, "NFS3ERR_SERVERFAULT"),
    (10007, "NFS3ERR_BADTYPE"),
    (10008, "NFS3ERR_JUKEBOX"),
];

/// Sorted by code.
const V4: &[(u32, &str)] = &[
    (1, "NFS4ERR_PERM"),
    (2, "NFS4ERR_NOENT"),
    (5, "NFS4ERR_IO"),
    (6, "NFS4ERR_NXIO"),
    (13, "NFS4ERR_ACCESS"),
    (17, "NFS4ERR_EXIST"),
    (18, "NFS4ERR_XDEV"),
    (20, "NFS4ERR_NOTDIR"),
    (21, "NFS4ERR_ISDIR"),
    (22, "NFS4ERR_INVAL"),
    (27, "NFS4ERR_FBIG"),
    (28, "NFS4ERR_NOSPC"),
    (30, "NFS4ERR_ROFS"),
    (31, "NFS4ERR_MLINK"),
    (63, "NFS4ERR_NAMETOOLONG"),
    (66, "NFS4ERR_NOTEMPTY"),
    (69, "NFS4ERR_DQUOT"),
    (70, "NFS4ERR_STALE"),
    (10001, "NFS4ERR_BADHANDLE"),
    (10003, "NFS4ERR_BAD_COOKIE"),
    (10004, "NFS4ERR_NOTSUPP"),
    (10005, "NFS4ERR_TOOSMALL"),
    (10006, "NFS4ERR_SERVERFAULT"),
    (10007, "NFS4ERR_BADTYPE"),
    (10008, "NFS4ERR_DELAY"),
    (10009, "NFS4ERR_SAME"),
    (10010, "NFS4ERR_DENIED"),
    (10011, "NFS4ERR_EXPIRED"),
    (10012, "NFS4ERR_LOCKED"),
    (10013, "NFS4ERR_GRACE"),
    (10014, "NFS4ERR_FHEXPIRED"),
    (10015, "NFS4ERR_SHARE_DENIED"),
    (10016, "NFS4ERR_WRONGSEC"),
    (10017, "NFS4ERR_CLID_INUSE"),
    (10018, "NFS4ERR_RESOURCE"),
    (10019, "NFS4ERR_MOVED"),
    (10020, "NFS4ERR_NOFILEHANDLE"),
    (10021, "NFS4ERR_MINOR_VERS_MISMATCH"),
    (10022, "NFS4ERR_STALE_CLIENTID"),
    (10023, "NFS4ERR_STALE_STATEID"),
    (10024, "NFS4ERR_OLD_STATEID"),
    (10025, "NFS4ERR_BAD_STATEID"),
    (10026, "NFS4ERR_BAD_SEQID"),
    (10027, "NFS4ERR_NOT_SAME"),
    (10028, "NFS4ERR_LOCK_RANGE"),
    (10029, "NFS4ERR_SYMLINK"),
    (10030, "NFS4ERR_RESTOREFH"),
    (10031, "NFS4ERR_LEASE_MOVED"),
    (10032, "NFS4ERR_ATTRNOTSUPP"),
    (10033, "NFS4ERR_NO_GRACE"),
    (10034, "NFS4ERR_RECLAIM_BAD"),
    (10035, "NFS4ERR_RECLAIM_CONFLICT"),
    (10036, "NFS4ERR_BADXDR"),
    (10037, "NFS4ERR_LOCKS_HELD"),
    (10038, "NFS4ERR_OPENMODE"),
    (10039, "NFS4ERR_BADOWNER"),
    (10040, "NFS4ERR_BADCHAR"),
    (10041, "NFS4ERR_BADNAME"),
    (10042, "NFS4ERR_BAD_RANGE"),
    (10043, "NFS4ERR_LOCK_NOTSUPP"),
    (10044, "NFS4ERR_OP_ILLEGAL"),
    (10045, "NFS4ERR_DEADLOCK"),
    (10046, "NFS4ERR_FILE_OPEN"),
    (10047, "NFS4ERR_ADMIN_REVOKED"),
    (10048, "NFS4ERR_CB_PATH_DOWN"),
    (10049, "NFS4ERR_BADIOMODE"),
    (10050, "NFS4ERR_BADLAYOUT"),
    (10051, "NFS4ERR_BAD_SESSION_DIGEST"),
    (10052, "NFS4ERR_BADSESSION"),
    (10053, "NFS4ERR_BADSLOT"),
    (10054, "NFS4ERR_COMPLETE_ALREADY"),
    (10055, "NFS4ERR_CONN_NOT_BOUND_TO_SESSION"),
    (10056, "NFS4ERR_DELEG_ALREADY_WANTED"),
    (10057, "NFS4ERR_BACK_CHAN_BUSY"),
    (10058, "NFS4ERR_LAYOUTTRYLATER"),
    (10059, "NFS4ERR_LAYOUTUNAVAILABLE"),
    (10060, "NFS4ERR_NOMATCHING_LAYOUT"),
    (10061, "NFS4ERR_RECALLCONFLICT"),
    (10062, "NFS4ERR_UNKNOWN_LAYOUTTYPE"),
    (10063, "NFS4ERR_SEQ_MISORDERED"),
    (10064, "NFS4ERR_SEQUENCE_POS"),
    (10065, "NFS4ERR_REQ_TOO_BIG"),
    (10066, "NFS4ERR_REP_TOO_BIG"),
    (10067, "NFS4ERR_REP_TOO_BIG_TO_CACHE"),
    (10068, "NFS4ERR_RETRY_UNCACHED_REP"),
    (10069, "NFS4ERR_UNSAFE_COMPOUND"),
    (10070, "NFS4ERR_TOO_MANY_OPS"),
    (10071, "NFS4ERR_OP_NOT_IN_SESSION"),
    (10072, "NFS4ERR_HASH_ALG_UNSUPP"),
    (10074, "NFS4ERR_CLIENTID_BUSY"),
    (10075, "NFS4ERR_PNFS_IO_HOLE"),
    (10076, "NFS4ERR_SEQ_FALSE_RETRY"),
    (10077, "NFS4ERR_BAD_HIGH_SLOT"),
    (10078, "NFS4ERR_DEADSESSION"),
    (10079, "NFS4ERR_ENCR_ALG_UNSUPP"),
    (10080, "NFS4ERR_PNFS_NO_LAYOUT"),
    (10081, "NFS4ERR_NOT_ONLY_OP"),
    (10082, "NFS4ERR_WRONG_CRED"),
    (10083, "NFS4ERR_WRONG_TYPE"),
    (10084, "NFS4ERR_DIRDELEG_UNAVAIL"),
    (10085, "NFS4ERR_REJECT_DELEG"),
    (10086, "NFS4ERR_RETURNCONFLICT"),
    (10087, "NFS4ERR_DELEG_REVOKED"),
    (10088, "NFS4ERR_PARTNER_NOTSUPP"),
    (10089, "NFS4ERR_PARTNER_NO_AUTH"),
    (10090, "NFS4ERR_UNION_NOTSUPP"),
    (10091, "NFS4ERR_OFFLOAD_DENIED"),
    (10092, "NFS4ERR_WRONG_LFS"),
    (10093, "NFS4ERR_BADLABEL"),
    (10094, "NFS4ERR_OFFLOAD_NO_REQS"),
    (10095, "NFS4ERR_NOXATTR"),
    (10096, "NFS4ERR_XATTR2BIG"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_are_sorted_so_that_every_name_is_found() {
        assert!(V3.is_sorted_by_key(|(code, _)| *code) && V4.is_sorted_by_key(|(code, _)| *code));
        assert_eq!(name(70), Some("NFS4ERR_STALE"));
        assert_eq!(name(VERSION_3 | 10008), Some("NFS3ERR_JUKEBOX"));
        assert_eq!(name(VERSION_3 | 10052), None);
        assert_eq!((named("NFS4ERR_STALE"), named("NFS3ERR_JUKEBOX")), (Some(70), Some(VERSION_3 | 10008)));
    }

    #[test]
    fn the_page_about_errors_names_every_ordinary_one() {
        let page = include_str!("../../../../docs/errors.md");
        for code in ORDINARY {
            let Code::Status(status) = code else { panic!("{code:?}") };
            assert!(page.contains(&format!("`{}`", name(*status).unwrap())), "{status}");
        }
    }
}
