//! What the names on the command line mean.

use model::{Level, Operation, Protocol, text::printable};
use probes::filesystems;

/// What a name on the command line means.
#[derive(Clone, Copy)]
pub(super) struct Alias<'a> {
    pub probe: &'a str,
    /// The default threshold.
    pub min_ms: f64,
    /// The type of file system that it is limited to.
    pub fstype: Option<&'static str>,
}

impl<'a> Alias<'a> {
    const fn of(probe: &'a str, min_ms: f64, fstype: Option<&'static str>) -> Self {
        Self { probe, min_ms, fstype }
    }
}

/// Other names of probes, and the defaults that go with them.
const ALIASES: &[(&str, Alias<'static>)] = &[
    ("smbslower", Alias::of("smb", 10.0, None)),
    ("smbiosnoop", Alias::of("smb", 0.0, None)),
    ("smbvfsslower", Alias::of("vfs", 10.0, Some("cifs"))),
    ("smbvfsiosnoop", Alias::of("vfs", 0.0, Some("cifs"))),
    ("nfsslower", Alias::of("nfs", 10.0, None)),
    ("nfsiosnoop", Alias::of("nfs", 0.0, None)),
    // What happens to a connection is over in a moment.
    ("connections", Alias::of("connections", 0.0, None)),
];

/// Refuses an option that only probes of another level know.
pub(super) fn only_for(option: &str, protocol: &Protocol, level: Level) -> Result<(), String> {
    if protocol.level == level {
        return Ok(());
    }
    let those: Vec<_> = probes::at(level).map(|protocol| protocol.name).collect();
    Err(format!("{option} is for the {} probe, and {} is another", those.join(" or "), protocol.name))
}

/// The superblock magic number of a type of file system; 0 for none.
pub(super) fn magic(protocol: &Protocol, fstype: Option<&str>) -> Result<u32, String> {
    let Some(fstype) = fstype else { return Ok(0) };
    only_for("--fstype", protocol, Level::FileSystem)?;
    filesystems::magic_of(fstype).ok_or_else(|| {
        let known: Vec<_> = filesystems::with_magic().collect();
        format!(
            "the type of file system {} is not known; these are: {}",
            printable(fstype.as_bytes()),
            known.join(", ")
        )
    })
}

/// The protocol that a probe's name means, and what else goes with the name.
pub(super) fn probe_named(name: &str) -> Result<(&'static Protocol, Alias<'_>), String> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let alias = alias.map_or(Alias::of(name, 10.0, None), |(_, alias)| *alias);
    probes::protocol(alias.probe).map(|protocol| (protocol, alias)).ok_or_else(|| {
        let known: Vec<_> = probes::protocols().map(|protocol| protocol.name).collect();
        let known = known.join(", ");
        format!("there is no probe {} in this version; it has: {known}", printable(name.as_bytes()))
    })
}

/// The operations to show: those named, or all.
pub(super) fn operations_named(protocol: &'static Protocol, names: &[String]) -> Result<Vec<Operation>, String> {
    if names.is_empty() {
        return Ok(protocol.all_operations().collect());
    }
    let find = |name: &String| {
        protocol.operation(name).ok_or_else(|| {
            let known: Vec<_> = protocol.all_operations().map(Operation::name).collect();
            let name = printable(name.as_bytes());
            format!("{} has no operation {name}; it has: {}", protocol.name, known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_answered_with_what_there_is() {
        let said = |name| probe_named(name).map(|(protocol, _)| protocol.name).unwrap_err();
        assert_eq!(
            said("sbm"),
            "there is no probe sbm in this version; it has: smb, syscalls, nfs, vfs, connections, mpiio, tcp, cephproxy"
        );
    }

    #[test]
    fn a_name_stands_for_a_probe_its_threshold_and_a_type_of_file_system() {
        let meant =
            |name| probe_named(name).map(|(protocol, alias)| (protocol.name, alias.min_ms, alias.fstype)).unwrap();
        assert_eq!(meant("smbiosnoop"), ("smb", 0.0, None));
        assert_eq!(meant("smbvfsslower"), ("vfs", 10.0, Some("cifs")));
        assert_eq!(meant("nfsslower"), ("nfs", 10.0, None));
        assert_eq!(meant("nfsiosnoop"), ("nfs", 0.0, None));
        assert_eq!(meant("vfs"), ("vfs", 10.0, None));
        assert_eq!(magic(&probes::vfs::PROTOCOL, Some("nfs4")), Ok(0x6969));
        assert!(magic(&probes::vfs::PROTOCOL, Some("nfs5")).unwrap_err().contains("cifs"));
        assert!(magic(&probes::smb::PROTOCOL, Some("cifs")).is_err());
    }
}
