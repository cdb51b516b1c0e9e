//! The names in a container's `config.json`, as containerd and CRI-O write it for the OCI runtime: in its annotations.

use std::io::{BufReader, Read};

use serde::Deserialize;

/// The names in a config.json.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerNames {
    pub namespace: String,
    pub pod: String,
    /// The pod's UID; empty where the runtime does not write it (containerd before 1.6).
    pub uid: String,
    /// Empty for a pod's sandbox.
    pub container: String,
}

#[derive(Deserialize)]
struct ContainerConfig {
    #[serde(default)]
    annotations: Annotations,
}

/// containerd's (pkg/cri/annotations), and the kubelet's labels, which CRI-O has among its annotations.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "io.kubernetes.cri.sandbox-namespace")]
    containerd_namespace: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-name")]
    containerd_pod: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-uid")]
    containerd_uid: Option<String>,
    #[serde(rename = "io.kubernetes.cri.container-name")]
    containerd_container: Option<String>,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    kubelet_namespace: Option<String>,
    #[serde(rename = "io.kubernetes.pod.name")]
    kubelet_pod: Option<String>,
    #[serde(rename = "io.kubernetes.pod.uid")]
    kubelet_uid: Option<String>,
    #[serde(rename = "io.kubernetes.container.name")]
    kubelet_container: Option<String>,
}

/// CRI-O's name for the container of a sandbox.
const SANDBOX: &str = "POD";

/// Reads the names of a container. Everything else is skipped, so the memory does not depend on the size of the file.
///
/// # Errors
/// When the file is not the JSON of a container, or has names that are not valid in Kubernetes.
pub fn read(file: impl Read) -> Result<ContainerNames, String> {
    let config: ContainerConfig = serde_json::from_reader(BufReader::new(file)).map_err(|error| error.to_string())?;
    let Annotations {
        containerd_namespace,
        containerd_pod,
        containerd_uid,
        containerd_container,
        kubelet_namespace,
        kubelet_pod,
        kubelet_uid,
        kubelet_container,
    } = config.annotations;
    let name = |one: Option<String>, other: Option<String>| match one.or(other) {
        Some(name) if is_name(&name) => Ok(name),
        Some(name) => Err(format!("{name:.64?} is no name that Kubernetes gives")),
        None => Ok(String::new()),
    };
    let container = name(containerd_container, kubelet_container.filter(|name| name != SANDBOX))?;
    Ok(ContainerNames {
        namespace: name(containerd_namespace, kubelet_namespace)?,
        pod: name(containerd_pod, kubelet_pod)?,
        uid: name(containerd_uid, kubelet_uid)?,
        container,
    })
}

/// Whether this is a valid name in Kubernetes: a DNS subdomain (RFC 1123) of at most the length of one. Upper case and `_` are allowed, too,
/// since a container runtime accepts them.
pub fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !name.is_empty() && name.len() <= 253 && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(json: &str) -> Result<ContainerNames, String> {
        read(json.as_bytes())
    }

    /// As containerd 1.6 of Debian 12 writes it, shortened.
    const CONTAINERD: &str = r#"{"ociVersion": "1.0.2-dev", "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/sh"], "env": ["A=1"]},
        "annotations": {"io.kubernetes.cri.container-name": "main", "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.image-name": "docker.io/library/x:1", "io.kubernetes.cri.sandbox-id": "7d2f",
        "io.kubernetes.cri.sandbox-name": "web-7c5ddbdf54-x8f2k", "io.kubernetes.cri.sandbox-namespace": "shop",
        "io.kubernetes.cri.sandbox-uid": "0f9b7c3e-8a51-4d52-b1de-3c2f5a6e7d80"}, "linux": {"resources": {}}}"#;
    const CRI_O: &str = r#"{"annotations": {"io.container.manager": "cri-o", "io.kubernetes.container.name": "main",
        "io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.pod.name": "web-7c5ddbdf54-x8f2k",
        "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "0f9b7c3e-8a51-4d52-b1de-3c2f5a6e7d80"}}"#;

    #[test]
    fn both_runtimes_say_the_same() {
        let expected = ContainerNames {
            namespace: "shop".into(),
            pod: "web-7c5ddbdf54-x8f2k".into(),
            uid: "0f9b7c3e-8a51-4d52-b1de-3c2f5a6e7d80".into(),
            container: "main".into(),
        };
        assert_eq!(said(CONTAINERD).as_ref(), Ok(&expected));
        assert_eq!(said(CRI_O), Ok(expected));
        let sandbox = said(&CRI_O.replace("\"main\"", "\"POD\"")).unwrap();
        assert_eq!(sandbox.container, "", "a sandbox is no container of the pod's");
        assert_eq!(said(r#"{"annotations": {"other": "x"}, "process": null}"#), Ok(ContainerNames::default()));
    }

    #[test]
    fn what_is_no_name_is_refused_and_said() {
        let odd = CONTAINERD.replace("\"shop\"", r#""shop\u0007\n<b>""#);
        assert_eq!(said(&odd).unwrap_err(), r#""shop\u{7}\n<b>" is no name that Kubernetes gives"#);
        let long = CONTAINERD.replace("\"shop\"", &format!("\"{}\"", "a".repeat(254)));
        assert!(said(&long).unwrap_err().ends_with("is no name that Kubernetes gives"));
        for bad in ["", "7", "{", r#"{"annotations": {"io.kubernetes.pod.name": 7}}"#, r#"{"annotations": 7}"#] {
            assert!(said(bad).is_err(), "{bad}");
        }
        let deep = format!("{{\"x\": {}", "[".repeat(100_000));
        assert!(said(&deep).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = read(bytes.as_slice());
        }

        #[test]
        fn any_names_are_taken_as_they_are_or_refused(pod: String, namespace: String) {
            let config = serde_json::json!({"annotations": {
                "io.kubernetes.cri.sandbox-name": pod, "io.kubernetes.cri.sandbox-namespace": namespace}});
            match said(&config.to_string()) {
                Ok(said) => prop_assert_eq!((said.pod, said.namespace), (pod, namespace)),
                Err(_) => prop_assert!(!is_name(&pod) || !is_name(&namespace)),
            }
        }
    }
}
