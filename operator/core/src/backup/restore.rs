//! How a recovery is put together: the base, the segments that follow it, and where the applier stops.
//!
//! Everything is judged by GTID sets. The archive is divided in reigns, one for each primary; a reign counts only up to the
//! baseline of the next one (decision A8), because what the old primary had written beyond it was never acknowledged. A target
//! is reached exactly or refused, and a refusal says how far a recovery could go (case F06).

mod history;

use std::fmt;

use jiff::Timestamp;

use super::manifest::Method;
use crate::GtidSet;
use crate::gtid::Gtid;
pub use history::Faulty;
use history::History;

/// A backup, as its manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Its name.
    pub id: String,
    /// Transactions that it holds.
    pub executed: GtidSet,
    /// When it was completed: every transaction in it was committed before.
    pub completed_at: Timestamp,
    /// All of its objects are there.
    pub complete: bool,
    /// How it was made.
    pub method: Method,
}

/// A transaction of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its GTID.
    pub gtid: Gtid,
    /// When the primary that a client wrote to committed it (`original_commit_timestamp`).
    pub committed_at: Timestamp,
}

/// A segment of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its key.
    pub key: String,
    /// What the binlog held before its first transaction: with it continuity is proved.
    pub before: GtidSet,
    /// Its transactions, in the order of the binlog.
    pub transactions: Vec<Transaction>,
}

/// What one primary archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reign {
    /// Epoch in which the primary was recorded.
    pub epoch: u64,
    /// Baseline of the next reign; `None` for the newest one.
    pub until: Option<GtidSet>,
    /// Its segments, in the order in which they were written.
    pub segments: Vec<Segment>,
}

/// The archive of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archive {
    /// The reigns, by epoch.
    pub reigns: Vec<Reign>,
    /// Everything that was committed until then is stored; `None` when there is no archive.
    pub through: Option<Timestamp>,
}

/// Up to where data is recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything that is stored.
    Latest,
    /// Everything before the first transaction, in the order of the archive, that was committed later.
    Time(Timestamp),
    /// Everything up to and including this transaction.
    Gtid(Gtid),
}

/// A recovery, as it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The backup with which it begins.
    pub base: String,
    /// What is replayed on it, in order; empty when the base is the target.
    pub steps: Vec<Step>,
    /// What will be there at the end, exactly.
    pub reaches: GtidSet,
    /// When the last of that was committed, if the archive says so.
    pub reaches_time: Option<Timestamp>,
}

/// Segments of one reign that are replayed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The reign.
    pub epoch: u64,
    /// Keys of the segments, in order.
    pub segments: Vec<String>,
    /// `START REPLICA UNTIL SQL_BEFORE_GTIDS` of this one (decision A19): the first that is not wanted, because it lies beyond
    /// the target, or was never acknowledged. `None`: to the end.
    pub before: Option<Gtid>,
}

/// How far a recovery could go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The transactions.
    pub executed: GtidSet,
    /// Every transaction committed until then is among them.
    pub through: Option<Timestamp>,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.through {
            Some(through) => write!(f, "{through} ({})", self.executed),
            None => write!(f, "{}", self.executed),
        }
    }
}

/// Why a target cannot be reached exactly. Nothing is made then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no complete backup.
    #[error("there is no complete backup to begin with")]
    NoBase,
    /// Every backup holds something from after the target, or from after a point at which it can be compared.
    #[error("the target lies before the first backup; the earliest point that can be reached is {earliest}")]
    TooEarly {
        /// The earliest backup.
        earliest: Reach,
    },
    /// The target lies behind what is stored.
    #[error("the target lies beyond what is stored; the latest point that can be reached is {reach}")]
    Beyond {
        /// How far it could go.
        reach: Reach,
    },
    /// Transactions between the base and the target are not stored.
    #[error("the archive has a hole before the target: {missing} is missing; the latest point before it is {reach}")]
    Hole {
        /// What is missing.
        missing: GtidSet,
        /// How far it could go.
        reach: Reach,
    },
    /// The transaction was written by a primary that was replaced before it was acknowledged.
    #[error(
        "{gtid} was never acknowledged: its primary was replaced before; the latest point of the archive is {reach}"
    )]
    Discarded {
        /// The transaction.
        gtid: Gtid,
        /// How far it could go.
        reach: Reach,
    },
    /// The index of the archive contradicts itself.
    #[error(transparent)]
    Faulty(Faulty),
}

