//! The names of a process and of its user, container and job, for lists of many processes.

use std::{collections::HashMap, rc::Rc};

use probes::tasks::Task;

use super::{clock::Clock, users};
use crate::who::{Cgroup, Cgroups};

/// The data that all rows share, and the known cgroups: these are few compared with processes.
pub struct Namer {
    boot: Clock,
    page: u64,
    cgroups: Cgroups,
    users: HashMap<u32, String>,
}

impl Namer {
    pub fn new() -> Self {
        Self {
            boot: Clock::since_boot(),
            page: procfs::page_size(),
            cgroups: Cgroups::default(),
            users: users::by_number(),
        }
    }

    pub fn cgroup(&mut self, task: &Task) -> Rc<Cgroup> {
        self.cgroups.of(task.tgid(), task.cgroup())
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
