//! Binlogs that nobody needs any more, deleted before a volume is full: docs/healing.md, "Making room".

use std::time::Duration;

use crate::GtidSet;
use crate::action::{Verb, VerbKind};
use crate::observed::{Disk, InstanceObserved, Mysqld};
use crate::plan::draft::Draft;
use crate::view::{Seen, View};

/// Used space from which on binlogs are purged, in percent.
const USED: u64 = 85;

/// Tells every instance whose volume fills up what it may delete.
pub(crate) fn plan(view: &View<'_>, open: Seen<'_>, draft: &mut Draft) {
    for seen in view.heard().filter(|seen| view.wanted(seen.instance)) {
        if !is_wanted(view, seen) || view.kept_out(seen.instance) {
            continue;
        }
        let Some(stored) = useful(view, open, seen) else {
            continue;
        };
        if let Some(left) = pause(view, seen) {
            draft.look_in(left);
            continue;
        }
        // What keeps a volume below its mark again and again is routine.
        let full = view.is_full(seen.report);
        let why = full.then(|| format!("the volume of {} is full", seen.instance.name));
        draft.command(view, seen, Verb::Purge { stored }, why.unwrap_or_default());
    }
}

/// A purge is due or under way that may make room: nothing is given up before it was tried.
pub(crate) fn may_help(view: &View<'_>, open: Seen<'_>, seen: Seen<'_>) -> bool {
    let under_way = seen.busy().is_some_and(|busy| busy.verb == VerbKind::Purge);
    under_way || (is_wanted(view, seen) && pause(view, seen).is_none() && useful(view, open, seen).is_some())
}

fn is_wanted(view: &View<'_>, seen: Seen<'_>) -> bool {
    let Disk { used, size, .. } = seen.report.disk;
    let fills_up = size > 0 && used.saturating_mul(100) >= size.saturating_mul(USED);
    seen.running() && (fills_up || view.is_full(seen.report))
}

/// What is left of the time in which the last purge counts. That nothing was deleted by it is an answer, too.
fn pause(view: &View<'_>, seen: Seen<'_>) -> Option<Duration> {
    let answer = seen.answer().filter(|answer| answer.verb == VerbKind::Purge)?;
    let left = view.timing.purge.checked_sub(view.age(answer.at))?;
    (!left.is_zero()).then_some(left)
}

/// What may be purged, if this one still has some of it.
fn useful(view: &View<'_>, open: Seen<'_>, seen: Seen<'_>) -> Option<GtidSet> {
    let stored = purgeable(view, open)?;
    (!stored.subtract(&seen.report.purged).is_empty()).then_some(stored)
}

/// What the archive holds and every instance has executed. Without an archive nothing is: a binlog may be all that a recovery to
/// a point in time has.
fn purgeable(view: &View<'_>, open: Seen<'_>) -> Option<GtidSet> {
    let archive = open
        .report
        .archive
        .as_ref()
        .filter(|_| view.subject.archives() == Some(true))?;
    let stored = open
        .report
        .executed
        .subtract(&archive.behind)
        .subtract(&archive.missing);
    let mut wanted = view.observed.instances.iter().filter(|instance| view.wanted(instance));
    wanted.try_fold(stored, |stored, instance| match executed(view, instance) {
        Executed::Known(executed) => Some(stored.intersect(executed)),
        Executed::Irrelevant => Some(stored),
        Executed::Unknown => None,
    })
}

enum Executed<'a> {
    Known(&'a GtidSet),
    /// It has left the members and is cloned in any case: it will ask for no binlog of before.
    Irrelevant,
    Unknown,
}

fn executed<'a>(view: &View<'_>, instance: &'a InstanceObserved) -> Executed<'a> {
    let rebuilt = view
        .rules
        .rebuilds
        .get(&instance.name)
        .is_some_and(|last| last.ended.is_none());
    if rebuilt && view.role(&instance.name).is_none() {
        return Executed::Irrelevant;
    }
    match instance.report() {
        Some(report) if report.mysqld == Mysqld::Running => Executed::Known(&report.executed),
        Some(_) | None => Executed::Unknown,
    }
}
