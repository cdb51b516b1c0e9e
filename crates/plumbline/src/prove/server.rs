//! The server's host: a process in network, mount and process namespaces of its own, with a disk, the kernel's NFS server and Samba. All of this
//! ends with the process or is ended by it.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::talk::{obey, run, run_with};

/// The directory of everything, on a tmpfs that no other process sees.
const HOME: &str = "/run/prove";
/// The exported directory.
const DISK: &str = "/run/prove/disk";
/// Samba's own state and settings.
const SMB_HOME: &str = "/run/prove/smb";
const SMB_CONF: &str = "/run/prove/smb/smb.conf";
const MIB: u64 = 96;
/// Threads of the NFS server.
const THREADS: &str = "8";
/// How long a server may take until it answers.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The user as which the load logs in.
pub const USER: &str = "root";
/// The user's password, on a server that no other host can reach.
pub const PASSWORD: &str = "prove";

/// The helper process of the server: obeys the words below.
///
/// # Errors
///
/// When it is not in namespaces of its own, since it would change this host then.
pub fn part() -> Result<()> {
    if std::process::id() != 1 {
        bail!("it is for `plumbline prove` to start this");
    }
    let mut server = FaultServer::default();
    obey(|words| match words {
        ["home"] => home(),
        ["disk"] => server.disk(),
        ["nfs", client] => server.nfs(client),
        ["smb", address] => server.smb(address),
        ["delay", ms] => server.delay(ms),
        ["freeze"] => run(&["fsfreeze", "-f", DISK]),
        ["thaw"] => run(&["fsfreeze", "-u", DISK]),
        ["fill"] => fill(),
        ["empty"] => empty(),
        ["stop"] => server.signal_smbd(Signal::SIGSTOP),
        ["go-on"] => server.signal_smbd(Signal::SIGCONT),
        ["down"] => server.down(),
        ["back"] => server.back(),
        _ => bail!("the server does not know {words:?}"),
    });
    server.end();
    Ok(())
}

#[derive(Default)]
struct FaultServer {
    loop_device: Option<String>,
    /// The name of the device that can be slow, and its sectors.
    slow: Option<(String, u64)>,
    has_disk: bool,
    /// Whether the kernel removes both devices at the last unmount. Their names may then belong to other devices.
    devices_end_with_mount: bool,
    has_nfs: bool,
    /// The address of smbd.
    smb: Option<SocketAddr>,
}

