//! Answers about services that were written before: most lookups find what the last one found.
//!
//! An answer is made of members: those of the service, and those that stand for their nodes. Every request reads them, and an
//! answer is used again only if they are the same. A member never changes, so a comparison mostly compares addresses. Nothing
//! is answered that the request would not find itself, whatever its caller may read.

use super::registry::NodeMembers;
use bytes::Bytes;
use convoke_core::member::Member;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

/// Answers above this size are not kept.
const TEXT_MAX: usize = 256 * 1024;
/// Beyond these limits all kept answers are dropped.
const ANSWERS_MAX: usize = 4_096;
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// The answers, by route, service and parameters.
#[derive(Debug, Default)]
pub(crate) struct Rendered {
    kept: RwLock<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    answers: HashMap<String, Arc<RenderedAnswer>>,
    bytes: usize,
}

/// What an answer was made of.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) members: Vec<Member>,
    pub(crate) nodes: BTreeMap<String, NodeMembers>,
}

#[derive(Debug)]
struct RenderedAnswer {
    origin: Origin,
    index: u64,
    text: Bytes,
}

impl Rendered {
    /// Returns the index and the text of an answer if it was made of these members, and of the nodes that `node` finds.
    pub(crate) fn get(
        &self,
        key: &str,
        members: &[Member],
        node: impl Fn(&str) -> NodeMembers,
    ) -> Option<(u64, Bytes)> {
        let answer = self.kept.read().unwrap_or_else(PoisonError::into_inner).answers.get(key)?.clone();
        let Origin { members: made_of, nodes } = &answer.origin;
        let is_same = made_of == members && nodes.iter().all(|(name, member)| *member == node(name));
        is_same.then(|| (answer.index, answer.text.clone()))
    }

    pub(crate) fn keep(&self, key: String, origin: Origin, index: u64, text: Bytes) {
        if text.len() > TEXT_MAX {
            return;
        }
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += key.len() + text.len();
        if kept.answers.len() >= ANSWERS_MAX || kept.bytes > BYTES_MAX {
            kept.answers.clear();
            kept.bytes = key.len() + text.len();
        }
        let length = key.len();
        if let Some(old) = kept.answers.insert(key, Arc::new(RenderedAnswer { origin, index, text })) {
            kept.bytes -= length + old.text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn none() -> Origin {
        Origin { members: Vec::new(), nodes: BTreeMap::new() }
    }

    #[test]
    fn kept_answers_are_bounded() {
        let rendered = Rendered::default();
        let held = |rendered: &Rendered| {
            let kept = rendered.kept.read().unwrap();
            let bytes: usize = kept.answers.iter().map(|(key, answer)| key.len() + answer.text.len()).sum();
            assert_eq!(kept.bytes, bytes);
            (kept.answers.len(), bytes)
        };
        rendered.keep("large".to_owned(), none(), 1, vec![0; TEXT_MAX + 1].into());
        assert_eq!(held(&rendered), (0, 0));
        // An answer replaces the one before it.
        for length in [10, 3] {
            rendered.keep("key".to_owned(), none(), 1, vec![0; length].into());
            assert_eq!(held(&rendered), (1, 3 + length));
        }
        for number in 0..2 * ANSWERS_MAX {
            rendered.keep(number.to_string(), none(), 1, Bytes::new());
            assert!(held(&rendered).0 <= ANSWERS_MAX);
        }
        for number in 0..2 * BYTES_MAX / TEXT_MAX {
            rendered.keep(number.to_string(), none(), 1, vec![0; TEXT_MAX].into());
            assert!(held(&rendered).1 <= BYTES_MAX);
        }
    }

    #[test]
    fn an_answer_is_used_only_for_what_it_was_made_of() {
        let rendered = Rendered::default();
        let origin = Origin { members: Vec::new(), nodes: [("n1".to_owned(), NodeMembers::default())].into() };
        rendered.keep("key".to_owned(), origin, 7, Bytes::from_static(b"text"));
        assert_eq!(rendered.get("key", &[], |_| NodeMembers::default()), Some((7, Bytes::from_static(b"text"))));
        assert_eq!(rendered.get("other", &[], |_| NodeMembers::default()), None);
    }
}
