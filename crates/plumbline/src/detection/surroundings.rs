//! A cache of the mounts and cgroups that scopes refer to: the source cannot answer questions while it is drained.

use std::{collections::HashMap, hash::Hash, rc::Rc};

use model::{Event, Mount, MountKey, SeenFile};

use crate::{
    scope::{OperationFacts, RuleGroup},
    source::EventSource,
    who::Cgroup,
};

/// The most mounts, and the most cgroups, in the cache. When it is full, it is emptied.
const MOST: usize = 4096;

/// The cache.
#[derive(Default)]
pub struct Surroundings {
    mounts: KeptAnswers<MountKey, Mount>,
    /// By the cgroup's id, or by the process if the id is not known.
    cgroups: KeptAnswers<(u64, u32), Rc<Cgroup>>,
    nowhere: Mount,
    nobody: Cgroup,
}

/// Answers of the source, and whether each was needed in this interval.
struct KeptAnswers<K, V>(HashMap<K, (V, bool)>);

impl<K, V> Default for KeptAnswers<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V> KeptAnswers<K, V> {
    /// Whether the answer is known. Marks it as needed.
    fn want(&mut self, key: &K) -> bool {
        self.0.get_mut(key).map(|(_, wanted)| *wanted = true).is_some()
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key).map(|(value, _)| value)
    }

    fn ask(&mut self, key: K, answer: impl FnOnce() -> V) {
        if self.want(&key) {
            return;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(key, (answer(), true));
    }

    /// Drops the answers that were not needed since the last call.
    fn forget(&mut self) {
        self.0.retain(|_, (_, wanted)| std::mem::take(wanted));
    }
}

impl Surroundings {
    /// Whether everything is known about the event that the scopes of the group refer to.
    pub fn knows(&mut self, event: &Event, group: &RuleGroup) -> bool {
        (!group.asks_mount || self.mounts.want(&event.mount))
            && (!group.asks_cgroup || self.cgroups.want(&cgroup_key(event)))
    }

    /// Asks the source for what is not known.
    pub fn ask(&mut self, event: &Event, group: &RuleGroup, source: &dyn EventSource) {
        if group.asks_mount {
            self.ask_mount(event.mount, source);
        }
        if group.asks_cgroup {
            let (pid, id) = (event.requester.pid, event.requester.cgroup);
            self.cgroups.ask(cgroup_key(event), || source.cgroup(pid, id));
        }
    }

    /// Asks the source for a mount.
    pub fn ask_mount(&mut self, mount: MountKey, source: &dyn EventSource) {
        self.mounts.ask(mount, || source.mount(mount));
    }

    /// The facts about an event. `file`: the file that the event is about.
    pub fn about<'a>(&'a self, event: &'a Event, file: &'a SeenFile) -> OperationFacts<'a> {
        let who = &event.requester;
        OperationFacts {
            cgroup: self.cgroups.get(&cgroup_key(event)).map_or(&self.nobody, Rc::as_ref),
            // Without a name, the process may have ended. A user id of 0 then means that the user is not known.
            user: (who.uid != 0 || !who.comm.is_empty()).then_some(who.uid),
            process: who.comm.as_bytes(),
            file: file.name.as_bytes(),
            ..self.about_mount(event.mount)
        }
    }

    /// The facts about operations of which only the mount is known.
    pub fn about_mount(&self, mount: MountKey) -> OperationFacts<'_> {
        let mount = self.mounts.get(&mount).unwrap_or(&self.nowhere);
        OperationFacts { mount, cgroup: &self.nobody, user: None, process: &[], file: &[] }
    }

    /// Ends an interval: mounts may have changed, and processes may have moved to other cgroups. Drops what was not needed.
    pub fn interval(&mut self, source: &dyn EventSource) {
        self.mounts.forget();
        for (key, (mount, _)) in &mut self.mounts.0 {
            *mount = source.mount(*key);
        }
        self.cgroups.forget();
        self.cgroups.0.retain(|(id, _), (cgroup, _)| *id != 0 && !cgroup.path.is_empty());
    }
}

fn cgroup_key(event: &Event) -> (u64, u32) {
    match event.requester.cgroup {
        0 => (0, event.requester.pid),
        id => (id, 0),
    }
}
