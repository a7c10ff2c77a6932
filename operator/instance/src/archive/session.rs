//! From one beginning to the next: what is executed is stored, segment by segment.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::archive::{CLOSE, Index, hole, through};
use mainstay_core::backup::manifest::{
    ArchivedThrough, ArchivedTransaction, FORMAT, ReignManifest, Segment, SegmentIndex,
};
use mainstay_store::archive::Sealing;
use mainstay_store::{Access, Existing, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::catalog::Catalog;
use super::growth::Growth;
use super::merge::merge;
use super::source::{Piece, Rest, Source, SourceError};
use super::upload::{Uploaded, upload};
use super::{Fault, Told};
use crate::isolation::{Contacts, Verdict, judge};
use crate::shared::Shared;

/// How long the server may take to say what it has executed.
const LIMIT: Duration = Duration::from_secs(5);
/// Level of zstd: the primary has other work, and most of a binlog is compressed already.
const LEVEL: i32 = 1;
/// First and longest time between two looks at transactions that are written and not executed: they wait for an acknowledgement.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// A change that is known so soon had come before.
const AT_ONCE: Duration = Duration::from_millis(5);
/// Between two looks whether a backup holds what the archive lacks.
const BACKUPS: Duration = Duration::from_mins(1);
/// Attempts to store the index of a segment that is stored: without it the segment counts nothing.
const INDEX_ATTEMPTS: u32 = 3;
/// Numbers that are tried for a segment.
const NUMBERS: u32 = 1000;

/// How a session ended without a fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Something else is mounted.
    Changed,
    /// Everything is stored, and no more is wanted.
    Finished,
}

/// See the module.
pub(super) struct Session<'a> {
    shared: &'a Arc<Shared>,
    catalog: Catalog,
    sealing: Sealing,
    reign: ReignManifest,
    /// Number of the next segment.
    sequence: u64,
    /// `None` only while it is being read.
    source: Option<Source>,
    growth: Option<Growth>,
    /// What is stored, or was there before the archive began.
    through: GtidSet,
    missing: GtidSet,
    /// Until when everything is stored, as far as this process knows; `None` beyond a hole.
    whole: Option<Timestamp>,
    /// When something was last stored, or it was looked at whether nothing was there to store.
    stored_at: Instant,
    /// How long to wait for what is not executed.
    look: Duration,
    merger: Merger,
}

/// Ends with the session.
struct Merger {
    indexes: mpsc::UnboundedSender<Index>,
    task: JoinHandle<()>,
}

impl Drop for Merger {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<'a> Session<'a> {
    /// Finds out what the store holds, and where in the binlogs it goes on.
    pub(super) async fn begin(shared: &'a Arc<Shared>, access: &Access, told: &Told) -> Result<Self, Fault> {
        if told.recorded.epoch == 0 {
            return Err(Fault::NoReign);
        }
        let catalog = Catalog {
            store: shared
                .config
                .stores
                .open(access.store.clone())
                .await
                .map_err(Fault::Settings)?,
            cluster: access.cluster.clone(),
        };
        let state = shared.mysql.read_state().await.map_err(Fault::Mysql)?;
        let reign = ReignManifest {
            format: FORMAT,
            cluster: access.cluster.clone(),
            epoch: told.recorded.epoch,
            instance: shared.config.instance.0.clone(),
            server_uuid: state.server_uuid,
            baseline: told.baseline.clone(),
            since: told.recorded.since,
        };
        let start = catalog.begin(&reign).await?;
        let lost = start.stored.as_ref().map(|stored| stored.subtract(&state.executed));
        if let Some(lost) = lost.filter(|lost| !lost.is_empty()) {
            return Err(Fault::History { lost });
        }
        let (data, purged, stored) = (shared.config.paths.data(), state.purged, start.stored.clone());
        let source = blocking(move || Source::open(&data, &purged, stored.as_ref())).await?;
        let indexes = catalog.indexes(reign.epoch).await?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let task = tokio::spawn(merge(catalog.clone(), reign.epoch, indexes, receiver));
        let mut session = Self {
            shared,
            catalog,
            sealing: Sealing {
                level: LEVEL,
                recipient: access.recipient.clone(),
            },
            reign,
            sequence: start.sequence,
            through: source.before().clone(),
            missing: start.missing.clone(),
            growth: None,
            whole: None,
            stored_at: Instant::now(),
            look: LOOK.0,
            merger: Merger { indexes: sender, task },
            source: Some(source),
        };
        tracing::info!(
            epoch = session.reign.epoch,
            segment = session.sequence,
            "the binlog is being archived"
        );
        match Growth::new() {
            Ok(growth) => session.growth = Some(growth),
            Err(error) => session.cannot_watch(&error),
        }
        session.look_at_backups().await?;
        session.shared.change_archive(|report| report.time = start.through);
        let lacks = hole(&session.through, start.stored.as_ref(), &session.missing);
        session.lacks(&lacks);
        Ok(session)
    }

