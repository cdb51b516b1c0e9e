//! What a process is called and what it belongs to, for listings of many.

use std::collections::HashMap;

use probes::tasks::Task;

use super::{cgroup::cgroup_of, clock::Clock, users};
use crate::io::jobs::container_of;

/// What is the same for all rows, and the names of cgroups: there are few of them, for many processes.
pub struct Namer {
    boot: Clock,
    page: u64,
    cgroups: HashMap<u64, String>,
    users: HashMap<u32, String>,
}

impl Namer {
    pub fn new() -> Self {
        Self {
            boot: Clock::since_boot(),
            page: procfs::page_size(),
            cgroups: HashMap::new(),
            users: users::by_number(),
        }
    }

    pub fn cgroup(&mut self, task: &Task) -> String {
        match task.cgroup() {
            0 => cgroup_of(task.tgid(), 0),
            id => self.cgroups.entry(id).or_insert_with(|| cgroup_of(task.tgid(), id)).clone(),
        }
    }

    pub fn container(&mut self, task: &Task) -> String {
        container_of(&self.cgroup(task)).unwrap_or_default().to_owned()
    }

    /// A user's name, or number where /etc/passwd has none.
    pub fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    /// Resident memory, bytes.
    pub fn resident(&self, task: &Task) -> u64 {
        task.rss_pages() * self.page
    }

    /// When it was started, RFC 3339.
    pub fn started(&self, task: &Task) -> String {
        self.boot.iso(task.start())
    }
}
