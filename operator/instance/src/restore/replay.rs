//! Replays the archive on a backup, with the server's own applier.
//!
//! Segments are fetched in batches: while one is applied the next one is fetched, so that a long archive needs no more room
//! than two of them. A batch is done when exactly the transactions are there that its segments hold.

use std::io;
use std::path::Path;
use std::time::Duration;

use mainstay_core::GtidSet;
use mainstay_core::backup::manifest::Segment;
use mainstay_core::gtid::Gtid;
use mainstay_store::StoreError;
use mainstay_store::archive::ArchiveError;
use mainstay_store::catalog::PlannedRecovery;
use tokio::time::{Instant, sleep};

use super::isolated::Isolated;
use super::relay::RelayLog;
use super::{Restore, RestoreError, Stage, TELL};
use crate::disk;
use crate::mysqld::chain;

/// Bytes of binlogs, uncompressed, that are replayed at a time, if no single segment has more.
const BATCH: u64 = 256 * 1024 * 1024;
/// Between two looks at the applier.
const POLL: Duration = Duration::from_millis(100);
/// An applier that has read everything and did not apply it all is asked so often before it is given up.
const PATIENCE: u32 = 50;
/// With less than this left on the volume mysqld would wait for ever for more.
const FULL: u64 = 32 * 1024 * 1024;

/// The name of the relay log's only file, and that of its index.
const FILE: &str = "relay.000001";
const INDEX: &str = "relay.index";

/// Segments that are replayed together.
struct Batch<'a> {
    epoch: u64,
    segments: Vec<&'a Segment>,
    before: Option<&'a Gtid>,
}

/// Bytes that binlogs on their way take at most.
pub(super) fn space(plan: &PlannedRecovery) -> u64 {
    let of = |batch: &Batch<'_>| {
        batch
            .segments
            .iter()
            .map(|segment| segment.uncompressed_bytes)
            .sum::<u64>()
    };
    let mut sizes: Vec<u64> = batches(plan).iter().map(of).collect();
    sizes.sort_unstable();
    sizes.iter().rev().take(2).sum()
}

fn batches(plan: &PlannedRecovery) -> Vec<Batch<'_>> {
    let mut batches = Vec::new();
    for step in &plan.steps {
        let mut bytes = 0_u64;
        let mut segments: Vec<&Segment> = Vec::new();
        for segment in &step.segments {
            if !segments.is_empty() && bytes.saturating_add(segment.uncompressed_bytes) > BATCH {
                batches.push(Batch {
                    epoch: step.epoch,
                    segments: std::mem::take(&mut segments),
                    before: None,
                });
                bytes = 0;
            }
            bytes = bytes.saturating_add(segment.uncompressed_bytes);
            segments.push(segment);
        }
        if !segments.is_empty() {
            batches.push(Batch {
                epoch: step.epoch,
                segments,
                before: step.before.as_ref(),
            });
        }
    }
    batches
}

impl Batch<'_> {
    /// What is there when it was replayed on `executed`.
    fn reaches(&self, executed: &GtidSet) -> GtidSet {
        let transactions = self.segments.iter().flat_map(|segment| &segment.transactions);
        let wanted = transactions
            .map(|it| &it.gtid)
            .take_while(|gtid| Some(*gtid) != self.before);
        executed.union(&wanted.cloned().collect())
    }
}

/// See the module.
pub(super) struct Replay<'a> {
    restore: &'a Restore,
    server: &'a Isolated,
    plan: &'a PlannedRecovery,
}

impl<'a> Replay<'a> {
    pub(super) const fn new(restore: &'a Restore, server: &'a Isolated, plan: &'a PlannedRecovery) -> Self {
        Self { restore, server, plan }
    }

    /// Replays everything.
    pub(super) async fn run(&self) -> Result<(), RestoreError> {
        let batches = batches(self.plan);
        let Some(first) = batches.first() else { return Ok(()) };
        self.fetch(first, 0).await?;
        let mut executed = self.plan.base.gtid_executed.clone();
        for (number, batch) in batches.iter().enumerate() {
            executed = batch.reaches(&executed);
            let next = async {
                match batches.get(number + 1) {
                    Some(next) => self.fetch(next, number + 1).await,
                    None => Ok(()),
                }
            };
            let (replayed, fetched) = tokio::join!(self.replay(batch, number, &executed), next);
            replayed?;
            fetched?;
        }
        Ok(())
    }

