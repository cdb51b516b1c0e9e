//! What scopes ask of mounts and cgroups, kept: while it is drained, the source answers nothing.

use std::{collections::HashMap, hash::Hash, rc::Rc};

use model::{Event, Mount, MountKey, SeenFile};

use crate::{
    scope::{OperationFacts, RuleGroup},
    source::EventSource,
    who::Cgroup,
};

/// Mounts, and cgroups, of which so much is kept at most. With more, all are asked for again.
const MOST: usize = 4096;

/// What is known.
#[derive(Default)]
pub struct Surroundings {
    mounts: KeptAnswers<MountKey, Mount>,
    /// By the cgroup's id; where that is not known, by the process.
    cgroups: KeptAnswers<(u64, u32), Rc<Cgroup>>,
    nowhere: Mount,
    nobody: Cgroup,
}

/// Answers, and whether somebody has asked for them in this interval.
struct KeptAnswers<K, V>(HashMap<K, (V, bool)>);

impl<K, V> Default for KeptAnswers<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V> KeptAnswers<K, V> {
    /// Whether it is known; it is wanted in any case.
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

    /// Forgets what nobody has asked for since this was last called.
    fn forget(&mut self) {
        self.0.retain(|_, (_, wanted)| std::mem::take(wanted));
    }
}

impl Surroundings {
    /// Whether it knows of the event all that the group's scopes ask for.
    pub fn knows(&mut self, event: &Event, group: &RuleGroup) -> bool {
        (!group.asks_mount || self.mounts.want(&event.mount))
            && (!group.asks_cgroup || self.cgroups.want(&cgroup_key(event)))
    }

    /// Asks for what it does not know.
    pub fn ask(&mut self, event: &Event, group: &RuleGroup, source: &dyn EventSource) {
        if group.asks_mount {
            self.ask_mount(event.mount, source);
        }
        if group.asks_cgroup {
            let (pid, id) = (event.requester.pid, event.requester.cgroup);
            self.cgroups.ask(cgroup_key(event), || source.cgroup(pid, id));
        }
    }

    /// Asks what is known of a mount, without an event.
    pub fn ask_mount(&mut self, mount: MountKey, source: &dyn EventSource) {
        self.mounts.ask(mount, || source.mount(mount));
    }

    /// What is known of an event; `file` is the one that it is about.
    pub fn about<'a>(&'a self, event: &'a Event, file: &'a SeenFile) -> OperationFacts<'a> {
        let who = &event.requester;
        OperationFacts {
            cgroup: self.cgroups.get(&cgroup_key(event)).map_or(&self.nobody, Rc::as_ref),
            // Whose name is not known may have gone: then its user is not known either, unless it is somebody.
            user: (who.uid != 0 || !who.comm.is_empty()).then_some(who.uid),
            process: who.comm.as_bytes(),
            file: file.name.as_bytes(),
            ..self.about_mount(event.mount)
        }
    }

    /// What is known of operations of which no more than the mount is.
    pub fn about_mount(&self, mount: MountKey) -> OperationFacts<'_> {
        let mount = self.mounts.get(&mount).unwrap_or(&self.nowhere);
        OperationFacts { mount, cgroup: &self.nobody, user: None, process: &[], file: &[] }
    }

    /// An interval is over: mounts that had operations may be others by now, and processes may have moved. What had none is forgotten.
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
