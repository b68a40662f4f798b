//! Ordered iteration over a tree.

use super::Keyed;
use super::node::{self, Child, Node};
use std::slice;
use std::sync::Arc;

pub(crate) struct Iter<'a, T: Keyed> {
    leaf: slice::Iter<'a, Arc<T>>,
    /// Remaining children of the branches above, root first.
    above: Vec<slice::Iter<'a, Child<T>>>,
}

impl<'a, T: Keyed> Iter<'a, T> {
    pub(super) fn new(root: &'a Node<T>, from: Option<&T::Key>) -> Self {
        let mut iter = Iter { leaf: [].iter(), above: Vec::new() };
        iter.descend(root, from);
        iter
    }

    fn descend(&mut self, mut node: &'a Node<T>, from: Option<&T::Key>) {
        loop {
            match node {
                Node::Leaf(items) => {
                    let at = from.map_or(0, |key| node::find(items, key).unwrap_or_else(|at| at));
                    self.leaf = items[at..].iter();
                    return;
                }
                Node::Branch(children) => {
                    let at = from.map_or(0, |key| node::child(children, key));
                    let mut rest = children[at..].iter();
                    let Some(first) = rest.next() else { return };
                    self.above.push(rest);
                    node = &first.node;
                }
            }
        }
    }
}

impl<'a, T: Keyed> Iterator for Iter<'a, T> {
    type Item = &'a Arc<T>;

    fn next(&mut self) -> Option<&'a Arc<T>> {
        loop {
            if let Some(item) = self.leaf.next() {
                return Some(item);
            }
            let rest = self.above.last_mut()?;
            match rest.next() {
                Some(child) => self.descend(&child.node, None),
                None => {
                    self.above.pop();
                }
            }
        }
    }
}

impl<T: Keyed> std::fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