    fn fetched(number: usize) -> String {
        format!("batch-{number}")
    }

    /// Puts a batch's segments into one file, each proved to be what was stored.
    async fn fetch(&self, batch: &Batch<'_>, number: usize) -> Result<(), RestoreError> {
        let path = self.restore.scratch.join(Self::fetched(number));
        let volume = RestoreError::volume("write binlogs that are to be replayed");
        let mut log = RelayLog::create(&path).await.map_err(&volume)?;
        for segment in &batch.segments {
            let (store, keys) = (self.restore.store.as_ref(), self.restore.keys.as_slice());
            let content = self.plan.segment(store, batch.epoch, segment, keys).await;
            let content = content.map_err(RestoreError::Archive)?;
            let transactions = log.append(content).await.map_err(|error| unusable(segment, &error))?;
            if transactions != segment.transactions.len() as u64 {
                return Err(RestoreError::Segment {
                    key: segment.file.name.clone(),
                    reason: format!(
                        "it holds {transactions} transactions, and {} are in its index",
                        segment.transactions.len()
                    ),
                });
            }
        }
        log.finish().await.map_err(&volume)
    }

    async fn replay(&self, batch: &Batch<'_>, number: usize, expected: &GtidSet) -> Result<(), RestoreError> {
        let scratch = self.restore.scratch.clone();
        let file = Self::fetched(number);
        self.restore
            .blocking("lay out binlogs that are to be replayed", move || {
                lay_out(&scratch, &file)
            })
            .await?;
        self.server.replay(FILE, batch.before).await?;
        self.wait(batch, expected).await?;
        self.server.forget_relay_log().await
    }

    /// Waits until exactly what is expected is there.
    async fn wait(&self, batch: &Batch<'_>, expected: &GtidSet) -> Result<(), RestoreError> {
        let (mut told, mut idle) = (Instant::now(), 0);
        loop {
            let applier = self.server.applier().await?;
            if let Some(error) = applier.error {
                return Err(RestoreError::Applier {
                    reason: format!("{} (MySQL error {})", error.text, error.code),
                });
            }
            // With a transaction before which it stops, it stops by itself; without one it waits for more.
            let over = !applier.running || (batch.before.is_none() && applier.executed.contains(expected));
            idle = if applier.has_read_all { idle + 1 } else { 0 };
            if over || idle > PATIENCE {
                return if applier.executed == *expected {
                    Ok(())
                } else {
                    Err(RestoreError::Mismatch {
                        what: "what was replayed",
                        expected: expected.clone(),
                        found: applier.executed,
                    })
                };
            }
            self.look_at_the_volume(&applier.executed)?;
            if told.elapsed() >= TELL {
                told = Instant::now();
                self.tell(&applier.executed);
            }
            sleep(POLL).await;
        }
    }

    fn left(&self, executed: &GtidSet) -> u64 {
        self.plan.plan.reaches.subtract(executed).count()
    }

    fn tell(&self, executed: &GtidSet) {
        let all = self.left(&self.plan.base.gtid_executed);
        let done = all.saturating_sub(self.left(executed));
        (self.restore.tell)(Stage::Replaying { done, total: all });
    }

    /// A server whose disk is full waits until there is room, for ever if need be.
    fn look_at_the_volume(&self, executed: &GtidSet) -> Result<(), RestoreError> {
        let space = disk::space(&self.restore.scratch).map_err(RestoreError::volume("look at the volume"))?;
        if space.free < FULL {
            return Err(RestoreError::Full {
                field: self.restore.size_field(),
                left: self.left(executed),
            });
        }
        Ok(())
    }
}

/// Makes a fetched file the only one of the relay log.
fn lay_out(scratch: &Path, file: &str) -> io::Result<()> {
    for entry in std::fs::read_dir(scratch)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("relay.") {
            std::fs::remove_file(entry.path())?;
        }
    }
    let relay = scratch.join(FILE);
    std::fs::rename(scratch.join(file), &relay)?;
    std::fs::write(scratch.join(INDEX), format!("{}\n", relay.display()))
}

/// What an error means that came out of a segment.
fn unusable(segment: &Segment, error: &io::Error) -> RestoreError {
    match StoreError::of(error) {
        Some(error) => RestoreError::Archive(ArchiveError::Store(error.clone())),
        None => RestoreError::Segment {
            key: segment.file.name.clone(),
            reason: chain(error),
        },
    }
}
