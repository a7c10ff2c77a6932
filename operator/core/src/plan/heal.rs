//! Data directories and volumes that do not come back by themselves: docs/healing.md, and rule 7 of docs/failover.md.
//!
//! What is in trouble leaves the members by rule 1 first, as everybody does. A data directory is then cloned over (rebuild.rs);
//! a volume is given up: the intent names the uid of its claim, from then on nothing that lies on it joins again, and claim and
//! pod are deleted for the StatefulSet to make both anew. What comes back is an empty instance, which rule 7 clones.

use std::time::Duration;

use jiff::Timestamp;

use crate::action::Action;
use crate::observed::{ClaimView, InstanceObserved, InstanceReport, Mysqld, PodView, Reach};
use crate::plan::detect::failover_possible;
use crate::plan::draft::Draft;
use crate::plan::election::moment;
use crate::plan::{grow, purge, switchover, text};
use crate::rules::{Donor, Healing, Incarnation, InstanceName, Rebuild, Rules, Trouble};
use crate::view::{Seen, View};

/// What a new volume has to hold beyond what a donor uses: a clone writes its own logs besides what it copies.
const SPARE: u64 = 256 << 20;
/// Free room, in percent of its volume, with which an instance takes over from a primary whose volume is full.
const ROOM: u64 = 10;

/// What is in the way of healing an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// It is the recorded primary, is not wanted, or a person keeps it out.
    Excluded,
    /// Room is being made, which keeps what is there.
    Room(&'static str),
    /// A person replaces volumes (spec.healing.volumes).
    Kept,
    /// A new volume of this size would not hold what the donor has.
    TooSmall,
    /// It was healed of the same a short time ago.
    Paused {
        /// How often in a row.
        times: u32,
        /// When it is its turn again.
        until: Timestamp,
        /// The time until then.
        left: Duration,
    },
    /// The volume of another one is being replaced, and the new one is not there yet.
    Another(InstanceName),
}

/// What is wrong with the data of an instance, whatever it is to the cluster.
pub(crate) fn trouble(view: &View<'_>, instance: &InstanceObserved) -> Option<Trouble> {
    if instance.claim.as_ref().is_some_and(ClaimView::is_lost) {
        return Some(Trouble::Lost);
    }
    let report = instance.report()?;
    let being_made = matches!(report.mysqld, Mysqld::Initialising | Mysqld::Cloning);
    if report.unreadable {
        Some(Trouble::Unreadable)
    } else if view.is_full(report) && !being_made {
        Some(Trouble::Full)
    } else if is_broken(view, report) {
        Some(Trouble::Data)
    } else {
        None
    }
}

/// So many starts failed because of what is in the data directory. It may be starting again at this moment.
fn is_broken(view: &View<'_>, report: &InstanceReport) -> bool {
    let down = matches!(report.mysqld, Mysqld::Starting | Mysqld::Down | Mysqld::Failed);
    down && report.refusals >= view.failed_starts()
}

/// What is said of it.
pub(crate) fn why(instance: &InstanceObserved, trouble: Trouble) -> String {
    let name = &instance.name;
    match trouble {
        Trouble::Data => text::with_error(
            format!("mysqld of {name} does not start on its data directory"),
            instance.report().map_or("", |report| &report.message),
        ),
        Trouble::Lost => format!("the volume of {name} does not exist any more"),
        Trouble::Unreadable => format!("the volume of {name} answers with I/O errors"),
        Trouble::Full => format!("the volume of {name} is full"),
    }
}

/// What is in the way of healing it, if anything is.
pub(crate) fn hindrance(
    view: &View<'_>,
    open: Seen<'_>,
    instance: &InstanceObserved,
    trouble: Trouble,
) -> Option<Hindrance> {
    let primary = view.rules.primary.as_ref();
    let is_primary = primary.is_some_and(|primary| primary.id.instance == instance.name);
    if is_primary || !view.wanted(instance) || view.kept_out(instance) {
        return Some(Hindrance::Excluded);
    }
    if trouble == Trouble::Full
        && let Some(what) = room(view, open, instance)
    {
        return Some(Hindrance::Room(what));
    }
    if trouble != Trouble::Data {
        if !view.replaces_volumes() {
            return Some(Hindrance::Kept);
        }
        if trouble == Trouble::Full && !would_fit(view, open, instance) {
            return Some(Hindrance::TooSmall);
        }
    }
    paused(view, instance, trouble).or_else(|| {
        let another = view.observed.instances.iter().find(|other| is_replaced(view, other))?;
        (trouble != Trouble::Data && another.name != instance.name).then(|| Hindrance::Another(another.name.clone()))
    })
}

