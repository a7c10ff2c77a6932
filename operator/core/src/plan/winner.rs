//! Who may win an election, and who does: rule 4 of docs/failover.md.

use std::cmp::Reverse;

use crate::GtidSet;
use crate::plan::promotion::could_follow;
use crate::plan::text;
use crate::rules::MemberId;
use crate::view::{Seen, View, age};

/// The winner, or why there is none.
pub(crate) fn choose<'a>(view: &View<'a>, preferred: Option<&MemberId>) -> Result<Seen<'a>, String> {
    let held = held(view);
    let everything = held
        .iter()
        .fold(GtidSet::new(), |all, seen| all.union(&seen.report.set()));
    let (stuck, mut candidates): (Vec<_>, Vec<_>) = candidates(view, &held).into_iter().partition(Seen::stuck);
    let spare = can_do_without_primary(view, &held);
    candidates.sort_by_cached_key(|seen| rank(view, *seen, preferred, &everything, spare));
    candidates.first().copied().ok_or_else(|| match stuck.first() {
        Some(seen) => text::stuck_alone(view, *seen),
        None => text::no_candidate(view, &held),
    })
}

/// Held members and the held old primary; in the first election every held instance.
fn held<'a>(view: &View<'a>) -> Vec<Seen<'a>> {
    let takes_part = |seen: Seen<'_>| match view.rules.primary {
        Some(_) => view.is_member(seen) || view.is_primary(seen),
        None => true,
    };
    view.heard()
        .filter(|seen| takes_part(*seen) && view.held(*seen))
        .collect()
}

fn candidates<'a>(view: &View<'a>, held: &[Seen<'a>]) -> Vec<Seen<'a>> {
    let acks = view.acks();
    // Too many members are missing to know what was acknowledged: the old primary's set is the authority.
    let old_is_authority = view.rules.primary.is_some() && view.unfenced().len() >= acks;
    let must_contain: Vec<_> = held
        .iter()
        .filter(|seen| !view.is_primary(**seen) || old_is_authority)
        .map(|seen| view.legit(*seen))
        .collect();
    let may_win = |seen: &Seen<'_>| {
        let set = seen.report.set();
        set.contains(&view.rules.baseline)
            && view.legit(*seen).contains(&set)
            && must_contain.iter().all(|legit| set.contains(legit))
    };
    let wanted = |seen: &Seen<'_>| !view.kept_out(seen.instance) && !seen.report.history_reset;
    held.iter().copied().filter(wanted).filter(may_win).collect()
}

type Rank = (
    bool,
    bool,
    bool,
    bool,
    bool,
    Reverse<usize>,
    Vec<u32>,
    bool,
    u64,
    bool,
    u32,
);

/// Smaller is better; in the order of rule 4.
fn rank(view: &View<'_>, seen: Seen<'_>, preferred: Option<&MemberId>, everything: &GtidSet, spare: bool) -> Rank {
    let id = seen.id();
    let followers = view
        .heard()
        .filter(|other| view.held(*other) && view.follows(*other, &id))
        .count();
    (
        preferred != Some(&id),
        seen.leaving() || !view.wanted(seen.instance),
        spare && (flaps(view, seen) || (view.is_primary(seen) && cannot_write(seen))),
        !seen.report.set().contains(everything),
        cannot_write(seen),
        Reverse(followers),
        version(&seen.report.version),
        !same_zone_as_primary(view, seen),
        seen.backlog(),
        view.is_primary(seen),
        seen.instance.ordinal,
    )
}

/// Another one is held and k that could follow it: what the old primary alone has would keep it from following.
fn can_do_without_primary(view: &View<'_>, held: &[Seen<'_>]) -> bool {
    let enough = usize::try_from(view.rules.acks_required).unwrap_or(usize::MAX);
    let followers = |winner: Seen<'_>| held.iter().filter(|seen| could_follow(view, **seen, winner)).count();
    let able = |seen: &Seen<'_>| !seen.stuck() && view.legit(*seen).contains(&seen.report.set());
    let mut others = held.iter().filter(|seen| !view.is_primary(**seen) && able(seen));
    others.any(|winner| followers(*winner) >= enough)
}

/// The recorded primary, lost shortly after it was recorded: one that crashes again and again would be elected each time,
/// because what it alone has makes it contain everything. (Nothing of that was acknowledged: rule 4 sees to it.)
fn flaps(view: &View<'_>, seen: Seen<'_>) -> bool {
    let since = view.rules.primary.as_ref().map(|primary| primary.since);
    let began = view.rules.began.unwrap_or(view.rules.phase_since);
    view.is_primary(seen) && since.is_some_and(|since| age(began, since) < view.timing.flap)
}

/// Its volume takes nothing more: no commit would end there.
fn cannot_write(seen: Seen<'_>) -> bool {
    seen.report.unreadable || seen.report.disk.full_for.is_some()
}

fn same_zone_as_primary(view: &View<'_>, seen: Seen<'_>) -> bool {
    let old = view
        .rules
        .primary
        .as_ref()
        .and_then(|primary| view.instance(&primary.id));
    let zone = |pod: Option<&crate::observed::PodView>| pod.and_then(|pod| pod.zone.clone());
    let old = zone(old.and_then(|instance| instance.pod.as_ref()));
    old.is_some() && zone(seen.instance.pod.as_ref()) == old
}

/// The numbers of a server version, comparable: `8.4.10-debug` is 8, 4, 10.
fn version(text: &str) -> Vec<u32> {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    text.split('.').map_while(|part| digits(part).parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_compare_by_number() {
        assert!(version("8.4.9") < version("8.4.10"));
        assert!(version("8.4.10-debug") < version("9.0.0"));
        assert_eq!(version("9.7.4-one"), version("9.7.4"));
    }
}
