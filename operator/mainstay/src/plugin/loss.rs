//! What a person reads before writes are given up: who is missing, what is known, and what is not.

use std::fmt::Write as _;

use jiff::Timestamp;
use kube::ResourceExt as _;
use mainstay_api::status::InstanceStatus;
use mainstay_api::{MySQLCluster, MySQLClusterStatus};

use super::explain::{Subject, part, set};
use super::table::age;

/// The warning before `promote --accept-data-loss`, with a newline at the end.
pub(crate) fn warning(cluster: &MySQLCluster, instance: &str, now: Timestamp) -> String {
    let empty = MySQLClusterStatus::default();
    let subject = Subject {
        name: cluster.name_any(),
        namespace: cluster.namespace().unwrap_or_default(),
        status: cluster.status.as_ref().unwrap_or(&empty),
        now,
    };
    let status = subject.status;
    let mut out = String::new();
    let missing: Vec<_> = subject.missing().into_iter().filter(|i| i.name != instance).collect();
    if !subject.electing() && missing.iter().all(|i| i.unreachable_since.is_none()) {
        out.push_str(
            "Nothing seems to be lost: the primary answers, so this is an ordinary promotion and loses nothing.\n",
        );
        return out;
    }
    let _ = writeln!(
        out,
        "Promoting {instance} at any price gives up every acknowledged write that only these have:"
    );
    for missed in &missing {
        let _ = writeln!(out, "  {:<12} {}", missed.name, why(missed, now));
    }
    let acks = status.acks_required.unwrap_or_default();
    let _ = writeln!(
        out,
        "A commit was acknowledged when {acks} of {} members had it, so {instance} need not have all of them.",
        status.members.len()
    );
    known(&mut out, status, instance);
    let _ = writeln!(
        out,
        "If one of them still runs somewhere, its clients may be writing to it now: that is lost, too. When it is heard again \
         it is fenced and\nrebuilt as a clone of {instance}. What answers within 5 s takes part, and then nothing is lost."
    );
    out
}

fn why(instance: &InstanceStatus, now: Timestamp) -> String {
    let part = part(instance);
    match &instance.unreachable_since {
        Some(since) => format!("{part}, not heard for {}", age(since.0, now)),
        None => format!("{part}, heard, but not fenced yet"),
    }
}

/// The sets that status knows.
fn known(out: &mut String, status: &MySQLClusterStatus, instance: &str) {
    let holds = |i: &InstanceStatus| i.holds.as_deref().map(set);
    let Some(own) = status.instances.iter().find(|i| i.name == instance).and_then(holds) else {
        let _ = writeln!(out, "What {instance} has is not known before it is fenced.");
        return;
    };
    let _ = writeln!(out, "{instance} has {own}");
    let others = status.instances.iter().filter(|i| i.name != instance);
    for (other, more) in others.filter_map(|i| Some((i, holds(i)?.subtract(&own)))) {
        if !more.is_empty() {
            let _ = writeln!(out, "{} has {more} more", other.name);
        }
    }
    let lacks = set(status.baseline.as_deref().unwrap_or_default()).subtract(&own);
    if lacks.is_empty() {
        out.push_str("It has everything that the last primary had when it was elected.\n");
    } else {
        let _ = writeln!(
            out,
            "It lacks {lacks} of what the last primary had when it was elected."
        );
    }
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