/// Why it is healed now: its trouble, with nothing in the way. A member is dropped for it by rule 1.
pub(crate) fn due(view: &View<'_>, open: Seen<'_>, instance: &InstanceObserved) -> Option<(Trouble, String)> {
    let trouble = trouble(view, instance)?;
    hindrance(view, open, instance, trouble)
        .is_none()
        .then(|| (trouble, why(instance, trouble)))
}

/// What makes room without giving anything up, while there is hope for it.
fn room(view: &View<'_>, open: Seen<'_>, instance: &InstanceObserved) -> Option<&'static str> {
    let report = instance.report()?;
    if purge::may_help(view, open, Seen { instance, report }) {
        Some("its binlogs to be purged")
    } else if grow::may_help(view.subject, view.observed, instance) {
        Some("its volume to grow")
    } else {
        None
    }
}

/// What one of the donors has fits on a volume of that size. What fills the old one may be something else.
fn would_fit(view: &View<'_>, open: Seen<'_>, instance: &InstanceObserved) -> bool {
    let donors = view
        .members()
        .filter(|seen| view.synced(*seen) && seen.instance.name != instance.name);
    let used = donors.chain([open]).map(|seen| seen.report.disk.used).min();
    let sizes = [
        instance.claim.as_ref().and_then(|claim| claim.capacity),
        instance.report().map(|report| report.disk.size),
    ];
    let size = sizes.into_iter().flatten().filter(|size| *size > 0).min();
    let (Some(used), Some(size)) = (used, size) else {
        return false;
    };
    used.saturating_add(used / 10).saturating_add(SPARE) <= size
}

/// The limit of docs/healing.md: a clone that did not begin is tried again soon, and the same trouble that comes back again and
/// again is healed later and later.
fn paused(view: &View<'_>, instance: &InstanceObserved, trouble: Trouble) -> Option<Hindrance> {
    let last = view.rules.rebuilds.get(&instance.name)?;
    let times = in_a_row(view, last, trouble);
    let pause = if goes_on(instance, last, trouble) {
        view.timing.clone_retry
    } else if is_over(view, last) {
        return None;
    } else {
        view.timing.pause_after(times)
    };
    let left = pause.checked_sub(view.age(last.at)).filter(|left| !left.is_zero())?;
    let until = last.at.checked_add(pause).unwrap_or(last.at);
    Some(Hindrance::Paused { times, until, left })
}

/// The command that was recorded came to nothing: what was to be replaced is still there.
fn goes_on(instance: &InstanceObserved, last: &Rebuild, trouble: Trouble) -> bool {
    let same = last
        .healing
        .as_ref()
        .is_some_and(|healing| healing.trouble == trouble && healing.claim.is_none());
    let there = instance
        .report()
        .is_some_and(|report| report.incarnation == last.incarnation);
    same && there && last.ended.is_none()
}

/// It was a member for so long that what comes now is something new.
fn is_over(view: &View<'_>, last: &Rebuild) -> bool {
    last.ended.is_some_and(|ended| view.age(ended) >= view.timing.healed)
}

/// How often in a row it was healed of that.
fn in_a_row(view: &View<'_>, last: &Rebuild, trouble: Trouble) -> u32 {
    match &last.healing {
        Some(healing) if healing.trouble == trouble && !is_over(view, last) => healing.times,
        Some(_) | None => 0,
    }
}

