//! From a winner to an open primary: rule 5 of docs/failover.md.

use std::collections::BTreeSet;

use crate::action::{PROMOTED_WITH_LOSS, Recorded, Verb, VerbKind};
use crate::plan::draft::Draft;
use crate::plan::election::moment;
use crate::plan::{election, forced, rebuild, text};
use crate::progress::Stage;
use crate::rules::{Change, ChangeKind, DataLoss, MemberId, Phase, Phases, PrimaryRef, Rules};
use crate::view::{Seen, View};

/// Brings k followers behind the winner, then records it and opens it.
///
/// `loss` is what a person accepted, if the rules would not have let this one win (rule 10).
pub(crate) fn plan(view: &View<'_>, winner: Seen<'_>, loss: Option<DataLoss>, draft: &mut Draft) {
    if !winner.detached() {
        election::fence(view, winner, draft);
        draft.wait(
            "election",
            format!("{} to stop following another candidate", winner.instance.name),
        );
        return;
    }
    let followers = followers(view, winner);
    let have = count(followers.len());
    let wanted = wanted_followers(view, winner, have, draft);
    if winner.report.fully_applied() && have >= wanted {
        record(view, winner, followers, loss, draft);
        return;
    }
    draft.stage(Stage::Attaching);
    attach(view, winner, draft);
    draft.wait("election", text::promotion(winner, have, wanted));
    let may_follow = |seen: &Seen<'_>| may_follow(view, *seen, winner) || is_asked(view, *seen, winner);
    let reachable = view.heard().filter(may_follow).count();
    if count(reachable) < view.rules.acks_required {
        rebuild::for_election(view, winner, draft);
    }
}

/// k; in the first election all that can, for a while (rule 5, step 4); on request as many as can be had (rule 10).
fn wanted_followers(view: &View<'_>, winner: Seen<'_>, have: u32, draft: &mut Draft) -> u32 {
    if let Some(request) = forced::wanted(view)
        && request.instance.as_ref() == Some(&winner.instance.name)
        && forced::is_due(view, draft)
    {
        let patient = view.age(request.at) < view.timing.opening;
        let possible = if patient { able(view, winner) } else { have };
        return view.rules.acks_required.min(possible);
    }
    let age = view.age(view.rules.phase_since);
    if view.rules.primary.is_some() || age >= view.timing.first_election {
        return view.rules.acks_required;
    }
    draft.look_in(view.timing.first_election.saturating_sub(age));
    // All instances are held by now. Next to recovered data an empty one cannot follow: it is cloned when writes go on.
    able(view, winner).max(view.rules.acks_required)
}

/// How many may follow the winner, or do.
fn able(view: &View<'_>, winner: Seen<'_>) -> u32 {
    count(view.heard().filter(|seen| may_follow(view, *seen, winner)).count())
}

/// Attaches everybody who may follow the winner and does not yet.
fn attach(view: &View<'_>, winner: Seen<'_>, draft: &mut Draft) {
    let id = winner.id();
    for seen in view.heard().filter(|seen| may_follow(view, *seen, winner)) {
        if !view.follows(seen, &id) || needs_threads(seen) {
            draft.attach(view, seen, winner);
        }
    }
}

/// A thread of replication stands still without an error of its own.
pub(crate) fn needs_threads(seen: Seen<'_>) -> bool {
    let replication = &seen.report.replication;
    !replication.applier_running && replication.applier_error.is_empty()
}

/// Held, applied, within the winner's set, and the winner still has what it lacks.
fn may_follow(view: &View<'_>, seen: Seen<'_>, winner: Seen<'_>) -> bool {
    (seen.report.fully_applied() || view.follows(seen, &winner.id())) && could_follow(view, seen, winner)
}

/// As soon as it has applied what it received, if it can.
pub(crate) fn could_follow(view: &View<'_>, seen: Seen<'_>, winner: Seen<'_>) -> bool {
    let set = seen.report.set();
    seen.id() != winner.id()
        && view.held(seen)
        && !view.kept_out(seen.instance)
        && !seen.stuck()
        && !view.is_given_up(seen.instance)
        && !seen.report.history_reset
        && winner.report.set().contains(&set)
        && !seen.lacks_purged(winner)
        // A new data directory next to one with data is cloned, because replaying a history takes long. Not a member's,
        // which is never replaced: it may be empty because nothing was ever written.
        && (!set.is_empty() || winner.report.set().is_empty() || view.is_member(seen))
}

/// It runs and has not answered yet: it may turn out to be one that may follow. Nobody's data directory is given up for want
/// of an answer that is on its way.
fn is_asked(view: &View<'_>, seen: Seen<'_>, winner: Seen<'_>) -> bool {
    let may_answer = seen.busy().is_some() || !seen.fence_fails();
    seen.id() != winner.id() && seen.running() && !view.held(seen) && may_answer
}

