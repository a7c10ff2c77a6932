//! Who gives the data of a backup.

use crate::observed::Mysqld;
use crate::rules::{Donor, MemberId};
use crate::view::{Seen, View};

/// The replica that has most, of those that are healthy; of equals the one with the highest ordinal, because the lower ones
/// are primaries more often. The only instance of a cluster of one. Never the primary of a larger one.
///
/// # Errors
/// Nobody can give it: what is waited for, with the reason of each instance.
pub(super) fn choose(view: &View<'_>) -> Result<MemberId, String> {
    let Some(open) = view.open_primary() else {
        return Err("the primary to be open".to_owned());
    };
    if view.replicas() == 1 {
        return Ok(open.id());
    }
    let mut reasons = Vec::new();
    let mut best: Option<Seen<'_>> = None;
    for seen in view.heard().filter(|seen| !view.is_primary(*seen)) {
        match refusal(view, seen) {
            Some(why) => reasons.push(format!("{} {why}", seen.instance.name)),
            None if best.is_none_or(|best| better(seen, best)) => best = Some(seen),
            None => {}
        }
    }
    let silent = view
        .observed
        .instances
        .iter()
        .filter(|instance| instance.report().is_none() && view.wanted(instance));
    reasons.extend(silent.map(|instance| format!("{} is not heard", instance.name)));
    let reasons = if reasons.is_empty() {
        "there is none".to_owned()
    } else {
        reasons.join(", ")
    };
    best.map(|seen| seen.id())
        .ok_or_else(|| format!("a replica that can be copied ({reasons})"))
}

fn better(seen: Seen<'_>, than: Seen<'_>) -> bool {
    let more = |a: Seen<'_>, b: Seen<'_>| a.report.executed.subtract(&b.report.executed).count();
    let (gain, loss) = (more(seen, than), more(than, seen));
    gain > loss || gain == loss && seen.instance.ordinal > than.instance.ordinal
}

/// Why a replica cannot give it now. Only members are asked: they were compared with the primary, and their set is legitimate.
fn refusal(view: &View<'_>, seen: Seen<'_>) -> Option<&'static str> {
    if view.kept_out(seen.instance) {
        Some("is kept out by a person")
    } else if !seen.running() {
        Some("does not run")
    } else if seen.leaving() {
        Some("is being stopped")
    } else if !view.is_member(seen) {
        Some("is not one of those that acknowledge")
    } else if !view.synced(seen) {
        Some("does not follow the primary closely")
    } else if !seen.report.executed.contains(&view.rules.baseline) {
        Some("lacks what the primary began with")
    } else if gives_to_another(view, seen) {
        Some("is being cloned by another instance")
    } else {
        None
    }
}

/// MySQL allows one clone of a donor at a time.
fn gives_to_another(view: &View<'_>, donor: Seen<'_>) -> bool {
    let giver = Donor::Instance(donor.id());
    view.heard().any(|seen| {
        let rebuild = view.rules.rebuilds.get(&seen.instance.name);
        seen.report.mysqld == Mysqld::Cloning && rebuild.is_some_and(|rebuild| rebuild.donor == giver)
    })
}
