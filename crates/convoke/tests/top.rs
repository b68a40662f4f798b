//! `convoke top` in a pseudo-terminal: two sizes with a resize between, keys, and the terminal given back.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{NodeProcess, until};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

/// A terminal with a program in it.
struct Terminal {
    master: File,
    /// Kept open, to look at the modes of the terminal when the program has ended.
    slave: OwnedFd,
    screen: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

impl Terminal {
    fn run(command: &mut Command, columns: u16, rows: u16) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        tcsetwinsize(&master, size(columns, rows)).unwrap();
        let end = || slave.try_clone().unwrap();
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let master = File::from(master);
        let (mut reading, showing) = (master.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reading.read(&mut bytes) {
                showing.lock().unwrap().process(&bytes[..count]);
            }
        });
        Terminal { master, slave, screen, child }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    #[track_caller]
    fn shows(&self, what: &str) {
        let mut text = String::new();
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, || {
                text = self.text();
                text.contains(what)
            });
        }));
        assert!(shown.is_ok(), "{what:?} is not on the screen:\n{text}");
    }

    fn resize(&self, columns: u16, rows: u16) {
        tcsetwinsize(&self.master, size(columns, rows)).unwrap();
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        // The kernel tells whoever has it as controlling terminal; a test cannot make it one without unsafe code.
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::WINCH).unwrap();
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("it quits", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Whether the terminal is as programs expect it: lines are edited and echoed.
    fn is_cooked(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn in_alternate_screen(&self) -> bool {
        self.screen.lock().unwrap().screen().alternate_screen()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn top(node: &NodeProcess, columns: u16, rows: u16) -> Terminal {
    Terminal::run(&mut support::convoke(&["top", "--interval", "200ms", "--addr", &node.clients]), columns, rows)
}

#[test]
fn it_shows_the_cluster_at_two_sizes_and_gives_the_terminal_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::spawn(&mut support::start(dir.path(), &["--id", "n1"])).ready();
    let mut top = top(&node, 80, 24);
    top.shows("n1 ready");
    top.shows("services");
    top.shows("per second: writes");
    top.shows("no log plane");
    assert!(top.in_alternate_screen() && !top.is_cooked());

    let member = support::register(&node.clients, "web-1", &[]);
    top.shows("register");
    top.shows("web-1");
    // Below each other now, side by side after the change.
    let beside = |text: &str| text.lines().any(|line| line.contains("nodes (") && line.contains("changes ("));
    assert!(!beside(&top.text()));
    top.resize(140, 40);
    until("the wide picture", || beside(&top.text()));
    top.shows("web-1");
    top.resize(30, 5);
    top.shows("too small");
    top.resize(80, 24);
    top.shows("web-1");
    drop(member);

    top.press("\t\x1b[Bp");
    top.shows("go on");
    top.press("q");
    assert!(top.ended().success());
    until("the terminal is as before", || top.is_cooked() && !top.in_alternate_screen());
}

#[test]
fn it_says_when_the_node_is_gone_and_ctrl_c_quits() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::spawn(&mut support::start(dir.path(), &["--id", "n1"])).ready();
    let mut top = top(&node, 100, 30);
    top.shows("n1 ready");
    node.process.kill();
    top.shows("no answer");
    top.press("\x03");
    assert!(top.ended().success());
    until("the terminal is as before", || top.is_cooked() && !top.in_alternate_screen());
}

#[test]
fn a_signal_gives_the_terminal_back_too() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::spawn(&mut support::start(dir.path(), &["--id", "n1"])).ready();
    let mut top = top(&node, 100, 30);
    top.shows("n1 ready");
    kill_process(Pid::from_raw(top.child.id().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert!(top.ended().success());
    until("the terminal is as before", || top.is_cooked() && !top.in_alternate_screen());
}

#[test]
fn it_needs_a_terminal() {
    let output = support::convoke(&["top"]).stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("top needs a terminal"));
}
