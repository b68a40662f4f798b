//! Each rule that carries a promise is switched off in turn; each time somebody must notice.
//!
//! Only a difference counts: the same seeds pass without the mutant (`promises_hold_under_any_delivery`).

use crate::{delivery, model};
use convoke_log::{Mutant, Mutation};

/// Seeds tried for each.
const SEEDS: u64 = 200;

/// Who notices: the first seed of the adversary, with what it says; else the first case in which the model differs.
fn hunt(mutant: Mutant) -> Option<String> {
    let seed = |seed| delivery::run(seed, Mutation::of(mutant)).err().map(|violation| (seed, violation));
    if let Some((seed, violation)) = (0..SEEDS).find_map(seed) {
        return Some(format!("seed {seed}: {}", violation.check));
    }
    model::notices(mutant).map(|(case, difference)| {
        let what = difference.split([':', '{']).next().unwrap_or_default().trim();
        format!("model, case {case}: {what}")
    })
}

#[test]
fn every_mutant_is_caught_under_delivery_or_by_the_model() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        match hunt(*mutant) {
            Some(who) => println!("{} ({}): {who}", mutant.name(), mutant.rule()),
            None => missed.push(mutant.name()),
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}

#[test]
fn every_mutant_is_in_the_table_of_the_protocol() {
    for mutant in Mutant::ALL {
        let row = format!("| `{}` | {} | {} |", mutant.name(), mutant.rule(), mutant.meaning());
        assert!(PROTOCOL.contains(&row), "missing: {row}");
    }
}

const PROTOCOL: &str = include_str!("../../../../docs/log-protocol.md");

/// Numbers of the rules, as the protocol has them: `**A1 Input.**`, `**F2 Wanted** is …`, `**E1** …`.
fn rules() -> Vec<&'static str> {
    let rule = |line: &'static str| {
        let name = line.strip_prefix("**")?.split([' ', '*']).next()?;
        let (letter, number) = name.split_at_checked(1)?;
        let is_rule = letter.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<u8>().is_ok();
        is_rule.then_some(name)
    };
    PROTOCOL.lines().filter_map(rule).collect()
}

/// Every rule has a mutant, or a row that names tests which fail without it; and those are there.
#[test]
fn every_rule_has_a_mutant_or_a_test_that_needs_it() {
    let (_, table) = PROTOCOL.split_once("### Rules without a mutant\n").expect("the table of the other rules");
    let table = table.split("\n## ").next().unwrap();
    let rules = rules();
    assert!(rules.len() > 40, "{rules:?}");
    for rule in rules {
        let mutated = |mutant: &Mutant| mutant.rule().split('.').next() == Some(rule);
        if Mutant::ALL.iter().any(mutated) {
            continue;
        }
        let row = table.lines().find(|line| line.starts_with(&format!("| {rule} |")));
        let row = row.unwrap_or_else(|| panic!("{rule} has neither a mutant nor a row"));
        // `file` and then the names of tests in it.
        let (mut file, mut tests) = (String::new(), 0);
        for quoted in row.split('`').skip(1).step_by(2) {
            if let Some(path) = quoted.strip_suffix(".rs") {
                let path = format!("{}/../../{path}.rs", env!("CARGO_MANIFEST_DIR"));
                file = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{rule}: {path}: {error}"));
            } else if !file.is_empty() {
                assert!(file.contains(&format!("fn {quoted}(")), "{rule}: no test {quoted}");
                tests += 1;
            }
        }
        assert!(tests > 0, "{rule}: {row}");
    }
}
