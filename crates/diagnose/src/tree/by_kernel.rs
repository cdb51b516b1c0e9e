//! Operations of kernel threads: readahead and writeback. No call waits for them, or it is not known which call does.

use std::collections::{HashSet, VecDeque};

use model::{Event, MountKey, Nanos};

use super::{OperationTree, overlap};

/// Operations of kernel threads, held until it is known whether a call was under way meanwhile.
#[derive(Debug)]
pub(super) struct ByKernel {
    /// The operations in the order of their arrival, and whether each is in a tree already.
    held: VecDeque<(Event, bool)>,
    most: usize,
    mounts: HashSet<MountKey>,
    inodes: HashSet<u64>,
}

impl ByKernel {
    pub fn new(most: usize) -> Self {
        Self { held: VecDeque::new(), most, mounts: HashSet::new(), inodes: HashSet::new() }
    }

    pub fn add(&mut self, event: Event) {
        self.held.push_back((event, false));
    }

    /// Records the mounts and files that the followed processes use. What the kernel does elsewhere, it does for other processes.
    pub fn touched(&mut self, event: &Event) {
        if self.mounts.len() < self.most {
            self.mounts.insert(event.mount);
        }
        if let Some(inode) = event.detail.inode().filter(|_| self.inodes.len() < self.most) {
            self.inodes.insert(inode);
        }
    }

    fn is_theirs(&self, event: &Event) -> bool {
        let inode = event.detail.inode();
        self.mounts.contains(&event.mount) && inode.is_none_or(|inode| self.inodes.contains(&inode))
    }

    /// Adds the operations to the trees that were under way on their mounts. Returns, as trees of their own, those that ended by `asked` and that no
    /// later tree can contain. `held`: the start of the earliest operation that is in no tree yet.
    pub fn join(
        &mut self,
        trees: &mut [OperationTree],
        asked: Nanos,
        held: Option<Nanos>,
        same_mount: &dyn Fn(MountKey, MountKey) -> bool,
    ) -> Vec<OperationTree> {
        for (event, joined) in &mut self.held {
            for tree in trees.iter_mut().filter(|tree| overlap(&tree.event, event)) {
                if tree.any(&|call: &Event| same_mount(event.mount, call.mount)) && may_be_same_file(event, tree) {
                    tree.add_meanwhile(event.clone());
                    *joined = true;
                }
            }
        }
        let too_many = self.held.len().saturating_sub(self.most);
        let (mut over, mut kept) = (Vec::new(), VecDeque::new());
        for (place, (event, joined)) in std::mem::take(&mut self.held).into_iter().enumerate() {
            let can_join = event.end() > asked || held.is_some_and(|since| since <= event.end());
            if can_join && place >= too_many {
                kept.push_back((event, joined));
            } else if !joined && self.is_theirs(&event) {
                over.push(OperationTree::leaf(event));
            }
        }
        self.held = kept;
        over
    }
}

/// False only if the inodes of both are known and differ.
fn may_be_same_file(event: &Event, tree: &OperationTree) -> bool {
    let Some(inode) = event.detail.inode() else { return true };
    let is_other = |call: &Event| call.detail.inode().is_some_and(|other| other != inode);
    let is_same = |call: &Event| call.detail.inode() == Some(inode);
    tree.any(&is_same) || !tree.any(&is_other)
}