    /// Archives until something else is mounted (then it is dropped), or the end is wanted.
    pub(super) async fn run(mut self, finish: &mut watch::Receiver<bool>) -> Result<Ended, Fault> {
        loop {
            let finishing = *finish.borrow();
            self.watch();
            self.drain();
            let looked = Instant::now();
            let asked = Timestamp::now();
            let executed = self.shared.mysql.read_executed(LIMIT).await.map_err(Fault::Mysql)?;
            self.store_executed(asked, &executed).await?;
            self.say_whole().await?;
            self.shared.change_archive(|report| report.error.clear());
            if finishing {
                return Ok(Ended::Finished);
            }
            // What was written to another file before it was watched is not known.
            if self.watch() {
                continue;
            }
            self.wait(looked, finish).await?;
        }
    }

    /// Watches the file that grows, from now on; whether it is another one than before.
    fn watch(&mut self) -> bool {
        let (Some(growth), Some(source)) = (&mut self.growth, &self.source) else {
            return false;
        };
        match growth.watch(source.path()) {
            Ok(new) => new,
            Err(error) => {
                self.cannot_watch(&error);
                false
            }
        }
    }

    /// What was written until now is about to be read.
    fn drain(&mut self) {
        if let Some(Err(error)) = self.growth.as_ref().map(Growth::drain) {
            self.cannot_watch(&error);
        }
    }

    fn cannot_watch(&mut self, error: &io::Error) {
        tracing::warn!(%error, "the binlog cannot be watched: it is looked at when the server says that it executed something");
        self.growth = None;
    }

    /// Waits until there may be something to store, and a little longer, so that more comes together.
    async fn wait(&mut self, looked: Instant, finish: &mut watch::Receiver<bool>) -> Result<(), Fault> {
        let began = Instant::now();
        let unsettled = self.source.as_ref().is_some_and(Source::is_unsettled);
        let grown = async {
            match &self.growth {
                Some(growth) => growth.changed().await,
                None => std::future::pending().await,
            }
        };
        let until = tokio::select! {
            grown = grown => {
                if let Err(error) = grown {
                    self.cannot_watch(&error);
                }
                let before = began.elapsed() < AT_ONCE;
                if before { looked + CLOSE } else { Instant::now() + CLOSE }
            }
            () = until_behind(self.shared) => Instant::now(),
            () = sleep(self.look), if unsettled => {
                self.look = self.look.saturating_mul(2).min(LOOK.1);
                Instant::now()
            }
            () = until_finished(finish) => Instant::now(),
            () = sleep_until(self.stored_at + self.shared.config.timing.archive_idle) => Instant::now(),
            () = sleep(BACKUPS), if !self.missing.is_empty() => {
                self.look_at_backups().await?;
                Instant::now()
            }
        };
        tokio::select! {
            () = sleep_until(until) => {}
            () = until_finished(finish) => {}
        }
        Ok(())
    }

