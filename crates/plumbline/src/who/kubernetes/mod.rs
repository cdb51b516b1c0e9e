//! Finds the names that Kubernetes gave a container, in files that the container runtime and the kubelet write on the node. The API server and the
//! runtime's socket are not asked: they may hang or be down during a fault.

mod config;
mod files;
#[cfg(test)]
mod tests;
mod workload;

use std::{
    io,
    time::{Duration, Instant},
};

use model::{PodNames, text::printable};

use super::jobs::{full_container_of, pod_of};
use config::{ContainerNames, is_name};
use files::HostFiles;

/// The directories in which runtimes keep a container's `config.json`, below the container's id: containerd (its own, and those of k3s, k0s and
/// MicroK8s), and CRI-O.
const CONTAINERS: [(&str, &str); 6] = [
    ("/run/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json"),
    ("/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json"),
    ("/run/k0s/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json"),
    ("/var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json"),
    ("/run/containers/storage/overlay-containers", "userdata/config.json"),
    ("/var/lib/containers/storage/overlay-containers", "userdata/config.json"),
];
/// Links to the logs of containers: `POD_NAMESPACE_CONTAINER-ID.log`.
const CONTAINER_LOGS: &str = "/var/log/containers";
/// Directories of pods' logs: `NAMESPACE_POD_UID`.
const POD_LOGS: &str = "/var/log/pods";
/// All of these directories.
const DIRECTORIES: [&str; 8] = [
    CONTAINERS[0].0,
    CONTAINERS[1].0,
    CONTAINERS[2].0,
    CONTAINERS[3].0,
    CONTAINERS[4].0,
    CONTAINERS[5].0,
    CONTAINER_LOGS,
    POD_LOGS,
];

/// The shortest time between two log lines about unusable files.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Finds names of containers.
#[derive(Debug, Default)]
pub struct Kubernetes {
    files: HostFiles,
    /// When an unusable file was last logged, and how many were not logged since.
    said: Option<Instant>,
    unsaid: u64,
}

impl Kubernetes {
    /// Kubernetes' names of this cgroup's container; empty if it is not a container of Kubernetes, or no file has its names.
    pub fn names(&mut self, cgroup: &str) -> PodNames {
        let (pod, container) = (pod_of(cgroup), full_container_of(cgroup));
        let said = container.and_then(|id| self.in_config(id, pod.as_deref()));
        let said = said.or_else(|| self.in_logs(container, pod.as_deref()?)).unwrap_or_default();
        PodNames {
            workload: workload::workload_of(&said.pod).to_owned(),
            namespace: said.namespace,
            pod: said.pod,
            container_name: said.container,
        }
    }

    fn in_config(&mut self, id: &str, pod: Option<&str>) -> Option<ContainerNames> {
        for (directory, file) in CONTAINERS {
            let opened = match self.files.read(directory, &format!("{id}/{file}")) {
                Ok(opened) => opened,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    self.say(directory, id, &error.to_string());
                    continue;
                }
            };
            match config::read(opened) {
                // The pod's UID in the cgroup's path is right: the kernel knows where the process is.
                Ok(said) if !said.uid.is_empty() && pod.is_some_and(|pod| pod != said.uid) => {
                    self.say(directory, id, "it names another pod than the container's cgroup does");
                }
                Ok(said) if !said.pod.is_empty() => return Some(said),
                Ok(_) => {}
                Err(wrong) => self.say(directory, id, &wrong),
            }
        }
        None
    }

    /// The names in the names of log files: the pod's, and the container's if the container has a log.
    fn in_logs(&mut self, container: Option<&str>, uid: &str) -> Option<ContainerNames> {
        let of_pod = self.files.find(POD_LOGS, |name| pod_named(name, uid)).ok().flatten();
        let said = of_pod?;
        let with_container = container.and_then(|id| {
            let begin = format!("{}_{}_", said.pod, said.namespace);
            let found = self.files.find(CONTAINER_LOGS, |name| container_named(name, &begin, id)).ok().flatten();
            Some(ContainerNames { container: found?, ..said.clone() })
        });
        Some(with_container.unwrap_or(said))
    }

    fn say(&mut self, directory: &str, id: &str, wrong: &str) {
        if self.said.is_some_and(|at| at.elapsed() < SAY_EVERY) {
            self.unsaid += 1;
            return;
        }
        let others = std::mem::take(&mut self.unsaid);
        self.said = Some(Instant::now());
        let wrong = printable(wrong.as_bytes());
        let what = format!("no names of container {id:.12}: its file below {directory} is of no use: {wrong}");
        // Only the daemon logs.
        match tracing::enabled!(tracing::Level::WARN) {
            true => tracing::warn!(others, "{what}"),
            false => eprintln!("plumbline: {what}"),
        }
    }
}

/// The names in `NAMESPACE_POD_UID`, if it is the directory of this pod. Names in Kubernetes contain no `_`.
fn pod_named(directory: &str, uid: &str) -> Option<ContainerNames> {
    let (namespace, pod) = directory.strip_suffix(uid)?.strip_suffix('_')?.split_once('_')?;
    let both = is_name(namespace) && is_name(pod);
    both.then(|| ContainerNames {
        namespace: namespace.into(),
        pod: pod.into(),
        uid: uid.into(),
        ..ContainerNames::default()
    })
}

/// The container's name: `main` of `web-0_shop_main-ID.log`, if the link begins with `begin` and is of this container.
fn container_named(link: &str, begin: &str, id: &str) -> Option<String> {
    let name = link.strip_prefix(begin)?.strip_suffix(".log")?.strip_suffix(id)?.strip_suffix('-')?;
    is_name(name).then(|| name.to_owned())
}
