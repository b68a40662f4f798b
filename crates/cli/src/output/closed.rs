//! Notices that nobody reads stdout any more, without writing to it.

use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::sync::oneshot;

/// Waits until the reader of stdout has closed its end (`| head`). Never returns if stdout is a file.
///
/// A command that prints rarely would otherwise find out with its next line only.
pub async fn stdout_closed() {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(stdout) => closed(stdout).await,
        Err(_) => std::future::pending().await,
    }
}

/// The kernel reports an error on the write end of a pipe when the last reader is gone. A thread waits for it, and ends with
/// the process.
async fn closed(fd: OwnedFd) {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        while !is_closed(&fd) {}
        // An error means that nobody waits any more.
        let _ = sender.send(());
    });
    if receiver.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Blocks until the other end is closed. Returns false if a signal arrived.
fn is_closed(fd: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(fd, PollFlags::empty())];
    poll(&mut polled, None).is_ok_and(|_| polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn the_end_of_the_reader_is_noticed_without_a_write() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut waiting = std::pin::pin!(closed(OwnedFd::from(writer.try_clone().unwrap())));
        writer.write_all(b"x").unwrap();
        let still_open = tokio::select! {
            biased;
            () = &mut waiting => false,
            () = tokio::task::yield_now() => true,
        };
        assert!(still_open);
        drop(reader);
        waiting.await;
    }
}
