//! A pseudo-terminal that runs a program, and the content of its screen.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use crate::until;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

/// A pseudo-terminal that runs a program.
pub struct Terminal {
    master: File,
    /// Kept open to read the terminal modes after the program has ended.
    slave: OwnedFd,
    screen: Arc<Mutex<vt100::Parser>>,
    pub child: Child,
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal").field("child", &self.child).finish_non_exhaustive()
    }
}

impl Terminal {
    pub fn run(command: &mut Command, columns: u16, rows: u16) -> Terminal {
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

    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    #[track_caller]
    pub fn shows(&self, what: &str) {
        let mut text = String::new();
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, || {
                text = self.text();
                text.contains(what)
            });
        }));
        assert!(shown.is_ok(), "{what:?} is not on the screen:\n{text}");
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        tcsetwinsize(&self.master, size(columns, rows)).unwrap();
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        // The kernel signals only the session with this controlling terminal, which a test cannot set without unsafe code.
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::WINCH).unwrap();
    }

    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("it quits", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Whether the terminal is in canonical mode with echo.
    pub fn is_cooked(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    pub fn in_alternate_screen(&self) -> bool {
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
