//! What a pass saw and decided, for the log: one line each at level debug, and nothing when it is not asked for.

use std::fmt::Write as _;

use mainstay_core::action::Action;
use mainstay_core::observed::{InstanceObserved, Observed, Reach};
use mainstay_core::plan::Plan;
use tracing::Level;

use crate::index::ClusterName;

/// Logs what was seen of the instances and what is done about it, if that is anything.
pub(crate) fn pass(cluster: &ClusterName, observed: &Observed, plan: &Plan) {
    if !tracing::enabled!(Level::DEBUG) || (plan.actions.is_empty() && plan.waiting.is_empty()) {
        return;
    }
    let instances: Vec<String> = observed.instances.iter().map(instance).collect();
    let actions: Vec<String> = plan.actions.iter().map(action).collect();
    let waiting: Vec<String> = plan
        .waiting
        .iter()
        .map(|wait| format!("{}: {}", wait.who, wait.for_what))
        .collect();
    tracing::debug!(
        %cluster,
        instances = instances.join(" | "),
        actions = actions.join(", "),
        waiting = waiting.join("; "),
        look_again = ?plan.look_again,
        "planned"
    );
}

fn instance(instance: &InstanceObserved) -> String {
    let heard = match &instance.reach {
        Reach::Heard(heard) => heard,
        Reach::Silent { since, reason, .. } => return format!("{} silent since {since}: {reason}", instance.name),
        Reach::Unknown { reason, .. } => return format!("{} unknown: {reason}", instance.name),
    };
    let report = &heard.report;
    let mut text = format!(
        "{} {:?} ({}, {}) set {}",
        instance.name,
        report.mysqld,
        report.persisted.epoch,
        report.persisted.seq,
        report.set()
    );
    // Writing to a String cannot fail.
    if report.writable {
        let _ = write!(text, " writable, {} acknowledge", report.semi_sync.acknowledgers.len());
    }
    if let Some(source) = &report.replication.source_host {
        let receives = if report.replication.receiver_running {
            "receives"
        } else {
            "follows"
        };
        let _ = write!(
            text,
            " {receives} {source} heard {:?} ago",
            report.replication.last_heard
        );
    }
    if !heard.settled {
        text.push_str(" unsettled");
    }
    if let Some(busy) = heard.busy {
        let _ = write!(text, " busy with {}", busy.verb.as_str());
    }
    if let Some(failure) = heard.answer.as_ref().and_then(|answer| answer.failure.as_ref()) {
        let _ = write!(text, " refused: {failure}");
    }
    text
}

fn action(action: &Action) -> String {
    match action {
        Action::Apply(desired) => format!("apply {:?}/{}", desired.key.kind, desired.key.name),
        Action::GeneratePasswords { secret, .. } => format!("passwords {secret}"),
        Action::OwnSecret { secret, owned } => format!("own {secret}: {owned}"),
        Action::LabelPod { instance, role, .. } => format!("label {instance} {}", role.unwrap_or("none")),
        Action::CreateCa { .. } => "CA".to_owned(),
        Action::IssueServerCertificate { .. } => "server certificate".to_owned(),
        Action::WriteRecovery { secret, .. } => format!("recovery {secret}"),
        Action::WriteClientCa => "client CAs".to_owned(),
        Action::WriteStoreAccess { .. } => "access to the store".to_owned(),
        Action::Record(record) => format!("record epoch {} {}", record.rules.epoch, record.reason),
        Action::Command(commands) => {
            let commands = commands
                .iter()
                .map(|c| format!("{} {}", c.verb.kind().as_str(), c.to.instance));
            commands.collect::<Vec<_>>().join(", ")
        }
        Action::DeletePod { instance, reason, .. } => format!("delete pod {instance}: {reason}"),
        Action::DeleteClaim { instance, reason, .. } => format!("delete claim of {instance}: {reason}"),
        Action::GrowClaim { instance, bytes, .. } => format!("grow claim of {instance} to {bytes}"),
        Action::DeleteObject { key, .. } => format!("delete {:?}/{}", key.kind, key.name),
    }
}
