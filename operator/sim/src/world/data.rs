//! What lies on a data volume: MySQL's data directory and the manager's state file. It survives every crash.

use std::collections::{BTreeSet, VecDeque};
use std::str::FromStr as _;

use mainstay_core::GtidSet;
use mainstay_core::gtid::{Gtid, Tag};
use mainstay_core::observed::{Persisted, Recovered};
use mainstay_core::rules::Trouble;
use tokio::time::Instant;

/// A transaction as the binlog holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its identifier.
    pub gtid: Gtid,
    /// The row that it writes; none for administrative ones. Two transactions may carry one GTID (C11), rows are unique.
    pub row: Option<u64>,
}

/// MySQL's data directory.
#[derive(Clone, Debug)]
pub struct DataDir {
    /// server_uuid of `auto.cnf`.
    pub server_uuid: String,
    next: u64,
    /// What storage engines have committed.
    pub executed: GtidSet,
    /// Executed before the first binlog that is still there.
    pub purged: GtidSet,
    /// Rows that a client can read.
    pub rows: BTreeSet<u64>,
    /// Every transaction that was written to the binlog, in order.
    pub binlog: Vec<Transaction>,
    /// How many of them are committed; the others wait for acknowledgements.
    pub committed: usize,
    /// Received and not applied.
    pub relay: VecDeque<Transaction>,
    /// Replicas that may log in; absent when no account is locked.
    pub allowed: Option<BTreeSet<String>>,
    /// Source that the server is configured to follow, whether or not its receiver runs. Another one drops the relay log.
    pub followed: Option<String>,
    /// The first opening made the DBA's and the application's accounts.
    pub accounts: bool,
    /// The next transaction of the relay log cannot be applied: it differs from its source in something that no log tells.
    pub poisoned: bool,
}

impl DataDir {
    /// A freshly initialised directory.
    #[must_use]
    pub fn new(server_uuid: String) -> Self {
        Self {
            server_uuid,
            next: 1,
            executed: GtidSet::new(),
            purged: GtidSet::new(),
            rows: BTreeSet::new(),
            binlog: Vec::new(),
            committed: 0,
            relay: VecDeque::new(),
            allowed: None,
            followed: None,
            accounts: false,
            poisoned: false,
        }
    }

    /// What a clone of this directory holds: committed data, no binlogs, another identity.
    #[must_use]
    pub fn cloned(&self, server_uuid: String) -> Self {
        Self {
            executed: self.executed.clone(),
            purged: self.executed.clone(),
            rows: self.rows.clone(),
            accounts: self.accounts,
            allowed: None,
            ..Self::new(server_uuid)
        }
    }

    /// What a reset of binlogs and GTIDs leaves: all rows, and another identity.
    #[must_use]
    pub fn without_history(self, server_uuid: String) -> Self {
        Self {
            rows: self.rows,
            accounts: self.accounts,
            ..Self::new(server_uuid)
        }
    }

    /// What a recovery makes of what another cluster stored: `rows`, one a transaction, and no binlogs.
    #[must_use]
    pub fn recovered(server_uuid: String, source: &str, rows: &BTreeSet<u64>) -> Self {
        let reached = GtidSet::from_str(&format!("{source}:1-{}", rows.len().max(1))).unwrap_or_default();
        Self {
            executed: reached.clone(),
            purged: reached,
            rows: rows.clone(),
            accounts: true,
            ..Self::new(server_uuid)
        }
    }

    /// Writes a new transaction to the binlog; it is not committed yet.
    pub fn append(&mut self, row: Option<u64>) -> Option<usize> {
        let gtid = Gtid {
            server: self.server_uuid.parse().ok()?,
            tag: Tag::default(),
            number: self.next,
        };
        self.next += 1;
        self.binlog.push(Transaction { gtid, row });
        Some(self.binlog.len() - 1)
    }

    /// Commits everything in the binlog up to and including `index`.
    pub fn commit(&mut self, index: usize) {
        while self.committed <= index {
            let Some(transaction) = self.binlog.get(self.committed) else {
                return;
            };
            self.executed = self.executed.union(&single(&transaction.gtid));
            self.rows.extend(transaction.row);
            self.committed += 1;
        }
    }

    /// Crash recovery: what is in the binlog is committed, acknowledged or not.
    pub fn recover(&mut self) {
        if let Some(last) = self.binlog.len().checked_sub(1) {
            self.commit(last);
        }
    }

    /// Applies the oldest received transaction.
    pub fn apply_one(&mut self) {
        if let Some(transaction) = self.relay.pop_front()
            && !self.executed.contains_gtid(&transaction.gtid)
        {
            self.binlog.push(transaction);
            self.recover();
        }
    }

    /// Complete transactions of the relay log.
    #[must_use]
    pub fn received(&self) -> GtidSet {
        self.relay.iter().map(|t| t.gtid.clone()).collect()
    }

    /// Executed or received: what an auto-position handshake asks not to be sent.
    #[must_use]
    pub fn known(&self) -> GtidSet {
        self.executed.union(&self.received())
    }

    /// Everything that exists here, in the binlog and not yet acknowledged included.
    #[must_use]
    pub fn everything(&self) -> BTreeSet<u64> {
        let pending = self.binlog.iter().chain(&self.relay).filter_map(|t| t.row);
        self.rows.iter().copied().chain(pending).collect()
    }
}

/// The set of one transaction.
#[must_use]
pub fn single(gtid: &Gtid) -> GtidSet {
    std::iter::once(gtid.clone()).collect()
}

/// A data volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Identity of the data directory.
    pub incarnation: String,
    /// What the manager persisted: the newest accepted command, and what the newest opening told.
    pub state: Persisted,
    /// Binlogs and GTIDs were reset in this life, as far as the manager saw.
    pub history_reset: bool,
    /// MySQL's data directory; absent until it was made.
    pub data: Option<DataDir>,
    /// What the data directory was recovered to, if it came about like that.
    pub recovered: Option<Recovered>,
    /// Node that the volume is on.
    pub node: String,
    /// Until when its disk answers nothing.
    pub stalled_until: Option<Instant>,
    /// What is wrong with it for good, and since when.
    pub trouble: Option<(Trouble, Instant)>,
}

impl Volume {
    /// A volume on which nothing was made yet.
    #[must_use]
    pub fn new(node: &str) -> Self {
        Self {
            incarnation: String::new(),
            state: Persisted::default(),
            history_reset: false,
            data: None,
            recovered: None,
            node: node.to_owned(),
            stalled_until: None,
            trouble: None,
        }
    }

    /// What is wrong with it for good.
    #[must_use]
    pub fn suffers(&self, trouble: Trouble) -> bool {
        self.trouble.is_some_and(|(of, _)| of == trouble)
    }

    /// Whether reads and writes hang.
    #[must_use]
    pub fn stalls(&self, now: Instant) -> bool {
        self.stalled_until.is_some_and(|until| until > now)
    }

    /// Whether nothing more can be written to it: a statement that needs room hangs.
    #[must_use]
    pub fn takes_nothing(&self, now: Instant) -> bool {
        self.stalls(now) || self.suffers(Trouble::Full) || self.suffers(Trouble::Unreadable)
    }
}
