//! The temporary server: made empty, cloned into, booted once, stopped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainstay_core::GtidSet;
use mainstay_core::backup::plan::BackupStep;
use mainstay_core::backup::wire::Donor;
use mainstay_mysql::accounts::InitFile;
use mainstay_mysql::adapter::Adapter;
use mainstay_mysql::state::ServerState;
use mainstay_mysql::{CloneDonor, Mysql, Version};
use mainstay_store::archive::Packed;
use rustix::process::Signal;
use secrecy::SecretString;
use tokio::time::{interval, sleep, timeout};

use super::Failure;
use super::logical::Dump;
use super::progress::Course;
use crate::config::Config;
use crate::copy::copy;
use crate::disk;
use crate::mysqld::{Runner, Server, chain};
use crate::process::{self, ChildHandle, Exit, Reaper};
use crate::secrets::{Redactor, Secrets};
use crate::shutdown;

/// How long the stopped copy may take to end.
const STOP: Duration = Duration::from_mins(10);
/// How long its only user may hold up that it is read-only.
const READ_ONLY: Duration = Duration::from_secs(30);
/// Between two looks at a server that starts.
const POLL: Duration = Duration::from_millis(200);
/// Between two looks at what it writes.
const WRITTEN: Duration = Duration::from_secs(5);

/// Runs the servers of one backup.
pub(super) struct Servers {
    runner: Runner,
    course: Arc<Course>,
    /// The one that runs.
    running: Mutex<Option<ChildHandle>>,
}

/// The copy, while it runs.
struct Booted {
    server: Server,
    mysql: Adapter,
    executed: GtidSet,
    password: SecretString,
}

/// How a copy is reached that is to be dumped.
pub(super) struct DumpedCopy {
    pub(super) socket: PathBuf,
    /// Of the manager's account.
    pub(super) password: SecretString,
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn boot_failed(what: String) -> Failure {
    Failure::new(
        "BootFailed",
        format!(
            "the copy does not start, so it is no backup: {what}; look whether its donor would, and make another one"
        ),
    )
}

impl Servers {
    pub(super) fn new(config: &Config, course: Arc<Course>) -> io::Result<Self> {
        Ok(Self {
            runner: Runner {
                config: Arc::new(config.clone()),
                reaper: Reaper::start(config.adopt_orphans)?,
                redactor: Redactor::default(),
            },
            course,
            running: Mutex::default(),
        })
    }

    /// Version of the image's server.
    pub(super) async fn version(&self) -> Result<String, Failure> {
        Ok(self.server_version().await?.to_string())
    }

    async fn server_version(&self) -> Result<Version, Failure> {
        let version = self.runner.version().await;
        version.map_err(|error| Failure::of("ServerFailed", &error))
    }

    /// Deletes what an earlier pod left on the volume.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        let paths = self.runner.config.paths.clone();
        blocking("clear the volume", move || {
            for tree in [paths.data(), paths.data_init(), paths.tmp()] {
                disk::remove_tree(&tree)?;
            }
            for directory in [paths.tmp(), paths.run.clone()] {
                std::fs::create_dir_all(directory)?;
            }
            Ok(())
        })
        .await
    }

    /// Makes an empty server and copies the donor over it.
    pub(super) async fn copy(&self, donor: &Donor) -> Result<(), Failure> {
        let from = |what: String| Failure::new("CopyFailed", format!("{} could not be copied: {what}", donor.instance));
        self.course.begin(BackupStep::Copy, None);
        let secrets = self.secrets();
        let clone = Secrets::read(&self.runner.config.paths).credentials.clone;
        let Some(password) = clone else {
            let what =
                "the password of the clone account is not mounted; see the entry clone of the Secret <cluster>-system";
            return Err(from(what.to_owned()));
        };
        self.make_empty(&secrets).await?;
        let (mut recipient, mysql) = self.serve(InitFile::Start, &secrets).await?;
        let address = CloneDonor {
            host: donor.host.clone(),
            port: donor.port,
            password,
        };
        let pid = recipient.child.pid();
        let copied = copy(&mysql, &mut recipient, &address, |progress| {
            self.course
                .done(progress.copied, Some(progress.estimate).filter(|bytes| *bytes > 0));
            self.course.written(process::written(pid).unwrap_or_default());
        });
        let copied = copied.await;
        self.ended();
        copied.map_err(|error| from(format!("{}; the next backup chooses a donor again", chain(&error))))
    }

    /// A data directory that is cloned into. Only that of the cluster's own my.cnf has the same pages and names.
    async fn make_empty(&self, secrets: &Secrets) -> Result<(), Failure> {
        let paths = &self.runner.config.paths;
        let initialised = self.runner.initialise(&paths.data_init(), secrets, None);
        let mut server = initialised.map_err(|error| Failure::of("ServerFailed", &error))?;
        self.started(&server);
        let (exit, reason) = server.ended().await;
        self.ended();
        if exit != Exit::Code(0) {
            return Err(Failure::new(
                "ServerFailed",
                format!("an empty data directory cannot be made: {reason}"),
            ));
        }
        let (from, to) = (paths.data_init(), paths.data());
        blocking("rename the data directory", move || std::fs::rename(from, to)).await
    }

