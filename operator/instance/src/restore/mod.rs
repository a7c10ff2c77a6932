//! A data directory from a store: a backup, and the part of the archive that follows it, up to a target.
//!
//! It is put together beside the data directory, and is whole or not there: whoever asked for it gives it its name. A crash
//! at any step leaves a directory that nobody takes for data, and the next attempt begins clean. Nothing is believed that was
//! not proved: checksums of everything that is read, and the set of transactions after the first start and at the end.
//! (docs/instance.md, "Recovery"; who decides about the point is `mainstay_core::backup::restore`.)

mod error;
mod isolated;
mod load;
mod relay;
mod replay;
mod stage;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::BackupId;
use mainstay_core::backup::manifest::Method;
use mainstay_core::observed::Recovered;
use mainstay_mysql::Version;
use mainstay_store::archive::{PrivateKey, load_directory};
use mainstay_store::catalog::{self, Catalog, PlannedRecovery};
use mainstay_store::{RecoveryOrder, Store};
use tokio::sync::oneshot;
use tokio::time::{Instant, interval};

pub(crate) use error::RestoreError;
use isolated::Isolated;
pub(crate) use stage::{Stage, Tell};
pub(crate) use verify::Proof;

use crate::cnf::Size;
use crate::disk;
use crate::mysqld::Runner;
use crate::secrets::Secrets;

/// How often it is said how far a recovery is.
const TELL: Duration = Duration::from_secs(5);
/// What has to be left free beside the data: redo and undo logs, temporary files, tables that grow while binlogs are replayed.
const SPARE: u64 = 512 * MIB;
const MIB: u64 = 1024 * 1024;

/// Files of a backup that belong to the server that it was taken from.
const FOREIGN: [&str; 2] = ["auto.cnf", "mysqld-auto.cnf"];

/// Everything that a recovery works with.
pub(crate) struct Restore {
    pub(crate) runner: Runner,
    /// Version of the server that will run on the data.
    pub(crate) version: Version,
    /// The passwords that the data get.
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) store: Arc<dyn Store>,
    /// What decrypts what is stored.
    pub(crate) keys: Vec<PrivateKey>,
    /// The data directory that is made; what is there is deleted.
    pub(crate) directory: PathBuf,
    /// For binlogs on their way, on the same file system; what is there is deleted.
    pub(crate) scratch: PathBuf,
    pub(crate) tell: Tell,
    /// Of the server that runs on it meanwhile.
    pub(crate) size: Size,
    /// What the data have to hold, or else nothing is fetched.
    pub(crate) at_least: GtidSet,
}

impl Restore {
    /// Makes the data directory, and everything in it durable. `stop` ends the work; it is also ended by an error, and then
    /// nothing is left.
    pub(crate) async fn run(
        &self,
        order: &RecoveryOrder,
        stop: oneshot::Receiver<()>,
    ) -> Result<Recovered, RestoreError> {
        let server = Isolated::default();
        let made = tokio::select! {
            made = Box::pin(self.make(order, &server)) => made,
            _stopped = stop => Err(RestoreError::Stopped),
        };
        // Whatever happened: no server runs any more when this returns.
        server.kill().await;
        let leftovers = match made {
            Ok(_) => self.clear(&[&self.scratch]).await,
            Err(_) => self.clear(&[&self.scratch, &self.directory]).await,
        };
        match (made, leftovers) {
            (Ok(recovered), Ok(())) => Ok(recovered),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        }
    }

    async fn make(&self, order: &RecoveryOrder, server: &Isolated) -> Result<Recovered, RestoreError> {
        let (plan, _unreadable) = self.plan(order, None).await?;
        self.rebuild(&plan, server).await?;
        self.finish(server, &plan.plan.reaches).await?;
        let volume = self.directory.clone();
        self.blocking("make the recovered data durable", move || disk::sync_all(&volume))
            .await?;
        Ok(Recovered {
            request: order.request.clone(),
            backup: plan.base.id.to_string(),
            reached: plan.plan.reaches,
            time: plan.plan.reaches_time,
            completed_at: micros(Timestamp::now()),
        })
    }

