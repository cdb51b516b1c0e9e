//! The test bed for faults: namespaces of our own, which contain everything that is mounted, delayed or stopped.
//!
//! ```text
//!  client (this process)  c0 10.1.0.1 -- 10.1.0.254 r0  router  r1 10.2.0.254 -- s0 10.2.0.1, 10.2.0.2  server
//! ```

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};

use super::{
    faults::{Act, FUSE, NETWORKED, ProveFault, RouterQueue},
    server::{PASSWORD, USER},
    talk::{HelperProcess, run},
};

/// The directory of the mounts, on a tmpfs over /run that only this process and its children see.
const HOME: &str = "/run/plumbline-prove";
const CLIENT: &str = "10.1.0.1";
const NFS: &str = "10.2.0.1";
const SMB: &str = "10.2.0.2";
/// The delay of a path without a fault, in each direction.
const USUAL: &str = "delay 0.1ms";
/// The length of the router's queues, packets.
const LIMIT: &str = "limit 1000";

/// The server's namespaces. It is killed when its parent ends for any reason.
const NAMESPACES: [&str; 7] =
    ["--net", "--mount", "--propagation=slave", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// A mount under load.
#[derive(Debug, Clone)]
pub struct LoadedMount {
    /// `nfs`, `smb` or `fuse`.
    pub protocol: &'static str,
    pub mountpoint: PathBuf,
}

/// The test bed.
pub struct Bed {
    pub places: Vec<LoadedMount>,
    /// What is missing on this host and why, one line each.
    pub missing: Vec<String>,
    /// Ended before the mounts are unmounted.
    load: Option<HelperProcess>,
    /// Ended after the mounts are unmounted.
    kind: BedKind,
}

enum BedKind {
    Networked {
        server: HelperProcess,
        router: HelperProcess,
        has_slow_disk: bool,
    },
    /// The file system's process ends when this value is dropped.
    Fuse {
        _server: HelperProcess,
        control: PathBuf,
    },
}

/// Moves this process to network and mount namespaces of its own, whose mounts no other process sees. Call this before threads are started.
///
/// # Errors
///
/// When the kernel refuses; the process is then unchanged.
pub fn leave_the_host() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).context(
        "cannot have namespaces of its own: it takes root, and a kernel that allows network and mount namespaces",
    )?;
    let none: Option<&str> = None;
    // Unmounts of the host apply here, too; mounts made here do not appear on the host.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .context("cannot keep its mounts to itself, and so would touch those of others")?;
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=755"))
        .context("cannot mount a tmpfs at /run")?;
    fs::create_dir(HOME).with_context(|| format!("cannot make {HOME}"))
}

impl Bed {
    /// Makes servers, a router and mounts or, if that is not possible, a FUSE file system.
    ///
    /// # Errors
    ///
    /// When a FUSE file system is not possible either.
    pub fn make(fuse_only: bool) -> Result<Self> {
        let mut missing = Vec::new();
        if !fuse_only {
            match Self::networked(&mut missing) {
                Ok(bed) => return Ok(bed.with(missing)),
                Err(error) => missing.push(format!("no server to mount: {error:#}")),
            }
        }
        let bed = Self::fuse().context("neither a server nor a FUSE file system can be mounted here")?;
        Ok(bed.with(missing))
    }

    fn with(mut self, missing: Vec<String>) -> Self {
        self.missing = missing;
        self
    }

    fn networked(missing: &mut Vec<String>) -> Result<Self> {
        for tool in ["ip", "tc", "unshare", "nsenter", "losetup", "mkfs.ext4", "fsfreeze"] {
            run(&["sh", "-c", &format!("command -v {tool}")]).map_err(|_| anyhow::anyhow!("there is no {tool}"))?;
        }
        let mut router = HelperProcess::start("the router", in_namespaces(&["--net"], "idle")?)?;
        let mut server = HelperProcess::start("the server's host", in_namespaces(&NAMESPACES, "server")?)?;
        // Each helper is asked before interfaces are moved to it: once it answers, it has its namespaces.
        router.request("hello")?;
        server.request("home")?;
        wire(router.pid(), server.pid())?;
        let disk = server.request("disk")?;
        let has_slow_disk = disk == "slow";
        if !has_slow_disk {
            missing.push(format!("no slow disk: {disk}"));
        }
        let mut load = HelperProcess::start("the load", this_program("load")?)?;
        let mut places = Vec::new();
        for (protocol, start, address) in [("nfs", format!("nfs {CLIENT}"), NFS), ("smb", format!("smb {SMB}"), SMB)] {
            let made = server.request(&start).and_then(|_| mount_of(protocol, address));
            let loaded = made.and_then(|place| match load.request(&format!("on {}", place.mountpoint.display())) {
                Ok(_) => Ok(place),
                Err(error) => {
                    let _ = umount2(&place.mountpoint, MntFlags::MNT_DETACH);
                    Err(error)
                }
            });
            match loaded {
                Ok(place) => places.push(place),
                Err(error) => missing.push(format!("no {}: {error:#}", protocol.to_uppercase())),
            }
        }
        if places.is_empty() {
            bail!("neither NFS nor SMB can be mounted: {}", missing.join("; "));
        }
        let kind = BedKind::Networked { server, router, has_slow_disk };
        Ok(Self { places, missing: Vec::new(), load: Some(load), kind })
    }

