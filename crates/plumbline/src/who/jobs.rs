//! Derives the job from a cgroup's path: the name of the work in a batch system, Kubernetes or systemd.

/// The job of a cgroup's path: `slurm:1234.0`, `pbs:42.server`, `flux:f2hZpdxKoP5K`, `pod:UID`, `container:ID`, `unit:NAME`; `None` if the path names
/// nothing.
pub fn job_of(path: &str) -> Option<String> {
    let components: Vec<&str> = path.split(['/', ':']).filter(|component| !component.is_empty()).collect();
    None.or_else(|| slurm(&components).map(|step| format!("slurm:{step}")))
        .or_else(|| pbs(&components).map(|job| format!("pbs:{job}")))
        .or_else(|| flux(&components).map(|job| format!("flux:{job}")))
        .or_else(|| pod(&components).map(|uid| format!("pod:{uid}")))
        .or_else(|| container_of(path).map(|id| format!("container:{id}")))
        .or_else(|| unit(&components).map(|unit| format!("unit:{unit}")))
}

/// Whether a job's name says more than the systemd unit that started the process.
pub fn is_batch(job: &str) -> bool {
    !job.starts_with("unit:")
}

/// `/slurm/uid_1000/job_7/step_0/task_0` (cgroup v1; with the node's name behind `slurm_` where several slurmd run) and
/// `/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0` (v2), of Slurm's cgroup plugins: `7.0`, `7.batch`.
fn slurm(components: &[&str]) -> Option<String> {
    let of_slurm = |component: &&str| {
        *component == "slurm" || component.starts_with("slurm_") || component.ends_with("slurmstepd.scope")
    };
    let below = components.get(components.iter().position(of_slurm)? + 1..)?;
    let mut below = below.iter().skip_while(|component| !component.starts_with("job_"));
    let job = below.next()?.strip_prefix("job_")?;
    match below.next().and_then(|component| component.strip_prefix("step_")) {
        Some(step) => Some(format!("{job}.{step}")),
        None => Some(job.to_owned()),
    }
}

/// `/pbs_jobs.service/jobid/42.server` of OpenPBS, `/pbspro.slice/pbspro-42.server.slice` and `/pbspro.service/jobid/42.server` of
/// PBS Pro, `/torque/42.server` of Torque. systemd spells a dash in a slice's name `\x2d`.
fn pbs(components: &[&str]) -> Option<String> {
    let of_pbs = |component: &&str| {
        let name = component.split('.').next().unwrap_or_default();
        ["pbs_jobs", "pbspro", "pbs", "torque"].contains(&name)
    };
    let below = components.get(components.iter().position(of_pbs)? + 1..)?;
    let job = below.iter().find(|component| **component != "jobid")?;
    let plain = job.strip_suffix(".slice").unwrap_or(job);
    let plain = plain.strip_prefix("pbspro-").or_else(|| plain.strip_prefix("pbs_jobs-")).unwrap_or(plain);
    plain.starts_with(|first: char| first.is_ascii_digit()).then(|| plain.replace("\\x2d", "-"))
}

/// `shell-0-f2hZpdxKoP5K.service` and `imp-shell-0-f2hZpdxKoP5K.service`, by rank and job id, where Flux starts jobs as units of systemd's (sdexec;
/// flux-core, src/common/libsubprocess/bulk-exec.c). The id is in base 58, with `f` for the `ƒ` that systemd does not take.
fn flux<'a>(components: &[&'a str]) -> Option<&'a str> {
    components.iter().find_map(|component| {
        let unit = component.strip_suffix(".service")?;
        let unit = unit.strip_prefix("imp-").unwrap_or(unit);
        let (rank, id) = unit.strip_prefix("shell-")?.split_once('-')?;
        let is_rank = !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit());
        let is_id = id.strip_prefix('f').is_some_and(|id| (1..=12).contains(&id.len()) && id.bytes().all(is_base58));
        (is_rank && is_id).then_some(id)
    })
}

/// A digit of base 58: no 0, O, I or l.
fn is_base58(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() && !b"0OIl".contains(&byte)
}

/// The UID of the pod in a cgroup's path of Kubernetes'.
pub fn pod_of(path: &str) -> Option<String> {
    let components: Vec<&str> = path.split(['/', ':']).collect();
    pod(&components)
}

