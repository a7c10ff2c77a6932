//! Who may acknowledge, as the primary should enforce it at present.

use std::collections::BTreeSet;

use crate::plan::{acks, leave};
use crate::rules::MemberId;
use crate::view::{Seen, View};

/// The list and k that should be in force on the primary: those of status, unless a change of rule 1 is under way, which
/// begins at the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Goal {
    pub(crate) members: BTreeSet<MemberId>,
    pub(crate) acks_required: u32,
    pub(crate) change: Change,
}

/// A change that has to be in force before it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// None.
    None,
    /// A member is dropped.
    Leave {
        /// Which.
        who: MemberId,
        /// Why.
        why: String,
    },
    /// k is raised.
    Raise {
        /// To this.
        to: u32,
    },
}

impl Goal {
    /// What should be in force. Derived anew in each pass: an operator that dies in the middle leaves nothing behind.
    pub(crate) fn of(view: &View<'_>, open: Seen<'_>) -> Self {
        let (members, acks_required) = (view.rules.members.clone(), view.rules.acks_required);
        if let Some((who, why)) = leave::candidate(view, open) {
            let members = members.into_iter().filter(|member| member != &who).collect();
            return Self {
                members,
                acks_required,
                change: Change::Leave { who, why },
            };
        }
        match acks::raise_to(view) {
            Some(to) => Self {
                members,
                acks_required: to,
                change: Change::Raise { to },
            },
            None => Self {
                members,
                acks_required,
                change: Change::None,
            },
        }
    }
}
