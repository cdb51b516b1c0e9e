//! Resolves the names of the command line.

use model::{Level, Operation, Protocol, text::printable};
use probes::{Alias, filesystems};

/// The default least duration of operations that are shown, milliseconds.
const MIN_MS: f64 = 10.0;

/// Refuses an option that only probes of another level have.
pub(super) fn only_for(option: &str, protocol: &Protocol, level: Level) -> Result<(), String> {
    if protocol.level == level {
        return Ok(());
    }
    let those: Vec<_> = probes::at(level).map(|protocol| protocol.name).collect();
    Err(format!("{option} is for the {} probe, and {} is another", those.join(" or "), protocol.name))
}

/// The superblock magic of a file-system type; 0 if no type is given.
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

/// The protocol of a probe's name, and the settings that an alias implies.
pub(super) fn probe_named(name: &str) -> Result<(&'static Protocol, Alias), String> {
    let own = |protocol: &'static Protocol| (protocol, Alias { name: protocol.name, min_ms: MIN_MS, fstype: None });
    let found = probes::aliases().find(|(_, alias)| alias.name == name);
    found.or_else(|| probes::protocol(name).map(own)).ok_or_else(|| {
        let known: Vec<_> = probes::protocols().map(|protocol| protocol.name).collect();
        let known = known.join(", ");
        format!("there is no probe {} in this version; it has: {known}", printable(name.as_bytes()))
    })
}

/// The operations to show: the named ones, or all.
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
        assert!(said("sbm").starts_with("there is no probe sbm in this version; it has: smb, syscalls, nfs, vfs, "));
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
        assert_eq!(meant("connections"), ("connections", 0.0, None));
        let magic = |probe, fstype| magic(probes::protocol(probe).unwrap(), Some(fstype));
        assert_eq!(magic("vfs", "nfs4"), Ok(0x6969));
        assert!(magic("vfs", "nfs5").unwrap_err().contains("cifs"));
        assert!(magic("smb", "cifs").is_err());
    }
}