/// Makes the directories to which servers write, and the files with the names that they look up.
fn home() -> Result<String> {
    run(&["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
    fs::create_dir_all(DISK)?;
    fs::write("/run/prove/hosts", "127.0.0.1 localhost\n10.1.0.1 client\n10.2.0.1 nfs-server\n10.2.0.2 smb-server\n")?;
    // Without this, mountd would ask name servers that cannot be reached.
    run(&["mount", "--bind", "/run/prove/hosts", "/etc/hosts"])?;
    // The host's settings may refer to the host's own state.
    for (what, hidden) in [("/etc/nfs.conf", "/run/prove/empty"), ("/etc/nfs.conf.d", "/run/prove/none")] {
        if Path::new(what).is_dir() {
            fs::create_dir_all(hidden)?;
        } else if Path::new(what).exists() {
            fs::write(hidden, "")?;
        } else {
            continue;
        }
        run(&["mount", "--bind", hidden, what])?;
    }
    run(&["ip", "link", "set", "lo", "up"])
}

impl FaultServer {
    /// Makes a disk that can be slow, if this host has what that needs. Returns which disk it made.
    fn disk(&mut self) -> Result<String> {
        let image = format!("{HOME}/image");
        run(&["truncate", "-s", &format!("{MIB}M"), &image])?;
        let device = run(&["losetup", "--find", "--show", &image])?;
        self.loop_device = Some(device.clone());
        let sectors = MIB << 11;
        let name = format!("plumbline-prove-{}", device.rsplit('/').next().unwrap_or_default());
        let table = delay_table(&device, sectors, "0");
        let slow = run(&["dmsetup", "create", &name, "--noudevsync", "--table", &table]);
        let served = if slow.is_ok() {
            self.slow = Some((name.clone(), sectors));
            run(&["dmsetup", "mknodes", &name])?;
            format!("/dev/mapper/{name}")
        } else {
            device.clone()
        };
        run(&["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", &served])?;
        run(&["mount", "-t", "ext4", &served, DISK])?;
        self.has_disk = true;
        // From here on, the kernel removes both devices at the last unmount, even if this process is killed.
        if self.slow.is_some() {
            run(&["dmsetup", "remove", "--deferred", "--noudevsync", &name])?;
        }
        run(&["losetup", "--detach", &device])?;
        self.devices_end_with_mount = true;
        for directory in ["nfs", "smb"] {
            fs::create_dir_all(format!("{DISK}/{directory}"))?;
        }
        Ok(slow.map_or_else(|error| format!("fast only: {error:#}").replace('\n', " "), |_| "slow".to_owned()))
    }

    fn delay(&self, ms: &str) -> Result<String> {
        let (Some((name, sectors)), Some(device)) = (&self.slow, &self.loop_device) else { bail!("no such disk") };
        run(&["dmsetup", "load", name, "--table", &delay_table(device, *sectors, ms)])?;
        run(&["dmsetup", "resume", "--noudevsync", name])
    }

    /// Starts the kernel's NFS server, with the disk as its root.
    fn nfs(&mut self, client: &str) -> Result<String> {
        // The module may be built in or already loaded.
        let _ = run(&["modprobe", "nfsd"]);
        let state = "/var/lib/nfs";
        run(&["mount", "-t", "tmpfs", "tmpfs", state])?;
        for directory in ["nfsdcld", "v4recovery", "rpc_pipefs", "sm", "sm.bak"] {
            fs::create_dir_all(format!("{state}/{directory}"))?;
        }
        for file in ["etab", "rmtab", "xtab", "state"] {
            fs::write(format!("{state}/{file}"), "")?;
        }
        run(&["mount", "-t", "rpc_pipefs", "rpc_pipefs", &format!("{state}/rpc_pipefs")])?;
        run(&["mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd"])?;
        fs::create_dir_all("/run/rpc_pipefs")?;
        run(&["mount", "--bind", &format!("{state}/rpc_pipefs"), "/run/rpc_pipefs"])?;
        // Without nfsdcld, newer kernels wait for clients from before the restart; older kernels do not need it.
        let _ = run(&["nfsdcld"]);
        for file in ["nfsv4leasetime", "nfsv4gracetime"] {
            fs::write(format!("/proc/fs/nfsd/{file}"), "10")?;
        }
        let options = "rw,no_root_squash,insecure,fsid=0,no_subtree_check,sync";
        self.has_nfs = true;
        run(&["exportfs", "-i", "-o", options, &format!("{client}:{DISK}/nfs")])?;
        run(&["rpc.mountd", "-N", "2", "-N", "3"])?;
        start_nfsd()
    }

    fn smb(&mut self, address: &str) -> Result<String> {
        fs::create_dir_all(SMB_HOME)?;
        let settings = [
            "server role = standalone server",
            "smb ports = 445",
            "disable netbios = yes",
            "disable spoolss = yes",
            "load printers = no",
            "printing = bsd",
            "printcap name = /dev/null",
            "log level = 0",
            "server min protocol = SMB2_10",
            "server multi channel support = no",
            "rpc start on demand helpers = no",
            "force user = root",
        ];
        let mut text = String::from("[global]\n");
        settings.iter().for_each(|line| text.push_str(&format!(" {line}\n")));
        for what in ["lock directory", "state directory", "cache directory", "pid directory", "private dir"] {
            text.push_str(&format!(" {what} = {SMB_HOME}\n"));
        }
        text.push_str(&format!(" ncalrpc dir = {SMB_HOME}/ncalrpc\n log file = {SMB_HOME}/log\n"));
        text.push_str(&format!(" passdb backend = smbpasswd:{SMB_HOME}/smbpasswd\n"));
        text.push_str(&format!("[share]\n path = {DISK}/smb\n read only = no\n sync always = yes\n"));
        fs::write(SMB_CONF, text)?;
        fs::write(format!("{SMB_HOME}/smbpasswd"), "")?;
        run_with(&["smbpasswd", "-c", SMB_CONF, "-s", "-a", USER], &format!("{PASSWORD}\n{PASSWORD}\n"))?;
        self.smb = Some(SocketAddr::new(address.parse().context("no address")?, 445));
        self.start_smbd()
    }

    fn start_smbd(&self) -> Result<String> {
        let Some(address) = self.smb else { return Ok(String::new()) };
        run(&["smbd", "-s", SMB_CONF, "-l", SMB_HOME, "-D"])?;
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return Ok(String::new());
            }
            sleep(Duration::from_millis(50));
        }
        bail!("smbd does not answer")
    }

    /// Stops both services at once.
    fn down(&self) -> Result<String> {
        let stopped = if self.has_nfs { run(&["rpc.nfsd", "0"]) } else { Ok(String::new()) };
        self.signal_smbd(Signal::SIGKILL)?;
        stopped
    }

    fn back(&self) -> Result<String> {
        if self.has_nfs {
            start_nfsd()?;
        }
        self.start_smbd()
    }

    /// Sends a signal to smbd, among the processes of this PID namespace.
    fn signal_smbd(&self, signal: Signal) -> Result<String> {
        if self.smb.is_none() {
            return Ok(String::new());
        }
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let comm = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm")).unwrap_or_default();
            if comm.starts_with("smbd") {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
        Ok(String::new())
    }

    /// Ends everything that would outlive this process.
    fn end(&self) {
        if self.has_disk {
            let _ = run(&["fsfreeze", "-u", DISK]);
        }
        let _ = self.delay("0");
        let _ = self.down();
        if self.has_nfs {
            let _ = run(&["exportfs", "-ua"]);
            let _ = run(&["exportfs", "-f"]);
        }
        // The kernel releases the exports a moment later.
        let until = Instant::now() + TIMEOUT;
        while self.has_disk && run(&["umount", DISK]).is_err() && Instant::now() < until {
            sleep(Duration::from_millis(100));
        }
        if let Some((name, _)) = &self.slow {
            if !self.devices_end_with_mount {
                let _ = run(&["dmsetup", "remove", "--noudevsync", name]);
            }
            let _ = fs::remove_file(format!("/dev/mapper/{name}"));
        }
        if let Some(device) = self.loop_device.as_ref().filter(|_| !self.devices_end_with_mount) {
            let _ = run(&["losetup", "--detach", device]);
        }
    }
}

fn delay_table(device: &str, sectors: u64, write_ms: &str) -> String {
    format!("0 {sectors} delay {device} 0 0 {device} 0 {write_ms}")
}

fn start_nfsd() -> Result<String> {
    run(&["rpc.nfsd", "-N", "3", "-V", "4.2", "-U", THREADS])?;
    // Refused if the grace period is over.
    let _ = fs::write("/proc/fs/nfsd/v4_end_grace", "Y");
    Ok(String::new())
}

/// Fills the disk.
fn fill() -> Result<String> {
    for size in ["1M", "64K", "4K", "1K"] {
        let mut number = 0;
        while run(&["fallocate", "-l", size, &format!("{DISK}/filler-{size}-{number}")]).is_ok() && number < 4096 {
            number += 1;
        }
    }
    Ok(String::new())
}

fn empty() -> Result<String> {
    for entry in fs::read_dir(DISK)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("filler-")) {
            fs::remove_file(path)?;
        }
    }
    Ok(String::new())
}
