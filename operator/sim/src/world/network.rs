//! Who can reach whom.

use std::collections::BTreeSet;

/// Name of the API server in cuts.
pub const API: &str = "api";

/// Connections that are cut: packets are dropped, nothing is refused.
#[derive(Clone, Debug, Default)]
pub struct Network {
    cuts: BTreeSet<(String, String)>,
}

fn pair(a: &str, b: &str) -> (String, String) {
    if a <= b {
        (a.to_owned(), b.to_owned())
    } else {
        (b.to_owned(), a.to_owned())
    }
}

impl Network {
    /// Cuts two parties (nodes, operators, [`API`], clients) from each other.
    pub fn cut(&mut self, a: &str, b: &str) {
        self.cuts.insert(pair(a, b));
    }

    /// Heals one cut.
    pub fn heal(&mut self, a: &str, b: &str) {
        self.cuts.remove(&pair(a, b));
    }

    /// Heals everything.
    pub fn heal_all(&mut self) {
        self.cuts.clear();
    }

    /// Whether packets pass between two parties. A party always reaches itself.
    #[must_use]
    pub fn connected(&self, a: &str, b: &str) -> bool {
        a == b || !self.cuts.contains(&pair(a, b))
    }
}
