//! The first data directory of a cluster that begins with recovered data (docs/instance.md, "Recovery").
//!
//! Where a recovery is declared, no empty directory is ever made: an empty one in its place would look like data that were
//! lost. So the instance recovers them, or waits: for what it recovers with, for somebody who corrects what the last attempt
//! failed with, or for the operator, which has it cloned when the cluster has data already.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::GtidSet;
use mainstay_core::observed::{Mysqld, Recovered};
use mainstay_store::{Access, AccessError, RecoveryOrder};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::directory::blocking;
use super::{Next, SuperviseError, Supervisor};
use crate::cnf::Size;
use crate::mysqld::chain;
use crate::restore::{Restore, RestoreError, Tell};
use crate::shared::Shared;
use crate::state::Stage;

/// After a failure that may pass by itself, the first time; then twice as long each time, …
const SOON: Duration = Duration::from_secs(2);
/// … up to this.
const LATER: Duration = Duration::from_secs(30);
/// After one that does not pass by itself: what is stored may have grown.
const MUCH_LATER: Duration = Duration::from_mins(5);
/// Between two looks at the mounted documents.
const LOOK: Duration = Duration::from_secs(1);

/// What is mounted to recover with, and a number that changes with it.
struct Mounted {
    access: Access,
    order: RecoveryOrder,
    fingerprint: [u8; 32],
}

/// Why no attempt is made now.
enum Missing {
    /// There is nothing to recover with, or it is for another wish.
    Secret,
    /// It cannot be understood.
    Document(AccessError),
}

impl Supervisor {
    /// Recovers the data directory, and stays with it until it is there or an order comes.
    pub(super) async fn recover_directory(&mut self, wish: &str) -> Result<Option<Next>, SuperviseError> {
        self.be_somebody().await?;
        let mut pause = SOON;
        loop {
            let (reason, known, patience) = match self.mounted(wish).await? {
                Err(Missing::Secret) => {
                    let secret = "what data are recovered with is not mounted yet (Secret <cluster>-recovery)";
                    (secret.to_owned(), None, MUCH_LATER)
                }
                Err(Missing::Document(error)) => (chain(&error), None, MUCH_LATER),
                Ok(mounted) => {
                    let fingerprint = mounted.fingerprint;
                    say(&self.shared, "recovering");
                    match self.restore(mounted.access, mounted.order, GtidSet::new()).await? {
                        Attempt::Interrupted(next) => return Ok(Some(next)),
                        Attempt::Done(recovered) => {
                            self.adopt_directory(Stage::Ready, Some(recovered)).await?;
                            return Ok(None);
                        }
                        Attempt::Failed(error) => {
                            let patience = if error.may_pass() { pause } else { MUCH_LATER };
                            pause = pause.saturating_mul(2).min(LATER);
                            (chain(&error), Some(fingerprint), patience)
                        }
                    }
                }
            };
            self.say_failed(&reason);
            if let Some(next) = self.wait_for_another_attempt(wish, known, patience).await? {
                return Ok(Some(next));
            }
        }
    }

    /// An instance without a data directory is somebody, too: the operator may have it cloned.
    async fn be_somebody(&self) -> Result<(), SuperviseError> {
        if !self.shared.state().incarnation.is_empty() {
            return Ok(());
        }
        let write = self.shared.write_state(crate::state::State::begin_life);
        write.await.map_err(SuperviseError::State)
    }

    fn say_failed(&self, reason: &str) {
        let reason = self.shared.redactor.redact(reason);
        if self.shared.process().message != reason {
            tracing::error!(reason, "the data are not recovered");
        }
        self.shared.set_process(|process| {
            process.phase = Mysqld::Failed;
            process.message = reason;
        });
    }

    async fn mounted(&self, wish: &str) -> Result<Result<Mounted, Missing>, SuperviseError> {
        let (directory, wish) = (self.shared.config.paths.recovery.clone(), wish.to_owned());
        blocking("read what data are recovered with", move || Ok(read(&directory, &wish))).await
    }

