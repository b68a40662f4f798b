//! Notices that nobody reads stdout any more, without writing to it.

use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits until the reader of stdout has closed its end (`| head`). Never returns if stdout is not a pipe or a socket.
///
/// A command that prints rarely would otherwise find out with its next line only.
pub async fn stdout_closed() {
    let stdout = io::stdout();
    match stdout.as_fd().try_clone_to_owned().and_then(|fd| AsyncFd::with_interest(fd, Interest::WRITABLE)) {
        Ok(stdout) => closed(&stdout).await,
        // The system cannot watch regular files, which never close.
        Err(_) => std::future::pending().await,
    }
}

async fn closed(fd: &AsyncFd<OwnedFd>) {
    loop {
        let Ok(mut ready) = fd.writable().await else { return std::future::pending().await };
        if is_closed(fd.get_ref()) {
            return;
        }
        ready.clear_ready();
    }
}

/// The kernel reports an error on the write end of a pipe when the last reader is gone.
fn is_closed(fd: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(fd, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|_| polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn the_end_of_the_reader_is_noticed_without_a_write() {
        let (reader, mut writer) = io::pipe().unwrap();
        let fd = AsyncFd::with_interest(OwnedFd::from(writer.try_clone().unwrap()), Interest::WRITABLE).unwrap();
        let mut waiting = std::pin::pin!(closed(&fd));
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