/// What is recorded of healing it now.
pub(crate) fn healing(
    view: &View<'_>,
    instance: &InstanceObserved,
    trouble: Trouble,
    claim: Option<String>,
) -> Healing {
    let last = view.rules.rebuilds.get(&instance.name);
    let before = last.map_or(0, |last| in_a_row(view, last, trouble));
    let begun = last.is_some_and(|last| goes_on(instance, last, trouble));
    Healing {
        trouble,
        claim,
        times: if begun { before } else { before.saturating_add(1) },
    }
}

/// The clone with which a volume that was given up is replaced, or one that is tried again, is a part of the same healing.
pub(crate) fn continued(view: &View<'_>, name: &InstanceName) -> Option<Healing> {
    let last = view.rules.rebuilds.get(name).filter(|last| last.ended.is_none())?;
    let healing = last.healing.as_ref()?;
    Some(Healing {
        claim: None,
        ..healing.clone()
    })
}

/// Its volume was given up, and the new one is not there yet. Another one waits: if no volume can be made, one is enough.
fn is_replaced(view: &View<'_>, instance: &InstanceObserved) -> bool {
    let Some(last) = view
        .rules
        .rebuilds
        .get(&instance.name)
        .filter(|last| last.ended.is_none())
    else {
        return false;
    };
    let given_up = last.healing.as_ref().and_then(|healing| healing.claim.as_ref());
    let there = |uid: &String| {
        instance
            .claim
            .as_ref()
            .is_some_and(|claim| &claim.uid != uid && claim.is_bound())
    };
    view.wanted(instance) && given_up.is_some_and(|uid| !there(uid))
}

/// Replaces the volumes of those that are no members (any more), and says what the others wait for. The caller made sure that a
/// primary is open: it has everything.
pub(crate) fn plan(view: &View<'_>, open: Seen<'_>, draft: &mut Draft) {
    for instance in view.observed.instances.iter().filter(|instance| view.wanted(instance)) {
        let member = view.role(&instance.name).is_some();
        if !member && view.is_given_up(instance) {
            if !view.kept_out(instance) {
                replace(instance, draft);
            }
            continue;
        }
        let Some(trouble) = trouble(view, instance) else {
            continue;
        };
        match hindrance(view, open, instance, trouble) {
            Some(hindrance) => tell(instance, trouble, &hindrance, draft),
            None if member => wait_to_leave(view, instance, draft),
            // It is cloned over where it is.
            None if trouble == Trouble::Data => {}
            None => give_up(view, open, instance, trouble, draft),
        }
    }
}

fn tell(instance: &InstanceObserved, trouble: Trouble, hindrance: &Hindrance, draft: &mut Draft) {
    let name = &instance.name;
    let what = match hindrance {
        Hindrance::Excluded => return,
        Hindrance::Room(what) => (*what).to_owned(),
        Hindrance::Kept => "a person to replace its volume".to_owned(),
        Hindrance::TooSmall => "a volume that holds what the others have".to_owned(),
        Hindrance::Paused { left, until, .. } => {
            draft.look_in(*left);
            format!("{until:.0}, because it was healed a short time ago")
        }
        Hindrance::Another(other) => format!("the new volume of {other}"),
    };
    draft.wait(name.0.clone(), format!("{what} ({})", why(instance, trouble)));
}

fn wait_to_leave(view: &View<'_>, instance: &InstanceObserved, draft: &mut Draft) {
    let mut ids = view.rules.members.iter().filter(|id| id.instance == instance.name);
    if ids.any(|id| !view.can_spare(id)) {
        draft.wait(
            instance.name.0.clone(),
            "another member that can acknowledge, before its data is given up",
        );
    }
}

/// The intent is recorded with the uid of the claim; behind it, because the compare-and-set may be lost, the claim is deleted.
fn give_up(view: &View<'_>, open: Seen<'_>, instance: &InstanceObserved, trouble: Trouble, draft: &mut Draft) {
    let why = why(instance, trouble);
    let Some(claim) = &instance.claim else { return };
    if draft.records() || !draft.take_risk() {
        draft.wait(instance.name.0.clone(), format!("its turn to be healed ({why})"));
        return;
    }
    let intent = Rebuild {
        incarnation: incarnation(instance),
        donor: Donor::Instance(open.id()),
        failures: 0,
        at: moment(view.now),
        reason: why.clone(),
        ended: None,
        healing: Some(healing(view, instance, trouble, Some(claim.uid.clone()))),
    };
    let mut rebuilds = view.rules.rebuilds.clone();
    rebuilds.insert(instance.name.clone(), intent);
    let rules = Rules {
        rebuilds,
        ..view.rules.clone()
    };
    let message = format!("{why}; {} gets a new one and is cloned", instance.name);
    draft.record(view, rules, "VolumeGivenUp", message);
    draft.push(delete_claim(instance, claim, why));
}

