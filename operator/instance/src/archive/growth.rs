//! The kernel says when the binlog grows.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

/// Watches one file at a time.
pub(super) struct Growth {
    /// What is read from like a pipe that never ends.
    inotify: Receiver,
    watched: Option<(PathBuf, i32)>,
}

impl Growth {
    /// Watches nothing yet.
    pub(super) fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self {
            inotify: Receiver::from_owned_fd_unchecked(inotify)?,
            watched: None,
        })
    }

    /// Watches this file, and no other one; whether it is another one than before.
    pub(super) fn watch(&mut self, path: &Path) -> io::Result<bool> {
        if self.watched.as_ref().is_some_and(|(watched, _)| watched == path) {
            return Ok(false);
        }
        let inotify = &self.inotify;
        // The end of a name is told as a change of the file's attributes.
        let what = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        let new = inotify::add_watch(inotify, path, what)?;
        if let Some((_, old)) = self.watched.replace((path.to_owned(), new)) {
            // One that was deleted is not watched any more.
            let _ = inotify::remove_watch(inotify, old);
        }
        Ok(true)
    }

    /// Waits until the file has changed since [`Growth::drain`] was last called.
    pub(super) async fn changed(&self) -> io::Result<()> {
        self.inotify.readable().await
    }

    /// Forgets changes that are known: before the file is read.
    pub(super) fn drain(&self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match self.inotify.try_read(&mut buffer) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn what_was_written_before_the_look_wakes_nobody_and_what_comes_after_does() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("1"), directory.path().join("2"));
        let mut file = std::fs::File::create(&first).unwrap();
        std::fs::write(&second, "").unwrap();
        let mut growth = Growth::new().unwrap();
        assert!(growth.watch(&first).unwrap());
        file.write_all(b"x").unwrap();
        timeout(SOON, growth.changed()).await.unwrap().unwrap();
        growth.drain().unwrap();
        assert!(timeout(Duration::from_millis(50), growth.changed()).await.is_err());
        assert!(growth.watch(&second).unwrap());
        assert!(!growth.watch(&second).unwrap());
        // The end of the other watch is told, too.
        timeout(SOON, growth.changed()).await.unwrap().unwrap();
        growth.drain().unwrap();
        file.write_all(b"x").unwrap();
        assert!(timeout(Duration::from_millis(50), growth.changed()).await.is_err());
        std::fs::remove_file(&second).unwrap();
        timeout(SOON, growth.changed()).await.unwrap().unwrap();
    }
}
