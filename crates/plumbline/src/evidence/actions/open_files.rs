//! Lists the processes that have files open on the affected mounts.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use model::text::printable;
use probes::tasks::FileIterator;

use super::{ActionInput, procfs};
use crate::evidence::IncidentScope;
use crate::evidence::output::Output;

/// The most mount namespaces whose mounts are remembered; further ones are read again for each process.
const NAMESPACES: usize = 64;

/// Lists every descriptor on an affected mount. The data is in kernel memory, so no file system is accessed.
pub fn open_files(task: &ActionInput, out: &mut Output) -> Result<()> {
    match FileIterator::load() {
        Ok(files) => by_kernel(&files, task.scope, out),
        Err(error) => list(Path::new("/proc"), task.scope, &format!("/proc: {error}"), out),
    }
}

/// Writes the header: the mounts, and the source of the data. Returns false if no mount is known.
fn begin(scope: &IncidentScope, via: &str, out: &mut Output) -> Result<bool> {
    for mount in &scope.mounts {
        writeln!(
            out,
            "# {} ({})",
            printable(mount.mount.label().as_bytes()),
            printable(mount.mount.source.as_bytes())
        )?;
    }
    if scope.mounts.is_empty() {
        writeln!(out, "# No affected mount is known, so no files are listed.")?;
        return Ok(false);
    }
    writeln!(
        out,
        "# Open descriptors; files that are only mapped or current directories are not looked for. By {via}."
    )?;
    writeln!(out, "{:>8} {:>5} {:<10} {:<16} FILE", "PID", "FD", "FLAGS", "COMM")?;
    Ok(true)
}

/// Lists by BPF iterator. Mounts with a known superblock are found in all mount namespaces.
fn by_kernel(files: &FileIterator, scope: &IncidentScope, out: &mut Output) -> Result<()> {
    if !begin(scope, "iter/task_file", out)? {
        return Ok(());
    }
    let mut by_id = HashSet::new();
    if scope.mounts.iter().any(|mount| mount.device.is_none()) {
        by_id = super::mounts::ids_in_scope(BufReader::new(procfs::open(&probes::mounts::mountinfo())?), scope);
    }
    let devices: HashSet<u64> = scope
        .mounts
        .iter()
        .filter_map(|mount| mount.device)
        .map(|(major, minor)| major << 20 | minor)
        .map(u64::from)
        .collect();
    let mut result = out.check().map_err(anyhow::Error::from);
    files.each(|file| {
        let on_mount = devices.contains(&file.device().0) || by_id.contains(&file.mount());
        if on_mount && result.is_ok() {
            result = print(
                file.tgid(),
                file.fd(),
                &format!("0{:o}", file.flags()),
                &file.comm().to_string(),
                file.path(),
                out,
            );
        }
    })?;
    result
}

fn print(pid: u32, fd: u32, flags: &str, comm: &str, path: &[u8], out: &mut Output) -> Result<()> {
    Ok(writeln!(out, "{pid:>8} {fd:>5} {flags:<10} {comm:<16} {}", printable(path))?)
}

/// Lists from /proc. It reads the links in /proc/PID/fd, and never follows them.
fn list(proc: &Path, scope: &IncidentScope, via: &str, out: &mut Output) -> Result<()> {
    if !begin(scope, via, out)? {
        return Ok(());
    }
    let mut namespaces = HashMap::new();
    for pid in procfs::numbers(proc) {
        let process = proc.join(pid.to_string());
        let mut mounts = None;
        for fd in procfs::numbers(&process.join("fd")) {
            out.check()?;
            // The kernel itself makes the link's text, without access to the file system. Sockets and pipes have no
            // path.
            let Ok(file) = fs::read_link(process.join(format!("fd/{fd}"))) else { continue };
            if !file.is_absolute() {
                continue;
            }
            let mounts = mounts.get_or_insert_with(|| mounts_of(&process, scope, &mut namespaces));
            let info = procfs::small(&process.join(format!("fdinfo/{fd}")), 1 << 10);
            let on_mount = match field(&info, "mnt_id:").and_then(|id| id.parse().ok()) {
                Some(id) => mounts.contains(&id),
                None => scope.mounts.iter().any(|mount| below(&file, &mount.mount.mountpoint)),
            };
            if on_mount {
                let comm = procfs::one_line(&process.join("comm"));
                let flags = field(&info, "flags:").unwrap_or("?");
                print(pid, fd, flags, &comm, file.as_os_str().as_encoded_bytes(), out)?;
            }
        }
    }
    Ok(())
}