    /// Stores everything that is executed and not stored.
    async fn store_executed(&mut self, asked: Timestamp, executed: &GtidSet) -> Result<(), Fault> {
        let lost = self.through.subtract(executed);
        if !lost.is_empty() {
            return Err(Fault::History { lost });
        }
        loop {
            let set = executed.clone();
            let piece = self.read(move |source| source.cut(&set)).await?;
            let unlogged = self.source.as_mut().map(Source::take_unlogged).unwrap_or_default();
            self.lacks(&unlogged.subtract(&self.through).subtract(&self.missing));
            let first = piece.as_ref().and_then(|piece| piece.transactions.first());
            let waiting = self.source.as_ref().and_then(Source::first_waiting);
            self.tell(through(asked, first.map(|transaction| transaction.at).or(waiting)));
            if let Some(piece) = piece {
                self.store(piece).await?;
                self.look = LOOK.0;
                continue;
            }
            let set = executed.clone();
            match self.read(move |source| source.rest(&set)).await? {
                Rest::Nothing => return Ok(()),
                Rest::AnotherFile => {}
                Rest::NotLogged(unlogged) => {
                    self.lacks(&unlogged.subtract(&self.missing));
                    return Ok(());
                }
            }
        }
    }

    async fn read<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&mut Source) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, Fault> {
        let Some(mut source) = self.source.take() else {
            return Err(Fault::Ended("the binlog is not being read".to_owned()));
        };
        let (source, read) = blocking(move || {
            let read = read(&mut source);
            Ok((source, read))
        })
        .await?;
        self.source = Some(source);
        read.map_err(Fault::Source)
    }

    /// Stores a piece, and then the index that makes it part of the archive.
    async fn store(&mut self, piece: Piece) -> Result<(), Fault> {
        let uploaded = self.upload(&piece).await?;
        let (gtids, bytes) = (piece.gtids(), uploaded.file.size);
        let through = piece.previous.union(&gtids);
        let segment = Segment {
            sequence: self.sequence,
            file: uploaded.file,
            uncompressed_bytes: uploaded.uncompressed,
            encryption: self.sealing.encryption(),
            previous: piece.previous,
            gtids,
            missing: self.missing.clone(),
            transactions: piece
                .transactions
                .into_iter()
                .map(|transaction| ArchivedTransaction {
                    gtid: transaction.gtid,
                    at: transaction.at,
                })
                .collect(),
        };
        self.index(segment).await?;
        self.sequence += 1;
        self.stored_at = Instant::now();
        self.through = through;
        self.shared.change_archive(|report| {
            report.segments += 1;
            report.bytes += bytes;
            report.through = Some(self.through.subtract(&self.missing));
        });
        Ok(())
    }