    /// Plans it, and proves that everything it needs is there; also the backups that cannot be read, and why. It begins with the
    /// backup `newest` or a later one if it can, although an older one may serve as well.
    async fn plan(
        &self,
        order: &RecoveryOrder,
        newest: Option<&BackupId>,
    ) -> Result<(PlannedRecovery, Vec<String>), RestoreError> {
        self.clear(&[&self.scratch, &self.directory]).await?;
        (self.tell)(Stage::Reading);
        let source = catalog::find(self.store.as_ref(), &order.source).await?;
        let catalog = Catalog::read(self.store.as_ref(), source).await?;
        for problem in &catalog.unreadable {
            tracing::warn!(problem, "a backup cannot be used");
        }
        let (store, keys) = (self.store.as_ref(), self.keys.as_slice());
        if let Some(newest) = newest {
            let mut recent = catalog.clone();
            // Names begin with the time.
            recent.backups.retain(|backup| backup.manifest.id >= *newest);
            if let Ok(plan) = recent.plan(store, &order.target, keys).await {
                return Ok((plan, catalog.unreadable));
            }
        }
        let plan = catalog.plan(store, &order.target, keys).await?;
        Ok((plan, catalog.unreadable))
    }

    /// The backup with everything that is to be replayed on it, and a server that runs on it.
    async fn rebuild(&self, plan: &PlannedRecovery, server: &Isolated) -> Result<(), RestoreError> {
        self.can_be_made(plan)?;
        tracing::info!(
            backup = %plan.base.id, reaches = %plan.plan.reaches, bytes = plan.base.uncompressed_bytes,
            segments = plan.steps.iter().map(|step| step.segments.len()).sum::<usize>(),
            "recovering"
        );
        match plan.base.method {
            Method::Physical => {
                self.copy(plan).await?;
                self.start(server).await?;
            }
            Method::Logical => self.load(plan, server).await?,
        }
        self.prove_base(server, &plan.base.gtid_executed).await?;
        replay::Replay::new(self, server, plan).run().await
    }