/// The affected mounts' ids in the process's own namespace.
fn mounts_of(process: &Path, scope: &IncidentScope, namespaces: &mut HashMap<PathBuf, HashSet<u32>>) -> HashSet<u32> {
    let read = || {
        let mountinfo = procfs::open(&process.join("mountinfo")).ok();
        mountinfo.map(|file| super::mounts::ids_in_scope(BufReader::new(file), scope)).unwrap_or_default()
    };
    let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { return read() };
    if namespaces.len() >= NAMESPACES && !namespaces.contains_key(&namespace) {
        return read();
    }
    namespaces.entry(namespace).or_insert_with(read).clone()
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Whether a path is below a mount point, compared as text by whole components.
fn below(file: &Path, mountpoint: &str) -> bool {
    !mountpoint.is_empty() && file.starts_with(mountpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::ScopedMount;
    use crate::evidence::output::tests::output_of;
    use std::os::unix::fs::symlink;

    fn scope(mountpoint: &str, device: Option<(u32, u32)>) -> IncidentScope {
        let mount = model::Mount { mountpoint: mountpoint.to_owned(), ..Default::default() };
        IncidentScope { mounts: vec![ScopedMount { mount, device }], ..Default::default() }
    }

    #[test]
    fn files_are_told_by_their_mount_and_names_cannot_break_a_line() {
        let proc = tempfile::tempdir().unwrap();
        let process = proc.path().join("77");
        for dir in ["fd", "fdinfo", "ns"] {
            fs::create_dir_all(process.join(dir)).unwrap();
        }
        fs::write(process.join("mountinfo"), "36 35 0:49 / /mnt rw - cifs //srv/share rw\n").unwrap();
        fs::write(process.join("comm"), "cp\n").unwrap();
        for (fd, file, mount) in
            [(3, "/mnt/a\nb", 36), (4, "/mnt/covered", 99), (5, "socket:[1]", 36), (6, "/elsewhere", 36)]
        {
            symlink(file, process.join(format!("fd/{fd}"))).unwrap();
            fs::write(process.join(format!("fdinfo/{fd}")), format!("pos:\t0\nflags:\t0100000\nmnt_id:\t{mount}\n"))
                .unwrap();
        }
        symlink("/mnt/no-info", process.join("fd/7")).unwrap();
        let text = output_of(|out| list(proc.path(), &scope("/mnt", Some((0, 49))), "a test", out));
        let files: Vec<&str> =
            text.lines().filter(|line| line.contains(" 77 ")).map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(files, ["/mnt/a\\x0ab", "/elsewhere", "/mnt/no-info"]);
    }

    #[test]
    fn our_own_open_file_is_found_on_its_mount() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept open");
        let _file = fs::File::create(&path).unwrap();
        let device = nix::sys::stat::stat(&path).unwrap().st_dev;
        let device = (nix::libc::major(device), nix::libc::minor(device));
        let scope = scope("/", Some(device));
        let mut all = vec![output_of(|out| list(Path::new("/proc"), &scope, "a test", out))];
        all.extend(FileIterator::load().ok().map(|files| output_of(|out| by_kernel(&files, &scope, out))));
        for text in all {
            assert!(
                text.lines().any(|line| line.ends_with("kept open") && line.contains(&std::process::id().to_string())),
                "{text}"
            );
        }
    }
}
