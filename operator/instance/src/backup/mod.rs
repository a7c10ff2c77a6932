//! `mainstay instance backup`: the program of a backup's Job (docs/backup.md, "The Job").
//!
//! It clones a replica into a temporary server, boots the copy once, and either stops it cleanly and streams the data directory
//! to the store, or dumps it; the manifest comes last. What came of it is the container's termination message, how far it is a page.

mod logical;
pub(crate) mod page;
pub(crate) mod progress;
mod server;
pub(crate) mod store;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::backup::manifest::Method;
use mainstay_core::backup::plan::StoredBackup;
use mainstay_core::backup::wire::{Outcome, Task};
use mainstay_core::backup::{BackupManifest, Key};
use mainstay_core::layout;
use mainstay_core::rules::InstanceName;
use mainstay_store::{Access, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

pub use page::read as read_page;
use progress::Course;
use server::Servers;

use crate::config::{Config, ConfigError, Paths, Peers, Ports, Programs, Stores, Timing};
use crate::mysqld::chain;

/// Where a container leaves its last words.
pub(crate) const LAST_WORDS: &str = "/dev/termination-log";
/// How long an upload may take to be aborted when the pod is stopped.
const ABORT: Duration = Duration::from_secs(20);

/// What the program is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it is to do.
    pub task: Task,
    /// Where the access to the store is mounted.
    pub store: PathBuf,
    /// Where the termination message is written.
    pub last_words: PathBuf,
    /// Where the page is served.
    pub page: SocketAddr,
    /// A backup that does not move for this long gives itself up.
    pub stall: Duration,
    /// The temporary server: its files, and the programs of the image.
    pub server: Config,
}

impl Settings {
    /// Those of the container of a Job.
    pub fn from_env() -> Result<Self, ConfigError> {
        let text = std::env::var(layout::env::BACKUP).map_err(|_| ConfigError::Missing(layout::env::BACKUP))?;
        let task = Task::from_text(&text).map_err(|_| ConfigError::Invalid {
            name: layout::env::BACKUP,
            value: text,
            wanted: "the task of a backup, as JSON",
        })?;
        Ok(Self {
            server: temporary(Paths::in_container(), Programs::in_container()),
            task,
            store: layout::STORE_DIR.into(),
            last_words: LAST_WORDS.into(),
            page: SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), layout::PORT_HTTP),
            stall: mainstay_core::backup::plan::STALL,
        })
    }
}

/// The configuration of a server that nobody connects to but this program.
#[must_use]
pub fn temporary(paths: Paths, programs: Programs) -> Config {
    Config {
        namespace: String::new(),
        cluster: String::new(),
        instance: InstanceName("backup".to_owned()),
        ordinal: 0,
        host: "localhost".to_owned(),
        pod_ip: IpAddr::V6(Ipv6Addr::LOCALHOST),
        server_id_base: 1,
        config_hash: String::new(),
        recovery: None,
        paths,
        ports: Ports {
            mysql: layout::PORT_MYSQL,
            admin: layout::PORT_ADMIN,
            grpc: layout::PORT_GRPC,
            http: layout::PORT_HTTP,
        },
        peers: Peers::Names,
        api_server: None,
        mysql_bind: "127.0.0.1".to_owned(),
        bind: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        programs,
        timing: Timing::default(),
        stores: Stores::S3,
        adopt_orphans: std::process::id() == 1,
    }
}

/// Why there is no backup: a word for status, and a sentence with what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// One that an error caused.
    pub(crate) fn of(reason: &'static str, error: &dyn std::error::Error) -> Self {
        Self::new(reason, chain(error))
    }
}

/// Makes the backup until SIGTERM or SIGINT, and leaves the last words. `Err` is why it failed.
pub async fn run(settings: Settings) -> Result<(), String> {
    let stop = asked_to_stop()?;
    let last_words = settings.last_words.clone();
    let outcome = make(settings, stop).await;
    leave(&last_words, &outcome.to_text());
    match outcome {
        Outcome::Stored(stored) => {
            tracing::info!(
                location = stored.location,
                bytes = stored.size,
                stored = stored.stored,
                "stored"
            );
            Ok(())
        }
        Outcome::Failed { reason, message } => Err(format!("{reason}: {message}")),
    }
}

/// Ready when SIGTERM or SIGINT comes.
pub(crate) fn asked_to_stop() -> Result<impl Future<Output = ()> + Send, String> {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return Err("failed to listen for signals".to_owned());
    };
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Leaves the last words of a Job.
pub(crate) fn leave(last_words: &Path, text: &str) {
    if let Err(error) = std::fs::write(last_words, text) {
        tracing::error!(%error, "failed to write the termination message");
    }
}

