//! A process and all that it starts, and those in turn.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};

use crate::batches;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/processes.bpf.o"));

/// Follows processes from parent to child, as long as it lives. At most 65 536 of them, the dead included.
pub struct Followed {
    // The link first: it is dropped before the object that its program lives in.
    _link: Link,
    _object: Object,
    map: MapHandle,
}

impl Followed {
    /// Follows no process yet.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the program: it takes BTF.
    pub fn start() -> libbpf_rs::Result<Self> {
        let missing = |what| std::io::Error::other(format!("the object has no {what}"));
        let object = ObjectBuilder::default().open_memory(OBJECT)?.load()?;
        let map = object.maps().find(|map| map.name() == "followed").ok_or_else(|| missing("map"))?;
        let map = MapHandle::try_from(&map)?;
        let link = object.progs_mut().map(|program| program.attach()).next().ok_or_else(|| missing("program"))??;
        Ok(Self { _link: link, _object: object, map })
    }

    /// Follows a process, and all that it starts from now on.
    ///
    /// # Errors
    ///
    /// When the map cannot be written.
    pub fn follow(&self, pid: u32) -> libbpf_rs::Result<()> {
        self.map.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY)
    }

    /// Follows a process, those that it has started and are there, and all that they start from now on.
    ///
    /// # Errors
    ///
    /// When the map cannot be written.
    pub fn follow_family(&self, pid: u32) -> libbpf_rs::Result<()> {
        self.follow(pid)?;
        // Twice: a process that was started while the list was made is in the map by then as its parent's child.
        for _ in 0..2 {
            for member in family(pid, &parents()) {
                self.follow(member)?;
            }
        }
        Ok(())
    }

    /// Stops following a process, but not its children.
    ///
    /// # Errors
    ///
    /// When it was not followed.
    pub fn leave(&self, pid: u32) -> libbpf_rs::Result<()> {
        self.map.delete(&pid.to_ne_bytes())
    }

    /// The processes' ids.
    pub(crate) fn map(&self) -> &MapHandle {
        &self.map
    }

    /// All that are followed, the dead included.
    pub fn all(&self) -> HashSet<u32> {
        let mut all = HashSet::new();
        // If reading fails, assume that there is none: the map is our own, and exists as long as this object.
        let _ = batches::each(&self.map, |key, _| {
            all.extend(key.try_into().map(u32::from_ne_bytes));
        });
        all
    }
}

/// Every process there is.
pub fn every_process() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Each process's parent.
fn parents() -> HashMap<u32, u32> {
    every_process().filter_map(|pid| Some((pid, parent_of(&fs::read(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

/// The fourth field of `/proc/PID/stat`; the second, a name, may hold anything, and ends at the last parenthesis.
fn parent_of(stat: &[u8]) -> Option<u32> {
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(behind..)?).ok()?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn family(pid: u32, parents: &HashMap<u32, u32>) -> HashSet<u32> {
    let mut members = HashSet::from([pid]);
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(child, parent)| members.contains(parent) && !members.contains(child))
            .map(|(child, _)| *child)
            .collect();
        if more.is_empty() {
            return members;
        }
        members.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_hide_the_parent() {
        assert_eq!(parent_of(b"42 (a) (b 7) S 17 42 42 0 -1"), Some(17));
        assert_eq!(parent_of(b"42"), None);
    }

    #[test]
    fn a_family_is_all_below_one() {
        let parents = HashMap::from([(2, 1), (3, 2), (4, 3), (5, 1)]);
        assert_eq!(family(2, &parents), HashSet::from([2, 3, 4]));
    }
}
