//! Replaces the data directory by a clone (decisions A2 and A3, rule 7), or by what is stored (refill.rs).
//!
//! The new data go into a freshly made directory, never over data. The state file says `cloning` from before the former
//! directory is deleted until the new one is complete, so whatever is interrupted begins again clean.

use mainstay_core::observed::Mysqld;
use mainstay_mysql::CloneDonor;
use mainstay_mysql::accounts::InitFile;
use mainstay_mysql::port::CloneProgress;
use rustix::process::Signal;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::directory::blocking;
use super::{Next, SuperviseError, Supervisor};
use crate::copy::{self, CopyError};
use crate::disk;
use crate::mysqld::{Server, chain};
use crate::server::{CloneOrder, Origin};
use crate::shared::Shared;
use crate::state::{Stage, StateError};

impl Supervisor {
    /// Gives the former data directory up: from here on its incarnation is nobody's. Answers the order.
    pub(super) async fn accept_clone(
        &mut self,
        order: CloneOrder,
        done: oneshot::Sender<Result<(), String>>,
    ) -> Option<Next> {
        let CloneOrder { origin, keep_former } = order;
        let write = self.shared.write_state(move |state| {
            state.begin_life();
            // What an interrupted clone left is not worth keeping.
            let whole = matches!(state.stage, Stage::Ready | Stage::Retiring);
            state.stage = if whole && keep_former {
                Stage::Retiring
            } else {
                Stage::Cloning
            };
        });
        // The server of before must not be taken for one of the new life.
        let accept = async {
            write.await?;
            self.shared.set_process(|process| {
                process.phase = Mysqld::Cloning;
                process.message = format!("cloning from {origin}");
            });
            Ok::<_, StateError>(())
        };
        match self.shared.unobserved(accept).await {
            Ok(()) => {
                self.refusals = 0;
                self.shared.set_process(|process| process.refusals = 0);
                drop(done.send(Ok(())));
                Some(Next::Clone(origin))
            }
            Err(error) => {
                drop(done.send(Err(chain(&error))));
                None
            }
        }
    }

    /// The clone, and what to do when it did not work: stay empty-handed until the next order.
    pub(super) async fn clone(&mut self, origin: Origin) -> Next {
        let began = Instant::now();
        self.shared.set_process(|process| {
            process.phase = Mysqld::Cloning;
            process.message = format!("cloning from {origin}");
        });
        match self.clone_once(&origin).await {
            Ok(Some(next)) => next,
            Ok(None) => {
                tracing::info!(donor = %origin, seconds = began.elapsed().as_secs_f64(), "cloned");
                self.failures = 0;
                Next::Again
            }
            Err(error) => {
                let reason = format!("the clone of {origin} failed: {}", chain(&error));
                let reason = self.shared.redactor.redact(&reason);
                tracing::error!(reason, "mysqld is down");
                self.shared.set_process(|process| {
                    process.phase = Mysqld::Failed;
                    process.message = reason;
                });
                self.answer_waiting();
                loop {
                    let request = self.requests.recv().await;
                    if let Some(next) = self.idle_order(request).await {
                        return next;
                    }
                }
            }
        }
    }

    async fn clone_once(&mut self, origin: &Origin) -> Result<Option<Next>, SuperviseError> {
        if self.shared.state().stage == Stage::Retiring {
            self.put_former_data_aside().await?;
        } else {
            self.remove_data().await?;
        }
        match origin {
            Origin::Instance(donor) => self.clone_instance(donor).await,
            Origin::Store { at_least } => self.refill(at_least).await,
        }
    }

    async fn clone_instance(&mut self, donor: &CloneDonor) -> Result<Option<Next>, SuperviseError> {
        if let Some(next) = self.make_directory().await? {
            return Ok(Some(next));
        }
        self.adopt_directory(Stage::Cloning, None).await?;
        // Nobody may connect to it: it is empty, and then it is half a clone.
        let secrets = self.shared.secrets();
        let recipient = self
            .runner
            .serve(InitFile::Start, &secrets, &["--skip-networking"])
            .map_err(SuperviseError::Run)?;
        // It may be the first server of this process, which no password was offered to yet.
        self.shared.credentials_applied(&secrets);
        self.started(Mysqld::Cloning, recipient.child.pid());
        let next = self.copy(recipient, donor).await;
        self.runner.remove_init_file();
        if let Some(next) = next? {
            return Ok(Some(next));
        }
        let paths = self.shared.config.paths.clone();
        // `serve` removes auto.cnf before it starts on a clone: a clone gets a server_uuid of its own (rule 0).
        blocking("make the clone durable", move || disk::sync_all(&paths.volume)).await?;
        self.shared
            .write_state(|state| state.stage = Stage::Cloned)
            .await
            .map_err(SuperviseError::State)?;
        Ok(None)
    }

    /// Copies, shows how far it is, and ends when the recipient has ended. An order may come first.
    async fn copy(&mut self, mut recipient: Server, donor: &CloneDonor) -> Result<Option<Next>, SuperviseError> {
        let shared = std::sync::Arc::clone(&self.shared);
        let process = recipient.child.handle();
        let work = copy::copy(shared.mysql.as_ref(), &mut recipient, donor, |progress| {
            show_progress(&shared, &donor.host, progress);
        });
        tokio::pin!(work);
        let mut next = None;
        let copied = loop {
            tokio::select! {
                copied = &mut work => break copied,
                request = self.requests.recv() => {
                    if let Some(order) = self.idle_order(request).await {
                        process.signal(Signal::KILL);
                        next = Some(order.after(next.as_ref()));
                    }
                }
            }
        };
        match (next, copied) {
            (Some(next), _) => Ok(Some(next)),
            (None, Ok(())) => Ok(None),
            (None, Err(CopyError::Mysql(error))) => Err(SuperviseError::Mysql(error)),
            (None, Err(CopyError::Ended(reason))) => Err(SuperviseError::Ended(reason)),
        }
    }
}

fn show_progress(shared: &Shared, host: &str, progress: CloneProgress) {
    const MIB: u64 = 1024 * 1024;
    if progress.estimate > 0 {
        let (copied, estimate) = (progress.copied / MIB, progress.estimate / MIB);
        shared.set_process(|process| {
            process.message = format!("cloning from {host}: {copied} of {estimate} MiB copied");
        });
    }
}
