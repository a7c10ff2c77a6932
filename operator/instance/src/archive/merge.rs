//! Many small indexes become one, beside the archiving and never in its way.

use std::ops::Range;

use mainstay_core::backup::archive::{Index, merger, pause, superseded};
use mainstay_core::backup::manifest::SegmentIndex;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Fault;
use super::catalog::Catalog;

/// How much longer than the archiving it waits after a failure: it is in no hurry.
const PATIENCE: u32 = 6;

/// Merges until the archiving ends. `indexes` are those that are there, `new` gives those that are stored from now on.
pub(super) async fn merge(
    catalog: Catalog,
    epoch: u64,
    mut indexes: Vec<Index>,
    mut new: mpsc::UnboundedReceiver<Index>,
) {
    let mut failures = 0;
    loop {
        match tidy(&catalog, epoch, &mut indexes).await {
            Ok(()) => failures = 0,
            Err(error) => {
                failures += 1;
                tracing::warn!(%error, epoch, "indexes of the archive are not merged yet");
                sleep(pause(failures).saturating_mul(PATIENCE)).await;
                // Retention may have deleted some of them.
                if let Ok(listed) = catalog.indexes(epoch).await {
                    indexes = listed;
                }
            }
        }
        match new.recv().await {
            Some(index) => add(&mut indexes, index),
            None => return,
        }
        while let Ok(index) = new.try_recv() {
            add(&mut indexes, index);
        }
    }
}

/// A listing may have brought it already.
fn add(indexes: &mut Vec<Index>, index: Index) {
    if !indexes.contains(&index) {
        indexes.push(index);
    }
}

async fn tidy(catalog: &Catalog, epoch: u64, indexes: &mut Vec<Index>) -> Result<(), Fault> {
    let old = superseded(indexes);
    if !old.is_empty() {
        delete(catalog, epoch, &old).await?;
        indexes.retain(|index| !old.contains(index));
    }
    while let Some(range) = merger(indexes) {
        let merged = one(catalog, epoch, indexes, range.clone()).await?;
        let old: Vec<Index> = indexes.splice(range, [merged]).collect();
        // They say the same: that they stay does no harm.
        delete(catalog, epoch, &old).await?;
    }
    Ok(())
}

async fn one(catalog: &Catalog, epoch: u64, indexes: &[Index], range: Range<usize>) -> Result<Index, Fault> {
    let mut merged: Option<SegmentIndex> = None;
    let (mut first, mut last) = (u64::MAX, 0);
    for index in indexes.get(range).unwrap_or_default() {
        (first, last) = (first.min(index.first), last.max(index.last));
        let read = catalog.index(epoch, *index).await?;
        match &mut merged {
            Some(merged) => merged.segments.extend(read.segments),
            None => merged = Some(read),
        }
    }
    let Some(merged) = merged else {
        return Err(Fault::Ended("there is nothing to merge".to_owned()));
    };
    let json = merged.to_json().map_err(Fault::Manifest)?;
    let bytes = json.len() as u64;
    let key = catalog.cluster.segment_index(epoch, first, last);
    if catalog.make(&key, json.into()).await? {
        tracing::debug!(epoch, first, last, bytes, "merged indexes of the archive");
        Ok(Index { first, last, bytes })
    } else {
        Err(Fault::Foreign { key: key.to_string() })
    }
}

async fn delete(catalog: &Catalog, epoch: u64, indexes: &[Index]) -> Result<(), Fault> {
    let key = |index: &Index| catalog.cluster.segment_index(epoch, index.first, index.last);
    let keys: Vec<_> = indexes.iter().map(key).collect();
    catalog.store.delete_all(&keys).await.map_err(Fault::Store)
}
