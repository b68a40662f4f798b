//! Which node may speak for which replica, on connections whose certificate names a node (TS4).

use smol_str::SmolStr;
use std::collections::BTreeMap;

/// Replicas remembered that are in no configuration this replica knows. Far more than a group ever has.
const REMEMBERED_MAX: usize = 1_024;

/// The nodes of replicas that this replica's configuration does not list, by the first message of each. A new leader can
/// be unknown to a replica that lags behind. Ids are never reused (M2), so the first node stays the only one.
#[derive(Debug, Default)]
pub(crate) struct Senders(BTreeMap<u64, SmolStr>);

impl Senders {
    /// Checks that a node may send as a replica. `configured` is the node of the replica in this replica's
    /// configuration, which may be old: a replica that is missing in it is not refused for that.
    pub(crate) fn check(&mut self, replica: u64, node: &str, configured: Option<&str>) -> Result<(), String> {
        let known = configured.or_else(|| self.0.get(&replica).map(SmolStr::as_str));
        match known {
            Some(known) if known == node => Ok(()),
            Some(known) => Err(format!(
                "the certificate of this connection names node {node}, and replica {replica} is on node {known}"
            )),
            None if self.0.len() >= REMEMBERED_MAX => {
                Err(format!("replica {replica} is unknown, and {REMEMBERED_MAX} unknown replicas are the limit"))
            }
            None => {
                self.0.insert(replica, SmolStr::new(node));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ts4_a_node_speaks_only_for_its_own_replica() {
        let mut senders = Senders::default();
        assert_eq!(senders.check(1, "a", Some("a")), Ok(()));
        assert!(senders.check(1, "b", Some("a")).unwrap_err().contains("replica 1 is on node a"));
    }

    #[test]
    fn ts4_a_replica_that_is_not_configured_yet_belongs_to_the_first_node_that_spoke_for_it() {
        let mut senders = Senders::default();
        assert_eq!(senders.check(7, "new", None), Ok(()));
        assert_eq!(senders.check(7, "new", None), Ok(()));
        assert!(senders.check(7, "thief", None).is_err());
        assert_eq!(senders.check(7, "thief", Some("thief")), Ok(()), "the configuration decides once it is known");
    }

    #[test]
    fn unknown_replicas_are_limited() {
        let mut senders = Senders::default();
        for replica in 0..REMEMBERED_MAX as u64 {
            senders.check(replica, "a", None).unwrap();
        }
        assert!(senders.check(u64::MAX, "a", None).unwrap_err().contains("limit"));
        assert_eq!(senders.check(5, "a", None), Ok(()));
    }
}