    /// The field that says how large the volume is.
    const fn size_field(&self) -> &'static str {
        match self.size {
            Size::Instance => "spec.storage.size",
            Size::Small => "spec.backup.volume.size",
        }
    }

    /// What is known before anything is fetched.
    fn can_be_made(&self, plan: &PlannedRecovery) -> Result<(), RestoreError> {
        let base = &plan.base;
        if plan.plan.reaches.is_empty() {
            return Err(RestoreError::Empty {
                backup: base.id.to_string(),
            });
        }
        if !plan.plan.reaches.contains(&self.at_least) {
            return Err(RestoreError::TooOld {
                backup: base.id.to_string(),
                missing: self.at_least.subtract(&plan.plan.reaches),
            });
        }
        if base.files.len() != 1 {
            return Err(RestoreError::Unknown {
                backup: base.id.to_string(),
                what: format!("{} files", base.files.len()),
            });
        }
        let files: Version = base.mysql_version.parse().map_err(|_error| RestoreError::Unknown {
            backup: base.id.to_string(),
            what: format!("the version {:?}", base.mysql_version),
        })?;
        let (serves, wanted) = match base.method {
            Method::Physical => (
                self.version.can_start_on(&files),
                "the same series, and not to an older version",
            ),
            Method::Logical => (self.version.can_load(&files), "the same series, or a newer one"),
        };
        if !serves {
            return Err(RestoreError::Version {
                backup: base.id.to_string(),
                made_by: files.to_string(),
                server: self.version.to_string(),
                wanted,
            });
        }
        let volume = self.directory.parent().unwrap_or(&self.directory);
        let space = disk::space(volume).map_err(RestoreError::volume("look at the volume"))?;
        let replayed = replay::space(plan);
        let data = base.restored_bytes();
        let needed = data.saturating_add(replayed).saturating_add(SPARE);
        if space.free < needed {
            return Err(RestoreError::Space {
                free: space.free / MIB,
                needed: needed / MIB,
                data: data / MIB,
                replayed: replayed / MIB,
                field: self.size_field(),
            });
        }
        Ok(())
    }

    /// Fetches the backup. Its checksum is proved at the end, before anything of it is used.
    async fn copy(&self, plan: &PlannedRecovery) -> Result<(), RestoreError> {
        let Some(file) = plan.base.files.first() else {
            return Ok(());
        };
        let (directory, scratch) = (self.directory.clone(), self.scratch.clone());
        self.blocking("make the data directory", move || {
            make_private(&directory)?;
            make_private(&scratch)
        })
        .await?;
        let key = catalog::key_for(plan.base.encryption.as_ref(), &self.keys, || plan.base.id.to_string())?;
        let folder = plan.base_folder();
        let fetched = load_directory(self.store.as_ref(), &folder, file, key, &self.directory);
        let told = self.tell_size(plan.base.id.as_str(), plan.base.uncompressed_bytes);
        let content = tokio::select! {
            content = fetched => content.map_err(RestoreError::Archive)?,
            () = told => return Ok(()),
        };
        prove_size(plan, content.bytes)?;
        let directory = self.directory.clone();
        self.blocking("remove what belongs to another server", move || {
            remove_foreign(&directory)
        })
        .await
    }

    /// Says how much has arrived, until it is dropped.
    async fn tell_size(&self, backup: &str, total: u64) {
        let mut ticks = interval(TELL);
        let (mut before, mut at) = (0, Instant::now());
        loop {
            ticks.tick().await;
            let directory = self.directory.clone();
            let size = tokio::task::spawn_blocking(move || size_of(&directory)).await;
            let Ok(size) = size else { continue };
            let seconds = at.elapsed().as_secs().max(1);
            let rate = size.saturating_sub(before) / seconds;
            (before, at) = (size, Instant::now());
            (self.tell)(Stage::Fetching {
                backup: backup.to_owned(),
                bytes: size,
                total,
                rate,
            });
        }
    }

    /// Starts a server on the files, without network.
    async fn start(&self, server: &Isolated) -> Result<(), RestoreError> {
        (self.tell)(Stage::Starting);
        let Some(password) = self.secrets.credentials.manager.clone() else {
            return Err(RestoreError::NoPassword);
        };
        server.start(self, password).await
    }

    /// What is there holds what its manifest says.
    async fn prove_base(&self, server: &Isolated, expected: &GtidSet) -> Result<(), RestoreError> {
        let executed = server.executed().await?;
        if executed != *expected {
            return Err(RestoreError::Mismatch {
                what: "the backup",
                expected: expected.clone(),
                found: executed,
            });
        }
        Ok(())
    }

    /// Proves that exactly the planned point was reached, makes the data the new cluster's, and ends the server.
    async fn finish(&self, server: &Isolated, reaches: &GtidSet) -> Result<(), RestoreError> {
        (self.tell)(Stage::Ending);
        server.take_over(self.secrets.root.as_ref()).await?;
        self.prove_point(server, reaches).await?;
        server.stop().await
    }

    /// Exactly what was planned is there.
    async fn prove_point(&self, server: &Isolated, reaches: &GtidSet) -> Result<(), RestoreError> {
        let executed = server.executed().await?;
        if executed == *reaches {
            return Ok(());
        }
        Err(RestoreError::Mismatch {
            what: "the recovery",
            expected: reaches.clone(),
            found: executed,
        })
    }

    async fn clear(&self, directories: &[&Path]) -> Result<(), RestoreError> {
        let directories: Vec<PathBuf> = directories.iter().map(|&directory| directory.to_owned()).collect();
        self.blocking("clear up what an earlier attempt left", move || {
            directories
                .iter()
                .try_for_each(|directory| disk::remove_tree(directory))
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, RestoreError> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.unwrap_or_else(|error| Err(std::io::Error::other(error.to_string())));
        done.map_err(RestoreError::volume(what))
    }
}

/// It was all of the backup.
fn prove_size(plan: &PlannedRecovery, bytes: u64) -> Result<(), RestoreError> {
    let expected = plan.base.uncompressed_bytes;
    if bytes == expected {
        return Ok(());
    }
    Err(RestoreError::Unknown {
        backup: plan.base.id.to_string(),
        what: format!("{bytes} bytes instead of {expected}"),
    })
}

fn make_private(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o750).create(directory)
}

fn remove_foreign(directory: &Path) -> std::io::Result<()> {
    for name in FOREIGN {
        match std::fs::remove_file(directory.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Bytes of the files in a directory, at any depth, as far as they can be seen.
fn size_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_gone) => 0,
    };
    entries.map(size).sum()
}

/// A time as messages can hold it.
fn micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}
