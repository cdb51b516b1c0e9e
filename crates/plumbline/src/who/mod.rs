//! The requester of an operation: its process's cgroup, and the container and job according to the cgroup's path and Kubernetes' files.

pub mod cgroups;
pub mod jobs;
pub mod kubernetes;
pub mod path;
mod recent;

pub use cgroups::Cgroups;
use model::PodNames;

/// A cgroup and what is known of it. Unknown fields are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// The path below the root of its hierarchy, such as `/system.slice/cron.service`.
    pub path: String,
    /// The container's short id or name.
    pub container: String,
    /// The job, such as `slurm:1234.0`.
    pub job: String,
    /// Kubernetes' names of the container.
    pub names: PodNames,
}

impl Cgroup {
    /// The cgroup of this path, with what can be derived from the path.
    pub fn at(path: String) -> Self {
        let container = jobs::container_of(&path).unwrap_or_default().to_owned();
        Self { container, job: jobs::job_of(&path).unwrap_or_default(), path, names: PodNames::default() }
    }

    /// The memory on the heap, bytes, roughly.
    fn bytes(&self) -> usize {
        let PodNames { namespace, pod, container_name, workload } = &self.names;
        let texts = [&self.path, &self.container, &self.job, namespace, pod, container_name, workload];
        size_of::<Self>() + texts.map(|text| text.capacity()).iter().sum::<usize>()
    }
}