/// What it was in the life that is given up, as far as anybody knows: the intent names the claim.
fn incarnation(instance: &InstanceObserved) -> Incarnation {
    let last = match &instance.reach {
        Reach::Heard(heard) => Some(&heard.report),
        Reach::Silent { last, .. } => last.as_deref(),
        Reach::Unknown { .. } => None,
    };
    last.map_or_else(
        || Incarnation("unknown".to_owned()),
        |report| report.incarnation.clone(),
    )
}

fn delete_claim(instance: &InstanceObserved, claim: &ClaimView, reason: String) -> Action {
    Action::DeleteClaim {
        instance: instance.name.clone(),
        uid: claim.uid.clone(),
        resource_version: claim.resource_version.clone(),
        reason,
    }
}

/// The claim first, then the pod that keeps it (decision A11): a pod that is made in between waits for the claim to go. Whoever
/// comes to it goes on where it was left.
fn replace(instance: &InstanceObserved, draft: &mut Draft) {
    let reason = format!("the volume of {} was given up", instance.name);
    draft.wait(instance.name.0.clone(), "its new volume");
    // A change of members or k is risk enough for a pass.
    if draft.records() {
        return;
    }
    if let Some(claim) = instance.claim.as_ref().filter(|claim| !claim.deleting) {
        if draft.take_risk() {
            draft.push(delete_claim(instance, claim, reason));
        }
        return;
    }
    // A pod that is not on a node keeps no claim, and goes on waiting for the one that is gone. One that is on a node has a claim,
    // which this process may not have seen yet.
    let waits = |pod: &&PodView| !pod.deleting && (instance.claim.is_some() || pod.node.is_none());
    if let Some(pod) = instance.pod.as_ref().filter(waits)
        && draft.take_risk()
    {
        draft.push(Action::DeletePod {
            instance: instance.name.clone(),
            uid: pod.uid.clone(),
            at_once: true,
            reason,
        });
    }
}

/// A volume that has been full for a moment calls no pass when the moment is over.
fn look_again(view: &View<'_>, draft: &mut Draft) {
    let full = view.heard().filter_map(|seen| seen.report.disk.full_for);
    for left in full.filter_map(|full| view.timing.full.checked_sub(full)) {
        if !left.is_zero() {
            draft.look_in(left);
        }
    }
}

/// A primary whose volume is full and cannot be helped, is lost or answers with errors, while it is still open: a member whose
/// volume is well takes over (rule 8), and the old primary is healed as any other instance.
pub(crate) fn relieve(view: &View<'_>, open: Seen<'_>, draft: &mut Draft) -> bool {
    look_again(view, draft);
    let instance = open.instance;
    let Some(trouble) = trouble(view, instance) else {
        return false;
    };
    if !failover_possible(view) || (trouble == Trouble::Full && room(view, open, instance).is_some()) {
        return false;
    }
    // One that was moved a moment ago, or came back because nobody could take over, is not moved at once again.
    let since = view.rules.primary.as_ref().map_or(view.now, |primary| primary.since);
    if let Some(left) = view
        .timing
        .settle
        .checked_sub(view.age(since))
        .filter(|left| !left.is_zero())
    {
        draft.look_in(left);
        return false;
    }
    let well = |seen: &Seen<'_>| self::trouble(view, seen.instance).is_none() && has_room(seen.report);
    switchover::begin_among(view, &why(instance, trouble), well, draft)
}

fn has_room(report: &InstanceReport) -> bool {
    let disk = report.disk;
    let free = disk.size.saturating_sub(disk.used);
    disk.size > 0 && free.saturating_mul(100) >= disk.size.saturating_mul(ROOM)
}
