//! The continuous archive of the binlog (docs/backup.md, "The archive"): what an open primary has executed is stored as it
//! comes, in segments that are never changed.
//!
//! It is a duty of its own beside the others. It begins with an opening and ends with the first command that changes what the
//! instance is; no commit, no command and no stop waits for it. Nothing is remembered but what the store holds, so that after
//! any failure it begins again as if for the first time.

mod catalog;
mod growth;
mod merge;
pub(crate) mod purge;
mod session;
mod source;
#[cfg(test)]
mod tests;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::action::Recorded;
use mainstay_core::backup::archive::pause;
use mainstay_core::backup::manifest::ManifestError;
use mainstay_core::observed::Mysqld;
use mainstay_mysql::MysqlError;
use mainstay_store::archive::ArchiveError;
use mainstay_store::{Access, AccessError, SettingsError, StoreError};
use secrecy::ExposeSecret as _;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::shared::Shared;
use session::{Ended, Session, until_finished};
pub(crate) use source::SourceError;

/// Why nothing can be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
    /// The store is not described as it has to be.
    #[error(transparent)]
    Settings(SettingsError),
    /// So is the access to it.
    #[error(transparent)]
    Access(AccessError),
    /// Content could not be compressed or encrypted.
    #[error(transparent)]
    Seal(ArchiveError),
    /// A document of the archive cannot be read or written.
    #[error(transparent)]
    Manifest(ManifestError),
    /// The binlog cannot be read.
    #[error(transparent)]
    Source(SourceError),
    /// The server cannot be asked.
    #[error(transparent)]
    Mysql(MysqlError),
    /// Somebody else wrote what only this instance may write.
    #[error(
        "failed to store {key}: it exists with other content; if two clusters use this store, give each a prefix of its own"
    )]
    Foreign {
        /// The object.
        key: String,
    },
    /// The server was reset.
    #[error(
        "failed to continue the archive: the server has not executed {lost}, which is stored; its history was reset. Switch \
         over to an instance that was not, or make a new cluster from a backup"
    )]
    History {
        /// What is stored and not executed.
        lost: GtidSet,
    },
    /// The operator is too old to say which reign this is.
    #[error(
        "failed to archive: the operator does not say in which epoch this primary was recorded; update the operator"
    )]
    NoReign,
    /// A part of the manager ended.
    #[error("failed to archive: a task ended ({0})")]
    Ended(String),
}

/// How far the archive is. What was executed and is neither in `through` nor in `missing` is not stored yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Transactions that are stored, or that were there before the archive began; `None` while that is not known.
    pub(crate) through: Option<GtidSet>,
    /// Transactions that are stored nowhere.
    pub(crate) missing: GtidSet,
    /// Everything that was committed until then is stored.
    pub(crate) time: Option<Timestamp>,
    /// Why nothing can be stored at present; empty when it can.
    pub(crate) error: String,
    /// Segments that were stored since the opening.
    pub(crate) segments: u64,
    /// Bytes of them.
    pub(crate) bytes: u64,
}

/// What an opening told.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// When this primary was recorded.
    pub(crate) recorded: Recorded,
    /// Transactions with which its reign began.
    pub(crate) baseline: GtidSet,
}

/// The archiving of an open primary, as a task.
pub(crate) struct Archive {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

struct Running {
    task: JoinHandle<()>,
    finish: watch::Sender<bool>,
}

impl Archive {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            running: Mutex::new(None),
        }
    }

    /// Begins, or goes on; it ends by itself with the server process.
    pub(crate) fn begin(&self, told: Told) {
        let Ok(mut running) = self.running.try_lock() else {
            return;
        };
        if running.as_ref().is_some_and(|running| !running.task.is_finished()) {
            return;
        }
        let (finish, finishes) = watch::channel(false);
        let shared = Arc::clone(&self.shared);
        let task = tokio::spawn(async move { archive(shared, told, finishes).await });
        *running = Some(Running { task, finish });
    }

    /// Ends it at once: what is not stored yet is in the binlogs of the next primary, too.
    pub(crate) async fn end(&self) {
        if let Some(running) = self.running.lock().await.take() {
            running.task.abort();
            drop(running.task.await);
        }
    }

    /// Ends it when everything that is executed is stored, if that is soon.
    pub(crate) async fn finish(&self, limit: Duration) {
        if let Some(mut running) = self.running.lock().await.take() {
            running.finish.send_replace(true);
            if timeout(limit, &mut running.task).await.is_err() {
                tracing::warn!("the end of the binlog is not stored: the store takes too long");
                running.task.abort();
                drop(running.task.await);
            }
        }
    }
}

