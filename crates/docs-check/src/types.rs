//! The names of public types: one name, one concept.
//!
//! Two crates may have public types with one name only if both types are the same concept, for example a transaction in
//! the state machine and the same transaction in JSON. `SAME` lists these names.

use crate::{Finding, Repository};
use std::collections::{BTreeMap, BTreeSet};

const THIS: &str = "crates/docs-check/src/types.rs";

/// Names that several crates have for one concept, and the concept.
const SAME: &[(&str, &str)] = &[
    ("Acquire", "a request for a place in a lock: of the SDK, of the state machine"),
    ("Bound", "a server with its sockets"),
    ("Check", "a check of a member"),
    ("CheckReport", "what an application reports about a check"),
    ("Client", "a client of the registry: the SDK, its counterpart in simulation"),
    ("Compare", "a condition of a transaction"),
    ("Config", "the configuration of the crate"),
    ("ConfigError", "an error in the configuration of the crate"),
    ("Consistency", "the consistency of a read of the log"),
    ("Counters", "the counters of the crate"),
    ("Delete", "a delete of keys"),
    ("Effect", "an output of a state machine without input and output"),
    ("Event", "a change that a watch returns"),
    ("Fault", "a fault that a simulator injects"),
    ("HttpProbe", "what a check sends over HTTP"),
    ("LeaderChange", "a change of the leader of an election"),
    ("Lease", "a lease of the log"),
    ("Liveness", "how a client proves that it is alive"),
    ("Lock", "a lock of the log"),
    ("LockPlace", "a holder or a waiter of a lock"),
    ("Maintenance", "reason and end of a drain"),
    ("Member", "a member of the registry"),
    ("MemberSpec", "what a client registers"),
    ("Mutant", "a deliberate bug"),
    ("Node", "a node: its state machine, the process part around it"),
    ("Op", "an operation of a transaction"),
    ("OpResult", "the result of an operation of a transaction"),
    ("Owner", "the owner of a member"),
    ("Plan", "what a simulator runs for one seed"),
    ("ProbeTls", "how a check uses TLS"),
    ("Put", "a write of a key"),
    ("Query", "a read of keys"),
    ("Registration", "the registration of a member"),
    ("Relation", "the operator of a compare"),
    ("Reply", "the answer of the log to a request"),
    ("Request", "a request to the log"),
    ("ResetReason", "why a watcher has to discard its view"),
    ("RunOutcome", "the result of one run of a simulator"),
    ("StartError", "why the crate's component could not start"),
    ("Stats", "the statistics of a simulator"),
    ("Txn", "a transaction"),
    ("TxnAnswer", "the answer to a transaction"),
];
const KINDS: &[&str] = &["pub struct ", "pub enum ", "pub trait ", "pub type ", "pub union "];

/// Finds public types whose name a type of another crate has, and names in `SAME` that are not needed.
pub fn check(repository: &Repository) -> Vec<Finding> {
    check_with(repository, SAME)
}

fn check_with(repository: &Repository, same: &[(&str, &str)]) -> Vec<Finding> {
    let mut types: BTreeMap<&str, Vec<Type<'_>>> = BTreeMap::new();
    for (path, text) in repository.texts() {
        for found in types_of(path, text) {
            types.entry(found.name).or_default().push(found);
        }
    }
    types.retain(|_, found| found.iter().map(|found| found.package).collect::<BTreeSet<_>>().len() > 1);
    let mut findings = Vec::new();
    for (name, found) in &types {
        if same.iter().any(|(same, _)| same == name) {
            continue;
        }
        let last = &found[found.len() - 1];
        let others: Vec<String> = found.iter().map(|found| format!("{}:{}", found.path, found.line)).collect();
        let problem =
            format!("several crates have a type {name}: rename one, or list the concept ({})", others.join(", "));
        findings.push(Finding::new(last.path, last.line, problem));
    }
    for (name, _) in same.iter().filter(|(name, _)| !types.contains_key(name)) {
        findings.push(Finding::new(THIS, 1, format!("only one crate has a type {name}: remove it from the list")));
    }
    findings
}

struct Type<'a> {
    name: &'a str,
    package: &'a str,
    path: &'a str,
    line: usize,
}

/// The public types in a source file of a crate, without those of its tests.
fn types_of<'a>(path: &'a str, text: &'a str) -> Vec<Type<'a>> {
    let Some((package, source)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) else {
        return Vec::new();
    };
    if !source.ends_with(".rs") || source.contains("tests") {
        return Vec::new();
    }
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let name = |line: &'a str| {
        let rest = KINDS.iter().find_map(|kind| line.trim_start().strip_prefix(kind))?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
    };
    let lines = text.lines().enumerate();
    lines.filter_map(|(index, line)| Some(Type { name: name(line)?, package, path, line: index + 1 })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(same: &[(&str, &str)]) -> Vec<String> {
        let files = [
            (
                "crates/a/src/lib.rs",
                "pub struct Grant {}\npub struct Own;\n#[cfg(test)]\nmod tests {\npub struct Own2;\n}\n",
            ),
            ("crates/b/src/command/mod.rs", "\n    pub enum Grant<T> {}\n"),
            ("crates/b/src/other.rs", "struct Own;\npub(crate) struct Own;\n"),
            ("crates/b/tests/all.rs", "pub struct Own;\n"),
        ];
        check_with(&Repository::of(files), same).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_name_in_two_crates_is_found() {
        let expected = "crates/b/src/command/mod.rs:2: several crates have a type Grant: rename one, or list the concept \
                        (crates/a/src/lib.rs:1, crates/b/src/command/mod.rs:2)";
        assert_eq!(problems(&[]), [expected]);
        assert_eq!(problems(&[("Grant", "a permission")]), Vec::<String>::new());
    }

    #[test]
    fn names_of_one_crate_are_not_listed() {
        let expected = ["crates/docs-check/src/types.rs:1: only one crate has a type Own: remove it from the list"];
        assert_eq!(problems(&[("Grant", "a permission"), ("Own", "nothing")]), expected);
    }
}
