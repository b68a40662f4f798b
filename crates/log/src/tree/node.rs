//! Nodes of the tree: finding, splitting, joining.

use super::Keyed;
use std::borrow::Borrow;
use std::sync::Arc;

/// Items in a leaf, children of a branch.
pub(super) const NODE_MAX: usize = 64;
/// A node below this looks for a neighbour to join.
const NODE_LOW: usize = NODE_MAX / 4;
/// Joined nodes must have room, or the next insertion would split them again.
const JOINED_MAX: usize = NODE_MAX * 3 / 4;

pub(super) enum Node<T: Keyed> {
    Leaf(Vec<Arc<T>>),
    /// Not empty, except for a moment while the last item below it is removed.
    Branch(Vec<Child<T>>),
}

pub(super) struct Child<T: Keyed> {
    /// At or below every key in the node, above every key in the one before. Means nothing for the first child.
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

/// The child a key belongs into.
pub(super) fn child<T: Keyed>(children: &[Child<T>], key: &T::Key) -> usize {
    children.partition_point(|child| child.from.borrow() <= key).saturating_sub(1)
}

/// Returns what was replaced, and the right half if the node had to be split.
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

/// Where to split a node that has just grown, if it is too large. After an insertion at its end the left part stays
/// full, so that keys which arrive in order (as from a snapshot) fill their nodes.
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
    // A half that is not inserted into again should not keep room for the other half.
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

/// Drops an empty child, or joins a small one with a neighbour that has room.
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
            // The bound of a first child means nothing; between two others it must be right.
            if let Some(first) = more.first_mut() {
                first.from = right.from;
            }
            nodes.extend(more);
        }
        _ => unreachable!("children of one branch are equally deep"),
    }
}
