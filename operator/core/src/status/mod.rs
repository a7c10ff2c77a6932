//! `MySQLCluster.status`: the rules' memory, and what a DBA reads.

use jiff::Timestamp;
use mainstay_api::MySQLClusterStatus;

use crate::analyse::Analysis;
use crate::observed::Observed;
use crate::plan::Plan;
use crate::rules::{Memory, Rules};
use crate::subject::Subject;

/// Reads the rules' memory: strictly, because a memory that is half read is worse than none.
#[must_use]
pub fn memory(_status: Option<&MySQLClusterStatus>) -> Memory {
    Memory::Unreadable { reason: "not written yet".to_owned() }
}

/// The status that a `Record` writes: `previous` with the rules' memory replaced, and nothing else changed.
#[must_use]
pub fn record(previous: &MySQLClusterStatus, _rules: &Rules) -> MySQLClusterStatus {
    previous.clone()
}

/// The status at the end of a pass. `observed.memory` must be what status holds then: after a `Record` of this pass, the
/// recorded rules. Nothing in it changes while the cluster is idle.
#[must_use]
pub fn status(
    _subject: &Subject<'_>,
    _observed: &Observed,
    _analysis: &Analysis,
    _plan: &Plan,
    previous: &MySQLClusterStatus,
    _now: Timestamp,
) -> MySQLClusterStatus {
    previous.clone()
}
