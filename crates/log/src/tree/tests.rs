//! The tree behaves like a `BTreeMap` with cheap copies.

use super::node::{NODE_MAX, Node};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
struct Item(u32, u32);

impl Keyed for Item {
    type Key = u32;
    type Bound = u32;
    fn key(&self) -> &u32 {
        &self.0
    }
    fn bound(&self) -> u32 {
        self.0
    }
}

/// Returns the depth, after checking every bound and size.
fn check(node: &Node<Item>, from: Option<u32>, until: Option<u32>) -> usize {
    let within = |key: u32| from.is_none_or(|from| from <= key) && until.is_none_or(|until| key < until);
    match node {
        Node::Leaf(items) => {
            assert!(items.len() <= NODE_MAX);
            assert!(items.is_sorted_by_key(|item| item.0) && items.iter().all(|item| within(item.0)));
            1
        }
        Node::Branch(children) => {
            assert!(!children.is_empty() && children.len() <= NODE_MAX);
            let depths: Vec<usize> = (0..children.len())
                .map(|at| {
                    let from = if at == 0 { from } else { Some(children[at].from) };
                    let until = children.get(at + 1).map(|next| next.from).or(until);
                    assert!(children[at].node.len_for_tests() > 0, "an empty child");
                    check(&children[at].node, from, until)
                })
                .collect();
            assert!(depths.iter().all(|depth| *depth == depths[0]), "{depths:?}");
            depths[0] + 1
        }
    }
}

impl Node<Item> {
    fn len_for_tests(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Branch(children) => children.len(),
        }
    }
}

fn assert_same(tree: &Tree<Item>, model: &BTreeMap<u32, u32>) {
    check(&tree.root, None, None);
    assert_eq!(tree.len(), model.len());
    let items: Vec<(u32, u32)> = tree.iter().map(|item| (item.0, item.1)).collect();
    assert_eq!(items, model.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>());
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, u32),
    Remove(u32),
    Change(u32),
    Copy,
    RemoveRange(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..600u32;
    prop_oneof![
        8 => (key.clone(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        3 => key.clone().prop_map(Step::Remove),
        2 => key.clone().prop_map(Step::Change),
        1 => Just(Step::Copy),
        1 => (key, 0..200u32).prop_map(|(from, len)| Step::RemoveRange(from, len)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_behaves_like_a_btree_map_and_copies_do_not_change(
        start in 0..600u32,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut tree: Tree<Item> = Tree::new();
        let mut model = BTreeMap::new();
        for key in 0..start {
            tree.insert(Arc::new(Item(key, 0)));
            model.insert(key, 0);
        }
        let mut copies = Vec::new();
        for step in steps {
            match step {
                Step::Insert(key, value) => {
                    let replaced = tree.insert(Arc::new(Item(key, value)));
                    prop_assert_eq!(replaced.map(|item| item.1), model.insert(key, value));
                }
                Step::Remove(key) => {
                    prop_assert_eq!(tree.remove(&key).map(|item| item.1), model.remove(&key));
                }
                Step::Change(key) => {
                    let found = tree.get_mut(&key).map(|item| item.1 = 7).is_some();
                    prop_assert_eq!(found, model.get_mut(&key).map(|value| *value = 7).is_some());
                }
                Step::RemoveRange(from, len) => {
                    for key in from..from + len {
                        prop_assert_eq!(tree.remove(&key).is_some(), model.remove(&key).is_some());
                    }
                    let after: Vec<u32> = tree.iter_from(&from).map(|item| item.0).collect();
                    prop_assert_eq!(after, model.range(from..).map(|(key, _)| *key).collect::<Vec<_>>());
                }
                Step::Copy => copies.push((tree.clone(), model.clone())),
            }
        }
        assert_same(&tree, &model);
        for (tree, model) in &copies {
            assert_same(tree, model);
        }
    }
}

#[test]
fn keys_in_order_fill_their_nodes() {
    let mut tree = Tree::new();
    for key in 0..10_000 {
        tree.insert(Arc::new(Item(key, key)));
    }
    let depth = check(&tree.root, None, None);
    assert_eq!(depth, 3);
    assert_eq!(tree.get(&4_711).map(|item| item.1), Some(4_711));
    for key in 0..10_000 {
        assert!(tree.remove(&key).is_some());
    }
    assert_eq!((check(&tree.root, None, None), tree.len()), (1, 0));
}
