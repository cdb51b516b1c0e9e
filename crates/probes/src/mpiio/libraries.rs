//! What an MPI library is, and how to attach to its functions.

use std::{collections::HashMap, fs::File, path::Path};

use libbpf_rs::{Link, MapCore, Object, UprobeMultiOpts, UprobeOpts};

use super::{StatusLayout, cookie};
use crate::libraries::{AttachOffsets, LibraryKind, elf::Elf, is_on_library, map_of};

/// MPI libraries.
pub(crate) static LIBRARIES: LibraryKind = LibraryKind {
    probe: "mpiio",
    what: "an MPI library",
    prefix: "libmpi",
    programs: LAUNCHERS,
    attempt,
    examine,
    attach,
    forget_ended,
};

/// In every library that does MPI-IO.
const PART: &[u8] = b"MPI_File_open";

/// Programs that start the processes of a job, or are the programs by which others start them.
const LAUNCHERS: &[&str] = &[
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "mpirun.openmpi",
    "orterun",
    "orted",
    "prterun",
    "prted",
    "prun",
    "hydra_pmi_proxy",
    "hydra_bstrap_proxy",
    "srun",
    "slurmstepd",
    "pbs_mom",
    "pbs_attach",
    "jsrun",
    "palsd",
    "flux-shell",
];

/// On the beginning of this program: the probe is gone at once, and this program is past it.
fn attempt(object: &mut Object, via: &str) -> libbpf_rs::Result<()> {
    let path = Path::new("/proc/self/exe");
    let own = File::open(path)?;
    let entry = Elf::of(&own).and_then(|elf| elf.entry());
    let Some(entry) = entry else { return Ok(()) };
    attach(object, via, path, &AttachOffsets { offsets: vec![(entry, 0)], unseen: "" }).map(drop)
}

fn examine(file: &File, name: &str) -> Option<AttachOffsets> {
    let elf = Elf::of(file)?;
    let wanted = |name: &[u8]| {
        name.starts_with(b"MPI_File_") || name.starts_with(b"PMPI_File_") || LAYOUT_SYMBOLS.contains(&name)
    };
    let defined = elf.definitions(PART, wanted);
    let layout = layout(&defined, name);
    // One place may have several names; two probes on it would see each call twice.
    let offsets: HashMap<_, _> = defined
        .iter()
        .filter_map(|(name, offset)| Some((*offset, cookie(name, layout)?)).filter(|(offset, _)| *offset != 0))
        .collect();
    let unseen =
        if layout == StatusLayout::Unknown { "bytes are unknown, since it is neither Open MPI nor MPICH," } else { "" };
    (!offsets.is_empty()).then(|| AttachOffsets { offsets: offsets.into_iter().collect(), unseen })
}

/// What shows which library's structures are in use.
const LAYOUT_SYMBOLS: &[&[u8]] =
    &[b"ompi_mpi_comm_world", b"MPIR_Err_create_code", b"MPIR_F08_MPI_IN_PLACE", b"MPI_Type_size_x"];

/// Both have had their present layout since they offer MPI 3.0. The ABI of MPI 5.0 has another.
fn layout(defined: &HashMap<String, u64>, file_name: &str) -> StatusLayout {
    let has = |name: &str| defined.contains_key(name);
    if !has("MPI_Type_size_x") || file_name.starts_with("libmpi_abi") {
        StatusLayout::Unknown
    } else if has("ompi_mpi_comm_world") {
        StatusLayout::OpenMpi
    } else if has("MPIR_Err_create_code") || has("MPIR_F08_MPI_IN_PLACE") {
        StatusLayout::Mpich
    } else {
        StatusLayout::Unknown
    }
}

/// Attaches to these offsets of a file, each with its cookie, for all processes.
fn attach(object: &mut Object, via: &str, path: &Path, places: &AttachOffsets) -> libbpf_rs::Result<Vec<Link>> {
    let (offsets, cookies): (Vec<_>, Vec<_>) =
        places.offsets.iter().map(|(offset, cookie)| (usize::try_from(*offset).unwrap_or(0), *cookie)).unzip();
    let mut links = Vec::new();
    // What sees a call's end comes last in the object, and is attached first: see attach_rung().
    let programs: Vec<_> = object.progs_mut().filter(is_on_library).collect();
    for program in programs.into_iter().rev() {
        let retprobe = program.section().to_string_lossy().starts_with("uret");
        if via == "uprobe" {
            for (func_offset, cookie) in offsets.iter().zip(&cookies) {
                let options = UprobeOpts { cookie: *cookie, retprobe, ..UprobeOpts::default() };
                links.push(program.attach_uprobe_with_opts(-1, path, *func_offset, options)?);
            }
        } else {
            let session = via == "uprobe.session";
            let (offsets, cookies) = (offsets.clone(), cookies.clone());
            let options = UprobeMultiOpts { offsets, cookies, retprobe, session, ..UprobeMultiOpts::default() };
            links.push(program.attach_uprobe_multi_with_opts(-1, path, "", options)?);
        }
    }
    Ok(links)
}

/// Files of processes that have ended without closing them.
fn forget_ended(object: &Object) {
    let Some(map) = map_of(object, "opened_files") else { return };
    let process = |key: &[u8]| Some(u64::from_ne_bytes(key.get(8..16)?.try_into().ok()?));
    let mut alive = HashMap::new();
    for key in map.keys() {
        let Some(pid) = process(&key) else { continue };
        if !*alive.entry(pid).or_insert_with(|| Path::new(&format!("/proc/{pid}")).exists()) {
            // It may have gone by itself.
            let _ = map.delete(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_known_by_what_only_that_library_defines() {
        let of = |names: &[&str], file| layout(&names.iter().map(|name| ((*name).to_owned(), 1)).collect(), file);
        assert_eq!(of(&["MPI_Type_size_x", "ompi_mpi_comm_world"], "libmpi.so.40"), StatusLayout::OpenMpi);
        assert_eq!(of(&["MPI_Type_size_x", "MPIR_Err_create_code"], "libmpi.so.12"), StatusLayout::Mpich);
        assert_eq!(of(&["ompi_mpi_comm_world"], "libmpi.so.1"), StatusLayout::Unknown);
        assert_eq!(of(&["MPI_Type_size_x", "MPIR_Err_create_code"], "libmpi_abi.so.0"), StatusLayout::Unknown);
        assert_eq!(of(&["MPI_Type_size_x"], "libmpi.so"), StatusLayout::Unknown);
    }
}
