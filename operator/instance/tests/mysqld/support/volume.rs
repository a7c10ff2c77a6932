//! Small volumes of an instance's own: one that can be filled, and one whose file system can be broken.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system that is mounted until it is dropped.
pub(crate) struct Volume {
    mounted: PathBuf,
}

impl Volume {
    /// In memory, of this size. Where it is to be mounted nothing is yet.
    pub(crate) fn small(at: &Path, mib: u64) -> Self {
        let size = format!("size={mib}m");
        Self::mount(at, &["-t", "tmpfs", "-o", &size, "tmpfs"])
    }

    /// ext4 in a file below `directory`, that becomes read-only at its first error, as distributions make it.
    pub(crate) fn ext4(at: &Path, directory: &Path, mib: u64) -> Self {
        let image = directory.join("volume.img");
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        run("mkfs.ext4", &["-q", image.to_str().unwrap()]);
        Self::mount(at, &["-o", "loop,errors=remount-ro", image.to_str().unwrap()])
    }

    fn mount(at: &Path, arguments: &[&str]) -> Self {
        std::fs::create_dir_all(at).unwrap();
        run("mount", &[arguments, &[at.to_str().unwrap()]].concat());
        Self { mounted: at.to_owned() }
    }

    /// Bytes that are free.
    pub(crate) fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.mounted).unwrap();
        stat.f_bavail * stat.f_frsize
    }

    /// Leaves this much free, by a file that nobody else knows.
    pub(crate) fn leave(&self, free: u64) {
        let ballast = self.mounted.join("ballast");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(&ballast).unwrap();
        let size = || file.metadata().unwrap().len();
        // Never more than is wanted is free in between.
        file.set_len(size().min((size() + self.free()).saturating_sub(free)))
            .unwrap();
        for attempt in 0..1000 {
            let take = self.free().saturating_sub(free);
            if take == 0 {
                return;
            }
            // The server may take some first, and then it does not fit.
            let take = take.checked_shr(attempt % 16).unwrap_or_default().max(4096);
            let flags = rustix::fs::FallocateFlags::empty();
            drop(rustix::fs::fallocate(&file, flags, size(), take).map_err(std::io::Error::from));
        }
        panic!("{} bytes are free, and not {free}", self.free());
    }

    /// The file system finds an error in itself. Only of one that [`Volume::ext4`] made.
    pub(crate) fn break_down(&self) {
        let device = self.mounted.metadata().unwrap().dev();
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let device = std::fs::read_link(format!("/sys/dev/block/{number}")).unwrap();
        let name = device.file_name().unwrap().to_str().unwrap().to_owned();
        std::fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "a test").unwrap();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Not what is in it, but that it is there; a server that a failed test left may still be in it.
        run("umount", &["--lazy", self.mounted.to_str().unwrap()]);
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}");
}
