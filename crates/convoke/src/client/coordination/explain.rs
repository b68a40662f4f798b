//! `convoke explain --lock` and `--election`: who holds it, why, and what would free it.

use super::super::log::or_explain;
use super::{clock, with_handle};
use convoke_cli::output::{Palette, Style, ago, counted, print, print_json, unix_ms};
use convoke_cli::{Inspect, Result};
use convoke_client::log::Consistency;
use convoke_proto::json;
use std::collections::BTreeMap;
use std::fmt::Write;

pub(in crate::client) async fn explain_lock(inspect: &Inspect, name: &str, election: bool) -> Result {
    let connect = &inspect.connect;
    let (lock, leases) = with_handle(connect, async |kv| {
        let page = match election {
            true => kv.elections().show_page(name.to_owned(), Consistency::Linearizable).await,
            false => kv.locks().show_page(name.to_owned(), Consistency::Linearizable).await,
        };
        let page = or_explain(connect, page).await?;
        let clock = clock(page.log_time_us);
        let lock = page.locks.into_iter().next().map(|lock| json::Lock::new(lock, clock));
        let lock = lock.unwrap_or_else(|| json::Lock::free(name));
        let mut leases = BTreeMap::new();
        for holder in &lock.holders {
            let id = holder.lease.parse().unwrap_or_default();
            let lease = or_explain(connect, kv.leases().get(id, Consistency::Linearizable).await).await?;
            leases.extend(lease.map(|lease| (holder.lease.clone(), json::Lease::new(lease, clock))));
        }
        Ok((lock, leases))
    })
    .await?;
    let kind = if election { "election" } else { "lock" };
    let sentences = sentences(kind, &lock, &leases, unix_ms());
    if inspect.json {
        return print_json(&serde_json::json!({ kind: name, "state": lock, "sentences": sentences }));
    }
    let mut text = format!("{kind} {}\n\n", Palette::of_stdout().paint(Style::Bold, name));
    for sentence in sentences {
        let _ = writeln!(text, "  - {sentence}");
    }
    print(&text)
}

fn sentences(kind: &str, lock: &json::Lock, leases: &BTreeMap<String, json::Lease>, now: u64) -> Vec<String> {
    let mut out = Vec::new();
    if lock.permits > 1 {
        out.push(format!("It has {} permits, of which {} are held.", lock.permits, lock.holders.len()));
    }
    if lock.holders.is_empty() {
        out.push(format!("Nobody holds this {kind}."));
    }
    for holder in &lock.holders {
        let since = ago(now.saturating_sub(holder.since));
        let fence = holder.fence.unwrap_or_default();
        out.push(format!("Lease {} holds it with fence {fence} for {since}.", holder.lease));
        out.push(match leases.get(&holder.lease) {
            Some(json::Lease { member: Some(member), .. }) => format!(
                "That lease is bound to member {member}: it ends when the leader's registry shows this registration as down, left or replaced."
            ),
            Some(json::Lease { left_ms: Some(left), ttl_ms, .. }) => format!(
                "Its holder keeps that lease alive. Without a further keep-alive it ends in {:.1} s (ttl {:.1} s).",
                *left as f64 / 1_000.0,
                ttl_ms.unwrap_or_default() as f64 / 1_000.0
            ),
            Some(_) => "Its holder keeps that lease alive.".to_owned(),
            None => "That lease has just ended.".to_owned(),
        });
    }
    if let Some(until) = lock.delayed_until {
        let left = ago(until.saturating_sub(now));
        out.push(format!(
            "The lease of its last holder ended, and its lock delay grants it to nobody for {left} more."
        ));
    }
    match lock.queue.first() {
        Some(next) => out.push(format!("{} waiting; lease {} is next.", counted(lock.waiting, "lease"), next.lease)),
        None => out.push("Nobody waits for it.".to_owned()),
    }
    if let Some(fence) = lock.holders.first().and_then(|holder| holder.fence) {
        let command = if kind == "lock" { "convoke lock release" } else { "convoke elect resign" };
        out.push(format!("`{command} {} --fence {fence}` takes it away from its holder.", lock.lock));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    #[test]
    fn a_lock_is_explained() {
        let holder =
            json::LockHolder { fence: Some(9), lease: "4".into(), since: 1_000, ..json::LockHolder::default() };
        let bound =
            json::LockHolder { fence: Some(11), lease: "5".into(), since: 2_000, ..json::LockHolder::default() };
        let waiter = json::LockHolder { lease: "6".into(), ..json::LockHolder::default() };
        let lock = json::Lock {
            lock: "pool".into(),
            permits: 2,
            holders: vec![holder, bound],
            waiting: 1,
            queue: vec![waiter],
            delayed_until: None,
        };
        let ttl = json::Lease { ttl_ms: Some(10_000), left_ms: Some(4_500), ..json::Lease::default() };
        let member = json::Lease { member: Some("orders-1".into()), ..json::Lease::default() };
        let leases = BTreeMap::from([("4".to_owned(), ttl), ("5".to_owned(), member)]);
        let free = json::Lock { delayed_until: Some(12_000), ..json::Lock::free("pool") };
        let mut lines = sentences("lock", &lock, &leases, 5_000);
        lines.extend(sentences("election", &free, &leases, 5_000));
        golden!("golden/explain_lock.txt", &(lines.join("\n") + "\n"));
    }
}
