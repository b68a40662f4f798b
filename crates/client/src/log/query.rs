//! Reads of keys: what is selected, how much of it, and in which order.

use super::KeyValue;
use convoke_proto::v1;
use convoke_proto::v1::key_query::{Content, Sort as WireSort, Which};
use convoke_proto::v1::read_request::What;
use prost::bytes::Bytes;

pub use convoke_proto::json::Sort;

/// A read of keys, alone ([`Kv::query`](super::Kv::query)) or in a transaction ([`Op::read`](super::Op::read)).
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Query(pub(super) v1::KeyQuery);

impl Query {
    /// Reads one key.
    pub fn key(key: impl Into<Bytes>) -> Query {
        Query::of(Which::Key(key.into()))
    }

    /// Reads all keys that begin with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Query {
        Query::of(Which::Range(v1::KeyRange::prefix(prefix)))
    }

    /// Reads all keys from `from` up to, but not including, `until`; without `until` up to the last key.
    pub fn range(from: impl Into<Bytes>, until: Option<Bytes>) -> Query {
        Query::of(Which::Range(v1::KeyRange { from: from.into(), until }))
    }

    fn of(which: Which) -> Query {
        Query(v1::KeyQuery { which: Some(which), ..v1::KeyQuery::default() })
    }

    /// Continues a read in key order after the last key of the previous page. No effect on a read of one key.
    pub fn after(mut self, key: &[u8]) -> Query {
        if let Some(Which::Range(range)) = self.0.which {
            self.0.which = Some(Which::Range(range.after(key)));
        }
        self
    }

    /// Returns at most this many records. 0 means as many as fit into one answer.
    pub fn limit(mut self, limit: u64) -> Query {
        self.0.limit = limit;
        self
    }

    /// Returns the records without their values.
    pub fn keys_only(mut self) -> Query {
        self.0.content = Content::Keys.into();
        self
    }

    /// Returns the number of records only.
    pub fn count_only(mut self) -> Query {
        self.0.content = Content::Count.into();
        self
    }

    /// Sorts the records. Pages of sorted records cannot be continued. Sorting a range of more than 10,000 keys fails
    /// with `TOO_LARGE`.
    pub fn sort(mut self, by: Sort, descending: bool) -> Query {
        (self.0.sort, self.0.descending) = (by.wire().into(), descending);
        self
    }
}

impl Query {
    /// Returns whether only the number of records is wanted.
    pub(super) fn counts(&self) -> bool {
        self.0.content() == Content::Count
    }

    /// Returns the read on the wire. Plain reads have the form that nodes of feature level 1 know, because the leader may
    /// be older than this version during an upgrade.
    pub(super) fn what(self, revision: u64) -> What {
        let query = self.0;
        let in_key_order = !query.descending && matches!(query.sort(), WireSort::Unspecified | WireSort::Key);
        let keys_only = query.content() == Content::Keys;
        match &query.which {
            Some(Which::Key(key))
                if revision == 0 && matches!(query.content(), Content::Unspecified | Content::Records) =>
            {
                What::Key(key.clone())
            }
            Some(Which::Range(range)) if revision == 0 && in_key_order && query.content() != Content::Count => {
                What::Range(v1::ReadRange { range: Some(range.clone()), limit: query.limit, keys_only })
            }
            _ => What::Query(query),
        }
    }
}

impl From<v1::KeyQuery> for Query {
    fn from(query: v1::KeyQuery) -> Query {
        Query(query)
    }
}

impl From<Query> for v1::KeyQuery {
    fn from(query: Query) -> v1::KeyQuery {
        query.0
    }
}

/// A page of keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyPage {
    pub records: Vec<KeyValue>,
    /// Number of records in the page; of a [`Query::count_only`] the number of selected records.
    pub count: u64,
    /// Whether the selection contains more records.
    pub more: bool,
    /// Current revision of the store when this page was read, also if the read was at an older revision.
    pub revision: u64,
}

impl KeyPage {
    /// `counts`: whether only the number of records was requested.
    pub(super) fn new(response: v1::ReadResponse, counts: bool) -> KeyPage {
        let v1::ReadResponse { records, count, more, revision, .. } = response;
        let count = if counts { count } else { records.len() as u64 };
        KeyPage { records, count, more, revision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_reads_have_the_form_that_older_nodes_know() {
        let range =
            |keys_only, limit| What::Range(v1::ReadRange { range: Some(v1::KeyRange::prefix("a")), limit, keys_only });
        assert_eq!(Query::key("a").what(0), What::Key("a".into()));
        assert_eq!(Query::prefix("a").limit(3).what(0), range(false, 3));
        assert_eq!(Query::prefix("a").keys_only().sort(Sort::Key, false).what(0), range(true, 0));
        for other in [Query::prefix("a").count_only(), Query::prefix("a").sort(Sort::Value, false)] {
            assert_eq!(other.clone().what(0), What::Query(other.into()));
        }
        // An older node would ignore the revision.
        assert_eq!(Query::key("a").what(7), What::Query(Query::key("a").into()));
    }
}
