//! Looks up cgroups by id. The result is kept, so that it is known even when the processes and the cgroup are gone.

use std::{
    fs,
    rc::Rc,
    time::{Duration, Instant},
};

use model::text::printable;

use super::{
    Cgroup,
    jobs::{self, is_batch, job_of},
    kubernetes::Kubernetes,
    path::{is_unified, path_of_id},
    recent::RecentValues,
};

/// The memory for known cgroups, bytes: enough for some 1000 containers.
const MOST_BYTES: usize = 768 << 10;
/// How long it is assumed that a container has no names, and that a process has not moved to another cgroup.
const AGAIN: Duration = Duration::from_secs(10);

/// The known cgroups.
#[derive(Debug)]
pub struct Cgroups {
    /// By cgroup; also by process if the cgroup's id does not determine everything. With the time at which to look it up again.
    known: RecentValues<(u64, u32), (Rc<Cgroup>, Option<Instant>)>,
    kubernetes: Kubernetes,
}

impl Default for Cgroups {
    fn default() -> Self {
        Self { known: RecentValues::within(MOST_BYTES), kubernetes: Kubernetes::default() }
    }
}

impl Cgroups {
    /// The cgroup of a process: by the id that the kernel side saw, since the process may have ended; else the process's present cgroup; empty if
    /// neither exists any more.
    pub fn of(&mut self, pid: u32, id: u64) -> Rc<Cgroup> {
        if let Some(known) = self.known(pid, id) {
            return known;
        }
        let (paths, is_whole) = paths(pid, id);
        let found = self.named(&paths);
        let is_nameless = found.names.is_empty() && jobs::full_container_of(&found.path).is_some();
        let (key, for_now) = (if is_whole { (id, 0) } else { (id, pid) }, is_nameless || !is_whole);
        let until = for_now.then(|| Instant::now() + AGAIN);
        let found = Rc::new(found);
        // Without an id, a later process with the same process id could get this result.
        if id != 0 {
            self.known.insert(key, (Rc::clone(&found), until), found.bytes());
        }
        found
    }

    /// The cgroup, if it is known already.
    pub fn known(&mut self, pid: u32, id: u64) -> Option<Rc<Cgroup>> {
        let keys = [(id, 0), (id, pid)];
        let (cgroup, until) = keys.iter().find_map(|key| self.known.get(key))?;
        until.is_none_or(|until| Instant::now() < until).then_some(cgroup)
    }

    fn named(&mut self, paths: &[String]) -> Cgroup {
        let batch = paths.iter().find(|path| job_of(path).is_some_and(|job| is_batch(&job)));
        let path = batch.or_else(|| paths.first()).cloned().unwrap_or_default();
        let names = self.kubernetes.names(&path);
        Cgroup { names, ..Cgroup::at(path) }
    }
}

/// The paths of a process's cgroups, that of v2 first; and whether the id alone determines them, so that they apply to every process in the cgroup.
/// With cgroup v1, the job is in another hierarchy than the one with ids.
fn paths(pid: u32, id: u64) -> (Vec<String>, bool) {
    let by_id = (id != 0).then(|| path_of_id(id)).flatten();
    let is_whole = by_id.as_ref().is_some_and(|path| is_unified() || job_of(path).is_some_and(|job| is_batch(&job)));
    let mut paths: Vec<String> = by_id.into_iter().collect();
    if pid != 0 && !is_whole {
        paths.extend(paths_of(&fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default()));
    }
    (paths, is_whole)
}

/// The paths of `/proc/PID/cgroup`, that of v2 first.
fn paths_of(text: &[u8]) -> Vec<String> {
    let lines = text.split(|byte| *byte == b'\n');
    let mut all: Vec<_> = lines.filter_map(|line| Some((line, line.splitn(3, |byte| *byte == b':').nth(2)?))).collect();
    all.sort_by_key(|(line, _)| !line.starts_with(b"0::"));
    all.into_iter().map(|(_, path)| printable(path)).collect()
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
        let cgroup = Cgroups::default().named(&paths);
        assert_eq!((cgroup.job.as_str(), cgroup.path.as_str()), ("slurm:77.0", "/slurm/uid_1000/job_77/step_0/task_0"));
    }

    #[test]
    fn of_a_unified_hierarchy_there_is_one_path() {
        let cgroup = Cgroups::default().named(&paths_of(b"0::/system.slice/nginx.service\n"));
        assert_eq!((cgroup.job.as_str(), cgroup.container.as_str()), ("unit:nginx.service", ""));
        assert_eq!(Cgroups::default().named(&paths_of(b"")), Cgroup::default());
    }

    #[test]
    fn our_own_cgroup_is_the_same_by_its_id_and_by_the_process() {
        let mut cgroups = Cgroups::default();
        let by_process = cgroups.of(std::process::id(), 0);
        assert_eq!(*cgroups.of(std::process::id(), u64::MAX), *by_process, "an id that means nothing");
        assert_eq!(cgroups.of(0, 0).path, "");
    }
}