/// While this is there the instance says how far its archive is.
struct Saying(Arc<Shared>);

impl Drop for Saying {
    fn drop(&mut self) {
        self.0.set_archive(None);
    }
}

async fn archive(shared: Arc<Shared>, told: Told, mut finish: watch::Receiver<bool>) {
    let run = shared.process().run;
    let mut process = shared.watch_process();
    let ended = process.wait_for(|process| process.run != run || process.phase != Mysqld::Running);
    tokio::select! {
        _ended = ended => {}
        () = keep_archiving(&shared, &told, &mut finish) => {}
    }
}

/// Archives while there is a store, and tries again after each failure.
async fn keep_archiving(shared: &Arc<Shared>, told: &Told, finish: &mut watch::Receiver<bool>) {
    let mut failures = 0;
    let mut saying = None;
    loop {
        let outcome = match read_access(shared).await {
            Ok(Some(access)) if access.archive => {
                saying.get_or_insert_with(|| say(shared));
                let stored = segments(shared);
                let outcome = tokio::select! {
                    outcome = archive_to(shared, &access, told, finish) => outcome,
                    () = until_access_changes(shared, &access) => Ok(Ended::Changed),
                };
                if segments(shared) > stored {
                    failures = 0;
                }
                outcome
            }
            Ok(_) => {
                saying = None;
                tokio::select! {
                    () = sleep(shared.config.timing.files) => {}
                    () = until_finished(finish) => return,
                }
                Ok(Ended::Changed)
            }
            Err(error) => {
                saying.get_or_insert_with(|| say(shared));
                Err(Fault::Access(error))
            }
        };
        match outcome {
            Ok(Ended::Changed) => failures = 0,
            Ok(Ended::Finished) => return,
            Err(fault) => {
                failures += 1;
                failed(shared, &fault, failures);
            }
        }
        // Nobody waits for a store that cannot be reached.
        if *finish.borrow() {
            return;
        }
        if failures > 0 {
            tokio::select! {
                () = sleep(pause(failures)) => {}
                () = until_finished(finish) => return,
            }
        }
    }
}

async fn archive_to(
    shared: &Arc<Shared>,
    access: &Access,
    told: &Told,
    finish: &mut watch::Receiver<bool>,
) -> Result<Ended, Fault> {
    Session::begin(shared, access, told).await?.run(finish).await
}

fn say(shared: &Arc<Shared>) -> Saying {
    shared.set_archive(Some(Report::default()));
    Saying(Arc::clone(shared))
}

fn segments(shared: &Shared) -> u64 {
    shared.archive().map_or(0, |report| report.segments)
}

/// A server that does not answer is seen in other ways, and nothing that it executed is lost by it.
fn failed(shared: &Shared, fault: &Fault, failures: u32) {
    if failures.is_power_of_two() {
        tracing::warn!(error = %fault, failures, "the binlog is not archived");
    }
    if !matches!(fault, Fault::Mysql(_)) {
        let text = fault.to_string();
        shared.change_archive(|report| report.error = text);
    }
}

/// What is mounted now.
async fn read_access(shared: &Arc<Shared>) -> Result<Option<Access>, AccessError> {
    let directory = shared.config.paths.store.clone();
    let path = directory.display().to_string();
    let read = tokio::task::spawn_blocking(move || Access::read(&directory));
    read.await.unwrap_or_else(|error| {
        Err(AccessError::Read {
            path,
            source: std::io::Error::other(error),
        })
    })
}

/// Returns when something else is mounted than this, and can be read.
async fn until_access_changes(shared: &Arc<Shared>, access: &Access) {
    let known = access.to_json();
    loop {
        sleep(shared.config.timing.files).await;
        let same = match read_access(shared).await {
            Ok(Some(now)) => now.to_json().expose_secret() == known.expose_secret(),
            Ok(None) => false,
            // A file that is being replaced, or damaged: what is known goes on.
            Err(_) => true,
        };
        if !same {
            return;
        }
    }
}
