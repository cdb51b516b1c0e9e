//! The properties that hosts share: the networks of their addresses, labels, and the properties in the operator's file.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::Path,
};

use anyhow::{Context, Result, bail};
use diagnose::fleet::HostGroup;
use model::text::printable;

/// The property that is derived from addresses.
const NETWORK: &str = "network";
/// The usual prefix length of a network whose prefix is not known, bits.
const PREFIX_V4: u8 = 24;
const PREFIX_V6: u8 = 64;

/// The properties by which hosts are compared.
#[derive(Debug, Default)]
pub struct Groups {
    /// Only these properties; empty: all.
    pub by: Vec<String>,
    /// The properties in the operator's file.
    pub given: BTreeMap<String, BTreeSet<HostGroup>>,
}

/// The network of an address such as `10.1.0.7/24`, `10.1.0.7` or `[fd00::1]:9437`; `None` if it is not an address.
pub fn network(address: &str) -> Option<HostGroup> {
    let (host, prefix) = match address.split_once('/') {
        Some((host, prefix)) => (host, Some(prefix.parse::<u8>().ok()?)),
        None => (address, None),
    };
    let value =
        match host.parse::<IpAddr>().or_else(|_| host.parse().map(|both: std::net::SocketAddr| both.ip())).ok()? {
            IpAddr::V4(ip) => {
                let prefix = prefix.unwrap_or(PREFIX_V4).min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                format!("{}/{prefix}", std::net::Ipv4Addr::from(u32::from(ip) & mask))
            }
            IpAddr::V6(ip) => {
                let prefix = prefix.unwrap_or(PREFIX_V6).min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                format!("{}/{prefix}", std::net::Ipv6Addr::from(u128::from(ip) & mask))
            }
        };
    Some(HostGroup { by: NETWORK.to_owned(), value })
}

impl Groups {
    /// Reads the operator's file: a line for each host, its name and `PROPERTY=VALUE` words; `#` begins a comment.
    ///
    /// # Errors
    /// When the file cannot be read, or a line has another form.
    pub fn read(by: Vec<String>, path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self { by, given: BTreeMap::new() }) };
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut given: BTreeMap<String, BTreeSet<HostGroup>> = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(host) = words.next() else { continue };
            let mut column = 0;
            for word in words {
                column = line.get(column..).and_then(|rest| rest.find(word)).map_or(column, |at| column + at);
                let Some((key, value)) =
                    word.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty())
                else {
                    let place = format!("{}:{}:{}", path.display(), number + 1, column + 1);
                    bail!("{place}: `{}` is not PROPERTY=VALUE, such as rack=r3", printable(word.as_bytes()));
                };
                let group = HostGroup { by: printable(key.as_bytes()), value: printable(value.as_bytes()) };
                given.entry(host.to_owned()).or_default().insert(group);
                column += word.len();
            }
        }
        Ok(Self { by, given })
    }

    /// The groups to which each host belongs.
    pub fn of(
        &self,
        hosts: impl Iterator<Item = (String, BTreeSet<HostGroup>)>,
    ) -> BTreeMap<String, BTreeSet<HostGroup>> {
        let counts = |group: &HostGroup| self.by.is_empty() || self.by.contains(&group.by);
        hosts
            .map(|(host, known)| {
                // The file may have the name with or without the domain.
                let short = host.split('.').next().unwrap_or_default();
                let given = self.given.get(&host).or_else(|| self.given.get(short)).into_iter().flatten().cloned();
                let groups = known.into_iter().chain(given).filter(counts).collect();
                (host, groups)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gives_its_network() {
        let value = |address: &str| network(address).map(|group| group.value);
        for (address, expected) in [
            ("10.1.2.7/16", "10.1.0.0/16"),
            ("10.1.2.7", "10.1.2.0/24"),
            ("10.1.2.7:9437", "10.1.2.0/24"),
            ("10.1.2.7/0", "0.0.0.0/0"),
            ("10.1.2.7/99", "10.1.2.7/32"),
            ("fd00:0:0:7::1/48", "fd00::/48"),
            ("[fd00:0:0:7::1]:9437", "fd00:0:0:7::/64"),
        ] {
            assert_eq!(value(address).as_deref(), Some(expected), "{address}");
        }
        for none in ["", "host", "10.1.2.7/x", "host:9437", "1.2.3"] {
            assert_eq!(value(none), None, "{none}");
        }
    }

    #[test]
    fn the_operators_file_gives_groups_and_a_mistake_has_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("groups");
        std::fs::write(&path, "# hosts\nc1 rack=r1 row=a\n\nc2.site rack=r2 # new\n").unwrap();
        let groups = Groups::read(vec!["rack".into()], Some(&path)).unwrap();
        let known = BTreeSet::from([HostGroup { by: "network".into(), value: "10.0.0.0/24".into() }]);
        let of = groups.of(["c1.site", "c2.site", "c3"].map(|host| (host.to_owned(), known.clone())).into_iter());
        let values: Vec<_> =
            of.values().map(|groups| groups.iter().map(|one| one.value.as_str()).collect::<Vec<_>>()).collect();
        assert_eq!(values, [vec!["r1"], vec!["r2"], vec![]]);
        std::fs::write(&path, "c1 rack=r1 rack\n").unwrap();
        let error = Groups::read(vec![], Some(&path)).unwrap_err().to_string();
        assert!(error.ends_with("groups:1:12: `rack` is not PROPERTY=VALUE, such as rack=r3"), "{error}");
        assert!(Groups::read(vec![], Some(&dir.path().join("none"))).is_err());
    }
}
