//! A tree in JSON.

use diagnose::OperationTree;
use model::{Nanos, TreeLine};

use super::names::TreeNames;
use crate::view::event::milliseconds;

/// The object of a tree that begins at `top`, with at most `most` operations below each.
pub fn tree_line(tree: &OperationTree, top: Nanos, most: usize, names: &TreeNames) -> TreeLine<'static> {
    let children = tree.longest_children(most);
    let meanwhile = tree.longest_meanwhile(most);
    TreeLine {
        event: names.line(&tree.event),
        after_ms: milliseconds(tree.event.start.saturating_sub(top)),
        own_ms: milliseconds(tree.own()),
        children: children.into_iter().map(|child| tree_line(child, top, most, names)).collect(),
        children_count: tree.children.len(),
        children_ms: milliseconds(tree.covered()),
        meanwhile: meanwhile.into_iter().map(|event| names.line(event)).collect(),
        meanwhile_count: tree.meanwhile.len(),
        children_incomplete: tree.incomplete,
    }
}
