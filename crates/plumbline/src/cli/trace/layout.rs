//! What the table shows of an event, by what its probe knows.

use model::{Detail, Event, Level, Protocol, Vfs};

use crate::view::{
    event::{errno_name, milliseconds, status_of},
    table::Column,
};

/// Which columns there are beside time, operation, duration, process and mount.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Layout {
    /// Phases, and the protocol's status.
    Remote,
    Local,
    /// Also where in the file, and how much was asked for.
    Vfs,
    /// Also who asked, as MPI numbers processes.
    Mpiio,
    /// The state that the connection was in, and its peer.
    Connections,
}

impl Layout {
    pub fn of(protocol: &Protocol) -> Self {
        match protocol.level {
            Level::Connection => Self::Connections,
            Level::Library => Self::Mpiio,
            Level::FileSystem => Self::Vfs,
            level if level.is_remote() => Self::Remote,
            _ => Self::Local,
        }
    }

    /// In the order of [`Layout::row`].
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Remote => &[
                ("TIME (UTC)", 15),
                ("OPERATION", 20),
                ("MS", -10),
                ("QUEUE", -9),
                ("WIRE", -9),
                ("DELIVER", -9),
                ("BYTES", -9),
                ("STATUS", 24),
                ("PID", -8),
                ("COMM", 16),
                ("MOUNT", 0),
            ],
            Self::Local => &[
                ("TIME (UTC)", 15),
                ("OPERATION", 9),
                ("MS", -10),
                ("BYTES", -9),
                ("ERROR", 12),
                ("PID", -8),
                ("COMM", 16),
                ("MOUNT", 24),
                ("FILE", 0),
            ],
            Self::Vfs => &[
                ("TIME (UTC)", 15),
                ("OPERATION", 15),
                ("MS", -10),
                ("OFFSET", -12),
                ("ASKED", -9),
                ("BYTES", -9),
                ("ERROR", 12),
                ("PID", -8),
                ("COMM", 16),
                ("MOUNT", 24),
                ("FILE", 0),
            ],
            Self::Mpiio => &[
                ("TIME (UTC)", 15),
                ("OPERATION", 19),
                ("MS", -10),
                ("BYTES", -11),
                ("RANK", -6),
                ("ERROR", 12),
                ("PID", -8),
                ("COMM", 16),
                ("MOUNT", 24),
                ("FILE", 0),
            ],
            Self::Connections => &[
                ("TIME (UTC)", 15),
                ("OPERATION", 20),
                ("MS", -10),
                ("STATE", 12),
                ("PID", -8),
                ("MOUNT", 24),
                ("PEER", 0),
            ],
        }
    }

    /// The cells of an event that began at that time of day.
    pub fn row(self, event: &Event, time: String, mount: &str) -> Vec<String> {
        let ms = |ns: u64| format!("{:.3}", milliseconds(ns));
        let phase = |ns: u64| if event.phases.known() { ms(ns) } else { "-".into() };
        let bytes = || if event.flags.bytes_unknown { "?".into() } else { event.bytes.to_string() };
        let status = || status_of(event.operation, event.status, event.flags);
        let error = || errno_name(event.errno).unwrap_or_else(|| "-".into());
        let (pid, comm) = (event.requester.pid.to_string(), || event.requester.comm.to_string());
        let mount = mount.to_owned();
        let file = || event.detail.file().map(|file| file.name.to_string()).unwrap_or_default();
        let mut cells = vec![time, event.operation.name().to_owned(), ms(event.duration)];
        match self {
            Self::Remote => {
                let status = status().or_else(|| errno_name(event.errno)).unwrap_or_default();
                let status = status.trim_start_matches("STATUS_").to_owned();
                cells.extend([event.phases.queue, event.phases.wire, event.phases.deliver].map(phase));
                cells.extend([bytes(), status, pid, comm(), mount]);
            }
            Self::Local => cells.extend([bytes(), error(), pid, comm(), mount, file()]),
            Self::Vfs => {
                let of = |number: fn(&Vfs) -> u64| match &event.detail {
                    Detail::Vfs(vfs) => number(vfs).to_string(),
                    _ => "-".into(),
                };
                cells.extend([of(|vfs| vfs.offset), of(|vfs| vfs.asked)]);
                cells.extend([bytes(), error(), pid, comm(), mount, file()]);
            }
            Self::Mpiio => {
                let rank = if let Detail::MpiIo(mpiio) = &event.detail { mpiio.rank } else { None };
                let rank = rank.map_or_else(|| "-".into(), |rank| rank.to_string());
                cells.extend([bytes(), rank, error(), pid, comm(), mount, file()]);
            }
            Self::Connections => {
                let peer =
                    if let Detail::Connection(own) = &event.detail { own.peer.to_string() } else { String::new() };
                cells.extend([status().unwrap_or_else(|| "-".into()), pid, mount, peer]);
            }
        }
        cells
    }
}
