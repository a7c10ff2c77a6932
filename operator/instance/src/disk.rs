//! Space of the data volume, what is given up when there is none, and a look whether it works at all.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use mainstay_core::observed::Disk;
use rustix::fs::{Advice, FallocateFlags, Timespec, Timestamps, UTIME_NOW, fadvise, fallocate, futimens, statvfs};
use rustix::io::Errno;

/// Size of the reserve.
pub(crate) const RESERVE: u64 = 64 * 1024 * 1024;
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
    if space(volume)?.free >= Disk::FULL || !reserve.try_exists()? {
        return Ok(false);
    }
    std::fs::remove_file(reserve)?;
    Ok(true)
}

/// Reads the beginning of a file, or of a directory's attributes when the file is not there, from the device and not from
/// memory, and changes when it was touched: what a file system that was shut down, or is read-only now, refuses.
///
/// It writes nothing that anybody waits for. It may take for ever when the disk does.
pub(crate) fn look(file: &Path, directory: &Path) -> io::Result<()> {
    const PAGE: usize = 4096;
    let opened = match File::open(file) {
        Ok(opened) => {
            // Where advice is not taken the look is worse, and nothing else.
            let _ = fadvise(&opened, 0, None, Advice::DontNeed);
            opened.read_at(&mut [0; PAGE], 0)?;
            opened
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(directory)?,
        Err(error) => return Err(error),
    };
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let touched = Timestamps {
        last_access: now,
        last_modification: now,
    };
    Ok(futimens(&opened, &touched)?)
}

/// Whether an error says that the volume does not do what a volume is there for: its device fails, or its file system was
/// shut down, is damaged, or was made read-only.
pub(crate) fn is_broken(error: &io::Error) -> bool {
    const BROKEN: [Errno; 6] = [
        Errno::IO,
        Errno::ROFS,
        Errno::NXIO,
        Errno::NODEV,
        // "Structure needs cleaning" and "bad message": what ext4 and XFS say of damage.
        Errno::UCLEAN,
        Errno::BADMSG,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| BROKEN.iter().any(|broken| broken.raw_os_error() == code))
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
    fn a_volume_that_works_is_looked_at_with_and_without_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state");
        look(&file, dir.path()).unwrap();
        std::fs::write(&file, [7; 100]).unwrap();
        look(&file, dir.path()).unwrap();
        let gone = look(&file.join("below"), &dir.path().join("gone")).unwrap_err();
        assert!(!is_broken(&gone), "{gone}");
    }

    #[test]
    fn what_a_broken_volume_says() {
        for code in [Errno::IO, Errno::ROFS, Errno::UCLEAN] {
            assert!(is_broken(&code.into()));
        }
        for code in [Errno::NOSPC, Errno::ACCESS, Errno::NOENT] {
            assert!(!is_broken(&code.into()));
        }
        assert!(!is_broken(&io::Error::other("something else")));
    }

    #[test]
    fn a_tree_that_is_not_there_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        remove_tree(&dir.path().join("nothing")).unwrap();
    }
}
