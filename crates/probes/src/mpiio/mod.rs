//! MPI-IO: the calls of `MPI_File_*` functions, seen by uprobes on every MPI library that a process maps.
//!
//! `elf` finds the functions in a file, `libraries` finds the files, and the kernel side learns with each probe what it is
//! on: nothing there knows names.

use std::cell::RefCell;

use libbpf_rs::{MapCore, Object};
use model::{Code, Detail, Direction, Event, FileNames, Level, MpiIo, Operation, Protocol};

use crate::{
    columns::{COMM, DURATION, ERROR, EventCell, EventColumn, FILE, PID, TIME},
    decode::text,
    generated::probe_id,
    monotonic,
    mounts::Mounts,
    probe::Probe,
    spec::{Rung, Spec},
    syscalls::{make_equal, prefix},
};

mod libraries;
mod rank;
mod status;

use libraries::LIBRARIES;
use rank::KnownRanks;
pub use rank::rank_of_process;

/// The functions, without `MPI_File_`. Those that take no time are left out: to seek is to set a variable.
pub static PROTOCOL: Protocol = Protocol {
    name: "mpiio",
    operations: &[
        "open",
        "close",
        "delete",
        "sync",
        "set_size",
        "get_size",
        "preallocate",
        "set_view",
        "read",
        "write",
        "read_at",
        "write_at",
        "read_all",
        "write_all",
        "read_at_all",
        "write_at_all",
        "read_shared",
        "write_shared",
        "read_ordered",
        "write_ordered",
        "iread",
        "iwrite",
        "iread_at",
        "iwrite_at",
        "iread_all",
        "iwrite_all",
        "iread_at_all",
        "iwrite_at_all",
        "iread_shared",
        "iwrite_shared",
        "read_all_begin",
        "write_all_begin",
        "read_at_all_begin",
        "write_at_all_begin",
        "read_ordered_begin",
        "write_ordered_begin",
        "read_all_end",
        "write_all_end",
        "read_at_all_end",
        "write_at_all_end",
        "read_ordered_end",
        "write_ordered_end",
    ],
    level: Level::Library,
    direction,
    status_name: status::name,
    status_named: status::named,
    status_errno: status::errno,
    ordinary: ORDINARY,
    file_names: FileNames::Path,
    ..Protocol::BY_ERRNO
};

/// A file that is not there, or is there already: in the numbers of Open MPI and of MPICH.
const ORDINARY: &[Code] =
    &[Code::Status(0x1_002a), Code::Status(0x2_0025), Code::Status(0x1_001c), Code::Status(0x2_0019)];

const OPTIONAL: &[&str] = &["tp_mapped", "tp_started", "in_flight"];
const WITHOUT: &str =
    "libraries that come into use later are found every five minutes only, and calls in flight are not listed";

pub(crate) static SPEC: Spec = Spec {
    name: "mpiio",
    protocol: &PROTOCOL,
    id: probe_id::PROBE_MPIIO,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/mpiio.bpf.o")),
    rungs: &[
        Rung { via: "uprobe.session", required: &["session"], optional: OPTIONAL, without: WITHOUT },
        Rung {
            via: "uprobe.multi",
            required: &["multi_called", "multi_returned"],
            optional: OPTIONAL,
            without: WITHOUT,
        },
        Rung { via: "uprobe", required: &["plain_called", "plain_returned"], optional: OPTIONAL, without: WITHOUT },
    ],
    inflight: &["in_flight"],
    detail: |raw| Detail::MpiIo(MpiIo { inode: raw.inode, opened_as: text(&raw.file), asked: raw.asked, rank: None }),
    columns: &[
        TIME,
        EventColumn::operation(19),
        DURATION,
        EventColumn::bytes(-11),
        EventColumn::new("RANK", -6, EventCell::Own(rank_of)),
        ERROR,
        PID,
        COMM,
        EventColumn::mount(24),
        FILE,
    ],
    line: |event, line| {
        if let Detail::MpiIo(mpiio) = event.detail {
            (line.asked, line.rank) = (Some(mpiio.asked), mpiio.rank);
            line.collective = Some(is_collective(event.operation));
            line.bytes_known = Some(!event.flags.bytes_unknown);
        }
    },
    libraries: Some(&LIBRARIES),
    probe: || Box::<MpiIoProbe>::default(),
    ..Spec::BASE
};

/// The functions are named by what they do.
fn direction(name: &str) -> Option<Direction> {
    [("read", Direction::Read), ("write", Direction::Written)]
        .into_iter()
        .find_map(|(does, way)| name.contains(does).then_some(way))
}

fn rank_of(event: &Event) -> String {
    let rank = if let Detail::MpiIo(mpiio) = &event.detail { mpiio.rank } else { None };
    rank.map_or_else(|| "-".into(), |rank| rank.to_string())
}

/// Whether all processes of a communicator take part in the operation.
fn is_collective(operation: Operation) -> bool {
    let name = operation.name();
    ["_all", "_ordered"].iter().any(|part| name.contains(part))
        || ["open", "close", "sync", "set_size", "preallocate", "set_view"].contains(&name)
}