/// Makes the backup, or says why there is none. When `stop` is ready it is given up, and what was begun in the store is aborted.
pub async fn make(settings: Settings, stop: impl Future<Output = ()> + Send) -> Outcome {
    let course = Arc::new(Course::default());
    let page = match page::serve(settings.page, Arc::clone(&course)).await {
        Ok(page) => page,
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            return failed(Failure::of("PageFailed", error));
        }
    };
    let made = make_until(&settings, &course, stop).await;
    page.abort();
    // Its port is free when this returns.
    drop(page.await);
    match made {
        Ok(stored) => Outcome::Stored(Box::new(stored)),
        Err(failure) => failed(failure),
    }
}

fn failed(failure: Failure) -> Outcome {
    Outcome::Failed {
        reason: failure.reason.to_owned(),
        message: failure.message,
    }
}

async fn make_until(
    settings: &Settings,
    course: &Arc<Course>,
    stop: impl Future<Output = ()> + Send,
) -> Result<StoredBackup, Failure> {
    let access = store::access(&settings.store)?;
    let store = store::open(&access).await?;
    let servers = Servers::new(&settings.server, Arc::clone(course)).map_err(|e| Failure::of("ServerFailed", &e))?;
    let work = Work {
        settings,
        access: &access,
        store: store.as_ref(),
        servers: &servers,
        course,
    };
    let made = tokio::select! {
        made = work.all() => made,
        () = stop => Err(Failure::new("Interrupted", "the pod was asked to stop")),
        failure = course.stalled(settings.stall) => Err(failure),
    };
    servers.kill();
    if made.is_err() {
        // Dropped work aborts its upload in the background; this is for when it did not come to that.
        let cleaned = timeout(ABORT, store::abort_uploads(store.as_ref(), &access, &settings.task.id)).await;
        if !matches!(cleaned, Ok(Ok(()))) {
            tracing::warn!("an upload may be unfinished in the store; the operator aborts it later");
        }
    }
    made
}

/// One backup.
struct Work<'a> {
    settings: &'a Settings,
    access: &'a Access,
    store: &'a dyn Store,
    servers: &'a Servers,
    course: &'a Course,
}

impl Work<'_> {
    async fn all(&self) -> Result<StoredBackup, Failure> {
        let began = Timestamp::now();
        let task = &self.settings.task;
        // The store is asked first: with wrong credentials nothing is copied.
        if let Some(manifest) = store::prepare(self.store, self.access, &task.id).await? {
            tracing::info!("an earlier pod has stored this backup");
            return self.stored(&manifest);
        }
        let version = self.servers.version().await?;
        self.servers.clear().await?;
        self.servers.copy(&task.donor).await?;
        let manifest = match task.method {
            Method::Physical => self.files(began, version).await?,
            Method::Logical => self.statements(began, version).await?,
        };
        store::put_manifest(self.store, self.access, &manifest).await?;
        self.stored(&manifest)
    }

    async fn files(&self, began: Timestamp, version: String) -> Result<BackupManifest, Failure> {
        let executed = self.servers.boot().await?;
        let data = self.settings.server.paths.data();
        let task = &self.settings.task;
        let packed = store::upload(self.store, self.access, &task.id, &data, self.course).await?;
        Ok(store::manifest(
            task,
            self.access,
            packed,
            store::Copied {
                began,
                version,
                executed,
                dumped: None,
            },
        ))
    }

    async fn statements(&self, began: Timestamp, version: String) -> Result<BackupManifest, Failure> {
        let task = &self.settings.task;
        let dump = logical::Dump {
            store: self.store,
            access: self.access,
            id: &task.id,
            data: &self.settings.server.paths.data(),
            course: self.course,
        };
        let (executed, packed, bytes) = self.servers.boot_and_dump(&dump).await?;
        let copied = store::Copied {
            began,
            version,
            executed,
            dumped: Some(bytes),
        };
        Ok(store::manifest(task, self.access, packed, copied))
    }

    fn stored(&self, manifest: &BackupManifest) -> Result<StoredBackup, Failure> {
        let key = self.access.cluster.backup_manifest(&manifest.id);
        Ok(StoredBackup {
            size: manifest.uncompressed_bytes,
            stored: manifest.stored_bytes(),
            executed: Some(manifest.gtid_executed.clone()),
            location: location(self.access, &key)?,
            key_id: manifest.encryption.as_ref().map(|encryption| encryption.key_id.clone()),
            mysql_version: manifest.mysql_version.clone(),
            completed_at: manifest.completed_at,
        })
    }
}

/// `s3://bucket/prefix/key`.
fn location(access: &Access, key: &Key) -> Result<String, Failure> {
    let prefix = mainstay_core::backup::Folder::parse(access.store.prefix.trim_matches('/'));
    let prefix = prefix.map_err(|error| Failure::of("AccessRefused", &error))?;
    Ok(format!("s3://{}/{prefix}{key}", access.store.bucket))
}
