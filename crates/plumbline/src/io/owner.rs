//! Who asked, by the names that people know.

use std::{collections::HashMap, fs};

use model::text::{Text, printable};

use super::{
    jobs::{container_of, is_batch, job_of},
    meter::IoSample,
};
use crate::view::cgroup::path_of_id;

/// Names that are remembered; beyond, all are asked for again.
const MOST: usize = 65_536;

/// Who asked for an operation. What is not known is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    pub comm: String,
    /// Path below the root of cgroup v2, else of the first hierarchy that names the job.
    pub cgroup: String,
    pub container: String,
    /// As [`job_of`] spells it.
    pub job: String,
}

/// The names of those who asked so far: they may be gone when somebody wants to know.
#[derive(Debug, Default)]
pub struct OwnerNames {
    /// By cgroup id and process; 0 where unknown.
    known: HashMap<(u64, u32), Owner>,
    /// The cgroup that a process was last seen in.
    cgroups: HashMap<u32, u64>,
}

impl OwnerNames {
    /// Takes note of what the samples say of each other.
    pub fn learn(&mut self, samples: &[IoSample]) {
        if self.known.len() > MOST || self.cgroups.len() > MOST {
            *self = Self::default();
        }
        let both = samples.iter().filter(|sample| sample.cgroup != 0 && sample.pid != 0);
        self.cgroups.extend(both.map(|sample| (sample.pid, sample.cgroup)));
        // What was answered when its process had ended has no name: the same process's other operations may.
        for sample in samples.iter().filter(|sample| !sample.comm.as_bytes().is_empty()) {
            self.of(sample);
        }
    }

    /// Who asked for a sample's operations.
    pub fn of(&mut self, sample: &IoSample) -> &Owner {
        let cgroup = match sample.cgroup {
            0 => self.cgroups.get(&sample.pid).copied().unwrap_or(0),
            known => known,
        };
        let owner = self.known.entry((cgroup, sample.pid)).or_insert_with(|| find(cgroup, sample.pid, &sample.comm));
        if owner.comm.is_empty() {
            owner.comm = sample.comm.to_string();
        }
        owner
    }
}

fn find(cgroup: u64, pid: u32, comm: &Text<16>) -> Owner {
    let by_id = (cgroup != 0).then(|| path_of_id(cgroup)).flatten();
    let mut paths: Vec<String> = by_id.into_iter().collect();
    // With cgroup v1, the job is in another hierarchy than the one that has ids.
    if pid != 0 && !paths.iter().filter_map(|path| job_of(path)).any(|job| is_batch(&job)) {
        paths.extend(paths_of(&fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default()));
    }
    let now = if pid == 0 { None } else { fs::read(format!("/proc/{pid}/comm")).ok() };
    let comm = now.map_or_else(|| comm.to_string(), |now| printable(now.trim_ascii_end()));
    Owner { pid, comm, ..of_paths(&paths) }
}

/// The paths of `/proc/PID/cgroup`, that of v2 first.
fn paths_of(text: &[u8]) -> Vec<String> {
    let lines = text.split(|byte| *byte == b'\n');
    let mut all: Vec<_> = lines.filter_map(|line| Some((line, line.splitn(3, |byte| *byte == b':').nth(2)?))).collect();
    all.sort_by_key(|(line, _)| !line.starts_with(b"0::"));
    all.into_iter().map(|(_, path)| printable(path)).collect()
}

fn of_paths(paths: &[String]) -> Owner {
    let batch = paths.iter().find(|path| job_of(path).is_some_and(|job| is_batch(&job)));
    let path = batch.or_else(|| paths.first()).map_or("", String::as_str);
    Owner {
        cgroup: path.to_owned(),
        container: container_of(path).unwrap_or_default().to_owned(),
        job: job_of(path).unwrap_or_default(),
        ..Owner::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_hybrid_hierarchy_the_path_that_names_the_job_counts() {
        let text = b"12:devices:/slurm/uid_1000/job_77/step_0/task_0\n5:freezer:/slurm/uid_1000/job_77/step_0\n\
            1:name=systemd:/system.slice/slurmd.service\n0::/system.slice/slurmd.service\n";
        let paths = paths_of(text);
        assert_eq!(paths[0], "/system.slice/slurmd.service");
        let owner = of_paths(&paths);
        assert_eq!((owner.job.as_str(), owner.cgroup.as_str()), ("slurm:77.0", "/slurm/uid_1000/job_77/step_0/task_0"));
    }

    #[test]
    fn of_a_unified_hierarchy_there_is_one_path() {
        let owner = of_paths(&paths_of(b"0::/system.slice/nginx.service\n"));
        assert_eq!((owner.job.as_str(), owner.container.as_str()), ("unit:nginx.service", ""));
        assert_eq!(of_paths(&paths_of(b"")), Owner::default());
    }
}
