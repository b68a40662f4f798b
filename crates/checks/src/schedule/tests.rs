#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
use super::*;
use convoke_core::member::Probe;

fn tcp(id: &str, interval_ms: u64) -> Check {
    Check { interval_ms, ..Check::new(id, Probe::Tcp { address: "h:1".into() }) }
}

fn assigned(checks: Vec<Check>) -> Arc<Checks> {
    let results = checks.iter().map(|check| CheckResult::new(check.initial, "", 0)).collect();
    Checks::new(checks.into(), results).unwrap()
}

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// Polls once per 10 ms, and returns the actions with their times. Runs end at once as `outcome` says; published results
/// are in the registry at once.
fn drive(
    schedule: &mut Schedule,
    (from, until): (u64, u64),
    outcome: impl Fn(u64, &RunId) -> Health,
) -> Vec<(u64, String)> {
    let mut done = Vec::new();
    for now in (from..until).step_by(10) {
        let mut actions = schedule.poll(at(now));
        while let Some(action) = actions.pop() {
            match action {
                CheckAction::Run { run, .. } => {
                    done.push((now, format!("run {}/{}", run.member, run.index)));
                    let status = outcome(now, &run);
                    schedule.finished(at(now), &run, RunResult { status, output: status.to_string() });
                    actions.extend(schedule.poll(at(now)));
                }
                CheckAction::Publish { member, claim, checks } => {
                    done.push((now, format!("publish {member} {}", checks.health())));
                    schedule.assign(at(now), &member, Some((claim, checks)));
                }
                CheckAction::Deregister { member, .. } => done.push((now, format!("deregister {member}"))),
            }
        }
    }
    done
}

fn times(done: &[(u64, String)], what: &str) -> Vec<u64> {
    done.iter().filter(|(_, did)| did.starts_with(what)).map(|(at, _)| *at).collect()
}

#[test]
fn a_check_runs_soon_and_then_at_its_interval() {
    let mut schedule = Schedule::new(1);
    schedule.assign(at(0), &"m".into(), Some((1, assigned(vec![tcp("c", 10_000)]))));
    let done = drive(&mut schedule, (0, 100_000), |_, _| Health::Passing);
    let runs = times(&done, "run");
    assert!(runs[0] <= 1_000 && (10..=11).contains(&runs.len()), "{runs:?}");
    assert!(runs.windows(2).all(|pair| (9_400..=10_600).contains(&(pair[1] - pair[0]))), "{runs:?}");
    assert_eq!(times(&done, "publish").len(), 1, "nothing changed afterwards: {done:?}");
    assert_eq!(schedule.sizes(), (1, 1));
}

#[test]
fn many_checks_spread_over_the_interval() {
    let mut schedule = Schedule::new(7);
    let ran = Checks::new(vec![tcp("c", 10_000)].into(), vec![CheckResult::new(Health::Passing, "ok", 0)]).unwrap();
    for number in 0..1_000 {
        schedule.assign(at(0), &SmolStr::new(format!("m{number}")), Some((1, ran.clone())));
    }
    let mut busiest = 0;
    for second in 0..10 {
        let runs = drive(&mut schedule, (second * 1_000, second * 1_000 + 1_000), |_, _| Health::Passing);
        busiest = busiest.max(times(&runs, "run").len());
    }
    assert!((100..200).contains(&busiest), "{busiest} of 1000 in one second");
}

#[test]
fn changes_are_published_once_a_second_at_most() {
    let mut schedule = Schedule::new(2);
    schedule.assign(at(0), &"m".into(), Some((1, assigned(vec![tcp("c", 100)]))));
    // Another result with every run.
    let flapping = |now: u64, _: &RunId| if (now / 100).is_multiple_of(2) { Health::Passing } else { Health::Critical };
    let done = drive(&mut schedule, (0, 20_000), flapping);
    let published = times(&done, "publish");
    assert!((5..=21).contains(&published.len()), "{published:?}");
    assert!(published.windows(2).all(|pair| pair[1] - pair[0] >= 1_000), "{published:?}");
}

#[test]
fn a_report_counts_for_its_time() {
    let mut schedule = Schedule::new(3);
    let check = Check::new("alive", Probe::Ttl { ttl_ms: 3_000 });
    schedule.assign(at(0), &"m".into(), Some((1, assigned(vec![check]))));
    let report = CheckReport { id: "m".into(), check: "alive".into(), status: Health::Passing, output: "fine".into() };
    let mut done = Vec::new();
    for second in 0..5 {
        assert!(schedule.reported(at(second * 1_000), &report));
        done.extend(drive(&mut schedule, (second * 1_000, second * 1_000 + 1_000), |_, _| Health::Passing));
    }
    assert_eq!(done, [(0, "publish m passing".to_owned())]);
    let done = drive(&mut schedule, (5_000, 20_000), |_, _| Health::Passing);
    assert_eq!(done, [(7_000, "publish m critical".to_owned())], "3 s after the last report");
    assert!(!schedule.reported(at(20_000), &CheckReport { check: "other".into(), ..report.clone() }));
    assert!(schedule.reported(at(20_000), &report));
    assert_eq!(drive(&mut schedule, (20_000, 21_000), |_, _| Health::Passing).len(), 1);
}

