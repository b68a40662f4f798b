//! Clients whose leases are bound to registry members (LE6, LE7), and the check of their ends.

use crate::clients::{ambassador, options};
use crate::faults::Fault;
use crate::record::{Record, now};
use crate::registry::{HEARTBEAT_TIMEOUT, Registry};
use crate::world::Shared;
use convoke_client::Error;
use convoke_client::log::{Acquire, Kv, Lease, LeaseTerms};
use convoke_log::command::{LeaseTerm, MemberBinding};
use convoke_log::machine::Machine;
use convoke_proto::v1;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Clients with a member, one on each of the two client machines.
pub(crate) const MEMBERS: u64 = 2;
/// The lock that they compete for.
pub(crate) const MEMBER_LOCK: &str = "lock/member";
/// Longer than a grant waits for its registration.
const PATIENCE: Duration = Duration::from_secs(8);
/// A jump of a clock ends the time in which a new leader ends no leases.
const AFTER_JUMP: u64 = 2 * HEARTBEAT_TIMEOUT.as_micros() as u64;

pub(crate) struct Member {
    shared: Arc<Shared>,
    id: u64,
    random: fastrand::Rng,
    kv: Kv,
    /// Registrations so far.
    registrations: u64,
}

impl Member {
    pub(crate) fn new(shared: Arc<Shared>, id: u64) -> Result<Member, Error> {
        let random = fastrand::Rng::with_seed(shared.plan.seed.wrapping_mul(1_000_037).wrapping_add(id));
        // Not a name of another client.
        let kv = ambassador(&shared)?.kv_with(options(2 * id + 1).timeout(PATIENCE));
        Ok(Member { shared, id, random, kv, registrations: 0 })
    }

    pub(crate) async fn work(mut self) {
        loop {
            tokio::time::sleep(Duration::from_millis(self.random.u64(20..800))).await;
            // A registration that is still up is replaced.
            let bound = self.register();
            if self.shared.recorder.lock().closing {
                self.shared.registry().end(&bound, true);
                self.shared.recorder.lock().workers_left -= 1;
                return;
            }
            self.hold(bound).await;
        }
    }

    fn register(&mut self) -> MemberBinding {
        self.registrations += 1;
        let (member, client) = (format!("m{}", self.id), format!("member client {}", self.id));
        let registration = format!("{:016x}", self.registrations << 8 | self.id);
        let bound = MemberBinding { member: member.into(), client: client.into(), registration: registration.into() };
        self.shared.registry().register(&bound);
        bound
    }

    /// Holds a lock with a lease of a registration, until the registration or the lease ends.
    async fn hold(&mut self, bound: MemberBinding) {
        let recorder = self.shared.recorder.clone();
        let MemberBinding { member, client, registration } = &bound;
        let [member, client, registration] = [member, client, registration].map(ToString::to_string);
        let terms = LeaseTerms::member(v1::MemberBinding { member, client, registration }, HEARTBEAT_TIMEOUT);
        let Ok(lease) = self.kv.leases().grant(terms).await else {
            // The SDK revokes a lease that it does not return.
            recorder.lock().members.released(&bound);
            recorder.count("member leases without an answer");
            return;
        };
        recorder.count("member leases granted");
        recorder.note(now(), &format!("lease {} of {bound:?} is granted", lease.id()));
        let acquire = Acquire::new(MEMBER_LOCK).lease(&lease).wait(Duration::from_millis(self.random.u64(1..3_000)));
        let guard = self.kv.locks().acquire(acquire).await;
        recorder.count(if guard.is_ok() { "member locks granted" } else { "member locks not granted" });
        tokio::time::sleep(Duration::from_millis(self.random.u64(0..5_000))).await;
        match self.random.u8(0..10) {
            // The client ends it.
            0..3 => {
                recorder.lock().members.released(&bound);
                drop(guard);
                let _ = lease.revoke().await;
            }
            // The process ends without a word, and its registration with it.
            way => {
                if let Ok(guard) = guard {
                    guard.detach();
                }
                lease.detach();
                self.lose(&bound, way, &lease).await;
            }
        }
    }

    async fn lose(&mut self, bound: &MemberBinding, way: u8, lease: &Lease) {
        self.shared.recorder.fault(now(), Fault::MemberGone, &format!("{bound:?}, way {way}"));
        // Otherwise the next registration replaces it.
        if way < 8 {
            self.shared.registry().end(bound, way < 5);
        }
        if way == 7 {
            // It is up again, too late or just in time. That revives nothing.
            tokio::time::sleep(Duration::from_millis(self.random.u64(0..3_000))).await;
            self.shared.registry().register(bound);
        }
        let patience = Duration::from_millis(self.random.u64(0..6_000));
        if way < 7 && tokio::time::timeout(patience, lease.lost()).await.is_ok() {
            self.shared.recorder.count("member leases lost");
        }
    }
}

/// Leases of members, as the replicas show them.
#[derive(Debug, Default)]
pub(crate) struct MemberLeases {
    /// Every lease, and the index at which it was seen first.
    known: BTreeMap<u64, (MemberBinding, u64)>,
    /// Leases that have ended, and an index at which they had.
    ended: BTreeMap<u64, u64>,
    /// Registrations whose client may have revoked their lease.
    released: Vec<MemberBinding>,
}

impl MemberLeases {
    fn released(&mut self, bound: &MemberBinding) {
        self.released.push(bound.clone());
    }
}

/// A lease of a member ends only if its client revoked it or its registration was gone, and never comes back. Called for every
/// applied state of a replica.
pub(crate) fn check(record: &mut Record, registry: &Registry, machine: &Machine, at: u64) -> Result<(), String> {
    let index = machine.applied().index;
    let MemberLeases { known, ended, released } = &mut record.members;
    let present: BTreeMap<u64, &MemberBinding> = machine
        .leases()
        .filter_map(|lease| match &lease.term {
            LeaseTerm::Member(bound) => Some((lease.id.0, bound)),
            LeaseTerm::Ttl(_) => None,
        })
        .collect();
    for (id, bound) in &present {
        if ended.get(id).is_some_and(|ended| *ended <= index) {
            return Err(format!("leases of members never come back: lease {id} of {bound:?} at entry {index}"));
        }
        known.entry(*id).or_insert_with(|| ((*bound).clone(), index));
    }
    let gone =
        known.iter().filter(|(id, (_, seen))| *seen <= index && !present.contains_key(*id) && !ended.contains_key(*id));
    let gone: Vec<(u64, MemberBinding)> = gone.map(|(id, (bound, _))| (*id, bound.clone())).collect();
    for (id, bound) in gone {
        ended.insert(id, index);
        let jumped = record.jumps.iter().any(|jump| at.saturating_sub(*jump) <= AFTER_JUMP);
        if !released.contains(&bound) && !registry.was_gone(&bound) && !jumped {
            return Err(format!("leases of members end only with their registration: lease {id} of {bound:?}"));
        }
        *record.stats.checks.entry("leases of members end only with their registration").or_default() += 1;
    }
    Ok(())
}
