//! Finds the mounts of an incident's scope in a mount namespace.

use std::collections::HashSet;
use std::io::BufRead;
use std::net::IpAddr;

use crate::evidence::IncidentScope;

/// The ids, in this mountinfo, of the mounts in scope. They are found by device if it is known, since the mount point
/// may differ in other namespaces; else by mount point.
pub fn ids_in_scope(mountinfo: impl BufRead, scope: &IncidentScope) -> HashSet<u32> {
    lines(mountinfo).filter_map(|line| in_scope(&line, scope)).collect()
}

/// The servers' addresses of the mounts in scope, from the option `addr=`.
pub fn addresses_in_scope(mountinfo: impl BufRead, scope: &IncidentScope) -> Vec<IpAddr> {
    let in_scope = lines(mountinfo).filter(|line| in_scope(line, scope).is_some());
    in_scope
        .filter_map(|line| line.rsplit(' ').next()?.split(',').find_map(|o| address(o.strip_prefix("addr=")?)))
        .collect()
}

/// Parses an address with or without brackets and IPv6 scope; `None` if it is a host name.
pub fn address(text: &str) -> Option<IpAddr> {
    let address = text.trim_start_matches('[').trim_end_matches(']');
    address.split('%').next()?.parse().ok()
}

fn lines(mountinfo: impl BufRead) -> impl Iterator<Item = String> {
    mountinfo.split(b'\n').map_while(Result::ok).map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// The id in a line of mountinfo (`36 35 98:0 /mnt1 /mnt2 rw,noatime ...`, proc_pid_mountinfo(5)) if the mount is in
/// scope.
fn in_scope(line: &str, scope: &IncidentScope) -> Option<u32> {
    let mut fields = line.split(' ');
    let id = fields.next()?.parse().ok()?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let mountpoint = unescape(fields.nth(1)?);
    let wanted = scope.mounts.iter().any(|wanted| match wanted.device {
        Some(known) => known == device,
        None => wanted.mount.mountpoint == mountpoint,
    });
    wanted.then_some(id)
}

/// Decodes space, tab, line feed and backslash, which mountinfo has as three octal digits.
fn unescape(field: &str) -> String {
    ["\\040 ", "\\011\t", "\\012\n", "\\134\\"].iter().fold(field.to_owned(), |text, rule| {
        rule.split_at_checked(4).map_or(text.clone(), |(escaped, plain)| text.replace(escaped, plain))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::ScopedMount;

    const MOUNTINFO: &str = "36 35 0:49 / /mnt/a\\040b rw - cifs //srv/share rw,vers=3.1.1,addr=10.0.0.1,port=1445\n\
                             37 35 0:50 / /mnt rw - cifs //srv/other rw,addr=10.0.0.2\n\
                             38 36 0:49 /sub /srv/bind rw - cifs //srv/share rw,addr=fe80::1%3,port=1445\n";

    fn scope(mountpoint: &str, device: Option<(u32, u32)>) -> IncidentScope {
        let mount = model::Mount { mountpoint: mountpoint.to_owned(), ..Default::default() };
        IncidentScope { mounts: vec![ScopedMount { mount, device }], ..Default::default() }
    }

    #[test]
    fn a_mount_is_found_by_device_wherever_it_is_bound() {
        assert_eq!(ids_in_scope(MOUNTINFO.as_bytes(), &scope("/mnt/a b", Some((0, 49)))), HashSet::from([36, 38]));
    }

    #[test]
    fn a_mount_without_a_device_is_found_by_its_mount_point() {
        assert_eq!(ids_in_scope(MOUNTINFO.as_bytes(), &scope("/mnt/a b", None)), HashSet::from([36]));
        assert_eq!(ids_in_scope(MOUNTINFO.as_bytes(), &scope("/nowhere", None)), HashSet::new());
    }

    #[test]
    fn a_server_that_was_mounted_by_name_is_known_by_its_address() {
        let addresses = |device| addresses_in_scope(MOUNTINFO.as_bytes(), &scope("/mnt", device));
        assert_eq!(addresses(Some((0, 49))), ["10.0.0.1", "fe80::1"].map(|text| text.parse::<IpAddr>().unwrap()));
        assert_eq!(addresses(None), ["10.0.0.2".parse::<IpAddr>().unwrap()]);
    }
}