    /// Waits for the time to pass, or for other documents; or for an order.
    async fn wait_for_another_attempt(
        &mut self,
        wish: &str,
        known: Option<[u8; 32]>,
        patience: Duration,
    ) -> Result<Option<Next>, SuperviseError> {
        self.answer_waiting();
        let until = Instant::now() + patience;
        loop {
            let request = tokio::select! {
                () = sleep(LOOK) => None,
                request = self.requests.recv() => Some(request),
            };
            if let Some(request) = request {
                if let Some(next) = self.idle_order(request).await {
                    return Ok(Some(next));
                }
                continue;
            }
            let mounted = self.mounted(wish).await?;
            let other = mounted.is_ok_and(|mounted| Some(mounted.fingerprint) != known);
            if other || (known.is_some() && Instant::now() >= until) {
                return Ok(None);
            }
        }
    }

    /// Puts what is ordered together as `data.init`. An order ends it.
    pub(super) async fn restore(
        &mut self,
        access: Access,
        order: RecoveryOrder,
        at_least: GtidSet,
    ) -> Result<Attempt, SuperviseError> {
        let began = Instant::now();
        let store = match self.shared.config.stores.open(access.store.clone()).await {
            Ok(store) => store,
            Err(error) => return Ok(Attempt::Failed(RestoreError::Settings(error))),
        };
        let shared = Arc::clone(&self.shared);
        let tell: Tell = Arc::new(move |stage| {
            shared.set_process(|process| process.message = stage.to_string());
        });
        let paths = &self.shared.config.paths;
        let restore = Restore {
            runner: self.runner.clone(),
            version: self.shared.version.clone(),
            secrets: self.shared.secrets(),
            store,
            keys: access.private_keys,
            directory: paths.data_init(),
            scratch: paths.scratch(),
            tell,
            size: Size::Instance,
            at_least,
        };
        let tmp = paths.tmp();
        blocking("make the directory for temporary files", move || {
            std::fs::create_dir_all(tmp)
        })
        .await?;
        let (stop, stopped) = oneshot::channel();
        let mut work = tokio::spawn(async move { restore.run(&order, stopped).await });
        let mut next = None;
        let mut stop = Some(stop);
        let ended = loop {
            tokio::select! {
                ended = &mut work => break ended,
                request = self.requests.recv(), if next.is_none() => {
                    next = self.idle_order(request).await;
                    if next.is_some() && let Some(stop) = stop.take() {
                        // It may have ended at this moment.
                        let _ = stop.send(());
                    }
                }
            }
        };
        let ended = ended.unwrap_or_else(|error| {
            Err(RestoreError::Volume {
                what: "recover the data",
                source: std::io::Error::other(error.to_string()),
            })
        });
        Ok(match (next, ended) {
            (Some(next), _) => Attempt::Interrupted(next),
            (None, Ok(recovered)) => {
                let seconds = began.elapsed().as_secs_f64();
                tracing::info!(seconds, backup = recovered.backup, reached = %recovered.reached, "recovered");
                Attempt::Done(recovered)
            }
            (None, Err(error)) => Attempt::Failed(error),
        })
    }
}

fn say(shared: &Shared, message: &str) {
    shared.set_process(|process| {
        process.phase = Mysqld::Initialising;
        message.clone_into(&mut process.message);
    });
}

/// What became of an attempt.
pub(super) enum Attempt {
    Done(Recovered),
    Failed(RestoreError),
    Interrupted(Next),
}

/// Reads both documents, if they are for this wish.
fn read(directory: &Path, wish: &str) -> Result<Mounted, Missing> {
    let read = RecoveryOrder::read(directory).map_err(Missing::Document)?;
    let (access, order) = read.filter(|(_, order)| order.request == wish).ok_or(Missing::Secret)?;
    let fingerprint = Sha256::new()
        .chain_update(access.to_json().expose_secret())
        .chain_update(order.to_json())
        .finalize()
        .into();
    Ok(Mounted {
        access,
        order,
        fingerprint,
    })
}
