//! `mainstay instance verify`: the program of a verification's Job (docs/backup.md, "Verification").
//!
//! It restores the newest backup and the archive behind it as a recovery does, on a volume of its own and into a server that
//! nobody can reach, reads every table, and throws everything away. It speaks as the program of a backup does: what
//! came of it is the container's termination message, how far it is a page.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::plan::{BackupStep, STALL};
use mainstay_core::backup::restore::Target;
use mainstay_core::backup::verify::{Outcome, Task, Verified};
use mainstay_core::layout;
use mainstay_store::archive::PrivateKey;
use mainstay_store::{Access, RecoveryOrder, RecoverySource, Store};
use secrecy::SecretString;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::backup::page;
use crate::backup::progress::Course;
use crate::backup::store;
use crate::backup::{Failure, LAST_WORDS, asked_to_stop, leave, temporary};
use crate::cnf::Size;
use crate::config::{Config, ConfigError, Paths, Programs};
use crate::mysqld::{Runner, chain};
use crate::process::Reaper;
use crate::restore::{Proof, Restore, Stage, Tell};
use crate::secrets::{Redactor, Secrets};

/// How long the server and its files may take to go when the pod is stopped.
const CLEAR: Duration = Duration::from_secs(20);

/// What the program is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it is to do.
    pub task: Task,
    /// Where the access to the store is mounted.
    pub store: PathBuf,
    /// Where private keys are mounted, if there are any.
    pub keys: PathBuf,
    /// Where the termination message is written.
    pub last_words: PathBuf,
    /// Where the page is served.
    pub page: SocketAddr,
    /// A verification that does not move for this long gives itself up.
    pub stall: Duration,
    /// The temporary server: its files, and the programs of the image.
    pub server: Config,
}

impl Settings {
    /// Those of the container of a Job.
    pub fn from_env() -> Result<Self, ConfigError> {
        let text = std::env::var(layout::env::VERIFY).map_err(|_| ConfigError::Missing(layout::env::VERIFY))?;
        let task = Task::from_text(&text).map_err(|_| ConfigError::Invalid {
            name: layout::env::VERIFY,
            value: text,
            wanted: "the task of a verification, as JSON",
        })?;
        Ok(Self {
            server: temporary(Paths::in_container(), Programs::in_container()),
            task,
            store: layout::STORE_DIR.into(),
            keys: layout::KEYS_DIR.into(),
            last_words: LAST_WORDS.into(),
            page: SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), layout::PORT_HTTP),
            stall: STALL,
        })
    }
}

/// Verifies until SIGTERM or SIGINT, and leaves the last words. `Err` is why nothing is proved.
pub async fn run(settings: Settings) -> Result<(), String> {
    let stop = asked_to_stop()?;
    let last_words = settings.last_words.clone();
    let outcome = verify(settings, stop).await;
    leave(&last_words, &outcome.to_text());
    match outcome {
        Outcome::Verified(verified) => {
            tracing::info!(backup = %verified.id, seconds = verified.seconds, tables = verified.tables, "verified");
            Ok(())
        }
        Outcome::Failed { reason, message } => Err(format!("{reason}: {message}")),
    }
}

/// Verifies, or says why nothing is proved. When `stop` is ready it is given up.
pub async fn verify(settings: Settings, stop: impl Future<Output = ()> + Send) -> Outcome {
    let course = Arc::new(Course::default());
    course.begin(BackupStep::Fetch, None);
    let verified = match page::serve(settings.page, Arc::clone(&course)).await {
        Ok(page) => {
            let verified = verify_until(&settings, &course, stop).await;
            page.abort();
            verified
        }
        Err(error) => Err(Failure::of("PageFailed", &error)),
    };
    match verified {
        Ok(verified) => Outcome::Verified(Box::new(verified)),
        Err(failure) => Outcome::Failed {
            reason: failure.reason.to_owned(),
            message: failure.message,
        },
    }
}

async fn verify_until(
    settings: &Settings,
    course: &Arc<Course>,
    stop: impl Future<Output = ()> + Send,
) -> Result<Verified, Failure> {
    let began = Instant::now();
    let access = store::access(&settings.store)?;
    let opened = store::open(&access).await?;
    let restore = restore(settings, opened, course).await?;
    let order = order(&access);
    let (end, ended) = oneshot::channel();
    let work = restore.verify(&order, &settings.task.id, ended);
    tokio::pin!(work);
    let given_up = tokio::select! {
        proof = &mut work => {
            let proof = proof.map_err(|error| Failure::new(error.word(), chain(&error)))?;
            return Ok(verified(proof, began));
        }
        () = stop => Failure::new("Interrupted", "the pod was asked to stop; the next run is by the schedule"),
        failure = course.stalled(settings.stall) => failure,
    };
    // It ends its server and deletes the files. What is left goes with the pod.
    drop(end);
    if timeout(CLEAR, work).await.is_err() {
        tracing::warn!("the files of the throw-away instance are left to the end of the pod");
    }
    Err(given_up)
}

