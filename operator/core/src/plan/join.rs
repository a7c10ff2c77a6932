//! Instances that come back, or are new: rule 7 of docs/failover.md, and "Add" of rule 1.

use std::collections::BTreeSet;

use crate::observed::Mysqld;
use crate::plan::draft::Draft;
use crate::plan::goal::Goal;
use crate::plan::{attach, election, heal, list, text};
use crate::rules::{MemberId, Trouble};
use crate::view::{Seen, View};

/// What became of the instances that are not members.
#[derive(Debug, Default)]
pub(crate) struct Returning<'a> {
    /// They may become members now.
    pub(crate) ready: Vec<Seen<'a>>,
    /// Their data directories have to be replaced first.
    pub(crate) rebuild: Vec<Unfit<'a>>,
    /// Others are about to be ready: a record waits for them, because it begins an epoch.
    pub(crate) on_the_way: bool,
}

/// An instance that cannot join as it is.
#[derive(Debug)]
pub(crate) struct Unfit<'a> {
    pub(crate) seen: Seen<'a>,
    pub(crate) why: String,
    /// What it is healed of, if it would not come back by itself.
    pub(crate) trouble: Option<Trouble>,
}

impl<'a> Returning<'a> {
    fn unfit(&mut self, seen: Seen<'a>, why: String) {
        let trouble = None;
        self.rebuild.push(Unfit { seen, why, trouble });
    }
}

/// Judges each wanted instance that is neither the primary nor a member, once it is fenced under this epoch.
pub(crate) fn judge<'a>(view: &View<'a>, open: Seen<'a>, draft: &mut Draft) -> Returning<'a> {
    let mut returning = Returning::default();
    let strangers = view
        .heard()
        .filter(|seen| !view.is_primary(*seen) && !view.is_member(*seen));
    for seen in strangers.filter(|seen| view.wanted(seen.instance) && !seen.leaving()) {
        if view.kept_out(seen.instance) {
            if seen.running() && !view.fenced(seen) {
                election::fence(view, seen, draft);
            }
            continue;
        }
        if healed(view, open, seen, &mut returning) {
            continue;
        }
        match seen.report.mysqld {
            Mysqld::Running => judge_one(view, open, seen, &mut returning, draft),
            Mysqld::Failed if seen.half_cloned() => returning.unfit(seen, text::mysqld_not_running(seen)),
            Mysqld::Initialising | Mysqld::Starting | Mysqld::Down | Mysqld::Cloning | Mysqld::Failed => {
                draft.wait(seen.instance.name.0.clone(), text::to_run(seen));
            }
        }
    }
    returning
}

/// It does not come back by itself, or must not: its volume was given up, or is about to be; or its data directory is broken, and
/// it was shown that nothing depends on it.
fn healed<'a>(view: &View<'a>, open: Seen<'a>, seen: Seen<'a>, returning: &mut Returning<'a>) -> bool {
    if view.is_given_up(seen.instance) {
        return true;
    }
    let Some((trouble, why)) = heal::due(view, open, seen.instance) else {
        // Nothing can be done with it where it is, whatever is in the way of another volume.
        return matches!(
            heal::trouble(view, seen.instance),
            Some(Trouble::Lost | Trouble::Unreadable)
        );
    };
    if trouble == Trouble::Data && view.role(&seen.instance.name).is_none() {
        let trouble = Some(trouble);
        returning.rebuild.push(Unfit { seen, why, trouble });
    }
    true
}

fn judge_one<'a>(view: &View<'a>, open: Seen<'a>, seen: Seen<'a>, returning: &mut Returning<'a>, draft: &mut Draft) {
    if !view.fenced(seen) {
        // One whose fence fails holds up nobody else.
        returning.on_the_way |= !seen.fence_fails();
        election::fence(view, seen, draft);
        return;
    }
    let set = seen.report.set();
    if let Some(reset) = seen.history_reset() {
        // Its data may be the only other copy of an acknowledged write until rule 1 has shown that it is not.
        if view.rules.members.iter().any(|id| id.instance == seen.instance.name) {
            draft.wait(
                seen.instance.name.0.clone(),
                format!("the others to contain everything ({reset})"),
            );
        } else {
            returning.unfit(seen, reset);
        }
    } else if let Some(errant) = View::errant(seen, open) {
        returning.unfit(seen, text::errant(seen, open, &errant));
    } else if set.is_empty() && !open.report.set().is_empty() {
        returning.unfit(seen, format!("{} has an empty data directory", seen.instance.name));
    } else if seen.lacks_purged(open) {
        returning.unfit(seen, text::lacks_purged(&seen.instance.name, open));
    } else if let Some(why) = attach::given_up(view, seen) {
        returning.unfit(seen, why);
    } else if !seen.report.fully_applied() {
        if let Some(after) = view.breaks_in(seen) {
            draft.look_in(after);
        }
        if election::stands_still(seen) {
            election::fence(view, seen, draft);
        }
        draft.wait(seen.instance.name.0.clone(), "its relay log to be applied");
    } else {
        returning.ready.push(seen);
    }
}

/// Rule 1, "Add", step 3. The caller made sure that the primary is confirmed with the list in force. A member that is
/// leaving stays excluded meanwhile.
pub(crate) fn record(
    view: &View<'_>,
    open: Seen<'_>,
    goal: &Goal,
    returning: &Returning<'_>,
    draft: &mut Draft,
) -> bool {
    if returning.ready.is_empty() || returning.on_the_way {
        return false;
    }
    let with_them = |members: &BTreeSet<MemberId>| {
        members
            .iter()
            .cloned()
            .chain(returning.ready.iter().map(Seen::id))
            .collect::<BTreeSet<_>>()
    };
    let members = with_them(&view.rules.members);
    let names: Vec<_> = returning
        .ready
        .iter()
        .map(|seen| seen.instance.name.to_string())
        .collect();
    let allow = list::allow(&with_them(&goal.members), goal.acks_required);
    let message = format!("{} may acknowledge from now on", names.join(", "));
    draft.record_members(view, members, "MemberAdded", message);
    draft.command(view, open, allow, "");
    true
}
