//! The data directory: made whole or not at all.

use std::path::Path;

use mainstay_core::observed::{Mysqld, Recovered};
use rustix::process::Signal;
use tokio::time::Instant;

use super::{Next, SuperviseError, Supervisor};
use crate::disk;
use crate::manager::adopt_unknown_data;
use crate::process::Exit;
use crate::shared::ListEnded;
use crate::state::Stage;

fn volume(what: &'static str) -> impl Fn(std::io::Error) -> SuperviseError {
    move |source| SuperviseError::Volume { what, source }
}

impl Supervisor {
    /// Sees to it that there is a data directory that counts. An order may come first.
    pub(super) async fn prepare(&mut self) -> Result<Option<Next>, SuperviseError> {
        self.know_state().await?;
        let paths = self.shared.config.paths.clone();
        let data = paths.data();
        let exists = blocking("look for the data directory", move || data.try_exists()).await?;
        match (self.shared.state().stage, exists) {
            (Stage::Ready, true) => return Ok(None),
            (Stage::Cloned, true) => {
                // The server_uuid of the recipient, if a start was cut short: a clone gets one of its own.
                remove_file(&paths.data().join("auto.cnf")).map_err(volume("remove auto.cnf"))?;
                return Ok(None);
            }
            (Stage::Initialising, true) => {
                return Err(SuperviseError::Ended(format!(
                    "{} exists, but the state file does not know it; nothing is deleted that Mainstay did not make",
                    paths.data().display()
                )));
            }
            (Stage::Ready | Stage::Cloned, false) => {
                tracing::error!("the data directory is gone: an empty one is made");
            }
            (Stage::Retiring, _) => {
                tracing::warn!("a clone was interrupted before it began");
                self.put_former_data_aside().await?;
            }
            (Stage::Cloning, _) => {
                tracing::warn!("a clone was interrupted: what it left is deleted");
                self.remove_data().await?;
            }
            (Stage::Initialising, false) => {}
        }
        if let Some(wish) = self.shared.config.recovery.clone() {
            return self.recover_directory(&wish).await;
        }
        if let Some(next) = self.make_directory().await? {
            return Ok(Some(next));
        }
        self.adopt_directory(Stage::Ready, None).await?;
        Ok(None)
    }

    /// Opens the state file, if the volume did not let it be opened before: nothing is made or started by somebody who does
    /// not know what is there.
    async fn know_state(&self) -> Result<(), SuperviseError> {
        if self.shared.knows_state() {
            return Ok(());
        }
        let found = self.shared.open_state().await.map_err(SuperviseError::State)?;
        adopt_unknown_data(&self.shared, found)
            .await
            .map_err(SuperviseError::State)?;
        self.shared.command_ended(ListEnded::InForce);
        Ok(())
    }

    /// Makes `data.init` and everything in it durable. An order that comes meanwhile ends it.
    pub(super) async fn make_directory(&mut self) -> Result<Option<Next>, SuperviseError> {
        let began = Instant::now();
        let paths = self.shared.config.paths.clone();
        let cloning = self.shared.process().phase == Mysqld::Cloning;
        self.shared.set_process(|process| {
            if !cloning {
                process.phase = Mysqld::Initialising;
            }
            // Why the attempt before it failed is said until one succeeds.
            if self.failures == 0 {
                "the data directory is being made".clone_into(&mut process.message);
            }
        });
        let (init, tmp) = (paths.data_init(), paths.tmp());
        blocking("clear up what an earlier attempt left", move || {
            disk::remove_tree(&init)?;
            std::fs::create_dir_all(&tmp)
        })
        .await?;
        // A time zone that this server does not take must not keep it from starting: the second attempt goes without.
        let time_zones = if self.failures == 0 {
            self.runner.time_zones().await
        } else {
            None
        };
        let secrets = self.shared.secrets();
        let mut server = self
            .runner
            .initialise(&paths.data_init(), &secrets, time_zones.as_deref())
            .map_err(SuperviseError::Run)?;
        let mut next = None;
        let (exit, reason) = loop {
            tokio::select! {
                ended = server.ended() => break ended,
                request = self.requests.recv() => {
                    if let Some(order) = self.idle_order(request).await {
                        server.child.signal(Signal::KILL);
                        next = Some(order.after(next.as_ref()));
                    }
                }
            }
        };
        self.runner.remove_init_file();
        if next.is_some() {
            return Ok(next);
        }
        if exit != Exit::Code(0) {
            return Err(SuperviseError::Ended(format!(
                "the data directory cannot be made: {reason}"
            )));
        }
        blocking("make the data directory durable", move || disk::sync_all(&paths.volume)).await?;
        let seconds = began.elapsed().as_secs_f64();
        tracing::info!(seconds, time_zones = time_zones.is_some(), "made a data directory");
        Ok(None)
    }

