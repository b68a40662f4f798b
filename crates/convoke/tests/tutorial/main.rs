//! Runs the `console` blocks of the tutorial and the README, command by command, with real processes in a separate
//! network with the ports of the page, and compares the output. `UPDATE_GOLDEN=1` writes the output into the pages.

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

/// Returns a shell that ends all processes started in it.
fn isolated_shell(mut command: Command) -> Command {
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
        let mut command = isolated_shell(network.command(0, "unshare"));
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
fn the_output_in_the_tutorial_is_correct() {
    check("the_output_in_the_tutorial_is_correct", "../../../../docs/tutorial.md");
}

#[test]
fn the_output_in_the_readme_is_correct() {
    check("the_output_in_the_readme_is_correct", "../../../../README.md");
}

#[test]
fn the_output_in_the_guide_to_elections_is_correct() {
    check("the_output_in_the_guide_to_elections_is_correct", "../../../../docs/guides/elect-a-leader.md");
}

#[test]
fn the_output_in_the_guide_to_cron_jobs_is_correct() {
    check("the_output_in_the_guide_to_cron_jobs_is_correct", "../../../../docs/guides/run-a-job-once.md");
}

#[test]
fn the_output_in_the_guide_to_fencing_is_correct() {
    check("the_output_in_the_guide_to_fencing_is_correct", "../../../../docs/guides/fence-a-database.md");
}

#[test]
fn the_output_in_the_guide_to_configuration_is_correct() {
    check("the_output_in_the_guide_to_configuration_is_correct", "../../../../docs/guides/reload-configuration.md");
}

#[test]
fn the_output_in_the_guide_to_security_is_correct() {
    check("the_output_in_the_guide_to_security_is_correct", "../../../../docs/guides/secure.md");
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
fn a_correct_page_passes() {
    let text = "Told.\n```console\n$ x=7\n$ echo $x; echo 'after 3 s' >&2\n7\nafter 12 ms\n$ printf raw\nraw\n```\n\
                ```console other\n$ echo a; echo b\na\n```\n```console other\nb\n```\n";
    let (page, differences) = played(text);
    assert_eq!(differences, Vec::<String>::new());
    assert_eq!(page.render(), text);
}

#[test]
fn an_incorrect_page_fails() {
    let (page, differences) = played("```console\n$ echo hello\ngoodbye\n```\n");
    assert_eq!(differences, ["line 2: echo hello\n--- expected\ngoodbye\n--- found\nhello"]);
    assert_eq!(page.render(), "```console\n$ echo hello\nhello\n```\n");
    // Missing output is an error as well, and so is additional output.
    assert_eq!(played("```console\n$ echo hello\n```\n").1.len(), 1);
    assert_eq!(played("```console\n$ true\nhello\n```\n").1.len(), 1);
    let more = "```console other\n$ printf 'a\\nb\\n'\na\n```\n```console\n$ sleep 1\n```\n";
    assert_eq!(played(more).1.len(), 1);
}
