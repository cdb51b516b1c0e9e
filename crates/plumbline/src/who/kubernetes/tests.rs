//! Files of a node that are as they should be, and others.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    rc::Rc,
};

use super::*;
use crate::who::{Cgroup, recent::RecentValues};

const UID: &str = "0f9b7c3e-8a51-4d52-b1de-3c2f5a6e7d80";
const ID: &str = "4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f";

#[test]
fn names_of_logs_name_pod_and_container() {
    let said = pod_named(&format!("shop_web-0_{UID}"), UID).unwrap();
    assert_eq!((said.namespace.as_str(), said.pod.as_str()), ("shop", "web-0"));
    let others =
        ["shop_web-0_0f9b7c3e", "shop_web-0", UID, &format!("_{UID}"), &format!("__{UID}"), &format!("a b_c_{UID}")];
    for other in others {
        assert_eq!(pod_named(other, UID), None, "{other}");
    }
    let named = |link: &str| container_named(link, "web-0_shop_", "4d3f");
    assert_eq!(named("web-0_shop_main-4d3f.log").as_deref(), Some("main"));
    for other in ["web-0_shop_main-4d3e.log", "web-0_shop_-4d3f.log", "web-1_shop_main-4d3f.log", "web-0_shop_4d3f.log"]
    {
        assert_eq!(named(other), None, "{other}");
    }
}

#[test]
fn what_is_no_container_has_no_names_and_no_file_is_asked_for_it() {
    let mut kubernetes = Kubernetes::default();
    assert_eq!(kubernetes.names("/system.slice/cron.service"), PodNames::default());
    assert!(kubernetes.files.is_untouched());
}

/// A node, which is gone when this is.
struct Node {
    root: tempfile::TempDir,
    kubernetes: Kubernetes,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let kubernetes = Kubernetes { files: HostFiles::below(root.path()), ..Kubernetes::default() };
        Self { root, kubernetes }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Where containerd has a container's file.
    fn config(&self, id: &str) -> PathBuf {
        self.path(&format!("{}/{id}/config.json", CONTAINERS[0].0))
    }

    /// `namespace/pod/container (workload)` of a container of the pod [`UID`].
    fn named(&mut self, id: &str) -> String {
        let uid = UID.replace('-', "_");
        let path = format!("/kubepods.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{id}.scope");
        let PodNames { namespace, pod, container_name, workload } = self.kubernetes.names(&path);
        format!("{namespace}/{pod}/{container_name} ({workload})")
    }
}

const NOTHING: &str = "// ()";

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn containerd(pod: &str, uid: &str) -> String {
    format!(
        r#"{{"annotations": {{"io.kubernetes.cri.container-name": "main", "io.kubernetes.cri.sandbox-name": "{pod}",
            "io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.sandbox-uid": "{uid}"}}}}"#
    )
}

#[test]
fn each_runtime_s_file_is_found_and_the_kubelet_s_logs_without_one() {
    let mut node = Node::new();
    assert_eq!(node.named(ID), NOTHING, "an empty node");
    fs::create_dir_all(node.path(&format!("{POD_LOGS}/shop_web-0_{UID}/main"))).unwrap();
    assert_eq!(node.named(ID), "shop/web-0/ (web)");
    fs::create_dir_all(node.path(CONTAINER_LOGS)).unwrap();
    symlink("/nowhere", node.path(&format!("{CONTAINER_LOGS}/web-0_shop_main-{ID}.log"))).unwrap();
    assert_eq!(node.named(ID), "shop/web-0/main (web)");
    for (directory, file) in CONTAINERS {
        let path = node.path(&format!("{directory}/{ID}/{file}"));
        write(&path, &containerd("web-1", UID));
        assert_eq!(node.named(ID), "shop/web-1/main (web)", "{directory}");
        fs::remove_file(path).unwrap();
    }
    write(&node.config(ID), &containerd("web-1", ""));
    assert_eq!(node.named(ID), "shop/web-0/main (web)", "a UID that is none");
    assert_eq!(
        DIRECTORIES.iter().filter(|path| CONTAINERS.iter().any(|(of, _)| of == *path)).count(),
        CONTAINERS.len()
    );
}

#[test]
fn what_is_not_as_it_should_be_names_nothing_and_is_waited_for_never() {
    let mut node = Node::new();
    let config = node.config(ID);
    write(&config, &containerd("web-0", UID));
    assert_eq!(node.named(ID), "shop/web-0/main (web)");
    for content in [
        containerd("web-0", "00000000-8a51-4d52-b1de-3c2f5a6e7d80"),
        containerd("web\n0", UID),
        containerd(&"x".repeat(300), UID),
        containerd("web-0", UID).replace("shop", "\\u202eshop"),
        format!("{}{}", " ".repeat(5 << 20), containerd("web-0", UID)),
        "{".repeat(1 << 20),
        String::new(),
        "{}".to_owned(),
    ] {
        write(&config, &content);
        assert_eq!(node.named(ID), NOTHING, "{content:.80}");
    }
    fs::remove_file(&config).unwrap();
    nix::unistd::mkfifo(&config, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(node.named(ID), NOTHING, "a FIFO");
    fs::remove_file(&config).unwrap();
    write(&node.path("elsewhere"), &containerd("web-0", UID));
    symlink(node.path("elsewhere"), &config).unwrap();
    assert_eq!(node.named(ID), NOTHING, "a symbolic link");
    fs::remove_file(&config).unwrap();
    fs::create_dir(&config).unwrap();
    assert_eq!(node.named(ID), NOTHING, "a directory");
    assert!(node.kubernetes.unsaid > 5 && node.kubernetes.said.is_some(), "one line a minute");
}

#[test]
fn ten_thousand_containers_come_and_go_within_the_memory_for_some_of_them() {
    const BOUND: usize = 768 << 10;
    let mut node = Node::new();
    let mut known = RecentValues::within(BOUND);
    let uid = UID.replace('-', "_");
    let (before, mut asked) = (allocated(), Duration::ZERO);
    for number in 0..10_000_u32 {
        let id = format!("{number:064x}");
        let config = node.config(&id);
        write(&config, &containerd(&format!("web-7c5ddbdf54-x8f2k-{number}"), UID));
        let path = format!("/kubepods.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{id}.scope");
        let began = Instant::now();
        let names = node.kubernetes.names(&path);
        asked += began.elapsed();
        assert_eq!(names.container_name, "main", "{number}");
        let cgroup = Cgroup { names, ..Cgroup::at(path) };
        known.insert(number, Rc::new(cgroup.clone()), cgroup.bytes());
        fs::remove_dir_all(config.parent().unwrap()).unwrap();
        assert!(known.len() <= BOUND / 400, "{} after {number}", known.len());
    }
    assert!(known.get(&9_999).is_some() && known.get(&9_500).is_some() && known.get(&0).is_none());
    // docs/kubernetes.md has these figures; they are exact where no other test runs meanwhile.
    let grown = allocated().saturating_sub(before) >> 10;
    eprintln!("{} of 10000 are kept, in {grown} KiB; a look-up takes {:?}", known.len(), asked / 10_000);
}

/// Bytes that this process has allocated.
fn allocated() -> usize {
    // SAFETY: it takes nothing and returns a copy of the allocator's figures.
    unsafe { nix::libc::mallinfo2() }.uordblks
}
