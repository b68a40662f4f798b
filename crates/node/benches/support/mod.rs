//! Members and measurements for the benchmarks.

#![allow(dead_code, reason = "every bench compiles this module and uses its part of it")]

use convoke_core::member::MemberSpec;
use convoke_core::node::{Attach, AttachMember};
use std::time::Duration;

/// Returns the given size, or a small one when cargo only tests that the benchmarks run.
pub fn scale(count: usize) -> usize {
    if std::env::args().any(|argument| argument == "--bench") { count } else { (count / 1_000).max(20_000) }
}

/// The small member of the requirements: id, service, locality, revision, address, two metadata pairs.
pub fn member(index: usize) -> AttachMember {
    let mut spec = MemberSpec::new(format!("member-{index:08}"), format!("service-{:04}", index % 1_000));
    spec.locality = format!("eu-west-1{}", ["a", "b", "c"][index % 3]);
    spec.revision = format!("v1.{}", index % 20);
    spec.address = format!("10.{}.{}.{}:8080", index >> 16 & 0xff, index >> 8 & 0xff, index & 0xff);
    spec.metadata.insert("shard".to_owned(), format!("{:04}", index % 10_000));
    spec.metadata.insert("version".to_owned(), "1.4.2".to_owned());
    AttachMember { spec, takeover: false }
}

pub fn attach(session: usize, members: usize) -> Attach {
    let first = session * members;
    Attach {
        client: format!("client-{session:07}"),
        nonce: session as u64 + 1,
        claim: 1,
        members: (first..first + members).map(member).collect(),
        ..Attach::default()
    }
}

/// Returns the CPU time of this process so far; zero where the system does not provide it.
pub fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The process name may contain any character, so the fields start after the last parenthesis.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Returns the resident memory of this process in MB; zero where the system does not provide it.
pub fn resident_mb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kilobytes| kilobytes.parse::<usize>().ok()).unwrap_or(0) / 1024
}
