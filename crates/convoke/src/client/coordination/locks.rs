//! `convoke lock`

use super::super::log::{or_explain, printable};
use super::hold::{Held, Term, hold};
use super::{clock, with_handle};
use crate::args::{LockArgs, LockCommand, LockRun};
use convoke_cli::output::{Palette, Style, Table, ago, counted, facts, print, print_json, unix_ms};
use convoke_cli::{CommandError, ConnectArgs, Result};
use convoke_client::log::{Acquire, Consistency, Kv};
use convoke_proto::json;
use serde_json::json;

/// Returns the exit code.
pub(crate) async fn lock(arguments: &LockArgs) -> Result<u8> {
    let (connect, json) = (&arguments.inspect.connect, arguments.inspect.json);
    match &arguments.command {
        None => run(connect, &arguments.run).await.map_err(CommandError::of_wrapper),
        Some(command) => with_handle(connect, async |kv| execute(command, kv, connect, json).await).await.map(|()| 0),
    }
}

/// Runs CMD while the lock is held.
async fn run(connect: &ConnectArgs, run: &LockRun) -> Result<u8> {
    let name = run.name.clone().unwrap_or_default();
    let mut acquire = Acquire::new(name.clone()).permits(run.permits).value(run.value.clone());
    acquire = run.delay.into_iter().fold(acquire, Acquire::delay);
    acquire = run.wait.into_iter().fold(acquire, Acquire::wait);
    let term = Term::new(&run.lease, run.grace);
    let held = format!("lock {name:?}");
    hold(connect, &term, &held, &run.cmd, async |locks, _| Ok(Held::Lock(locks.acquire(acquire).await?))).await
}

async fn execute(command: &LockCommand, kv: &Kv, connect: &ConnectArgs, json: bool) -> Result {
    let locks = kv.locks();
    match command {
        LockCommand::List => {
            let mut all: Vec<json::Lock> = Vec::new();
            let mut after = Vec::new();
            loop {
                let page = or_explain(connect, locks.list(after.clone(), 0, Consistency::Linearizable).await).await?;
                after = page.locks.last().map_or(after, |lock| lock.name.to_vec());
                let clock = clock(page.log_time_us);
                all.extend(page.locks.into_iter().map(|lock| json::Lock::new(lock, clock)));
                if !page.more {
                    break;
                }
            }
            if json {
                return print_json(&json::LockList { locks: all, next_cursor: None });
            }
            print(&table(&all, unix_ms(), Palette::of_stdout()))
        }
        LockCommand::Show { name } => {
            let page = or_explain(connect, locks.show_page(name.clone(), Consistency::Linearizable).await).await?;
            let clock = clock(page.log_time_us);
            let found = page.locks.into_iter().next().map(|lock| json::Lock::new(lock, clock));
            let lock = found.unwrap_or_else(|| json::Lock::free(name));
            if json { print_json(&lock) } else { print(&show(&lock, unix_ms(), Palette::of_stdout())) }
        }
        LockCommand::Release { name, fence } => {
            or_explain(connect, locks.release(name.clone(), *fence).await).await?;
            if json {
                return print_json(&json!({ "lock": name, "released": fence }));
            }
            print(&format!("lock {name:?} released, which was held with fence {fence}\n"))
        }
    }
}

fn table(locks: &[json::Lock], now: u64, palette: Palette) -> String {
    let mut table = Table::new(&["LOCK", "HELD", "WAITING", "FENCE", "LEASE", "MEMBER", "SINCE", "VALUE"]);
    for lock in locks {
        let first = lock.holders.first();
        let text = |of: fn(&json::LockHolder) -> String| first.map(of).unwrap_or_default();
        table.row(vec![
            (lock.lock.clone(), Style::Plain),
            (format!("{}/{}", lock.holders.len(), lock.permits), Style::Plain),
            (lock.waiting.to_string(), Style::Plain),
            (text(|holder| holder.fence.unwrap_or_default().to_string()), Style::Plain),
            (text(|holder| holder.lease.clone()), Style::Plain),
            (text(|holder| holder.member.clone().unwrap_or_default()), Style::Plain),
            (
                first.map(|holder| format!("{} ago", ago(now.saturating_sub(holder.since)))).unwrap_or_default(),
                Style::Dim,
            ),
            (text(|holder| printable(holder.value.as_bytes(), 40)), Style::Plain),
        ]);
    }
    format!("{}{}\n", table.render(palette), counted(locks.len() as u64, "lock"))
}

/// Returns the lines of a lock: its holders and its queue.
fn show(lock: &json::Lock, now: u64, palette: Palette) -> String {
    let mut lines = vec![("Lock", lock.lock.clone()), ("Permits", lock.permits.to_string())];
    lines.extend(lock.holders.iter().map(|holder| ("Holder", place(holder, now))));
    if lock.holders.is_empty() {
        lines.push(("Holder", "none".to_owned()));
    }
    lines.push(("Waiting", lock.waiting.to_string()));
    lines.extend(lock.queue.iter().map(|waiter| ("Waiter", place(waiter, now))));
    if let Some(until) = lock.delayed_until {
        lines.push(("Delayed", format!("granted to nobody for {} more", ago(until.saturating_sub(now)))));
    }
    facts(&lines, palette)
}

/// Returns a holder or waiter on one line.
pub(super) fn place(place: &json::LockHolder, now: u64) -> String {
    let fence = place.fence.map(|fence| format!("fence {fence}, ")).unwrap_or_default();
    let member = place.member.as_ref().map(|member| format!(" of member {member}")).unwrap_or_default();
    let owner = place.owner.as_ref().map(|owner| format!(" of {owner}")).unwrap_or_default();
    let value = match place.value.as_str() {
        "" => String::new(),
        value => format!(", value {}", printable(value.as_bytes(), 100)),
    };
    let since = ago(now.saturating_sub(place.since));
    format!("{fence}lease {}{owner}{member}, for {since}{value}", place.lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    #[test]
    fn locks_are_listed_and_shown() {
        let holder = json::LockHolder {
            fence: Some(42),
            lease: "21".into(),
            owner: Some("token/orders".into()),
            value: "host-1".into(),
            since: 1_000_000,
            ..json::LockHolder::default()
        };
        let waiter = json::LockHolder {
            lease: "34".into(),
            member: Some("orders-2".into()),
            since: 1_001_000,
            ..json::LockHolder::default()
        };
        let lock = json::Lock {
            lock: "jobs/nightly".into(),
            permits: 1,
            holders: vec![holder],
            waiting: 1,
            queue: vec![waiter],
            delayed_until: None,
        };
        let free = json::Lock { delayed_until: Some(1_009_000), ..json::Lock::free("pool") };
        golden!("golden/locks.txt", &table(&[lock.clone(), free.clone()], 1_003_000, Palette::PLAIN));
        let both = format!("{}\n{}", show(&lock, 1_003_000, Palette::PLAIN), show(&free, 1_003_000, Palette::PLAIN));
        golden!("golden/lock.txt", &both);
    }
}