/// `kubepods-burstable-pod1a2b_....slice` (systemd's driver) or `pod1a2b-...` (cgroupfs'): the pod's UID. That of a static pod is a
/// hash without dashes.
fn pod(components: &[&str]) -> Option<String> {
    let of_kubernetes = |component: &&str| component.contains("kubepods");
    let below = components.get(components.iter().position(of_kubernetes)?..)?;
    below.iter().rev().find_map(|component| {
        let name = component.strip_suffix(".slice").unwrap_or(component);
        let (before, uid) = name.rsplit_once("pod")?;
        let is_uid =
            matches!(uid.len(), 32 | 36) && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || b"_-".contains(&byte));
        (is_uid && (before.is_empty() || before.ends_with('-'))).then(|| uid.replace('_', "-"))
    })
}

/// The short id of the container in a cgroup's path, as its runtime prints it. The last component with an id counts.
pub fn container_of(path: &str) -> Option<&str> {
    path.rsplit('/').find_map(|component| {
        let name = component.strip_suffix(".scope").unwrap_or(component);
        let short = id_of(component).and_then(|id| id.get(..12));
        short.or_else(|| name.strip_prefix("machine-")).or_else(|| component.strip_prefix("lxc.payload."))
    })
}

/// The whole id of the container in a cgroup's path: 64 hexadecimal digits.
pub fn full_container_of(path: &str) -> Option<&str> {
    path.rsplit('/').find_map(id_of)
}

