//! What is different in every run, and so is not compared. Everything else must be as it is written.

use regex_lite::{Captures, Regex};
use std::collections::BTreeMap;

/// Names, and what is taken for them.
const MASKS: &[(&str, &str)] = &[
    ("log", r"\b[0-9a-f]{32}\b"),
    ("client", r"\b[0-9a-f]{16}\b"),
    // Of a member.
    ("version", r"\b\d+\.\d+\.[0-9a-f]{8}\b"),
    // Node, run, its own mark, number of the write.
    ("write", r"\b[a-z0-9-]+/\d+~[0-9a-f]+:\d+"),
    ("time", r"\b\d+(\.\d+)? (ms|s|min)\b"),
    // Where a client goes when its node dies is drawn by lot. Not n3, which the pages kill.
    ("n1 or n2", r"\bowner=n[12]\b|\bnode n[12]\b|\bNode n[12]\b| n[12]$"),
    ("epoch", r"\b\d+@\d+\b"),
    // Of an entry in the log: elections have entries, too.
    ("index", r"^Index +\d+$"),
    ("entries", r"\b\d+ in the log, \d+ committed, \d+ applied\b"),
];
/// Numbers that a reader takes from one output to type them in the next command: where they are said, and where they are typed.
const TAKEN: (&str, &str) = (r#""session":(\d+)"#, r"\b(\d+)/\d+\b");
/// What the shell says about its jobs, and what a node logs about itself.
const LEFT_OUT: &str = r"^\[\d+\]|^bash: line \d+: +\d+ Killed |^\d{4}-\d\d-\d\dT[0-9:.]+Z ";

#[derive(Debug)]
pub struct Masks {
    masks: Vec<(&'static str, Regex)>,
    said: Regex,
    typed: Regex,
    /// As written, as found.
    taken: BTreeMap<String, String>,
}

impl Masks {
    pub fn new() -> Masks {
        let regex = |pattern: &str| Regex::new(pattern).expect("a pattern");
        let masks = MASKS.iter().map(|(name, pattern)| (*name, regex(pattern))).collect();
        Masks { masks, said: regex(TAKEN.0), typed: regex(TAKEN.1), taken: BTreeMap::new() }
    }

    /// Whether an output is what is written, but for what is different in every run.
    pub fn same(&self, written: &[String], found: &[String]) -> bool {
        self.masked(written) == self.masked(found)
    }

    fn masked(&self, lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| self.mask(line)).collect()
    }

    fn mask(&self, line: &str) -> String {
        let line = self.typed.replace_all(line, "<request>").into_owned();
        let line = self.said.replace_all(&line, "\"session\":<session>").into_owned();
        self.masks.iter().fold(line, |line, (name, regex)| regex.replace_all(&line, format!("<{name}>")).into_owned())
    }

    /// Remembers the numbers that the reader of this run takes from it.
    pub fn learn(&mut self, written: &[String], found: &[String]) {
        let numbers = |lines: &[String]| -> Vec<String> {
            let all = lines.iter().flat_map(|line| self.said.captures_iter(line));
            all.map(|captures| captures[1].to_owned()).collect()
        };
        let pairs: Vec<_> = numbers(written).into_iter().zip(numbers(found)).collect();
        self.taken.extend(pairs);
    }

    /// An output of this run with the numbers that are written.
    pub fn written(&self, found: &[String]) -> Vec<String> {
        let replace = |captures: &Captures<'_>| {
            let written = self.taken.iter().find(|(_, taken)| **taken == captures[1]);
            written
                .map_or_else(|| captures[0].to_owned(), |(written, _)| captures[0].replacen(&captures[1], written, 1))
        };
        let said = |line: &String| self.said.replace_all(line, replace).into_owned();
        found.iter().map(|line| self.typed.replace_all(&said(line), replace).into_owned()).collect()
    }

    /// A command as the reader of this run types it.
    pub fn typed(&self, command: &str) -> String {
        let replace = |captures: &Captures<'_>| match self.taken.get(&captures[1]) {
            Some(taken) => captures[0].replacen(&captures[1], taken, 1),
            None => captures[0].to_owned(),
        };
        self.typed.replace_all(command, replace).into_owned()
    }
}

/// Lines that are on no page.
pub fn left_out() -> Regex {
    Regex::new(LEFT_OUT).expect("a pattern")
}

#[test]
fn only_what_differs_in_every_run_is_left_open() {
    let masks = Masks::new();
    let same = |a: &str, b: &str| masks.same(&[a.to_owned()], &[b.to_owned()]);
    assert!(same("last heard 3.9 s ago", "last heard 12 ms ago"));
    assert!(same("Version 2.2.8e180418, written as n1/1~1240:2", "Version 7.1.00180419, written as n2/1~9:31"));
    assert!(same("client d0e357015b451e81", "client 0000000000000001"));
    assert!(same("{\"session\":6,\"number\":1}", "{\"session\":41,\"number\":1}"));
    assert!(!same("{\"session\":6,\"number\":1}", "{\"session\":6,\"number\":2}"));
    assert!(!same("n3  up", "n3  failed"));
    assert!(same("web-1 owner=n1", "web-1 owner=n2") && !same("web-1 owner=n1", "web-1 owner=n3"));
    assert!(!same("revision 1", "revision 2"));
    assert!(!same("127.0.0.1:7700", "127.0.0.1:7701"));
    assert!(!same("took 3 apples", "took 4 apples"));
}

#[test]
fn jobs_and_logs_are_left_out() {
    let out = left_out();
    assert!(out.is_match("[3] 4711") && out.is_match("bash: line 12:  4711 Killed                  convoke start"));
    assert!(out.is_match("2026-11-15T20:36:56.770908Z  INFO started, incarnation 1 node=dev"));
    assert!(!out.is_match("revision 1") && !out.is_match("bash: convok: command not found"));
}

#[test]
fn numbers_are_taken_from_an_output_to_the_next_command() {
    let mut masks = Masks::new();
    masks.learn(&["{\"session\":6,\"number\":1}".into()], &["{\"session\":41,\"number\":1}".into()]);
    assert_eq!(masks.typed("convoke log resolve 6/1"), "convoke log resolve 41/1");
    assert_eq!(masks.typed("convoke log resolve 7/1"), "convoke log resolve 7/1");
    assert_eq!(masks.written(&["Request 41/1".into(), "\"session\":41".into()]), ["Request 6/1", "\"session\":6"]);
}
