//! Space of the data volume, and what is given up when there is none.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Size of the reserve.
pub(crate) const RESERVE: u64 = 64 * 1024 * 1024;
/// With less than this free the disk is full, and the reserve is given up at the next start.
pub(crate) const TOO_LITTLE: u64 = 16 * 1024 * 1024;
/// With more than this free beside it the reserve is made again.
const ENOUGH: u64 = 2 * RESERVE;

/// Space of a file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    /// In all.
    pub(crate) size: u64,
    /// Not in use.
    pub(crate) free: u64,
}

impl Space {
    /// In use.
    #[must_use]
    pub(crate) const fn used(self) -> u64 {
        self.size.saturating_sub(self.free)
    }
}

/// Space of the file system of a path.
pub(crate) fn space(path: &Path) -> io::Result<Space> {
    let stat = statvfs(path)?;
    Ok(Space {
        size: stat.f_blocks.saturating_mul(stat.f_frsize),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

/// A block device, by what the kernel counts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    stat: PathBuf,
}

/// The device of the file system of a path; `None` when it has none of its own, as a network file system.
pub(crate) fn device(path: &Path) -> Option<Device> {
    let number = rustix::fs::stat(path).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    stat.exists().then_some(Device { stat })
}

impl Device {
    /// Writes that it has completed since it is there.
    #[must_use]
    pub(crate) fn completed_writes(&self) -> Option<u64> {
        // Reads completed, merged, sectors, time; writes completed, …
        let text = std::fs::read_to_string(&self.stat).ok()?;
        text.split_whitespace().nth(4)?.parse().ok()
    }
}

/// Makes the reserve when there is room for it.
pub(crate) fn keep_reserve(volume: &Path, reserve: &Path) -> io::Result<()> {
    if reserve.try_exists()? || space(volume)?.free < ENOUGH {
        return Ok(());
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(reserve)?;
    let made = fallocate(&file, FallocateFlags::empty(), 0, RESERVE).map_err(io::Error::from);
    if made.is_err() {
        drop(file);
        std::fs::remove_file(reserve)?;
    }
    made
}

/// Gives the reserve up if the disk is full, so that mysqld can end, or begin; whether it was.
pub(crate) fn release_reserve(volume: &Path, reserve: &Path) -> io::Result<bool> {
    if space(volume)?.free >= TOO_LITTLE || !reserve.try_exists()? {
        return Ok(false);
    }
    std::fs::remove_file(reserve)?;
    Ok(true)
}

/// Makes everything on the file system of this directory durable.
pub(crate) fn sync_all(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(&File::open(directory)?)?)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Deletes a directory with all that is in it, if it is there.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_takes_its_space_at_once_and_is_kept_while_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = dir.path().join("reserve");
        keep_reserve(dir.path(), &reserve).unwrap();
        keep_reserve(dir.path(), &reserve).unwrap();
        assert_eq!(std::fs::metadata(&reserve).unwrap().len(), RESERVE);
        assert!(!release_reserve(dir.path(), &reserve).unwrap());
        assert!(space(dir.path()).unwrap().used() > 0);
    }

    #[test]
    fn a_tree_that_is_not_there_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        remove_tree(&dir.path().join("nothing")).unwrap();
    }
}
