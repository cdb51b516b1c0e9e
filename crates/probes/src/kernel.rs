//! What this kernel allows, and which modules it has.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    fs,
    path::Path,
    sync::OnceLock,
};

use libbpf_rs::btf::{
    Btf, TypeId,
    types::{Func, Struct},
};
use nix::sys::utsname::uname;

/// The facts that decide which probes can run. Gathered once; cheap.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// `6.12.9-amd64`.
    pub release: String,
    /// Whether the kernel describes its types (`/sys/kernel/btf/vmlinux`).
    pub btf: bool,
    /// `none`, `integrity`, `confidentiality`; `unknown` where securityfs does not say.
    pub lockdown: String,
    /// The names of installed modules, read at the first request: the lists are long, and a probe asks every few
    /// seconds.
    installed: RefCell<HashMap<String, ModuleState>>,
}

impl Kernel {
    /// Asks the running kernel.
    pub fn current() -> Self {
        let release = uname().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default();
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        let chosen = lockdown.split(['[', ']']).nth(1).unwrap_or("unknown");
        let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
        Self { release, btf, lockdown: chosen.into(), installed: RefCell::default() }
    }

    /// Whether a module is available, and if not, why. A module that is installed later is noticed once it is loaded.
    pub fn module(&self, name: &str) -> ModuleState {
        if Path::new("/sys/module").join(name).exists() {
            return ModuleState::Loaded;
        }
        if let Some(known) = self.installed.borrow().get(name) {
            return *known;
        }
        let found = self.look_for(name);
        self.installed.borrow_mut().insert(name.to_owned(), found);
        found
    }

    fn look_for(&self, name: &str) -> ModuleState {
        let folder = Path::new("/lib/modules").join(&self.release);
        let file = format!("/{name}.ko");
        let listed = |list: &str| {
            fs::read_to_string(folder.join(list)).is_ok_and(|text| text.lines().any(|line| line.contains(&file)))
        };
        if listed("modules.builtin") {
            ModuleState::Loaded
        } else if listed("modules.dep") {
            ModuleState::Loadable
        } else {
            ModuleState::Missing
        }
    }
}

/// What the process needs in order to load and attach programs, as a cure.
pub const PERMISSION: &str = "run as root, or with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_NET_ADMIN and CAP_SYSLOG";

/// Whether this process has the capabilities to load and attach programs (capabilities(7)).
pub fn may_load() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    // If /proc does not say, the kernel will refuse the programs if the capabilities are missing.
    effective.is_none_or(|set| set & CAP_SYS_ADMIN != 0 || set & CAP_PERFMON_AND_BPF == CAP_PERFMON_AND_BPF)
}

/// Which of these functions the kernel proper has, as functions of their own: compilers inline some functions into others.
pub(crate) fn functions_of_kernel<'a>(names: &HashSet<&'a str>) -> libbpf_rs::Result<HashSet<&'a str>> {
    let btf = Btf::from_vmlinux()?;
    // One pass for all names: a lookup of one name is one pass, too.
    let function =
        |id| btf.type_by_id::<Func>(TypeId::from(id))?.name()?.to_str().and_then(|name| names.get(name).copied());
    Ok((1..u32::try_from(btf.len()).unwrap_or(u32::MAX)).filter_map(function).collect())
}

/// The state of a kernel module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleState {
    /// In the kernel, or part of it.
    Loaded,
    /// Installed, not loaded: the first mount loads it.
    Loadable,
    /// Not available for this kernel.
    Missing,
}

/// Whether a module has types of its own: it is loaded, and is not built into the kernel.
pub(crate) fn has_types(module: &str) -> bool {
    Path::new("/sys/kernel/btf").join(module).exists()
}

/// Whether each program on a module's function holds a reference on the module, as it does since commit 31bf1dbccfb0.
/// Before that commit, each function that has programs holds one reference, through its trampoline. The kernel's types
/// show which is the case, backports included.
pub(crate) fn programs_hold_modules() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    let has_module = || {
        let btf = Btf::from_vmlinux().ok()?;
        let aux = btf.type_by_name::<Struct<'_>>("bpf_prog_aux")?;
        Some(aux.iter().any(|member| member.name.is_some_and(|name| name == "mod")))
    };
    *ANSWER.get_or_init(|| has_module().unwrap_or(true))
}

/// How many users a loaded module has, `None` if it is not loaded or built in.
pub(crate) fn module_users(name: &str) -> Option<u64> {
    fs::read_to_string(Path::new("/sys/module").join(name).join("refcnt")).ok()?.trim().parse().ok()
}

/// Distinguishes one loading of a module from the next: sysfs gives the module's folder a new inode number each time.
pub(crate) fn module_identity(name: &str) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(Path::new("/sys/module").join(name)).ok().map(|about| about.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_modules_are_read_once() {
        let lists = tempfile::tempdir().unwrap();
        // join() of an absolute path replaces the folder.
        let release = lists.path().display().to_string();
        let kernel = Kernel { release, ..Kernel::current() };
        fs::write(lists.path().join("modules.dep"), "kernel/fs/no_such_fs.ko.xz: kernel/lib/x.ko.xz\n").unwrap();
        assert_eq!(kernel.module("no_such_fs"), ModuleState::Loadable);
        assert_eq!(kernel.module("no_such"), ModuleState::Missing);
        fs::write(lists.path().join("modules.dep"), "kernel/fs/no_such.ko: \n").unwrap();
        assert_eq!(kernel.module("no_such_fs"), ModuleState::Loadable);
        assert_eq!(kernel.module("no_such"), ModuleState::Missing);
    }
}
