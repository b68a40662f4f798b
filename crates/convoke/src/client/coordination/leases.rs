//! `convoke lease`

use super::super::log::or_explain;
use super::{clock, with_handle};
use crate::args::{LeaseArgs, LeaseCommand};
use convoke_cli::output::{Palette, Style, Table, ago, counted, facts, print, print_json, unix_ms};
use convoke_cli::{CommandError, ConnectArgs, Result, Signals};
use convoke_client::log::{Consistency, Kv, LeaseTerms};
use convoke_proto::json;
use serde_json::json;

pub(crate) async fn lease(arguments: &LeaseArgs) -> Result {
    let (connect, json) = (&arguments.inspect.connect, arguments.inspect.json);
    with_handle(connect, async |kv| execute(&arguments.command, kv, connect, json).await).await
}

async fn execute(command: &LeaseCommand, kv: &Kv, connect: &ConnectArgs, json: bool) -> Result {
    let leases = kv.leases();
    match command {
        LeaseCommand::Grant { ttl, release_keys } => {
            let terms = LeaseTerms::ttl(*ttl);
            let terms = if *release_keys { terms.release_keys() } else { terms };
            let lease = or_explain(connect, leases.create(terms).await).await?;
            if json {
                let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                return print_json(&json!({ "lease": lease.to_string(), "ttl_ms": ttl_ms }));
            }
            print(&format!("lease {lease}\n"))
        }
        LeaseCommand::KeepAlive { lease, once: true } => {
            let left = or_explain(connect, leases.keep_alive(*lease).await).await?;
            if json {
                let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                return print_json(&json!({ "lease": lease.to_string(), "left_ms": left_ms }));
            }
            print(&format!("lease {lease} ends in {:.1} s without a further keep-alive\n", left.as_secs_f64()))
        }
        LeaseCommand::KeepAlive { lease, once: false } => {
            let mut signals = Signals::listen()?;
            let held = or_explain(connect, leases.hold(*lease).await).await?;
            if json {
                let ttl_ms = u64::try_from(held.ttl().as_millis()).unwrap_or(u64::MAX);
                print_json(&json!({ "lease": lease.to_string(), "ttl_ms": ttl_ms }))?;
            } else {
                print(&format!("lease {lease} is kept alive; Ctrl-C ends that, and the lease expires\n"))?;
            }
            tokio::select! {
                error = held.lost() => Err(CommandError::not_found(error.message)),
                _ = signals.next() => Ok(()),
            }
        }
        LeaseCommand::Revoke { lease } => {
            let keys = or_explain(connect, leases.revoke(*lease).await).await?;
            if json {
                return print_json(&json!({ "lease": lease.to_string(), "keys": keys }));
            }
            print(&format!("lease {lease} revoked, with {}\n", counted(keys, "key")))
        }
        LeaseCommand::List => {
            let mut all: Vec<json::Lease> = Vec::new();
            let mut after = 0;
            loop {
                let page = or_explain(connect, leases.list(after, 0, Consistency::Linearizable).await).await?;
                after = page.leases.last().map_or(after, |lease| lease.lease);
                let clock = clock(page.log_time_us);
                all.extend(page.leases.into_iter().map(|lease| json::Lease::new(lease, clock)));
                if !page.more {
                    break;
                }
            }
            if json {
                return print_json(&json::LeaseList { leases: all, next_cursor: None });
            }
            print(&table(&all, unix_ms(), Palette::of_stdout()))
        }
        LeaseCommand::Show { lease } => {
            let found = or_explain(connect, leases.get(*lease, Consistency::Linearizable).await).await?;
            let found = found.ok_or_else(|| CommandError::not_found(format!("no lease {lease}")))?;
            let granted_us = found.granted_us;
            let shown = json::Lease::new(found, clock(granted_us));
            if json { print_json(&shown) } else { print(&show(&shown, Palette::of_stdout())) }
        }
    }
}

fn term(lease: &json::Lease) -> String {
    match (&lease.member, lease.ttl_ms) {
        (Some(member), _) => format!("member {member}"),
        (None, Some(ttl)) => format!("{:.1}s", ttl as f64 / 1_000.0),
        (None, None) => String::new(),
    }
}

fn left(lease: &json::Lease) -> String {
    lease.left_ms.map(|left| format!("{:.1}s", left as f64 / 1_000.0)).unwrap_or_default()
}

fn table(leases: &[json::Lease], now: u64, palette: Palette) -> String {
    let mut table = Table::new(&["LEASE", "TERM", "LEFT", "KEYS", "GRANTED"]);
    for lease in leases {
        table.row(vec![
            (lease.lease.clone(), Style::Plain),
            (term(lease), Style::Plain),
            (left(lease), Style::Plain),
            (lease.keys.to_string(), Style::Plain),
            (format!("{} ago", ago(now.saturating_sub(lease.since))), Style::Dim),
        ]);
    }
    format!("{}{}\n", table.render(palette), counted(leases.len() as u64, "lease"))
}

fn show(lease: &json::Lease, palette: Palette) -> String {
    let places = |places: &[json::LockPlace]| {
        let shown = places.iter().map(|place| match place.fence {
            Some(fence) => format!("{} (fence {fence})", place.name),
            None => format!("{} (waiting)", place.name),
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    let mut lines = vec![
        ("Lease", lease.lease.clone()),
        ("Term", term(lease)),
        (
            "At its end",
            match lease.end.as_str() {
                "release" => "its keys stay".to_owned(),
                _ => "its keys are deleted".to_owned(),
            },
        ),
    ];
    for (name, text) in [
        ("Owner", lease.owner.clone().unwrap_or_default()),
        ("Left", left(lease)),
        ("Keys", lease.attached.join(", ")),
        ("Locks", places(&lease.locks)),
        ("Elections", places(&lease.elections)),
    ] {
        if !text.is_empty() {
            lines.push((name, text));
        }
    }
    facts(&lines, palette)
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    fn leases() -> Vec<json::Lease> {
        let own = json::Lease {
            lease: "21".into(),
            owner: Some("token/orders".into()),
            ttl_ms: Some(10_000),
            end: "delete".into(),
            since: 1_000_000,
            left_ms: Some(7_400),
            keys: 2,
            attached: vec!["a".into(), "b".into()],
            locks: vec![json::LockPlace { name: "jobs".into(), fence: Some(9) }],
            ..json::Lease::default()
        };
        let bound = json::Lease {
            lease: "34".into(),
            member: Some("orders-1".into()),
            end: "release".into(),
            since: 940_000,
            elections: vec![json::LockPlace { name: "orders".into(), fence: None }],
            ..json::Lease::default()
        };
        vec![own, bound]
    }

    #[test]
    fn leases_are_listed_and_shown() {
        let leases = leases();
        golden!("golden/leases.txt", &table(&leases, 1_003_000, Palette::PLAIN));
        golden!(
            "golden/lease.txt",
            &format!("{}\n{}", show(&leases[0], Palette::PLAIN), show(&leases[1], Palette::PLAIN))
        );
    }
}