/// The latest point of the cluster itself.
fn order(access: &Access) -> RecoveryOrder {
    let cluster = &access.cluster;
    RecoveryOrder {
        request: "verification".to_owned(),
        source: RecoverySource {
            namespace: cluster.namespace().to_owned(),
            name: cluster.name().to_owned(),
            uid: Some(cluster.uid().to_owned()),
        },
        target: Target::Latest,
    }
}

async fn restore(settings: &Settings, store: Arc<dyn Store>, course: &Arc<Course>) -> Result<Restore, Failure> {
    let config = &settings.server;
    let reaper = Reaper::start(config.adopt_orphans).map_err(|error| Failure::of("ServerFailed", &error))?;
    let runner = Runner {
        config: Arc::new(config.clone()),
        reaper,
        redactor: Redactor::default(),
    };
    let secrets = Secrets::throw_away();
    runner.redactor.learn(&secrets);
    let version = runner.version().await;
    let version = version.map_err(|error| Failure::of("ServerFailed", &error))?;
    let paths = &config.paths;
    for directory in [paths.tmp(), paths.run.clone()] {
        let made = tokio::fs::create_dir_all(&directory).await;
        made.map_err(|error| {
            Failure::new(
                "VolumeFailed",
                format!("failed to make {}: {error}", directory.display()),
            )
        })?;
    }
    Ok(Restore {
        runner,
        version,
        secrets: Arc::new(secrets),
        store,
        keys: private_keys(&settings.keys)?,
        directory: paths.data_init(),
        scratch: paths.scratch(),
        tell: tell(Arc::clone(course)),
        size: Size::Small,
        at_least: GtidSet::new(),
    })
}

/// Every private key of a mounted Secret; what else is in it is passed over. None where nothing is mounted.
fn private_keys(directory: &Path) -> Result<Vec<PrivateKey>, Failure> {
    let failed = |error: io::Error| {
        let message = format!("failed to read the keys in {}: {error}", directory.display());
        Failure::new("AccessRefused", message)
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut keys = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        // The kubelet keeps the files of a Secret in directories of its own, and links to them.
        if entry.file_name().to_string_lossy().starts_with("..") {
            continue;
        }
        if let Ok(text) = std::fs::read_to_string(entry.path()) {
            keys.extend(PrivateKey::parse(&SecretString::from(text)).ok());
        }
    }
    Ok(keys)
}

fn tell(course: Arc<Course>) -> Tell {
    Arc::new(move |stage| match stage {
        Stage::Reading | Stage::Ending => {}
        Stage::Fetching { bytes, total, .. } => course.reach(BackupStep::Fetch, bytes, Some(total)),
        Stage::Starting => course.begin(BackupStep::Boot, None),
        Stage::Replaying { done, total } => course.reach(BackupStep::Replay, done, Some(total)),
        Stage::Checking { done, total } => course.reach(BackupStep::Check, done, Some(total)),
        Stage::Moved(bytes) => course.written(bytes),
    })
}

fn verified(proof: Proof, began: Instant) -> Verified {
    let now = Timestamp::now();
    Verified {
        id: proof.backup,
        name: proof.name,
        reached: Some(proof.reached),
        reached_time: proof.time,
        schemas: proof.checked.schemas,
        tables: proof.checked.tables,
        prepared: proof.checked.prepared,
        seconds: began.elapsed().as_secs(),
        // As status can hold it.
        completed_at: Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    /// As the kubelet lays a Secret out.
    #[test]
    fn every_private_key_of_a_mounted_secret_is_read_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        assert!(private_keys(&directory.path().join("none")).unwrap().is_empty());
        let (old, new) = (PrivateKey::generate(), PrivateKey::generate());
        let current = directory.path().join("..2026");
        std::fs::create_dir(&current).unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(current.join(name), text).unwrap();
            std::os::unix::fs::symlink(format!("..2026/{name}"), directory.path().join(name)).unwrap();
        };
        write("k1", &format!("# a comment\n{}\n", old.to_text().expose_secret()));
        write("k2", new.to_text().expose_secret());
        write("public", &new.recipient().key_id());
        write("readme", "no key");
        let keys = private_keys(directory.path()).unwrap();
        let mut ids: Vec<_> = keys.iter().map(|key| key.recipient().key_id()).collect();
        let mut wanted = vec![old.recipient().key_id(), new.recipient().key_id()];
        ids.sort();
        wanted.sort();
        assert_eq!(ids, wanted);
    }

    #[test]
    fn each_stage_is_a_step_of_the_page() {
        let course = Arc::new(Course::default());
        let tell = tell(Arc::clone(&course));
        tell(Stage::Replaying { done: 3, total: 9 });
        tell(Stage::Replaying { done: 5, total: 9 });
        let progress = course.progress();
        assert_eq!(
            (progress.step, progress.bytes, progress.total),
            (BackupStep::Replay, 5, Some(9))
        );
        tell(Stage::Checking { done: 0, total: 412 });
        tell(Stage::Moved(7));
        let progress = course.progress();
        assert_eq!(
            (progress.step, progress.bytes, progress.total),
            (BackupStep::Check, 0, Some(412))
        );
    }
}
