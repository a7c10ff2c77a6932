//! The server on recovered files: without network, so that nobody connects before the data are a new cluster's.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use mainstay_core::GtidSet;
use mainstay_core::gtid::Gtid;
use mainstay_mysql::MysqlError;
use mainstay_mysql::recovery::{Applier, RecoveringServer};
use rustix::process::Signal;
use secrecy::SecretString;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::{Restore, RestoreError};
use crate::mysqld::{Runner, Server};
use crate::process::{self, Exit};

/// Between two attempts to reach it.
const POLL: Duration = Duration::from_millis(100);
/// How long a server that breaks down may take to write its trace.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How long a clean stop may take. It writes every page that was changed.
const STOP: Duration = Duration::from_mins(30);

/// A server, while it runs.
#[derive(Default)]
pub(super) struct Isolated {
    process: Mutex<Option<Server>>,
    client: Mutex<Option<Arc<RecoveringServer>>>,
    runner: Mutex<Option<Runner>>,
    /// Its process, once there is one.
    pid: AtomicI32,
}

impl Isolated {
    /// Makes an empty data directory. `time_zones` are loaded into it.
    pub(super) async fn initialise(&self, restore: &Restore, time_zones: Option<&str>) -> Result<(), RestoreError> {
        let runner = &restore.runner;
        let started = runner.initialise(&restore.directory, &restore.secrets, time_zones);
        *self.process.lock().await = Some(started.map_err(RestoreError::Run)?);
        *self.runner.lock().await = Some(runner.clone());
        let mut process = self.process.lock().await;
        let Some(server) = process.as_mut() else { return Ok(()) };
        let (exit, reason) = server.ended().await;
        *process = None;
        runner.remove_init_file();
        match exit {
            Exit::Code(0) => Ok(()),
            _ => Err(RestoreError::Ended {
                during: "an empty data directory was being made",
                reason,
            }),
        }
    }

    /// Starts it, and waits until it answers: crash recovery of a large server takes as long as it takes.
    pub(super) async fn start(&self, restore: &Restore, password: SecretString) -> Result<(), RestoreError> {
        let runner = &restore.runner;
        let started = runner.recover(&restore.directory, &restore.scratch, &restore.secrets, restore.size);
        let server = started.map_err(RestoreError::Run)?;
        self.pid.store(server.child.pid(), Ordering::Relaxed);
        *self.process.lock().await = Some(server);
        *self.runner.lock().await = Some(runner.clone());
        let client = Arc::new(RecoveringServer::new(runner.config.paths.socket(), password));
        *self.client.lock().await = Some(Arc::clone(&client));
        let answers = async {
            loop {
                match client.executed().await {
                    Ok(_) => return Ok(()),
                    // Passwords are set before anybody can connect: this one will not be taken later either.
                    Err(denied @ MysqlError::Denied { .. }) => return Err(RestoreError::Mysql(denied)),
                    Err(_not_yet) => sleep(POLL).await,
                }
            }
        };
        let answered = self.with("it was being started", answers).await;
        runner.remove_init_file();
        answered
    }

    /// Does something with it, and notices when it ends meanwhile.
    pub(super) async fn with<T>(
        &self,
        during: &'static str,
        work: impl Future<Output = Result<T, RestoreError>>,
    ) -> Result<T, RestoreError> {
        let mut process = self.process.lock().await;
        let Some(server) = process.as_mut() else {
            return Err(RestoreError::Ended {
                during,
                reason: "it was not started".to_owned(),
            });
        };
        tokio::select! {
            done = work => done,
            (_, reason) = server.ended() => Err(RestoreError::Ended { during, reason }),
        }
    }

    async fn client(&self) -> Result<Arc<RecoveringServer>, RestoreError> {
        let client = self.client.lock().await.clone();
        client.ok_or_else(|| RestoreError::Ended {
            during: "it was being asked",
            reason: "it was not started".to_owned(),
        })
    }

    pub(super) async fn executed(&self) -> Result<GtidSet, RestoreError> {
        let client = self.client().await?;
        let work = async { client.executed().await.map_err(RestoreError::Mysql) };
        self.with("it was being asked what it holds", work).await
    }

    /// Asks it something.
    pub(super) async fn ask<T>(
        &self,
        during: &'static str,
        question: impl AsyncFnOnce(&RecoveringServer) -> Result<T, MysqlError>,
    ) -> Result<T, RestoreError> {
        let client = self.client().await?;
        let work = async { question(client.as_ref()).await.map_err(RestoreError::Mysql) };
        self.with(during, work).await
    }

    /// How it ended, if it does so at once: a connection that is lost does not say why.
    pub(super) async fn last_words(&self) -> Option<String> {
        let mut process = self.process.lock().await;
        let ended = timeout(LAST_WORDS, process.as_mut()?.ended()).await;
        ended.ok().map(|(_, reason)| reason)
    }

    /// Bytes that it read and wrote until now.
    pub(super) fn moved(&self) -> u64 {
        match self.pid.load(Ordering::Relaxed) {
            0 => 0,
            pid => process::moved(pid).unwrap_or_default(),
        }
    }

    /// Begins to replay a file of the relay log's directory, up to this transaction if one is named.
    pub(super) async fn replay(&self, file: &str, before: Option<&Gtid>) -> Result<(), RestoreError> {
        let client = self.client().await?;
        let work = async {
            client.use_relay_log(file).await.map_err(RestoreError::Mysql)?;
            client.replay(before).await.map_err(RestoreError::Mysql)
        };
        self.with("a binlog was being given to it", work).await
    }

    pub(super) async fn applier(&self) -> Result<Applier, RestoreError> {
        let client = self.client().await?;
        let work = async { client.applier().await.map_err(RestoreError::Mysql) };
        self.with("binlogs were being replayed", work).await
    }

    pub(super) async fn forget_relay_log(&self) -> Result<(), RestoreError> {
        let client = self.client().await?;
        let work = async { client.forget_relay_log().await.map_err(RestoreError::Mysql) };
        self.with("replayed binlogs were being forgotten", work).await
    }

    pub(super) async fn take_over(&self, root: Option<&SecretString>) -> Result<(), RestoreError> {
        let client = self.client().await?;
        let work = async { client.take_over(root).await.map_err(RestoreError::Mysql) };
        self.with("passwords were being set", work).await
    }

    /// Ends it cleanly. Nobody can have written to it, so nothing can wait for an acknowledgement (decision A1).
    pub(super) async fn stop(&self) -> Result<(), RestoreError> {
        const DURING: &str = "it was being stopped";
        if let Some(client) = self.client.lock().await.take() {
            client.close().await;
        }
        let mut process = self.process.lock().await;
        let Some(server) = process.as_mut() else { return Ok(()) };
        server.child.signal(Signal::TERM);
        let ended = |reason| Err(RestoreError::Ended { during: DURING, reason });
        match timeout(STOP, server.ended()).await {
            Ok((Exit::Code(0), _)) => {
                *process = None;
                Ok(())
            }
            Ok((_, reason)) => ended(reason),
            Err(_late) => ended(format!("not within {STOP:?}")),
        }
    }

    /// Kills it if it runs, and waits until it is gone.
    pub(super) async fn kill(&self) {
        drop(self.client.lock().await.take());
        if let Some(mut server) = self.process.lock().await.take() {
            server.child.signal(Signal::KILL);
            server.ended().await;
        }
        if let Some(runner) = self.runner.lock().await.take() {
            runner.remove_init_file();
        }
    }
}
