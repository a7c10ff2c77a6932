//! What to do next, as a value (docs/failover.md).
//!
//! [`plan`] is the table of contents; each concept has a file of its own. Nothing is remembered between two passes but
//! what status holds: a change that takes several passes is found again in each of them from what is seen.

mod acks;
mod attach;
mod bootstrap;
mod detect;
mod draft;
mod election;
mod forced;
mod goal;
mod grow;
mod heal;
mod join;
mod labels;
mod leave;
mod list;
mod objects;
mod open;
mod promotion;
mod purge;
mod rebuild;
mod recovery;
mod request;
mod requested;
mod resume;
mod roll;
mod routing;
mod secrets;
mod steady;
mod switchover;
mod text;
mod winner;

use std::time::Duration;

use jiff::Timestamp;

use crate::action::Action;
use crate::analyse::{Analysis, Blocks};
use crate::observed::Observed;
use crate::progress::Stage;
use crate::rules::{Memory, Phase, Request};
use crate::subject::Subject;
use crate::view::View;
use draft::Draft;

/// What one pass does, and why it does no more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What to do, in order (see [`crate::action`] for what the order means).
    pub actions: Vec<Action>,
    /// What is waited for; empty when the cluster is as it should be.
    pub waiting: Vec<Wait>,
    /// When to look again although nothing changed; `None` when only a change can matter.
    pub look_again: Option<Duration>,
    /// The answer to a request that changes nothing: refused, or so before. (One that changes something is answered by the
    /// `Record`.)
    pub answer: Option<Request>,
    /// Where a change of primary is, if one is going on.
    pub stage: Option<Stage>,
}

/// Something that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who waits: `election`, `bootstrap`, an instance, `rolling restart`, …
    pub who: String,
    /// For what, as the end of the sentence "… waits for ".
    pub for_what: String,
    /// More than an answer that is on its way: worth telling a person.
    pub lasting: bool,
}

/// Decides what to do next.
#[must_use]
pub fn plan(subject: &Subject<'_>, observed: &Observed, analysis: &Analysis, now: Timestamp) -> Plan {
    let mut draft = Draft::default();
    if let Some(problem) = analysis.blocking(Blocks::Everything) {
        draft.wait("everything", problem.message.clone());
        request::refuse(observed, &problem.message, now, &mut draft);
        return draft.finish(None);
    }
    match &observed.memory {
        Memory::Unreadable { reason } => {
            draft.wait("everything", reason.clone());
            request::refuse(observed, reason, now, &mut draft);
            draft.finish(None)
        }
        Memory::Absent => {
            bootstrap::plan(subject, observed, now, &mut draft);
            request::refuse(observed, NO_PRIMARY, now, &mut draft);
            build(subject, observed, analysis, now, &mut draft);
            draft.finish(None)
        }
        Memory::Known(rules) => {
            let view = View::new(subject, observed, rules, now);
            keep_safe(&view, &mut draft);
            routing::plan(&view, &mut draft);
            build(subject, observed, analysis, now, &mut draft);
            roll::plan(&view, &mut draft);
            labels::plan(&view, &mut draft);
            draft.finish(Some(&view))
        }
    }
}

const NO_PRIMARY: &str = "no primary was recorded yet: nothing can be done on request";
const BEHIND: &str =
    "status is older than what the instances were told: nothing is done on request before it is resumed";

/// The rules of failover.
fn keep_safe(view: &View<'_>, draft: &mut Draft) {
    if resume::is_behind(view.observed, view.rules) {
        resume::plan(view.subject, view.observed, Some(view.rules), view.now, draft);
        request::refuse(view.observed, BEHIND, view.now, draft);
        return;
    }
    match &view.rules.phase {
        Phase::Open => open::plan(view, draft),
        Phase::Electing { preferred } => election::plan(view, preferred.as_ref(), draft),
    }
}

/// Secrets and objects. Not in a pass that commands: building costs milliseconds that an election does not have, and the
/// answers bring another pass at once.
fn build(subject: &Subject<'_>, observed: &Observed, analysis: &Analysis, now: Timestamp, draft: &mut Draft) {
    if draft.commands_or_records() {
        return;
    }
    let blocked = analysis.blocking(Blocks::Building);
    secrets::plan(subject, observed, blocked.is_none(), now, draft);
    recovery::secret(subject, observed, now, draft);
    match (blocked, subject.spec) {
        (None, Ok(spec)) => {
            objects::plan(subject, observed, spec, now, draft);
            grow::plan(observed, spec, draft);
        }
        // The conditions say so already.
        (Some(problem), _) => draft.wait_briefly("building", problem.message.clone()),
        (None, Err(_)) => draft.wait_briefly("building", "a spec that can be accepted"),
    }
    roll::replace_stuck(subject, observed, draft);
}

/// Secrets that lack a password with which an existing data directory was made, and what each lacks.
pub(crate) use secrets::incomplete as incomplete_secrets;

pub(crate) use bootstrap::{Hindrance, hindrance as hinders_bootstrap};
pub(crate) use election::moment;
pub use grow::GROWTH_REFUSED;
pub(crate) use grow::refusal as growth_refused;
pub(crate) use heal::{Hindrance as HealingHindrance, hindrance as hinders_healing, trouble, why as why_troubled};
pub(crate) use recovery::{ORDINAL as RECOVERING, failing as failing_recovery, is_due as is_recovery_due};
pub(crate) use request::progressed;
pub(crate) use resume::hindrance as hinders_resumption;
pub(crate) use roll::is_rolling;
pub(crate) use routing::serves;
pub(crate) use text::{acknowledgements, broken as cannot_apply, cannot_acknowledge, state_of};
