//! A data directory that was made once: making one costs seconds, a copy a moment.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use mainstay_core::observed::Mysqld;
use tokio::sync::OnceCell;

use super::Cluster;

/// Templates of other builds are kept for so long: one of them may be at work.
const KEPT: Duration = Duration::from_hours(1);

/// Gives an instance a data directory as if it had initialised itself: without a state file it gets an incarnation of its
/// own, and without auto.cnf a server_uuid.
pub(crate) async fn copy_to(volume: &Path) {
    static TEMPLATE: OnceCell<PathBuf> = OnceCell::const_new();
    let template = TEMPLATE.get_or_init(find).await.clone();
    let volume = volume.to_owned();
    let copied = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&volume).unwrap();
        copy(&template, &volume.join("data"));
    });
    copied.await.unwrap();
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp")
        .args(["--recursive", "--reflink=auto", "--sparse=always"])
        .args([from, to])
        .status()
        .unwrap();
    assert!(copied.success(), "{copied}");
}

/// The one that an earlier run of this very program made, or a new one.
async fn find() -> PathBuf {
    let program = std::env::current_exe().unwrap().metadata().unwrap().modified().unwrap();
    let age = program.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let template = directory.join(format!("data-{age}"));
    if template.exists() {
        return template;
    }
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let unused = |entry: &std::fs::DirEntry| {
            let made = entry.metadata().and_then(|metadata| metadata.modified());
            made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > KEPT))
        };
        if entry.file_name().to_string_lossy().starts_with("data-") && unused(&entry) {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
    let mut cluster = Cluster::prepare(1);
    let node = &mut cluster.nodes[0];
    node.start().await;
    node.wait("the template answers", |report| report.mysqld == Mysqld::Running)
        .await;
    // Ended cleanly, it needs no recovery at each start of a copy.
    node.manager.take().unwrap().stop().await;
    let data = node.config.paths.data();
    std::fs::remove_file(data.join("auto.cnf")).unwrap();
    let own = directory.join(format!("data-{age}-{}", std::process::id()));
    copy(&data, &own);
    // Whoever comes first: all are alike.
    if std::fs::rename(&own, &template).is_err() {
        std::fs::remove_dir_all(&own).unwrap();
    }
    template
}