    fn fuse() -> Result<Self> {
        let control = Path::new(HOME).join("control");
        fs::write(&control, "")?;
        let mountpoint = Path::new(HOME).join("fuse");
        fs::create_dir(&mountpoint)?;
        let mut command = this_program("fuse")?;
        command.arg(&mountpoint).arg(&control);
        let mut server = HelperProcess::start("the FUSE file system", command)?;
        server.request("mounted")?;
        let mut load = HelperProcess::start("the load", this_program("load")?)?;
        load.request(&format!("on {}", mountpoint.display()))?;
        let places = vec![LoadedMount { protocol: "fuse", mountpoint }];
        let kind = BedKind::Fuse { _server: server, control };
        Ok(Self { places, missing: Vec::new(), load: Some(load), kind })
    }

    /// The bed in words.
    pub fn describe(&self) -> String {
        let names: Vec<_> = self.places.iter().map(|place| place.protocol.to_uppercase()).collect();
        match self.kind {
            BedKind::Networked { .. } => format!("{} through a router", names.join(" and ")),
            _ => "a FUSE file system".to_owned(),
        }
    }

    /// The faults that can be made here.
    pub fn faults(&self) -> Vec<ProveFault> {
        let all: &[ProveFault] = match self.kind {
            BedKind::Networked { .. } => &NETWORKED,
            _ => &FUSE,
        };
        let is_possible = |fault: &&ProveFault| match (&self.kind, fault.act) {
            (BedKind::Networked { has_slow_disk, .. }, Act::SlowDisk(_)) => *has_slow_disk,
            _ => {
                fault.protocols.is_empty() || self.places.iter().any(|place| fault.protocols.contains(&place.protocol))
            }
        };
        all.iter().filter(is_possible).copied().collect()
    }

    /// Makes a fault.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn make_fault(&mut self, act: Act) -> Result<()> {
        match (&mut self.kind, act) {
            (_, Act::Nothing) => Ok(()),
            (BedKind::Networked { router, .. }, Act::Path(way, netem)) => path(router.pid(), way, netem),
            (BedKind::Networked { .. }, Act::OwnQueue(netem)) => own_queue(netem),
            (BedKind::Networked { server, .. }, Act::Server(word, _)) => server.request(word).map(|_| ()),
            (BedKind::Networked { server, .. }, Act::SlowDisk(ms)) => {
                server.request(&format!("delay {ms}")).map(|_| ())
            }
            (BedKind::Fuse { control, .. }, Act::Fuse(words)) => Ok(fs::write(control, words)?),
            _ => bail!("this cannot be done here"),
        }
    }

    /// Ends a fault.
    ///
    /// # Errors
    ///
    /// When the fault cannot be ended.
    pub fn heal(&mut self, act: Act) -> Result<()> {
        match (&mut self.kind, act) {
            (BedKind::Networked { router, .. }, Act::Path(..)) => path(router.pid(), RouterQueue::Both, ""),
            (_, Act::OwnQueue(_)) => here("tc filter del dev c0 parent 1:").map(|_| ()),
            (BedKind::Networked { server, .. }, Act::Server(_, word)) => server.request(word).map(|_| ()),
            (BedKind::Networked { server, .. }, Act::SlowDisk(_)) => server.request("delay 0").map(|_| ()),
            (BedKind::Fuse { control, .. }, _) => Ok(fs::write(control, "")?),
            _ => Ok(()),
        }
    }

    /// Whether a mount belongs to the bed.
    pub fn has(mountpoint: &str) -> bool {
        Path::new(mountpoint).starts_with(HOME)
    }
}

/// Takes the bed down: the load, the mounts, and the servers.
impl Drop for Bed {
    fn drop(&mut self) {
        match &self.kind {
            BedKind::Fuse { control, .. } => {
                let _ = fs::write(control, "");
            }
            BedKind::Networked { router, .. } => {
                let _ = path(router.pid(), RouterQueue::Both, "");
            }
        }
        drop(self.load.take());
        for LoadedMount { mountpoint, .. } in &self.places {
            // The load's last operations may take a moment to end.
            let until = Instant::now() + Duration::from_secs(5);
            while umount2(mountpoint, MntFlags::empty()).is_err() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = umount2(mountpoint, MntFlags::MNT_DETACH);
        }
    }
}

