//! The requesters of operations, by the names that people know.

use std::{collections::HashMap, fs, rc::Rc};

use model::text::{Text, printable};

use super::meter::IoSample;
use crate::who::{Cgroup, Cgroups};

/// The most names that are kept. Beyond this, all are looked up again.
const MOST: usize = 65_536;

/// The requester of operations. Unknown fields are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    pub comm: String,
    pub cgroup: Rc<Cgroup>,
}

/// The names of the requesters so far, kept since a process may have ended when its name is needed.
#[derive(Debug, Default)]
pub struct OwnerNames {
    /// By cgroup id and process id; 0 if unknown.
    known: HashMap<(u64, u32), Owner>,
    /// The cgroup that a process was last seen in.
    cgroups: HashMap<u32, u64>,
    names: Cgroups,
}

impl OwnerNames {
    /// Takes over names that one sample has and another lacks.
    pub fn learn(&mut self, samples: &[IoSample]) {
        if self.known.len() > MOST || self.cgroups.len() > MOST {
            *self = Self::default();
        }
        let both = samples.iter().filter(|sample| sample.cgroup != 0 && sample.pid != 0);
        self.cgroups.extend(both.map(|sample| (sample.pid, sample.cgroup)));
        // A sample of an operation that was answered after its process had ended has no name. Other samples of the process may have it.
        for sample in samples.iter().filter(|sample| !sample.comm.as_bytes().is_empty()) {
            self.of(sample);
        }
    }

    /// The requester of a sample's operations.
    pub fn of(&mut self, sample: &IoSample) -> &Owner {
        let cgroup = match sample.cgroup {
            0 => self.cgroups.get(&sample.pid).copied().unwrap_or(0),
            known => known,
        };
        let names = &mut self.names;
        let new = || find(names.of(sample.pid, cgroup), sample.pid, &sample.comm);
        let owner = self.known.entry((cgroup, sample.pid)).or_insert_with(new);
        if owner.comm.is_empty() {
            owner.comm = sample.comm.to_string();
        }
        owner
    }
}

fn find(cgroup: Rc<Cgroup>, pid: u32, comm: &Text<16>) -> Owner {
    let now = if pid == 0 { None } else { fs::read(format!("/proc/{pid}/comm")).ok() };
    let comm = now.map_or_else(|| comm.to_string(), |now| printable(now.trim_ascii_end()));
    Owner { pid, comm, cgroup }
}
