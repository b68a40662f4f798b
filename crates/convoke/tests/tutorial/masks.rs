//! Parts of the output that differ in every run and are not compared. Everything else must be equal.

use regex_lite::{Captures, Regex};
use std::collections::BTreeMap;

/// Names of masks and their patterns.
const MASKS: &[(&str, &str)] = &[
    ("log", r"\b[0-9a-f]{32}\b"),
    ("client", r"\b[0-9a-f]{16}\b"),
    // Version of a member.
    ("version", r"\b\d+\.\d+\.[0-9a-f]{8}\b"),
    // Node, incarnation, nonce, number of the write.
    ("write", r"\b[a-z0-9-]+/\d+~[0-9a-f]+:\d+"),
    // Id of a token: 16 random bytes in base64url.
    ("token", r"\btoken [A-Za-z0-9_-]{22} "),
    // Id of a signing key: a SHA-256 in base64url.
    ("key", r#""[A-Za-z0-9_-]{43}""#),
    ("date", r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\b"),
    // Start of a line of `convoke watch`.
    ("clock", r"^\d\d:\d\d:\d\d\b"),
    ("time", r"\b\d+(\.\d+)? (ms|s|min)\b"),
    // A client whose node dies chooses another one at random. Not n3, which the pages kill.
    ("n1 or n2", r"\bowner=n[12]\b|\bnode n[12]\b|\bNode n[12]\b| n[12]$"),
    // A lease id is the index of a log entry.
    ("lease", r"\b[Ll]ease \d+\b"),
    ("epoch", r"\b\d+@\d+\b"),
    // Index of a log entry: elections add entries as well.
    ("index", r"^Index +\d+$"),
    ("entries", r"\b\d+ in the log, \d+ committed, \d+ applied\b"),
];
/// Numbers that a reader copies from an output into the next command: the pattern in the output, and in the command.
const COPIED: (&str, &str) = (r#""session":(\d+)"#, r"\b(\d+)/\d+\b");
/// Job messages of the shell, and log lines of nodes.
const OMITTED: &str = r"^\[\d+\]|^bash: line \d+: +\d+ Killed |^\d{4}-\d\d-\d\dT[0-9:.]+Z ";

#[derive(Debug)]
pub struct Masks {
    masks: Vec<(&'static str, Regex)>,
    printed: Regex,
    typed: Regex,
    /// From the number on the page to the number of this run.
    taken: BTreeMap<String, String>,
}

impl Masks {
    pub fn new() -> Masks {
        let regex = |pattern: &str| Regex::new(pattern).expect("a pattern");
        let masks = MASKS.iter().map(|(name, pattern)| (*name, regex(pattern))).collect();
        Masks { masks, printed: regex(COPIED.0), typed: regex(COPIED.1), taken: BTreeMap::new() }
    }

    /// Returns whether an output equals the page, apart from the masked parts.
    pub fn same(&self, written: &[String], found: &[String]) -> bool {
        self.masked(written) == self.masked(found)
    }

    fn masked(&self, lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| self.mask(line)).collect()
    }

    fn mask(&self, line: &str) -> String {
        let line = self.typed.replace_all(line, "<request>").into_owned();
        let line = self.printed.replace_all(&line, "\"session\":<session>").into_owned();
        self.masks.iter().fold(line, |line, (name, regex)| regex.replace_all(&line, format!("<{name}>")).into_owned())
    }

    /// Records the numbers to copy from this output.
    pub fn learn(&mut self, written: &[String], found: &[String]) {
        let numbers = |lines: &[String]| -> Vec<String> {
            let all = lines.iter().flat_map(|line| self.printed.captures_iter(line));
            all.map(|captures| captures[1].to_owned()).collect()
        };
        let pairs: Vec<_> = numbers(written).into_iter().zip(numbers(found)).collect();
        self.taken.extend(pairs);
    }

    /// Replaces the numbers of this run by those on the page.
    pub fn written(&self, found: &[String]) -> Vec<String> {
        let replace = |captures: &Captures<'_>| {
            let written = self.taken.iter().find(|(_, taken)| **taken == captures[1]);
            written
                .map_or_else(|| captures[0].to_owned(), |(written, _)| captures[0].replacen(&captures[1], written, 1))
        };
        let printed = |line: &String| self.printed.replace_all(line, replace).into_owned();
        found.iter().map(|line| self.typed.replace_all(&printed(line), replace).into_owned()).collect()
    }

    /// Replaces the numbers on the page by those of this run in a command.
    pub fn typed(&self, command: &str) -> String {
        let replace = |captures: &Captures<'_>| match self.taken.get(&captures[1]) {
            Some(taken) => captures[0].replacen(&captures[1], taken, 1),
            None => captures[0].to_owned(),
        };
        self.typed.replace_all(command, replace).into_owned()
    }
}

/// Returns the pattern of lines that are not on the page.
pub fn left_out() -> Regex {
    Regex::new(OMITTED).expect("a pattern")
}

#[test]
fn only_parts_that_differ_in_every_run_are_masked() {
    let masks = Masks::new();
    let same = |a: &str, b: &str| masks.same(&[a.to_owned()], &[b.to_owned()]);
    assert!(same("last evidence 3.9 s ago", "last evidence 12 ms ago"));
    assert!(same("Version 2.2.8e180418, written as n1/1~1240:2", "Version 7.1.00180419, written as n2/1~9:31"));
    assert!(same("client d0e357015b451e81", "client 0000000000000001"));
    assert!(same("{\"session\":6,\"number\":1}", "{\"session\":41,\"number\":1}"));
    assert!(!same("{\"session\":6,\"number\":1}", "{\"session\":6,\"number\":2}"));
    assert!(same("token Zk1sdG9rZW5pZG9mMTZieQ of a", "token -k1sdG9rZW5pZG9mMTZie_ of a"));
    assert!(!same("n3  up", "n3  failed"));
    assert!(same("web-1 owner=n1", "web-1 owner=n2") && !same("web-1 owner=n1", "web-1 owner=n3"));
    assert!(!same("revision 1", "revision 2"));
    assert!(!same("127.0.0.1:7700", "127.0.0.1:7701"));
    assert!(!same("took 3 apples", "took 4 apples"));
}

#[test]
fn job_messages_and_log_lines_are_omitted() {
    let out = left_out();
    assert!(out.is_match("[3] 4711") && out.is_match("bash: line 12:  4711 Killed                  convoke start"));
    assert!(out.is_match("2026-11-15T20:36:56.770908Z  INFO started, incarnation 1 node=dev"));
    assert!(!out.is_match("revision 1") && !out.is_match("bash: convok: command not found"));
}

#[test]
fn numbers_are_copied_from_an_output_into_the_next_command() {
    let mut masks = Masks::new();
    masks.learn(&["{\"session\":6,\"number\":1}".into()], &["{\"session\":41,\"number\":1}".into()]);
    assert_eq!(masks.typed("convoke log resolve 6/1"), "convoke log resolve 41/1");
    assert_eq!(masks.typed("convoke log resolve 7/1"), "convoke log resolve 7/1");
    assert_eq!(masks.written(&["Request 41/1".into(), "\"session\":41".into()]), ["Request 6/1", "\"session\":6"]);
}
