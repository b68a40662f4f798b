//! Snapshots of arbitrary states of level 2: leases, locks, elections, attached keys and history.

use super::*;
use crate::command::{Compare, EndDelay, EndLease, LeaseCause, Relation, Test};
use crate::keys::{KeyRange, Selection};

const SESSION: u64 = 1;

/// One step: a kind and small numbers, so that steps meet the same keys, leases and locks.
type Step = (u8, u8, u8, bool);

/// A log of level 2 to which the steps were applied.
fn run(steps: &[Step]) -> Machine {
    let mut machine = Machine::new(LogLimits { sessions: 3, ..LogLimits::default() }).unwrap();
    apply(&mut machine, open(1, None));
    let (limits, configuration) = (crate::CoordinationLimits::default(), machine.configuration().number);
    apply(&mut machine, Command::Raise(Raise { epoch: EPOCH, level: Level::COORDINATION, configuration, limits }));
    let mut leases = vec![LeaseId(1)];
    for (number, step) in (1..).zip(steps) {
        let before = machine.applied().index + 1;
        let command = command(&machine, &leases, number, *step);
        if matches!(&command, Command::Request(Request { body: Body::Grant(_), .. })) {
            leases.push(LeaseId(before));
        }
        apply(&mut machine, command);
    }
    machine
}

fn command(machine: &Machine, leases: &[LeaseId], number: u64, (kind, one, two, flag): Step) -> Command {
    let lease = leases[usize::from(two) % leases.len()];
    let name = format!("l{}", one % 3);
    let name = if flag { LockName::election(name) } else { LockName::lock(name) };
    let key = format!("k{}", one % 4);
    // Of the current holder, or of an earlier one.
    let fence = machine.places(&name).find_map(crate::locks::LockPlace::fence).unwrap_or(u64::from(two) + 1);
    let body = match kind {
        0 => Body::Grant(GrantLease {
            term: if flag {
                let part = |part: &str| format!("{part}{two}").into();
                LeaseTerm::Member(MemberBinding { member: part("m"), client: part("c"), registration: part("r") })
            } else {
                LeaseTerm::Ttl(Duration::from_secs(2 + u64::from(one)))
            },
            end: if one % 2 == 0 { EndBehavior::Delete } else { EndBehavior::Release },
        }),
        1 => Body::Revoke(lease),
        2 | 3 => {
            let lease = flag.then_some(lease);
            let put = TxnPut { lease, flags: two.into(), lock_index: one.into(), ..TxnPut::new(key.clone(), "v") };
            let range = Selection::Range(KeyRange::prefix(format!("k{}", two % 4)));
            let compare = Compare::Keys {
                selection: Selection::Key(key.into()),
                test: Test::Version(Relation::Less, u64::from(two)),
            };
            let otherwise = vec![Op::Delete { selection: range, previous: flag }];
            Body::Txn(Txn { compares: vec![compare], then: vec![Op::Put(put)], otherwise })
        }
        4 => Body::put(key, vec![two; usize::from(two)]),
        5 => Body::delete(key),
        6 | 7 => {
            let delay = Duration::from_secs(u64::from(two % 2) * 5);
            let permits = if flag { 1 } else { 2 };
            Body::Acquire(Acquire { permits, delay, wait: kind == 6, value: "v".into(), ..Acquire::new(name, lease) })
        }
        8 => {
            Body::Release(Release { name, place: if one % 2 == 0 { Place::Fence(fence) } else { Place::Lease(lease) } })
        }
        9 => Body::Proclaim(Proclaim { name, fence, value: vec![two].into() }),
        10 => {
            let cause = match machine.lease(lease).map(|lease| &lease.term) {
                Some(LeaseTerm::Member(bound)) => LeaseCause::MemberGone { registration: bound.registration.clone() },
                _ => LeaseCause::Expired,
            };
            return Command::EndLease(EndLease { epoch: EPOCH, lease, cause });
        }
        _ => return Command::EndDelay(EndDelay { epoch: EPOCH, name }),
    };
    request(SESSION, number, body)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..12u8, any::<u8>(), any::<u8>(), any::<bool>()), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: convoke_fuzz::cases_u32(128), failure_persistence: None, ..ProptestConfig::default() })]

    /// The restored machine is the same, writes the same snapshot, and answers later commands in the same way.
    #[test]
    fn lh1_every_state_is_restored_exactly(before in steps(), after in steps()) {
        let mut machine = run(&before);
        let bytes = machine.snapshot().to_bytes();
        let mut restored = Machine::from_snapshot(&bytes).unwrap();
        prop_assert_eq!(restored.state_hash(), machine.state_hash());
        prop_assert_eq!(format!("{restored:?}"), format!("{machine:?}"));
        prop_assert_eq!(restored.snapshot().to_bytes(), bytes);
        for (number, step) in (1 + before.len() as u64..).zip(after) {
            let command = command(&machine, &[LeaseId(1), LeaseId(3), LeaseId(4)], number, step);
            let index = machine.applied().index + 1;
            let entry = Entry { index, epoch: EPOCH, stamp: LogTime::from_micros(index * 300), command };
            let applied = [&mut machine, &mut restored].map(|machine| format!("{:?}", machine.apply(&entry)));
            prop_assert_eq!(&applied[0], &applied[1]);
            prop_assert_eq!(restored.state_hash(), machine.state_hash());
        }
    }
}

/// The steps reach the states that the test is about.
#[test]
fn steps_reach_leases_locks_and_history() {
    let grant = (0, 0, 0, false);
    let machine = run(&[grant, grant, (6, 0, 1, true), (6, 0, 2, true), (2, 1, 1, true), (9, 0, 7, true)]);
    let election = LockName::election("l0");
    assert_eq!((machine.places(&election).count(), machine.keys_of_lease(LeaseId(3)).len()), (2, 1));
    assert!(machine.history().of_key(b"k1", 9).len() == 1);
}
