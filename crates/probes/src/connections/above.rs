//! The interfaces above a network card: a bond, a VLAN, a bridge. Routes lead to the highest interface, but the card
//! drops packets.

use std::{fs, path::PathBuf};

use nix::net::if_::if_nametoindex;

/// The most interfaces that may lie one above another: a bridge on a VLAN on a bond.
const MOST_LEVELS: usize = 4;
/// Types of links (include/uapi/linux/if_arp.h) whose counters count only drops of this host. Packets that a tunnel cannot send may be
/// refused by the tunnel's other end.
const ETHERNET: &str = "1";
const INFINIBAND: &str = "32";
/// States of an interface without a link (RFC 2863; net/core/net-sysfs.c).
const DOWN: [&str; 3] = ["notpresent", "down", "lowerlayerdown"];

/// An interface and those above it.
pub(super) struct Above {
    names: Vec<String>,
    /// Their indexes in the kernel.
    pub indexes: Vec<u32>,
    /// Whether the interface's drops are this host's doing.
    pub is_own: bool,
}

impl Above {
    pub fn of(interface: &str) -> Self {
        let (mut names, mut level) = (vec![interface.to_owned()], 0..1);
        // The interface of a virtual machine or container does not lead to what is above it (a bridge).
        let counts = is_there(interface, "device") || !neighbours(interface, "lower_").is_empty();
        for _ in 0..if counts { MOST_LEVELS } else { 0 } {
            let last = names.get(level.clone()).unwrap_or_default();
            let next: Vec<_> = last.iter().flat_map(|name| neighbours(name, "upper_")).collect();
            level = names.len()..names.len() + next.len();
            names.extend(next);
        }
        let indexes = names.iter().filter_map(|name| if_nametoindex(name.as_str()).ok()).collect();
        let kind = text_of(interface, "type").unwrap_or_default();
        // A bond's counters include those of its members; a member that is not in use carries no traffic of the
        // servers.
        let is_in_use = !is_there(interface, "bonding")
            && text_of(interface, "bonding_slave/state").is_none_or(|state| state != "backup");
        Self { names, indexes, is_own: [ETHERNET, INFINIBAND].contains(&&*kind) && is_in_use }
    }

    /// Whether an interface of this name is among them.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|one| one == name)
    }
}

/// A file of an interface in sysfs.
pub(super) fn file_of(interface: &str, name: &str) -> PathBuf {
    PathBuf::from("/sys/class/net").join(interface).join(name)
}

/// The content of such a file.
fn text_of(interface: &str, name: &str) -> Option<String> {
    fs::read_to_string(file_of(interface, name)).ok().map(|text| text.trim().to_owned())
}

/// How often the interface's link has gone up or down since the interface exists; `None` while the link is down. The file `carrier` has the
/// state, too, but reading it takes the kernel's RTNL, which a driver may hold (net/core/net-sysfs.c).
pub(super) fn link_of(interface: &str) -> Option<u64> {
    text_of(interface, "operstate").filter(|state| !DOWN.contains(&&**state))?;
    text_of(interface, "carrier_changes")?.parse().ok()
}

fn is_there(interface: &str, name: &str) -> bool {
    fs::symlink_metadata(file_of(interface, name)).is_ok()
}

/// The names of the interfaces next to this one, by the prefix of their links: `upper_` or `lower_`.
fn neighbours(interface: &str, prefix: &str) -> Vec<String> {
    let links = fs::read_dir(file_of(interface, "")).into_iter().flatten().flatten();
    links.filter_map(|link| Some(link.file_name().to_str()?.strip_prefix(prefix)?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_nothing_above_and_is_no_card() {
        let above = Above::of("lo");
        assert_eq!((above.names, above.indexes, above.is_own), (vec!["lo".to_owned()], vec![1], false));
    }
}