#[test]
fn a_pause_of_the_node_does_not_expire_reports() {
    let mut schedule = Schedule::new(3);
    let check = Check::new("alive", Probe::Ttl { ttl_ms: 3_000 });
    schedule.assign(at(0), &"m".into(), Some((1, assigned(vec![check]))));
    let report = CheckReport { id: "m".into(), check: "alive".into(), status: Health::Passing, output: String::new() };
    schedule.reported(at(0), &report);
    drive(&mut schedule, (0, 1_000), |_, _| Health::Passing);
    let after_pause = drive(&mut schedule, (10_000, 11_000), |_, _| Health::Passing);
    assert_eq!(after_pause, [], "the report may wait in a socket");
    let later = drive(&mut schedule, (11_000, 20_000), |_, _| Health::Passing);
    assert_eq!(later.len(), 1, "{later:?}");
}

#[test]
fn a_critical_member_is_named_until_it_is_gone_or_recovers() {
    let mut schedule = Schedule::new(4);
    let check = Check { deregister_critical_after_ms: 5_000, ..tcp("c", 1_000) };
    schedule.assign(at(0), &"m".into(), Some((1, assigned(vec![check]))));
    let done = drive(&mut schedule, (0, 21_000), |now, _| if now < 2_000 { Health::Passing } else { Health::Critical });
    let named = times(&done, "deregister");
    assert!(named[0] >= 7_000 && named[0] <= 8_200, "{named:?}");
    assert!((2..=3).contains(&named.len()), "again, because the core refused: {named:?}");
    let done = drive(&mut schedule, (21_000, 40_000), |_, _| Health::Passing);
    assert!(times(&done, "deregister").is_empty(), "{done:?}");
    let done = drive(&mut schedule, (40_000, 50_000), |_, _| Health::Critical);
    assert!(times(&done, "deregister").iter().all(|at| *at >= 45_000), "{done:?}");
    schedule.assign(at(50_000), &"m".into(), None);
    assert_eq!(drive(&mut schedule, (50_000, 60_000), |_, _| Health::Critical), []);
}

#[test]
fn another_registration_starts_over_and_the_same_checks_go_on() {
    let mut schedule = Schedule::new(5);
    let checks = assigned(vec![tcp("c", 1_000)]);
    schedule.assign(at(0), &"m".into(), Some((1, checks.clone())));
    let run = loop {
        let next = schedule.next().unwrap();
        if let Some(CheckAction::Run { run, .. }) = schedule.poll(next).pop() {
            break run;
        }
    };
    // The same checks with a higher claim: the run still counts.
    schedule.assign(at(1_000), &"m".into(), Some((2, checks)));
    schedule.finished(at(1_000), &run, RunResult { status: Health::Passing, output: "ok".into() });
    let published = schedule.poll(at(1_000));
    assert!(matches!(&published[..], [CheckAction::Publish { claim: 2, .. }]), "{published:?}");
    // Other checks: it does not.
    schedule.assign(at(1_000), &"m".into(), Some((3, assigned(vec![tcp("d", 1_000)]))));
    schedule.finished(at(1_000), &run, RunResult { status: Health::Passing, output: "ok".into() });
    assert!(schedule.poll(at(1_000)).is_empty());
}

#[test]
fn timers_of_members_that_are_gone_do_not_accumulate() {
    let mut schedule = Schedule::new(6);
    let checks = assigned(vec![tcp("c", 7 * 24 * 3_600_000)]);
    schedule.assign(at(0), &"stays".into(), Some((1, checks.clone())));
    for now in 0..100_000 {
        let id = SmolStr::from(format!("m{now}"));
        schedule.assign(at(now), &id, Some((1, checks.clone())));
        // The result of the first run makes the next timer lie days ahead.
        for action in schedule.poll(at(now)) {
            if let CheckAction::Run { run, .. } = action {
                schedule.finished(at(now), &run, RunResult { status: Health::Critical, output: "ok".into() });
            }
        }
        schedule.assign(at(now), &id, None);
    }
    assert!(schedule.timers.len() <= TIMERS_MIN, "{} timers", schedule.timers.len());
    assert!(schedule.next().is_some(), "the timer of the member that stays");
}

#[test]
fn a_run_that_takes_longer_than_the_interval_is_not_started_twice() {
    let mut schedule = Schedule::new(7);
    schedule.assign(at(0), &"m".into(), Some((1, assigned(vec![tcp("c", 1_000)]))));
    let mut runs = Vec::new();
    for now in (0..10_000).step_by(10) {
        for action in schedule.poll(at(now)) {
            if let CheckAction::Run { run, .. } = action {
                runs.push(run);
            }
        }
    }
    assert_eq!(runs.len(), 1, "the first run has not ended");
    schedule.finished(at(10_000), &runs[0], RunResult { status: Health::Passing, output: "ok".into() });
    let again =
        (10_000..12_000).flat_map(|now| schedule.poll(at(now))).any(|action| matches!(action, CheckAction::Run { .. }));
    assert!(again, "it runs again after that");
}