/// This program as a helper process.
fn this_program(part: &str) -> Result<Command> {
    let mut command = Command::new(program()?);
    // Ctrl-C must reach only the process that controls the helpers.
    command.args(["prove-part", part]).process_group(0);
    Ok(command)
}

/// This program as a helper process, in namespaces of its own.
fn in_namespaces(namespaces: &[&str], part: &str) -> Result<Command> {
    let mut command = Command::new("unshare");
    command.args(namespaces).arg("--").arg(program()?).args(["prove-part", part]).process_group(0);
    Ok(command)
}

fn program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program")
}

/// Runs a command, given as one text.
fn here(words: &str) -> Result<String> {
    run(&words.split_whitespace().collect::<Vec<_>>())
}

/// Runs a command, given as one text, in the network namespace of a process.
fn inside(pid: u32, words: &str) -> Result<String> {
    here(&format!("nsenter -t {pid} -n -- {words}"))
}

/// Connects the namespaces, and sets addresses. With `gso_max_segs 1`, each segment is one packet, as on a wire.
fn wire(router: u32, server: u32) -> Result<()> {
    here(&format!("ip link add c0 mtu 1500 type veth peer name r0 mtu 1500 netns {router}"))?;
    inside(router, &format!("ip link add r1 mtu 1500 type veth peer name s0 mtu 1500 netns {server}"))?;
    here(&format!("ip address add {CLIENT}/24 dev c0"))?;
    inside(router, "ip address add 10.1.0.254/24 dev r0")?;
    inside(router, "ip address add 10.2.0.254/24 dev r1")?;
    inside(server, &format!("ip address add {NFS}/24 dev s0"))?;
    inside(server, &format!("ip address add {SMB}/24 dev s0"))?;
    here("ip link set lo up")?;
    here("ip link set c0 up gso_max_segs 1")?;
    for device in ["lo", "r0", "r1"] {
        inside(router, &format!("ip link set {device} up gso_max_segs 1"))?;
    }
    inside(server, "ip link set s0 up gso_max_segs 1")?;
    here("ip route add 10.2.0.0/24 via 10.1.0.254")?;
    inside(server, "ip route add default via 10.2.0.254")?;
    inside(router, "sysctl -qw net.ipv4.ip_forward=1")?;
    here("tc qdisc add dev c0 root handle 1: prio")?;
    here("tc qdisc add dev c0 parent 1:2 handle 20: fq_codel")?;
    for device in ["r0", "r1"] {
        inside(router, &format!("tc qdisc add dev {device} root netem {USUAL} {LIMIT}"))?;
    }
    Ok(())
}

/// Sets the router's delay or loss in one direction. The discipline is changed, never replaced: a replacement would lose packets.
fn path(router: u32, way: RouterQueue, netem: &str) -> Result<()> {
    for (device, is_meant) in [("r1", way != RouterQueue::Down), ("r0", way != RouterQueue::Up)] {
        if !is_meant {
            continue;
        }
        let mut words = netem.to_owned();
        for (word, usual) in [("delay", USUAL), ("limit", LIMIT), ("rate", "rate 0bit"), ("loss", "loss 0%")] {
            if !words.split(' ').any(|one| one == word) {
                words = format!("{words} {usual}");
            }
        }
        inside(router, &format!("tc qdisc change dev {device} root netem {words}"))?;
    }
    Ok(())
}

/// Gives packets from this host to the servers a queue of their own.
fn own_queue(netem: &str) -> Result<()> {
    here(&format!("tc qdisc replace dev c0 parent 1:3 handle 30: netem {netem} {LIMIT}"))?;
    here("tc filter add dev c0 parent 1: protocol ip prio 1 u32 match ip dst 10.2.0.0/24 flowid 1:3")?;
    Ok(())
}

fn mount_of(protocol: &'static str, address: &str) -> Result<LoadedMount> {
    let mountpoint = Path::new(HOME).join(protocol);
    fs::create_dir_all(&mountpoint)?;
    let at = mountpoint.display().to_string();
    // Not a hard mount, so that no operation can hang after this process has ended.
    match protocol {
        "nfs" => {
            let options = "vers=4.2,proto=tcp,softerr,timeo=100,retrans=3,fg,retry=0";
            run(&["mount", "-t", "nfs", "-o", options, &format!("{address}:/"), &at])?
        }
        _ => {
            let options = format!("username={USER},password={PASSWORD},vers=3.1.1,cache=none");
            run(&["mount", "-t", "cifs", "-o", &options, &format!("//{address}/share"), &at])?
        }
    };
    Ok(LoadedMount { protocol, mountpoint })
}