    /// Starts the copy once, lets it forget its donor's channel, and stops it cleanly. What it holds then.
    pub(super) async fn boot(&self) -> Result<GtidSet, Failure> {
        let Booted {
            mut server,
            mysql,
            executed,
            ..
        } = self.start_copy().await?;
        let failed = boot_failed;
        let proof = shutdown::make_read_only(&mysql, READ_ONLY).await;
        if proof.is_none() {
            return Err(failed("it cannot be made read-only".to_owned()));
        }
        mysql.close_connections().await;
        server.child.signal(Signal::TERM);
        let stopped = timeout(STOP, server.ended()).await;
        self.ended();
        match stopped {
            Ok((Exit::Code(0), _)) => Ok(executed),
            Ok((_, reason)) => Err(failed(format!("it did not end cleanly: {reason}"))),
            Err(_elapsed) => Err(failed(format!("it did not end within {STOP:?}"))),
        }
    }

    /// Starts the copy, and has it dumped. What it holds, what was stored, and how many bytes the copy takes, which is not used
    /// again.
    pub(super) async fn boot_and_dump(&self, dump: &Dump<'_>) -> Result<(GtidSet, Packed, u64), Failure> {
        let Booted {
            mut server,
            mysql,
            executed,
            password,
        } = self.start_copy().await?;
        mysql.close_connections().await;
        let copy = DumpedCopy {
            socket: self.runner.config.paths.socket(),
            password,
        };
        let dumped = tokio::select! {
            dumped = dump.run(copy) => dumped,
            (_, reason) = server.ended() => {
                Err(Failure::new("ServerFailed", format!("the server ended while it was dumped: {reason}")))
            }
        };
        server.child.signal(Signal::KILL);
        server.ended().await;
        self.ended();
        let (packed, bytes) = dumped?;
        Ok((executed, packed, bytes))
    }

    /// Starts the copy once, and waits until it has forgotten its donor's channel.
    async fn start_copy(&self) -> Result<Booted, Failure> {
        self.course.begin(BackupStep::Boot, None);
        let failed = boot_failed;
        let data = self.runner.config.paths.data();
        // Those of the empty server.
        blocking("remove auto.cnf", move || remove_file(&data.join("auto.cnf"))).await?;
        let secrets = self.secrets();
        let (mut server, mysql) = self.serve(InitFile::AfterClone, &secrets).await?;
        let state = self.answers(&mut server, &mysql).await.map_err(failed)?;
        // An init file ends at its first error, and the server starts all the same.
        if state.channel.is_some() {
            return Err(failed("it still knows the source of its donor".to_owned()));
        }
        let Some(password) = secrets.credentials.manager else {
            return Err(failed("nobody can log in".to_owned()));
        };
        Ok(Booted {
            server,
            mysql,
            executed: state.executed,
            password,
        })
    }

    /// Waits until a server answers, for as long as it works on its recovery; else why it ended.
    async fn answers(&self, server: &mut Server, mysql: &Adapter) -> Result<ServerState, String> {
        let pid = server.child.pid();
        let mut looks = interval(WRITTEN);
        let answer = async {
            loop {
                if let Ok(state) = mysql.read_state().await {
                    return state;
                }
                sleep(POLL).await;
            }
        };
        tokio::pin!(answer);
        let ended = server.ended();
        tokio::pin!(ended);
        loop {
            tokio::select! {
                state = &mut answer => return Ok(state),
                (_, reason) = &mut ended => return Err(reason),
                _ = looks.tick() => self.course.written(process::written(pid).unwrap_or_default()),
            }
        }
    }

    async fn serve(&self, purpose: InitFile<'_>, secrets: &Secrets) -> Result<(Server, Adapter), Failure> {
        let served = self.runner.serve_copy(purpose, secrets);
        let server = served.map_err(|error| Failure::of("ServerFailed", &error))?;
        self.started(&server);
        let mysql = Adapter::new(self.runner.config.paths.socket());
        if let Some(password) = secrets.credentials.manager.clone() {
            mysql.offer_password(password);
        }
        mysql.server_started(self.server_version().await?);
        Ok((server, mysql))
    }

    /// A password that nobody else knows, for the account with which this program logs in. A recovery sets those of its cluster.
    fn secrets(&self) -> Secrets {
        let secrets = Secrets::throw_away();
        self.runner.redactor.learn(&secrets);
        secrets
    }

    fn started(&self, server: &Server) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.child.handle());
    }

    fn ended(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.runner.remove_init_file();
    }

    /// Kills what still runs: nobody waits for it any more.
    pub(super) fn kill(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            running.signal(Signal::KILL);
        }
        self.runner.remove_init_file();
    }
}

/// Work on the volume, which may take as long as its disk does.
async fn blocking(what: &'static str, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(io::Error::other).and_then(|result| result);
    done.map_err(|error| Failure::new("VolumeFailed", format!("failed to {what}: {error}")))
}

fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