    /// Gives `data.init` its name. The state file first: a crash between the two makes another directory, never a
    /// directory without identity.
    pub(super) async fn adopt_directory(
        &mut self,
        stage: Stage,
        recovered: Option<Recovered>,
    ) -> Result<(), SuperviseError> {
        let paths = self.shared.config.paths.clone();
        let write = self.shared.write_state(move |state| {
            if stage == Stage::Ready {
                state.begin_life();
                state.recovered = recovered;
            }
            state.stage = stage;
        });
        write.await.map_err(SuperviseError::State)?;
        self.shared.command_ended(ListEnded::InForce);
        blocking("rename the data directory", move || {
            std::fs::rename(paths.data_init(), paths.data())?;
            disk::sync_names(&paths.volume)
        })
        .await
    }

    /// Gives the data directory that is to be replaced another name, if at most half of the volume is in use; otherwise the
    /// clone needs the room. What an earlier rebuild put aside is deleted.
    pub(super) async fn put_former_data_aside(&self) -> Result<(), SuperviseError> {
        let paths = self.shared.config.paths.clone();
        let kept = blocking("put the former data directory aside", move || {
            // Cut short behind the renaming: then it is there already, and is not the one of an earlier rebuild.
            let (data, former) = (paths.data(), paths.data_former());
            if !data.try_exists()? {
                return former.try_exists();
            }
            disk::remove_tree(&former)?;
            let space = disk::space(&paths.volume)?;
            if space.used() > space.free {
                return Ok(false);
            }
            std::fs::rename(data, former)?;
            disk::sync_names(&paths.volume)?;
            Ok(true)
        })
        .await?;
        let former = self.shared.config.paths.data_former();
        if kept {
            tracing::info!(path = %former.display(), "the former data directory is kept until the next rebuild");
        } else {
            tracing::warn!("the former data directory is deleted: more than half of the volume is in use");
        }
        let write = self.shared.write_state(|state| state.stage = Stage::Cloning);
        write.await.map_err(SuperviseError::State)?;
        self.remove_data().await
    }

    /// Deletes the data directory. It loses its name first, so that no part of it is ever taken for the whole.
    pub(super) async fn remove_data(&self) -> Result<(), SuperviseError> {
        let paths = self.shared.config.paths.clone();
        blocking("delete the data directory", move || {
            disk::remove_tree(&paths.data_old())?;
            if paths.data().try_exists()? {
                std::fs::rename(paths.data(), paths.data_old())?;
                disk::sync_names(&paths.volume)?;
            }
            disk::remove_tree(&paths.data_old())?;
            disk::remove_tree(&paths.data_init())
        })
        .await
    }
}

/// Work on the volume, which may take for ever when its disk does: never in a thread that others need.
pub(super) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, SuperviseError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(volume(what)),
        Err(error) => Err(SuperviseError::Volume {
            what,
            source: std::io::Error::other(error.to_string()),
        }),
    }
}

fn remove_file(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