/// Those that follow the winner, are connected and contain its set.
fn followers(view: &View<'_>, winner: Seen<'_>) -> BTreeSet<MemberId> {
    let (id, set) = (winner.id(), winner.report.set());
    let complete = |seen: &Seen<'_>| {
        view.held(*seen)
            && !view.kept_out(seen.instance)
            && !view.is_given_up(seen.instance)
            && !seen.report.history_reset
            && view.follows(*seen, &id)
            && seen.report.replication.receiver_running
            && seen.report.set().contains(&set)
    };
    view.heard().filter(complete).map(|seen| seen.id()).collect()
}

/// The one compare-and-set of a promotion, and the opening behind it.
fn record(view: &View<'_>, winner: Seen<'_>, members: BTreeSet<MemberId>, loss: Option<DataLoss>, draft: &mut Draft) {
    let old = view.rules.primary.as_ref();
    let preferred = match &view.rules.phase {
        Phase::Electing { preferred } => preferred.as_ref(),
        Phase::Open => None,
    };
    let reason = if loss.is_some() {
        PROMOTED_WITH_LOSS
    } else {
        "PrimaryElected"
    };
    let now = moment(view.now);
    let change = Change {
        kind: match (old, preferred) {
            (None, _) => ChangeKind::Bootstrap,
            (Some(_), Some(_)) => ChangeKind::Switchover,
            (Some(_), None) => ChangeKind::Failover,
        },
        from: old.map(|primary| primary.id.instance.clone()),
        to: winner.instance.name.clone(),
        began: view.rules.began.unwrap_or(view.rules.phase_since),
        recorded: now,
        opened: None,
        phases: Phases::default(),
    };
    let primary = PrimaryRef {
        id: winner.id(),
        server_uuid: winner.report.server_uuid.clone(),
        epoch: view.rules.epoch,
        since: now,
    };
    let rules = Rules {
        phase: Phase::Open,
        phase_since: now,
        primary: Some(primary.clone()),
        baseline: winner.report.set(),
        // Never more than k; fewer followers than k only on request.
        acks_required: view.rules.acks_required.min(count(members.len())),
        members,
        began: None,
        data_loss: loss.or_else(|| view.rules.data_loss.clone()),
        last_change: Some(change),
        ..view.rules.clone()
    };
    let message = text::elected(winner, &rules);
    let opening = open_verb(view, &rules, &primary);
    draft.stage(Stage::Recording);
    draft.record(view, rules, reason, message);
    draft.command(view, winner, opening, "");
}

/// Opens a recorded primary that is not open, when confirmed facts allow it (rule 5, last paragraph).
pub(crate) fn reopen(view: &View<'_>, recorded: &PrimaryRef, primary: Seen<'_>, draft: &mut Draft) {
    draft.wait("opening", text::opening(view, primary));
    draft.look_in(view.timing.open.saturating_sub(view.age(recorded.since)));
    let opening = primary.busy().is_some_and(|busy| busy.verb == VerbKind::Open);
    if opening && view.mine() {
        return;
    }
    if !view.confirmed(primary) || !primary.detached() {
        // With k = 0, after a restart of the operator or of a single instance: its word under this epoch comes first.
        election::fence(view, primary, draft);
        return;
    }
    if may_open(view, primary) {
        draft.command(view, primary, open_verb(view, view.rules, recorded), "");
    }
}

/// The test of rule 5: k listed members are confirmed to contain the primary's set, and follow it. (Open waits for them to
/// be connected; those that are detached would let it fail, and cost the time that it waits.)
pub(crate) fn may_open(view: &View<'_>, primary: Seen<'_>) -> bool {
    let set = primary.report.set();
    let contain = view.members().filter(|seen| {
        view.confirmed(*seen)
            && !seen.report.writable
            && view.follows(*seen, &primary.id())
            && seen.report.set().contains(&set)
    });
    view.fenced(primary)
        && primary.report.fully_applied()
        && (set.contains(&view.rules.baseline) || view.stands_alone())
        && count(contain.count()) >= view.rules.acks_required
}

/// The application's user is named to every primary, which keeps the user's password as the Secret says. The database is made
/// once, and a note in the data says so: one that was dropped since is not made again, and neither is anything next to
/// recovered data, which have that note.
fn open_verb(view: &View<'_>, rules: &Rules, primary: &PrimaryRef) -> Verb {
    Verb::Open {
        members: rules.members.clone(),
        acks_required: rules.acks_required,
        baseline: rules.baseline.clone(),
        recorded: Recorded {
            epoch: primary.epoch,
            since: primary.since,
        },
        application: view.subject.application(),
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
