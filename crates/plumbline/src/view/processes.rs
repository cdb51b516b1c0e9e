//! What a process is called and what it belongs to, for listings of many.

use std::{collections::HashMap, fs};

use model::text::printable;
use probes::tasks::Task;

use super::{cgroup::cgroup_of, clock::Clock};
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
            users: users(&fs::read_to_string("/etc/passwd").unwrap_or_default()),
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

    /// A user's name, or number where /etc/passwd has none. Directory services are not asked: they may hang.
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

/// Names by number, of passwd(5). Of several with a number the first counts.
fn users(passwd: &str) -> HashMap<u32, String> {
    let mut users = HashMap::new();
    for line in passwd.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(uid)) = (fields.next(), fields.nth(1).and_then(|uid| uid.parse().ok())) {
            users.entry(uid).or_insert_with(|| printable(name.as_bytes()));
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_the_first_name_of_their_number() {
        let users = users("root:x:0:0:root:/root:/bin/bash\nbroken\ntoor:x:0:0::/:\nodd\x1b:x:7:7::/:\n");
        assert_eq!((users.len(), users[&0].as_str(), users[&7].as_str()), (2, "root", "odd\\x1b"));
    }
}
