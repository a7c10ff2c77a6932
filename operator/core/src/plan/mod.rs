//! What to do next, as a value (docs/failover.md).

use std::time::Duration;

use jiff::Timestamp;

use crate::action::Action;
use crate::analyse::Analysis;
use crate::observed::Observed;
use crate::subject::Subject;

/// What one pass does, and why it does no more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What to do, in order (see [`crate::action`] for what the order means).
    pub actions: Vec<Action>,
    /// What is waited for; empty when the cluster is as it should be.
    pub waiting: Vec<Wait>,
    /// When to look again although nothing changed; `None` when only a change can matter.
    pub look_again: Option<Duration>,
}

/// Something that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who waits: `election`, `bootstrap`, an instance, `rolling restart`, …
    pub who: String,
    /// For what, as the end of the sentence "… waits: ".
    pub for_what: String,
}

/// Decides what to do next.
#[must_use]
pub fn plan(_subject: &Subject<'_>, _observed: &Observed, _analysis: &Analysis, _now: Timestamp) -> Plan {
    Plan::default()
}
