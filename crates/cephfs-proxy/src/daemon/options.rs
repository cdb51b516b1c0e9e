//! Options of Ceph that a client other than root may set. Root may set all options. Other options would make the daemon, which runs as root, read
//! and write files for the client (`keyring`, `log_file`, `admin_socket`), take memory (`client_oc_size`) or skip the checks of permissions
//! (`client_permissions`, `fuse_default_permissions`).

use std::{env, ffi::CString, fs};

/// The options that anyone may set: the location of the file system, and the behaviour of one's own mount.
const OPEN_TO_ALL: &[&str] = &[
    "auth_client_required",
    "auth_supported",
    "client_acl_type",
    "client_dirsize_rbytes",
    "client_fs",
    "client_mds_namespace",
    "client_mount_timeout",
    "client_mountpoint",
    "client_quota",
    "client_quota_df",
    "client_readahead_max_bytes",
    "client_readahead_max_periods",
    "client_readahead_min",
    "client_reconnect_stale",
    "client_snapdir",
    "fsid",
    "key",
    "mon_host",
    "ms_client_mode",
    "ms_mon_client_mode",
    "rados_mon_op_timeout",
    "rados_osd_op_timeout",
];

/// Whether anyone may set the option. Ceph treats a space or a dash in a name as an underscore.
pub fn is_open_to_all(option: &[u8]) -> bool {
    let plain: Vec<u8> = option.iter().map(|byte| if matches!(byte, b' ' | b'-') { b'_' } else { *byte }).collect();
    OPEN_TO_ALL.iter().any(|open| open.as_bytes() == plain)
}

/// Whether these are the contents of the configuration of the daemon's own host, which is as trusted as the daemon.
pub fn is_of_this_host(contents: &[u8]) -> bool {
    let path = env::var_os("CEPH_CONF").unwrap_or_else(|| "/etc/ceph/ceph.conf".into());
    fs::read(path).is_ok_and(|ours| ours == contents)
}

/// The options in a configuration file that anyone may set, with their values, for the client `id`: first those of the section `global`, then those
/// of `client`, then those of the client's own section. Lines that are not understood are left out.
pub fn open_to_all(contents: &[u8], id: &str) -> Vec<(CString, CString)> {
    let text = String::from_utf8_lossy(contents);
    let own = format!("client.{id}");
    let mut found = [const { Vec::new() }; 3];
    let mut rank = None;
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or("").trim();
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            rank = ["global", "client", &own].iter().position(|name| *name == section.trim());
        } else if let Some((option, value)) = line.split_once('=')
            && let Some(rank) = rank
            && is_open_to_all(option.trim().as_bytes())
            && let (Ok(option), Ok(value)) = (CString::new(option.trim()), CString::new(unquoted(value.trim())))
        {
            found[rank].push((option, value));
        }
    }
    found.concat()
}

fn unquoted(value: &str) -> &str {
    let quoted = |mark| value.strip_prefix(mark).and_then(|value| value.strip_suffix(mark));
    quoted('"').or_else(|| quoted('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_reach_beyond_the_mount_are_not_open() {
        assert!(
            is_open_to_all(b"client_acl_type") && is_open_to_all(b"client acl-type") && is_open_to_all(b"mon host")
        );
        for option in ["keyring", "log_file", "log file", "admin_socket", "client_permissions", "client_oc_size", ""] {
            assert!(!is_open_to_all(option.as_bytes()), "{option}");
        }
    }

    #[test]
    fn of_a_file_the_open_options_of_the_clients_sections_are_taken() {
        let contents = b"fsid = early\n[client]\nclient_quota = true # c\nkeyring = /root/key\n[global]\nmon host = \"[v2:a,v1:b]\"\n\
            [osd]\nfsid = no\n[client.fs]\nclient quota = false\n[client.other]\nclient_fs = no\nno equals sign\n[";
        let pairs: Vec<(String, String)> = open_to_all(contents, "fs")
            .into_iter()
            .map(|(option, value)| (option.into_string().unwrap(), value.into_string().unwrap()))
            .collect();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(option, value)| (option.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("mon host", "[v2:a,v1:b]"), ("client_quota", "true"), ("client quota", "false")]);
    }
}