    /// Stores a piece under the next number that is free: a process that ended may have used one, and nobody knows what for.
    async fn upload(&mut self, piece: &Piece) -> Result<Uploaded, Fault> {
        let encrypted = self.sealing.recipient.is_some();
        let mut number = 1;
        loop {
            let key = self.catalog.cluster.segment(self.reign.epoch, self.sequence, encrypted);
            match upload(self.catalog.store.as_ref(), &key, piece, &self.sealing).await {
                Err(Fault::Store(StoreError::AlreadyExists { .. })) if number < NUMBERS => {
                    tracing::info!(%key, "it was stored by a process that did not come to index it, and is left alone");
                    self.sequence += 1;
                    number += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn index(&self, segment: Segment) -> Result<(), Fault> {
        let sequence = segment.sequence;
        let index = SegmentIndex {
            format: FORMAT,
            cluster: self.reign.cluster.clone(),
            epoch: self.reign.epoch,
            server_uuid: self.reign.server_uuid.clone(),
            mysql_version: self.shared.version.to_string(),
            segments: vec![segment],
        };
        let json = bytes::Bytes::from(index.to_json().map_err(Fault::Manifest)?);
        let key = self.catalog.cluster.segment_index(self.reign.epoch, sequence, sequence);
        let mut attempt = 1;
        loop {
            match self.catalog.make(&key, json.clone()).await {
                Ok(true) => break,
                Ok(false) => return Err(Fault::Foreign { key: key.to_string() }),
                Err(Fault::Store(error)) if error.may_pass() && attempt < INDEX_ATTEMPTS => {
                    attempt += 1;
                    sleep(LOOK.1).await;
                }
                Err(error) => return Err(error),
            }
        }
        let index = Index {
            first: sequence,
            last: sequence,
            bytes: json.len() as u64,
        };
        // Who receives it ends with this session only.
        let _ = self.merger.indexes.send(index);
        Ok(())
    }

    /// Up to when everything is stored; beyond a hole nothing counts.
    fn tell(&mut self, time: Timestamp) {
        self.whole = self.missing.is_empty().then_some(time);
        if self.whole.is_some() {
            self.shared.change_archive(|report| report.time = Some(time));
        }
    }

    /// Stores until when the archive is whole, when nothing else was stored for a while. Segments tell it by themselves.
    ///
    /// One that was deposed and does not know it would say something untrue of what its successor commits. So this is said
    /// only of what lies as far back as a cut-off primary lives, and only by one that hears the others.
    async fn say_whole(&mut self) -> Result<(), Fault> {
        let timing = &self.shared.config.timing;
        if self.stored_at.elapsed() < timing.archive_idle {
            return Ok(());
        }
        self.stored_at = Instant::now();
        let told = self.shared.state().told;
        // The API server may be heard by one that was deposed, too.
        let contacts = Contacts {
            api_server: None,
            ..self.shared.hearing.contacts(&told)
        };
        let heard = judge(&contacts, timing.fencing) == Verdict::Connected;
        let (Some(whole), true) = (self.whole, heard || told.acks_required == 0) else {
            return Ok(());
        };
        let Ok(time) = whole.checked_sub(timing.fencing + timing.fencing / 2) else {
            return Ok(());
        };
        let through = ArchivedThrough {
            format: FORMAT,
            cluster: self.reign.cluster.clone(),
            epoch: self.reign.epoch,
            time,
        };
        let key = self.catalog.cluster.reign_through(self.reign.epoch);
        let json = through.to_json().map_err(Fault::Manifest)?;
        let put = self.catalog.store.put(&key, json.into(), Existing::Replace).await;
        put.map_err(Fault::Store)
    }

    /// Takes note of transactions that will never be stored.
    fn lacks(&mut self, set: &GtidSet) {
        if !set.is_empty() {
            tracing::error!(missing = %set, "transactions are missing in the archive");
        }
        self.missing = self.missing.union(set);
        self.through = self.through.union(set);
        self.shared.change_archive(|report| {
            report.missing.clone_from(&self.missing);
            report.through = Some(self.through.subtract(&self.missing));
        });
    }

    /// A complete backup that holds what is missing closes the hole for all later targets.
    async fn look_at_backups(&mut self) -> Result<(), Fault> {
        if !self.missing.is_empty() && self.catalog.is_backed_up(&self.missing).await? {
            tracing::info!(missing = %self.missing, "a backup holds what is missing in the archive");
            self.missing = GtidSet::new();
            self.lacks(&GtidSet::new());
        }
        Ok(())
    }
}

/// Returns when an end is wanted.
pub(super) async fn until_finished(finish: &mut watch::Receiver<bool>) {
    if finish.wait_for(|finish| *finish).await.is_err() {
        // Nobody is left who could want one.
        std::future::pending::<()>().await;
    }
}

/// Returns when the last look at the server said that something is executed that is not stored.
async fn until_behind(shared: &Shared) {
    let mut status = shared.watch_status();
    while status.changed().await.is_ok() {
        let behind = |archive: &crate::proto::Archive| !archive.behind.is_empty();
        if status.borrow_and_update().archive.as_ref().is_some_and(behind) {
            return;
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SourceError> + Send + 'static,
) -> Result<T, Fault> {
    let worked = tokio::task::spawn_blocking(work).await;
    worked
        .map_err(|error| Fault::Ended(error.to_string()))?
        .map_err(Fault::Source)
}
