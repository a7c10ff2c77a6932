//! Disks that stall, fail or are full.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mainstay_instance::config::Programs;

const SOURCE: &str = include_str!("disk.c");

/// The disk of one mysqld, as far as its system calls go.
pub(crate) struct Disk {
    control: PathBuf,
}

impl Disk {
    /// Lets a mysqld be started with it; `directory` is for its control files.
    pub(crate) fn below(programs: &mut Programs, directory: &Path) -> Self {
        let control = directory.join("disk");
        let loader = programs
            .mysqld
            .iter()
            .position(|word| word == "--library-path")
            .expect("mysqld is started by the loader of its own files");
        let preload: [OsString; 2] = ["--preload".into(), library().into()];
        programs.mysqld.splice(loader..loader, preload);
        let mut variable = OsString::from("MAINSTAY_TEST_DISK=");
        variable.push(&control);
        programs.mysqld.splice(0..0, ["env".into(), variable]);
        Self { control }
    }

    /// From now on no access ends.
    pub(crate) fn stall(&self) {
        std::fs::write(self.control.with_extension("stall"), "").unwrap();
    }

    /// From now on every access is an error.
    pub(crate) fn fail(&self) {
        std::fs::write(self.control.with_extension("error"), "").unwrap();
    }

    /// From now on nothing more fits on it.
    pub(crate) fn fill(&self) {
        std::fs::write(self.control.with_extension("full"), "").unwrap();
    }

    /// It works again.
    pub(crate) fn mend(&self) {
        for fault in ["stall", "error", "full"] {
            drop(std::fs::remove_file(self.control.with_extension(fault)));
        }
    }
}

/// The compiled library; made once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let own = std::process::id();
        let source = directory.join(format!("disk-{own}.c"));
        let library = directory.join(format!("disk-{own}.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-nostartfiles", "-o"])
            .args([&library, &source])
            .status()
            .expect("a C compiler");
        assert!(compiled.success(), "{}: {compiled}", source.display());
        let installed = directory.join("disk.so");
        std::fs::rename(&library, &installed).unwrap();
        std::fs::remove_file(&source).unwrap();
        installed
    })
}
