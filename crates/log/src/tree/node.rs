//! Nodes of the tree: search, split and join.

use super::Keyed;
use std::borrow::Borrow;
use std::sync::Arc;

/// Maximum number of items in a leaf or children in a branch.
pub(super) const NODE_MAX: usize = 64;
/// A node below this size is joined with a neighbour if possible.
const NODE_LOW: usize = NODE_MAX / 4;
/// Maximum size of joined nodes, so that the next insertion does not split them again.
const JOINED_MAX: usize = NODE_MAX * 3 / 4;

pub(super) enum Node<T: Keyed> {
    Leaf(Vec<Arc<T>>),
    /// Never empty, except while its last item is being removed.
    Branch(Vec<Child<T>>),
}

pub(super) struct Child<T: Keyed> {
    /// Lower bound of the keys in the node, above all keys of the previous node. Unused for the first child.
    pub(super) from: T::Bound,
    pub(super) node: Arc<Node<T>>,
}

impl<T: Keyed> Node<T> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Branch(children) => children.len(),
        }
    }
}

impl<T: Keyed> Clone for Node<T> {
    fn clone(&self) -> Self {
        match self {
            Node::Leaf(items) => Node::Leaf(items.clone()),
            Node::Branch(children) => Node::Branch(children.clone()),
        }
    }
}

impl<T: Keyed> Clone for Child<T> {
    fn clone(&self) -> Self {
        Child { from: self.from.clone(), node: self.node.clone() }
    }
}

pub(super) fn find<T: Keyed>(items: &[Arc<T>], key: &T::Key) -> Result<usize, usize> {
    items.binary_search_by(|item| item.key().cmp(key))
}

/// Returns the index of the child that a key belongs to.
pub(super) fn child<T: Keyed>(children: &[Child<T>], key: &T::Key) -> usize {
    children.partition_point(|child| child.from.borrow() <= key).saturating_sub(1)
}

/// Inserts an item. Returns the replaced item, and the right half if the node was split.
pub(super) fn insert<T: Keyed>(node: &mut Arc<Node<T>>, item: Arc<T>) -> (Option<Arc<T>>, Option<Child<T>>) {
    match Arc::make_mut(node) {
        Node::Leaf(items) => match find(items, item.key()) {
            Ok(at) => (Some(std::mem::replace(&mut items[at], item)), None),
            Err(at) => {
                items.insert(at, item);
                let split = split_at(items.len(), at).map(|middle| {
                    let right = cut(items, middle);
                    Child { from: right[0].bound(), node: Arc::new(Node::Leaf(right)) }
                });
                (None, split)
            }
        },
        Node::Branch(children) => {
            let at = child(children, item.key());
            let (replaced, split) = insert(&mut children[at].node, item);
            let Some(new) = split else { return (replaced, None) };
            children.insert(at + 1, new);
            let split = split_at(children.len(), at + 1).map(|middle| {
                let right = cut(children, middle);
                Child { from: right[0].from.clone(), node: Arc::new(Node::Branch(right)) }
            });
            (replaced, split)
        }
    }
}

/// Returns where to split a node after an insertion, if it is too large. After an insertion at the end the left part
/// stays full, so that keys in ascending order (as in a snapshot) fill their nodes.
fn split_at(len: usize, inserted: usize) -> Option<usize> {
    if len <= NODE_MAX {
        None
    } else if inserted + 1 == len {
        Some(len - 1)
    } else {
        Some(len / 2)
    }
}

fn cut<E>(from: &mut Vec<E>, at: usize) -> Vec<E> {
    let right = from.split_off(at);
    // Release the unused capacity of the left half.
    from.shrink_to(from.len() + from.len() / 8);
    right
}

pub(super) fn remove<T: Keyed>(node: &mut Arc<Node<T>>, key: &T::Key) -> Option<Arc<T>> {
    match Arc::make_mut(node) {
        Node::Leaf(items) => find(items, key).ok().map(|at| items.remove(at)),
        Node::Branch(children) => {
            let at = child(children, key);
            let removed = remove(&mut children[at].node, key)?;
            if children[at].node.len() < NODE_LOW {
                relieve(children, at);
            }
            Some(removed)
        }
    }
}

/// Removes an empty child, or joins a small one with a neighbour that has space.
fn relieve<T: Keyed>(children: &mut Vec<Child<T>>, at: usize) {
    let len = children[at].node.len();
    if len == 0 {
        children.remove(at);
        return;
    }
    let fits = |other: usize| children.get(other).is_some_and(|child| child.node.len() + len <= JOINED_MAX);
    let left = if at > 0 && fits(at - 1) {
        at - 1
    } else if fits(at + 1) {
        at
    } else {
        return;
    };
    let right = children.remove(left + 1);
    let taken = Arc::unwrap_or_clone(right.node);
    match (Arc::make_mut(&mut children[left].node), taken) {
        (Node::Leaf(items), Node::Leaf(more)) => items.extend(more),
        (Node::Branch(nodes), Node::Branch(mut more)) => {
            // The bound of a first child is unused; between two other children it must be correct.
            if let Some(first) = more.first_mut() {
                first.from = right.from;
            }
            nodes.extend(more);
        }
        _ => unreachable!("children of one branch are equally deep"),
    }
}
