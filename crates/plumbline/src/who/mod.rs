//! Who asked: a process's cgroup, and what its path and Kubernetes' files say of the container and the job.

pub mod cgroups;
pub mod jobs;
pub mod kubernetes;
pub mod path;
mod recent;

pub use cgroups::Cgroups;
use model::PodNames;

/// A cgroup, and what is known of it. What is not known is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Below the root of its hierarchy: `/system.slice/cron.service`.
    pub path: String,
    /// Short id, or name.
    pub container: String,
    /// `slurm:1234.0`.
    pub job: String,
    /// What Kubernetes calls the container.
    pub names: PodNames,
}

impl Cgroup {
    /// The cgroup of this path, as far as the path tells.
    pub fn at(path: String) -> Self {
        let container = jobs::container_of(&path).unwrap_or_default().to_owned();
        Self { container, job: jobs::job_of(&path).unwrap_or_default(), path, names: PodNames::default() }
    }

    /// Bytes on the heap, about.
    fn bytes(&self) -> usize {
        let PodNames { namespace, pod, container_name, workload } = &self.names;
        let texts = [&self.path, &self.container, &self.job, namespace, pod, container_name, workload];
        size_of::<Self>() + texts.map(|text| text.capacity()).iter().sum::<usize>()
    }
}
