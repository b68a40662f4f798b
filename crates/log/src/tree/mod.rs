//! An ordered persistent map with cheap copies (LH5).
//!
//! A B+ tree whose copies share nodes until one of them changes. A change to a tree without copies is made in place;
//! otherwise the nodes on the path are copied, some dozens of pointers each. Items carry their own key.

mod iter;
mod node;

pub(crate) use iter::Iter;
use node::Node;
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// An item with a key.
pub(crate) trait Keyed {
    type Key: Ord + ?Sized;
    /// A separator key between nodes. It outlives the item it was taken from, so it must not hold the item.
    type Bound: Clone + fmt::Debug + Borrow<Self::Key>;
    fn key(&self) -> &Self::Key;
    fn bound(&self) -> Self::Bound;
}

pub(crate) struct Tree<T: Keyed> {
    root: Arc<Node<T>>,
    len: usize,
}

impl<T: Keyed> Tree<T> {
    pub(crate) fn new() -> Self {
        Tree { root: Arc::new(Node::Leaf(Vec::new())), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: &T::Key) -> Option<&Arc<T>> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(items) => return node::find(items, key).ok().map(|at| &items[at]),
                Node::Branch(children) => node = &children[node::child(children, key)].node,
            }
        }
    }

    pub(crate) fn contains(&self, key: &T::Key) -> bool {
        self.get(key).is_some()
    }

    /// Inserts an item and returns the replaced item with the same key.
    pub(crate) fn insert(&mut self, item: Arc<T>) -> Option<Arc<T>> {
        let (replaced, split) = node::insert(&mut self.root, item);
        if let Some(right) = split {
            let left = node::Child { from: right.from.clone(), node: self.root.clone() };
            self.root = Arc::new(Node::Branch(vec![left, right]));
        }
        self.len += usize::from(replaced.is_none());
        replaced
    }

    pub(crate) fn remove(&mut self, key: &T::Key) -> Option<Arc<T>> {
        if !self.contains(key) {
            // Avoid copying the path for an absent key.
            return None;
        }
        self.remove_held(key)
    }

    /// Removes an item that the tree holds.
    pub(crate) fn remove_held(&mut self, key: &T::Key) -> Option<Arc<T>> {
        let removed = node::remove(&mut self.root, key);
        while let Node::Branch(children) = &*self.root
            && children.len() <= 1
        {
            self.root = children.first().map_or_else(|| Arc::new(Node::Leaf(Vec::new())), |only| only.node.clone());
        }
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// Iterates over all items in key order.
    pub(crate) fn iter(&self) -> Iter<'_, T> {
        Iter::new(&self.root, None)
    }

    /// Iterates over the items at and after a key.
    pub(crate) fn iter_from(&self, from: &T::Key) -> Iter<'_, T> {
        Iter::new(&self.root, Some(from))
    }
}

impl<T: Keyed + Clone> Tree<T> {
    /// Returns an item for modification, copying it first if it is shared. Its key must not change.
    pub(crate) fn get_mut(&mut self, key: &T::Key) -> Option<&mut T> {
        if !self.contains(key) {
            return None;
        }
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Leaf(items) => {
                    let at = node::find(items, key).ok()?;
                    return Some(Arc::make_mut(&mut items[at]));
                }
                Node::Branch(children) => {
                    let at = node::child(children, key);
                    node = Arc::make_mut(&mut children[at].node);
                }
            }
        }
    }
}

impl<T: Keyed> Clone for Tree<T> {
    fn clone(&self) -> Self {
        Tree { root: self.root.clone(), len: self.len }
    }
}

impl<T: Keyed> Default for Tree<T> {
    fn default() -> Self {
        Tree::new()
    }
}

impl<T: Keyed + fmt::Debug> fmt::Debug for Tree<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
