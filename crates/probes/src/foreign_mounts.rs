//! Mounts of other mount namespaces, above all those of containers. Their names are in the mountinfo of the processes in
//! these namespaces. For each unknown key, the process that an event names is asked once. Reading mountinfo walks no path
//! and touches no mount.

use std::{collections::HashMap, fs, time::Duration};

use model::MountKey;

use crate::{
    mounts::{MountPoint, Mounts},
    watched_namespace,
};

/// The most keys remembered, known or unknown. When there is no room, the key that was asked for longest ago is
/// removed.
const KEYS: usize = 1024;
/// After this many processes were asked about a key without success, no process is asked about that key for a while.
const LOOKS: u32 = 3;
/// How long an answer is valid: the kernel may give a device number to another mount later.
const STANDS: Duration = Duration::from_secs(60);

/// What is known of mounts in other mount namespaces.
#[derive(Debug, Default)]
pub(crate) struct ForeignMounts {
    known: HashMap<MountKey, ForeignMount>,
}

#[derive(Debug, Default)]
struct ForeignMount {
    point: Option<MountPoint>,
    /// When a process was last asked, and how many processes were asked since the last pause.
    looked: Duration,
    looks: u32,
}

impl ForeignMounts {
    /// The mount that a key means, if a process has named it.
    pub fn get(&self, key: MountKey) -> Option<&MountPoint> {
        self.known.get(&key)?.point.as_ref()
    }

    /// The mounts that processes have named.
    pub fn iter(&self) -> impl Iterator<Item = (MountKey, &MountPoint)> {
        self.known.iter().filter_map(|(key, entry)| Some((*key, entry.point.as_ref()?)))
    }

    /// Devices of those known.
    pub fn devices(&self) -> Vec<MountKey> {
        let mut devices: Vec<_> = self.known.values().filter_map(|entry| Some(entry.point.as_ref()?.device)).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// A process uses a mount that does not belong to this namespace.
    pub fn resolve(&mut self, key: MountKey, pid: u32, now: Duration) {
        self.ask(key, now, || mount_of(key, pid));
    }

    fn ask(&mut self, key: MountKey, now: Duration, mount: impl FnOnce() -> Option<MountPoint>) {
        if self.known.len() >= KEYS && !self.known.contains_key(&key) {
            let oldest = self.known.iter().min_by_key(|(_, entry)| entry.looked).map(|(key, _)| *key);
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        let entry = self.known.entry(key).or_default();
        let rested = now.saturating_sub(entry.looked) >= STANDS;
        if entry.looks > 0 && !rested && (entry.point.is_some() || entry.looks >= LOOKS) {
            return;
        }
        entry.looks = if rested { 1 } else { entry.looks + 1 };
        entry.looked = now;
        // If the process is gone, the answer stands.
        if let Some(point) = mount() {
            entry.point = Some(point);
        }
    }
}

/// The mount as that process sees it; `None` if the process is in the watched namespace, where the mount was not found.
fn mount_of(key: MountKey, pid: u32) -> Option<MountPoint> {
    let theirs = watched_namespace::number_of(&pid.to_string()).ok()?;
    if Some(theirs) == watched_namespace::identity().ok() {
        return None;
    }
    let mountinfo = fs::read(format!("/proc/{pid}/mountinfo")).ok()?;
    Mounts::parse(&mountinfo).get(key).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(path: &str) -> Option<MountPoint> {
        let line = format!("62 28 0:50 / {path} rw - nfs4 srv:/export rw\n");
        Mounts::parse(line.as_bytes()).iter().next().cloned()
    }

    const KEY: MountKey = MountKey(50);
    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_key_is_asked_for_once_in_a_while_and_its_name_outlives_who_gave_it() {
        let mut foreign = ForeignMounts::default();
        foreign.ask(KEY, seconds(1000), || point("/a"));
        foreign.ask(KEY, seconds(1059), || panic!("it is known"));
        foreign.ask(KEY, seconds(1060), || None);
        assert_eq!(foreign.get(KEY).unwrap().mount.mountpoint, "/a");
        foreign.ask(KEY, seconds(1121), || point("/b"));
        assert_eq!(foreign.get(KEY).unwrap().mount.mountpoint, "/b");
        assert_eq!(foreign.devices(), [KEY]);
    }

    #[test]
    fn what_three_processes_do_not_know_is_left_alone_for_a_while() {
        let (mut foreign, mut asked) = (ForeignMounts::default(), 0);
        for _ in 0..1000 {
            foreign.ask(KEY, seconds(1000), || {
                asked += 1;
                None
            });
        }
        assert_eq!((asked, foreign.get(KEY)), (3, None));
        foreign.ask(KEY, seconds(1060), || point("/a"));
        assert!(foreign.get(KEY).is_some());
    }

    #[test]
    fn no_more_keys_are_kept_than_there_is_room_for() {
        let mut foreign = ForeignMounts::default();
        for key in 0..3000 {
            foreign.ask(MountKey(key), seconds(key), || point("/a"));
        }
        assert_eq!(foreign.known.len(), KEYS);
        assert!(foreign.get(MountKey(2999)).is_some() && foreign.get(MountKey(0)).is_none());
    }

    #[test]
    fn a_process_of_our_own_namespace_or_none_names_nothing() {
        assert_eq!(mount_of(KEY, std::process::id()), None);
        assert_eq!(mount_of(KEY, u32::MAX), None);
    }
}