#[derive(Default)]
struct MpiIoProbe {
    ranks: RefCell<KnownRanks>,
}

impl Probe for MpiIoProbe {
    /// For a file that a process has not opened itself: the mount is the one that the name leads to.
    fn follow_mounts(&mut self, object: &mut Object, mounts: &Mounts) -> libbpf_rs::Result<()> {
        let points = mounts.iter();
        let points: Vec<_> =
            points.filter_map(|point| Some((prefix(point)?.to_vec(), point.device.0.to_ne_bytes().to_vec()))).collect();
        let map = object.maps().find(|map| map.name() == "mount_points");
        map.map_or(Ok(()), |map| make_equal(&map, &points))
    }

    /// The rank of the requester.
    fn complete(&self, event: &mut Event) {
        if let Detail::MpiIo(detail) = &mut event.detail {
            detail.rank = self.ranks.borrow_mut().of(event.requester.pid, monotonic());
        }
    }
}

/// The MPI implementation whose structures a library uses; `enum layout` of layout.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusLayout {
    Unknown,
    OpenMpi,
    Mpich,
}

/// What the arguments of a function are; `enum form` of mpiio.bpf.c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArgumentForm {
    File,
    Open,
    Close,
    Delete,
    Transfer,
    Asynchronous,
    Begin,
    End,
}

impl ArgumentForm {
    fn of(name: &str) -> Self {
        match name {
            "open" => Self::Open,
            "close" => Self::Close,
            "delete" => Self::Delete,
            _ if name.ends_with("_begin") => Self::Begin,
            _ if name.ends_with("_end") => Self::End,
            _ if name.starts_with("iread") || name.starts_with("iwrite") => Self::Asynchronous,
            _ if name.starts_with("read") || name.starts_with("write") => Self::Transfer,
            _ => Self::File,
        }
    }
}

/// What the kernel side is told of the function called `symbol` (`enum cookie` of mpiio.bpf.c); `None` if it is not watched.
fn cookie(symbol: &str, layout: StatusLayout) -> Option<u64> {
    let function = symbol.strip_prefix('P').unwrap_or(symbol).strip_prefix("MPI_File_")?;
    // MPI 4.0 has a second form of each, with large counts.
    let (name, large) = match function.strip_suffix("_c") {
        Some(name) => (name, true),
        None => (function, false),
    };
    let code = PROTOCOL.operations.iter().position(|operation| *operation == name)?;
    let offset = name.contains("_at");
    let code = u64::try_from(code).ok()?;
    Some(
        code | (ArgumentForm::of(name) as u64) << 8
            | (layout as u64) << 12
            | u64::from(offset) << 16
            | u64::from(large) << 17,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_told_by_its_name_whichever_its_profiling_form_and_its_counts() {
        let code = |name: &str| PROTOCOL.operation(name).map(|operation| u64::from(operation.code())).unwrap();
        assert_eq!(cookie("MPI_File_read", StatusLayout::OpenMpi), Some(code("read") | 4 << 8 | 1 << 12));
        assert_eq!(
            cookie("PMPI_File_write_at_all_c", StatusLayout::Mpich),
            Some(code("write_at_all") | 4 << 8 | 2 << 12 | 1 << 16 | 1 << 17)
        );
        assert_eq!(cookie("MPI_File_iread_at", StatusLayout::Unknown), Some(code("iread_at") | 5 << 8 | 1 << 16));
        assert_eq!(
            cookie("MPI_File_read_ordered_begin", StatusLayout::Unknown),
            Some(code("read_ordered_begin") | 6 << 8)
        );
        assert_eq!(cookie("MPI_File_read_at_all_end", StatusLayout::Unknown).map(|cookie| cookie >> 8 & 15), Some(7));
        assert_eq!(
            [cookie("MPI_File_seek", StatusLayout::OpenMpi), cookie("MPI_Send", StatusLayout::OpenMpi)],
            [None, None]
        );
    }

    #[test]
    fn collective_operations_are_told_from_individual_ones() {
        let collective: Vec<_> =
            PROTOCOL.all_operations().filter(|op| is_collective(*op)).map(Operation::name).collect();
        assert!(collective.contains(&"read_ordered") && collective.contains(&"iwrite_at_all"));
        assert!(!["read", "write_at", "iread_shared", "delete"].iter().any(|name| collective.contains(name)));
    }

    #[test]
    fn ordinary_failures_are_those_of_names() {
        let names: Vec<_> = ORDINARY
            .iter()
            .map(|code| match code {
                Code::Status(code) => status::name(*code).unwrap(),
                Code::Errno(_) => "",
            })
            .collect();
        let [missing, exists] = ["MPI_ERR_NO_SUCH_FILE", "MPI_ERR_FILE_EXISTS"];
        assert_eq!(names, [missing, missing, exists, exists]);
    }
}
