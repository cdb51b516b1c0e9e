//! Kubernetes' names for the container of a process.

use serde::{Deserialize, Serialize};

/// Kubernetes' names for a container. An unknown name is empty, and not serialised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodNames {
    /// The namespace of the pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The container's name in its pod; empty for a pod's sandbox.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// The Deployment, StatefulSet, DaemonSet, Job or CronJob, as far as the pod's name tells.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workload: String,
}

impl PodNames {
    /// Whether no name is known.
    pub fn is_empty(&self) -> bool {
        self.pod.is_empty() && self.namespace.is_empty()
    }

    /// The same names, each changed by `change`.
    #[must_use]
    pub fn map(self, change: impl Fn(String) -> String) -> Self {
        let Self { namespace, pod, container_name, workload } = self;
        Self {
            namespace: change(namespace),
            pod: change(pod),
            container_name: change(container_name),
            workload: change(workload),
        }
    }
}
