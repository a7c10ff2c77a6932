//! A data directory from statements: an empty one, as a new cluster has it, into which a logical backup is loaded
//! (docs/adr/0012).

use mainstay_mysql::dump::{LoadError, Loader};
use mainstay_store::archive::{Take, load_files};
use mainstay_store::catalog::{PlannedRecovery, key_for};
use tokio::time::Instant;

use super::isolated::Isolated;
use super::{Restore, RestoreError, Stage, TELL, make_private, prove_size};

/// No file of a dump is larger, in bytes: one row of it may be as large as a packet.
const LARGEST_FILE: u64 = 2 << 30;
const DURING: &str = "a backup was being loaded";

impl Restore {
    /// Loads the backup into a server that was just made. Its checksum is proved at the end, before anything of it is used.
    pub(super) async fn load(&self, plan: &PlannedRecovery, server: &Isolated) -> Result<(), RestoreError> {
        let Some(file) = plan.base.files.first() else {
            return Ok(());
        };
        let base = &plan.base;
        let key = key_for(base.encryption.as_ref(), &self.keys, || base.id.to_string())?;
        self.make_empty(server).await?;
        self.start(server).await?;
        let Some(password) = self.secrets.credentials.manager.clone() else {
            return Err(RestoreError::NoPassword);
        };
        let (socket, folder) = (self.runner.config.paths.socket(), plan.base_folder());
        let work = async {
            let loader = Loader::connect(socket, password).await.map_err(RestoreError::Mysql)?;
            let mut loading = Loading {
                loader,
                told: Told::new(self, plan),
            };
            let loaded = load_files(self.store.as_ref(), &folder, file, key, LARGEST_FILE, &mut loading).await?;
            prove_size(plan, loaded.bytes)?;
            let mut loader = loading.loader;
            loader
                .set_executed(&base.gtid_executed)
                .await
                .map_err(RestoreError::Mysql)?;
            loader.close().await;
            Ok(())
        };
        server.with(DURING, work).await
    }

    async fn make_empty(&self, server: &Isolated) -> Result<(), RestoreError> {
        (self.tell)(Stage::Starting);
        let scratch = self.scratch.clone();
        self.blocking("make the directory for binlogs", move || make_private(&scratch))
            .await?;
        let time_zones = self.runner.time_zones().await;
        let made = server.initialise(self, time_zones.as_deref()).await;
        if made.is_ok() || time_zones.is_none() {
            return made;
        }
        // A time zone that this server does not take must not keep it from starting.
        self.clear(&[&self.directory]).await?;
        server.initialise(self, None).await
    }
}

/// Files of statements, as they arrive.
struct Loading<'a> {
    loader: Loader,
    told: Told<'a>,
}

impl Take for Loading<'_> {
    type Error = RestoreError;

    async fn take(&mut self, name: String, content: Vec<u8>) -> Result<(), RestoreError> {
        self.loader.load(&content).await.map_err(|error| refused(name, error))?;
        self.told.add(content.len() as u64);
        Ok(())
    }
}

/// What an error means that came of a file.
fn refused(file: String, error: LoadError) -> RestoreError {
    match error {
        LoadError::Mysql(error @ mainstay_mysql::MysqlError::Lost { .. }) => RestoreError::Mysql(error),
        other => RestoreError::Load {
            file,
            reason: other.to_string(),
        },
    }
}

/// Says now and then how much was loaded.
struct Told<'a> {
    restore: &'a Restore,
    plan: &'a PlannedRecovery,
    bytes: u64,
    before: u64,
    at: Instant,
}

impl<'a> Told<'a> {
    fn new(restore: &'a Restore, plan: &'a PlannedRecovery) -> Self {
        let told = Self {
            restore,
            plan,
            bytes: 0,
            before: 0,
            at: Instant::now(),
        };
        told.tell(0);
        told
    }

    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        let elapsed = self.at.elapsed();
        if elapsed >= TELL {
            self.tell((self.bytes - self.before) / elapsed.as_secs().max(1));
            (self.before, self.at) = (self.bytes, Instant::now());
        }
    }

    fn tell(&self, rate: u64) {
        (self.restore.tell)(Stage::Fetching {
            backup: self.plan.base.id.to_string(),
            bytes: self.bytes,
            total: self.plan.base.uncompressed_bytes,
            rate,
        });
    }
}
