//! What the tutorial and the README show is what happens: their `console` blocks are run, command by command, with real processes and in a
//! network of their own, where the ports are those on the page. `UPDATE_GOLDEN=1` writes what came of it into the pages.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod document;
mod masks;
mod play;
mod terminal;

use convoke_testkit::{NamespaceNetwork, compare_golden, skip};
use document::Document;
use play::Player;
use std::path::Path;
use std::process::Command;

/// A shell that takes everything with it that was started in it.
fn enclosed(mut command: Command) -> Command {
    command.args(["--pid", "--fork", "--kill-child", "bash", "--noprofile", "--norc"]);
    command
}

fn check(test: &str, path: &str) {
    let network = match NamespaceNetwork::create(1) {
        Ok(network) => network,
        Err(why) => return skip(test, why),
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tutorial");
    let page = Document::parse(&std::fs::read_to_string(here.join(path)).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let binaries = Path::new(env!("CARGO_BIN_EXE_convoke")).parent().unwrap();
    let path_before = std::env::var_os("PATH").unwrap_or_default();
    let paths = [binaries.to_owned()].into_iter().chain(std::env::split_paths(&path_before));
    let paths = std::env::join_paths(paths).unwrap();
    let shell = || {
        let mut command = enclosed(network.command(0, "unshare"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CONVOKE_")) {
            command.env_remove(name);
        }
        command.env("PATH", &paths).current_dir(dir.path());
        command
    };
    let mut player = Player::new(&shell, std::env::var_os("UPDATE_GOLDEN").is_some());
    let played = player.play(&page);
    for difference in &player.differences {
        eprintln!("{path}: {difference}\n");
    }
    compare_golden(env!("CARGO_MANIFEST_DIR"), file!(), path, &played.render());
    assert!(player.differences.is_empty() || player.writing, "see above");
}

#[test]
fn the_tutorial_shows_what_happens() {
    check("the_tutorial_shows_what_happens", "../../../../docs/tutorial.md");
}

#[test]
fn the_readme_shows_what_happens() {
    check("the_readme_shows_what_happens", "../../../../README.md");
}

fn played(text: &str) -> (Document, Vec<String>) {
    let shell = || {
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc"]);
        command
    };
    let mut player = Player::new(&shell, false);
    let page = player.play(&Document::parse(text));
    (page, player.differences)
}

#[test]
fn a_right_page_passes() {
    let text = "Told.\n```console\n$ x=7\n$ echo $x; echo 'after 3 s' >&2\n7\nafter 12 ms\n$ printf raw\nraw\n```\n\
                ```console other\n$ echo a; echo b\na\n```\n```console other\nb\n```\n";
    let (page, differences) = played(text);
    assert_eq!(differences, Vec::<String>::new());
    assert_eq!(page.render(), text);
}

#[test]
fn a_wrong_page_does_not() {
    let (page, differences) = played("```console\n$ echo hello\ngoodbye\n```\n");
    assert_eq!(differences, ["line 2: echo hello\n--- written\ngoodbye\n--- found\nhello"]);
    assert_eq!(page.render(), "```console\n$ echo hello\nhello\n```\n");
    // Too little is wrong as well, and so is what a terminal says unasked.
    assert_eq!(played("```console\n$ echo hello\n```\n").1.len(), 1);
    assert_eq!(played("```console\n$ true\nhello\n```\n").1.len(), 1);
    let more = "```console other\n$ printf 'a\\nb\\n'\na\n```\n```console\n$ sleep 1\n```\n";
    assert_eq!(played(more).1.len(), 1);
}
