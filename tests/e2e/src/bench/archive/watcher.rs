//! Sees what is stored of an archive, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::ClusterIdentity;
use mainstay_core::backup::keys::{epoch_of, segments_of};
use mainstay_core::backup::manifest::{Method, ReignManifest, SegmentIndex};
use mainstay_core::backup::restore::{self, Archive, Base, Recovery, Refusal, Target};
use mainstay_store::{Entry, Listing, Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Between two looks at the store: a lag is told too long by at most this and one request.
const LOOK: Duration = Duration::from_millis(25);
/// Between two looks whether another primary began.
const REIGNS: Duration = Duration::from_millis(500);
/// An index is no larger.
const LIMIT: u64 = 64 << 20;

/// A transaction that was seen in the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// When it was committed, by the primary's clock, in microseconds.
    pub(super) committed: i64,
    /// How long after that an index with it was first seen, in milliseconds; the machines' clocks are one on the testbed.
    pub(super) lag: f64,
}

/// Everything that was seen.
#[derive(Default)]
pub(super) struct Watched {
    pub(super) transactions: Vec<Seen>,
    reigns: BTreeMap<u64, Reign>,
}

struct Reign {
    manifest: ReignManifest,
    /// The last segment that was seen in an index.
    through: u64,
    segments: BTreeMap<u64, restore::Segment>,
}

impl Watched {
    /// Number of segments.
    pub(super) fn segments(&self) -> usize {
        self.reigns.values().map(|reign| reign.segments.len()).sum()
    }

    /// Number of primaries that archived.
    pub(super) fn reigns(&self) -> usize {
        self.reigns.len()
    }

    /// A recovery of everything on an empty server: the archive began with the cluster.
    pub(super) fn recovery(&self) -> Result<Recovery, Refusal> {
        let ends = self
            .reigns
            .values()
            .skip(1)
            .map(|next| Some(next.manifest.baseline.clone()));
        let reigns = self.reigns.iter().zip(ends.chain([None]));
        let archive = Archive {
            reigns: reigns
                .map(|((epoch, reign), until)| restore::Reign {
                    epoch: *epoch,
                    until,
                    segments: reign.segments.values().cloned().collect(),
                })
                .collect(),
            through: None,
        };
        let base = Base {
            id: "nothing".to_owned(),
            executed: GtidSet::new(),
            completed_at: Timestamp::UNIX_EPOCH,
            complete: true,
            method: Method::Physical,
        };
        restore::plan(&[base], &archive, &Target::Latest)
    }
}

/// Watches until it is told to end, and looks once more then.
pub(super) struct Watcher {
    end: watch::Sender<bool>,
    task: JoinHandle<Result<Watched>>,
}

impl Watcher {
    pub(super) fn start(store: Arc<dyn Store>, cluster: ClusterIdentity) -> Self {
        let (end, ended) = watch::channel(false);
        let task = tokio::spawn(watch_archive(store, cluster, ended));
        Self { end, task }
    }

    pub(super) async fn finish(self) -> Result<Watched> {
        self.end.send_replace(true);
        self.task.await.context("the watcher of the archive panicked")?
    }
}

async fn watch_archive(
    store: Arc<dyn Store>,
    cluster: ClusterIdentity,
    ended: watch::Receiver<bool>,
) -> Result<Watched> {
    let mut watched = Watched::default();
    let mut looked: Option<Instant> = None;
    loop {
        let last = *ended.borrow();
        if last || looked.is_none_or(|looked| looked.elapsed() > REIGNS) {
            looked = Some(Instant::now());
            find_reigns(store.as_ref(), &cluster, &mut watched).await?;
        }
        let Watched { transactions, reigns } = &mut watched;
        for (epoch, reign) in reigns {
            look(store.as_ref(), &cluster, *epoch, reign, transactions).await?;
        }
        if last {
            return Ok(watched);
        }
        sleep(LOOK).await;
    }
}

async fn find_reigns(store: &dyn Store, cluster: &ClusterIdentity, watched: &mut Watched) -> Result<()> {
    for entry in store.list_all(Listing::shallow(cluster.binlogs())).await? {
        let Entry::Folder(folder) = entry else { continue };
        let Some(epoch) = epoch_of(&folder).filter(|epoch| !watched.reigns.contains_key(epoch)) else {
            continue;
        };
        let manifest = store.get(&cluster.reign_manifest(epoch), LIMIT).await?;
        let reign = Reign {
            manifest: ReignManifest::from_json(&manifest)?,
            through: 0,
            segments: BTreeMap::new(),
        };
        watched.reigns.insert(epoch, reign);
    }
    Ok(())
}

async fn look(
    store: &dyn Store,
    cluster: &ClusterIdentity,
    epoch: u64,
    reign: &mut Reign,
    transactions: &mut Vec<Seen>,
) -> Result<()> {
    // All of them, which are few: one of many segments replaces those of fewer, and its name comes before theirs.
    let listing = Listing::shallow(cluster.segment_indexes(epoch));
    for entry in store.list_all(listing).await? {
        let Entry::Object(object) = entry else { continue };
        let Some((_, last)) = segments_of(&object.key).filter(|(_, last)| *last > reign.through) else {
            continue;
        };
        let now = Timestamp::now().as_microsecond();
        match store.get(&object.key, LIMIT).await {
            Ok(json) => {
                read(&SegmentIndex::from_json(&json)?, now, reign, transactions);
                reign.through = last;
            }
            // It was merged with others meanwhile: the one that says the same is in the next listing.
            Err(StoreError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn read(index: &SegmentIndex, now: i64, reign: &mut Reign, transactions: &mut Vec<Seen>) {
    for segment in &index.segments {
        if reign.segments.contains_key(&segment.sequence) {
            continue;
        }
        let mut all = Vec::new();
        for transaction in &segment.transactions {
            #[expect(clippy::cast_precision_loss, reason = "microseconds of a bench")]
            let lag = (now - transaction.at) as f64 / 1000.0;
            transactions.push(Seen {
                committed: transaction.at,
                lag,
            });
            all.push(restore::Transaction {
                gtid: transaction.gtid.clone(),
                committed_at: Timestamp::from_microsecond(transaction.at).unwrap_or(Timestamp::MAX),
            });
        }
        let segment_of_plan = restore::Segment {
            key: format!("{}/{}", index.epoch, segment.sequence),
            before: segment.previous.clone(),
            transactions: all,
        };
        reign.segments.insert(segment.sequence, segment_of_plan);
    }
}