/// Puts a recovery together.
///
/// # Errors
/// The target cannot be reached exactly: [`Refusal`] says how far a recovery could go.
pub fn plan(bases: &[Base], archive: &Archive, target: &Target) -> Result<Recovery, Refusal> {
    let history = History::new(archive).map_err(Refusal::Faulty)?;
    let mut bases: Vec<&Base> = bases
        .iter()
        // A backup of a replica that had received what was never acknowledged holds a transaction that never happened.
        .filter(|base| base.complete && base.executed.intersect(history.discarded()).is_empty())
        .collect();
    bases.sort_by(|a, b| (b.completed_at, &b.id).cmp(&(a.completed_at, &a.id)));
    let (Some(newest), Some(oldest)) = (bases.first(), bases.last()) else {
        return Err(Refusal::NoBase);
    };
    let end = end(&history, newest, archive.through, target)?;
    // What is at the end and behind it must not be in the base.
    let beyond = history.set_from(end);
    let known = history.known_before(end);
    let eligible = |base: &&&Base| {
        let nothing_later = base.executed.intersect(&beyond).is_empty();
        // What the archive does not tell of (it begins later, or ends earlier) was committed before the backup was completed.
        let told = || known.contains(&base.executed);
        nothing_later
            && match target {
                Target::Latest => true,
                Target::Time(time) => base.completed_at <= *time || told(),
                Target::Gtid(_) => told(),
            }
    };
    let Some(base) = bases.iter().find(eligible) else {
        let earliest = reach_of(oldest);
        return Err(Refusal::TooEarly { earliest });
    };
    // Files are there faster than statements are carried out.
    let as_well = |other: &&&Base| {
        let same = other.method == Method::Physical && other.executed == base.executed;
        same && eligible(other)
    };
    let base = bases.iter().find(as_well).unwrap_or(base);
    assemble(&history, base, end, target)
}

/// Place in the history of the first transaction that is not wanted.
fn end(history: &History<'_>, newest: &Base, through: Option<Timestamp>, target: &Target) -> Result<usize, Refusal> {
    let beyond = || Refusal::Beyond {
        reach: furthest(history, newest, through),
    };
    match target {
        Target::Latest => Ok(history.len()),
        Target::Time(time) => match history.first_after(*time) {
            Some(place) => Ok(place),
            None if through.is_some_and(|through| *time <= through) => Ok(history.len()),
            // Without an archive one moment is known exactly, and that of a backup is not: it lies before its completion.
            None => Err(beyond()),
        },
        Target::Gtid(gtid) if history.discarded().contains_gtid(gtid) => Err(Refusal::Discarded {
            gtid: gtid.clone(),
            reach: furthest(history, newest, through),
        }),
        Target::Gtid(gtid) => match history.place_of(gtid) {
            Some(place) => Ok(place + 1),
            // It lies before the archive: which transactions came before it is not known.
            None if history.start().contains_gtid(gtid) || newest.executed.contains_gtid(gtid) => {
                Err(Refusal::TooEarly {
                    earliest: reach_of(newest),
                })
            }
            None => Err(beyond()),
        },
    }
}

/// Replays the history on a base, and proves that nothing is missing in between.
fn assemble(history: &History<'_>, base: &Base, end: usize, target: &Target) -> Result<Recovery, Refusal> {
    // Of a time it must be known that nothing before it is missing; a transaction is its own end.
    let replay = history.replay(&base.executed, end, matches!(target, Target::Time(_)));
    if let Some(missing) = replay.missing {
        return Err(Refusal::Hole {
            missing,
            reach: Reach {
                executed: replay.executed,
                through: replay.last.or(Some(base.completed_at)),
            },
        });
    }
    if let Target::Gtid(gtid) = target
        && !replay.executed.contains_gtid(gtid)
    {
        return Err(Refusal::Beyond {
            reach: Reach {
                executed: replay.executed,
                through: replay.last,
            },
        });
    }
    Ok(Recovery {
        base: base.id.clone(),
        steps: replay.steps,
        reaches: replay.executed,
        reaches_time: replay.last,
    })
}

/// How far a recovery to the latest point would go.
fn furthest(history: &History<'_>, base: &Base, through: Option<Timestamp>) -> Reach {
    let replay = history.replay(&base.executed, history.len(), false);
    let whole = replay.missing.is_none();
    Reach {
        executed: replay.executed,
        through: through.filter(|_| whole).or(replay.last).or(Some(base.completed_at)),
    }
}

fn reach_of(base: &Base) -> Reach {
    Reach {
        executed: base.executed.clone(),
        through: Some(base.completed_at),
    }
}
