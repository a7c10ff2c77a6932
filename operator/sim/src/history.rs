//! What clients wrote and were told: the judge of every scenario.

use std::collections::{BTreeMap, BTreeSet};

/// Writes of one cluster.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    /// Rows whose commit was acknowledged to a client.
    pub acknowledged: BTreeSet<u64>,
    /// Rows whose client never learned what became of them.
    pub unknown: BTreeSet<u64>,
    /// Longest time between two acknowledgements.
    pub longest_gap: std::time::Duration,
}

/// What clients wrote and were told, by namespace and cluster.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Writes by namespace and cluster.
    pub clusters: BTreeMap<(String, String), Writes>,
    /// What must never happen and did.
    pub violations: Vec<String>,
}

impl History {
    /// The writes of a cluster.
    pub fn of(&mut self, namespace: &str, cluster: &str) -> &mut Writes {
        self.clusters
            .entry((namespace.to_owned(), cluster.to_owned()))
            .or_default()
    }
}