/// The id in docker-ID, cri-containerd-ID, crio-ID, libpod-ID, slice:cri-containerd:ID; bare in Docker's cgroupfs layout and Kubernetes'.
fn id_of(component: &str) -> Option<&str> {
    let name = component.strip_suffix(".scope").unwrap_or(component);
    let id = name.rsplit(['-', ':']).next().unwrap_or(name);
    (id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

/// The innermost service or scope of systemd's.
fn unit<'a>(components: &[&'a str]) -> Option<&'a str> {
    let is_unit = |component: &&&str| component.ends_with(".service") || component.ends_with(".scope");
    components.iter().rev().find(is_unit).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f4d3f";
    const POD: &str = "0f9b7c3e-8a51-4d52-b1de-3c2f5a6e7d80";

    #[test]
    fn a_path_leads_to_its_job() {
        let escaped = POD.replace('-', "_");
        let cases: &[(&str, &str)] = &[
            // Slurm with cgroup v1: task/cgroup's hierarchy in each controller.
            ("/slurm/uid_1000/job_1234/step_0/task_3", "slurm:1234.0"),
            ("/slurm/uid_1000/job_1234/step_batch", "slurm:1234.batch"),
            ("/slurm_node17/uid_0/job_7/step_extern", "slurm:7.extern"),
            ("/slurm/uid_1000/job_1234", "slurm:1234"),
            // Slurm with cgroup v2, 22.05 and later; the node's name where slurmd is one of several.
            ("/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0", "slurm:1234.0"),
            ("/system.slice/slurmstepd.scope/job_1234/step_batch/slurm", "slurm:1234.batch"),
            ("/system.slice/slurmstepd.scope/job_1234/step_interactive/user/task_special", "slurm:1234.interactive"),
            ("/system.slice/node17_slurmstepd.scope/job_99/step_extern/user/task_special", "slurm:99.extern"),
            // A container inside a job is still the job's.
            (&format!("/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/libpod-{ID}.scope"), "slurm:5.0"),
            // What only looks like it.
            ("/system.slice/slurmd.service", "unit:slurmd.service"),
            ("/system.slice/slurmstepd.scope/system", "unit:slurmstepd.scope"),
            // OpenPBS, PBS Pro, Torque.
            ("/pbs_jobs.service/jobid/42.pbsserver", "pbs:42.pbsserver"),
            ("/pbs_jobs.service/jobid/1234[5].pbs", "pbs:1234[5].pbs"),
            ("/pbspro.slice/pbspro-42.pbs\\x2dserver.slice", "pbs:42.pbs-server"),
            ("/pbspro.service/jobid/42.server", "pbs:42.server"),
            ("/pbspro/42.server", "pbs:42.server"),
            ("/torque/4711.head.cluster", "pbs:4711.head.cluster"),
            ("/pbs_jobs.service/jobid", "unit:pbs_jobs.service"),
            ("/system.slice/pbs.service", "unit:pbs.service"),
            // Flux, where it starts jobs as units of its user's systemd.
            (
                "/user.slice/user-500.slice/user@500.service/app.slice/imp-shell-0-f2hZpdxKoP5K.service",
                "flux:f2hZpdxKoP5K",
            ),
            ("/user.slice/user-500.slice/user@500.service/shell-12-fTE9HHdZvi3.service", "flux:fTE9HHdZvi3"),
            ("/system.slice/shell-x-fTE9HHdZvi3.service", "unit:shell-x-fTE9HHdZvi3.service"),
            ("/system.slice/shell-0-web.service", "unit:shell-0-web.service"),
            ("/system.slice/imp-kill-0-fTE9HHdZvi3.service", "unit:imp-kill-0-fTE9HHdZvi3.service"),
            // Kubernetes: systemd's driver and cgroupfs', each runtime, each class of service.
            (
                &format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{escaped}.slice/cri-containerd-{ID}.scope"
                ),
                &format!("pod:{POD}"),
            ),
            (&format!("/kubepods.slice/kubepods-pod{escaped}.slice/crio-{ID}.scope"), &format!("pod:{POD}")),
            (
                &format!(
                    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{escaped}.slice/crio-{ID}.scope/container"
                ),
                &format!("pod:{POD}"),
            ),
            (&format!("/kubepods.slice/kubepods-pod{escaped}.slice/docker-{ID}.scope"), &format!("pod:{POD}")),
            (&format!("/kubepods/burstable/pod{POD}/{ID}"), &format!("pod:{POD}")),
            (&format!("/kubepods/pod{POD}/{ID}"), &format!("pod:{POD}")),
            (
                &format!("/system.slice/containerd.service/kubepods-burstable-pod{escaped}.slice:cri-containerd:{ID}"),
                &format!("pod:{POD}"),
            ),
            (
                &format!(
                    "/system.slice/docker-{ID}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{escaped}.slice/cri-containerd-{ID}.scope"
                ),
                &format!("pod:{POD}"),
            ),
            (
                &format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod9f86d081884c7d659a2feaa0c55ad015.slice/cri-containerd-{ID}.scope"
                ),
                "pod:9f86d081884c7d659a2feaa0c55ad015",
            ),
            // Containers by themselves.
            (&format!("/system.slice/docker-{ID}.scope"), "container:4d3f4d3f4d3f"),
            (&format!("/docker/{ID}"), "container:4d3f4d3f4d3f"),
            (&format!("/machine.slice/libpod-{ID}.scope/container"), "container:4d3f4d3f4d3f"),
            (
                &format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
                "container:4d3f4d3f4d3f",
            ),
            ("/lxc.payload.web/system.slice/nginx.service", "container:web"),
            // systemd's units.
            ("/system.slice/nginx.service", "unit:nginx.service"),
            ("/system.slice/system-getty.slice/getty@tty1.service", "unit:getty@tty1.service"),
            ("/user.slice/user-1000.slice/session-3.scope", "unit:session-3.scope"),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/app-editor.service", "unit:app-editor.service"),
            ("/init.scope", "unit:init.scope"),
        ];
        for (path, job) in cases {
            assert_eq!(job_of(path).as_deref(), Some(*job), "{path}");
        }
        for path in ["", "/", "/user.slice", "/kubepods.slice", "/some/folder"] {
            assert_eq!(job_of(path), None, "{path}");
        }
    }

    #[test]
    fn containers_of_the_usual_runtimes_are_found() {
        for path in [
            format!("/system.slice/docker-{ID}.scope"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"),
            format!("/kubepods/burstable/pod1/{ID}"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{ID}"),
        ] {
            assert_eq!(container_of(&path), Some("4d3f4d3f4d3f"), "{path}");
        }
        assert_eq!(container_of("/lxc.payload.web/system.slice"), Some("web"));
        assert_eq!(full_container_of(&format!("/kubepods/pod1/{ID}/init.scope")), Some(ID));
        assert_eq!(full_container_of("/lxc.payload.web/system.slice"), None);
        assert_eq!(container_of("/user.slice/user-1000.slice/session-1.scope"), None);
    }
}
