//! The layout of `kubectl mainstay status` for people. A pure function of the view and the time.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use mainstay_api::backup_status::{BackupReference, VerificationResult, VerificationStatus};
use mainstay_api::status::{ChangeKind, RecoveryPhase, RecoveryStatus, Role};
use mainstay_core::status::{described, lasted, parts};

use super::live::Disk;
use super::view::{Acknowledgements, Acknowledges, Backups, Change, Lag, Problem, Recoverable, Row, View};

/// Whether the output may carry colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// For pipes and files.
    Plain,
    /// For a terminal.
    Coloured,
}

const HEADINGS: [&str; 6] = ["INSTANCE", "ROLE", "NODE", "LAG", "ACK", "DISK"];
const BOLD: &str = "1";
const RED: &str = "31";
const YELLOW: &str = "33";
const GREEN: &str = "32";

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }
}

/// The whole screen, with a newline at the end.
pub(crate) fn render(view: &View, now: Timestamp, style: Style) -> String {
    let mut out = header(view, style);
    out.push('\n');
    if !view.instances.is_empty() {
        instances(&mut out, &view.instances, view.primary.is_some(), style);
    }
    if let Some(backups) = &view.backups {
        out.push_str(&backup_line(backups, now));
        out.push('\n');
    }
    if let Some(change) = &view.last_change {
        out.push_str(&last_change(change, now));
        out.push('\n');
    }
    if let Some(recovery) = &view.recovery {
        out.push_str(&recovered(recovery, now));
    }
    for problem in &view.problems {
        problem_lines(&mut out, problem, now, style);
    }
    for remark in &view.remarks {
        let _ = writeln!(out, "Note: {remark}");
    }
    out
}

fn header(view: &View, style: Style) -> String {
    let mut parts = vec![state(view, style)];
    if let Some(version) = &view.version {
        parts.push(format!("MySQL {version}"));
    }
    if let Some(epoch) = view.epoch {
        parts.push(epochs(epoch, view));
    }
    if view.primary.is_some() {
        parts.push(can_acknowledge(view.acknowledgements, view.instances.len()));
    } else if view.epoch.is_some() {
        parts.push(style.paint(RED, "no primary is open"));
    }
    format!("{}  {}", style.paint(BOLD, &view.name), parts.join("   "))
}

/// The epoch rises when members change, too; promotions and events name the one in which the primary was recorded.
fn epochs(epoch: i64, view: &View) -> String {
    match (&view.primary, view.primary_epoch) {
        (Some(primary), Some(reign)) if reign != epoch => format!("epoch {epoch} ({primary} since epoch {reign})"),
        _ => format!("epoch {epoch}"),
    }
}

fn state(view: &View, style: Style) -> String {
    let Some(health) = &view.health else {
        return view.phase.clone();
    };
    let colour = match health.as_str() {
        "Healthy" => GREEN,
        "Degraded" => YELLOW,
        _ => RED,
    };
    format!("{}, {}", view.phase, style.paint(colour, health))
}

fn can_acknowledge(acks: Acknowledgements, instances: usize) -> String {
    match (acks.members, acks.connected) {
        (0, _) if acks.needed == 0 && instances > 1 => {
            "no replica may acknowledge yet: commits wait for nobody".to_owned()
        }
        (0, _) if acks.needed == 0 => "single instance: commits wait for nobody".to_owned(),
        (members, Some(connected)) => format!("{connected} of {members} can acknowledge ({} needed)", acks.needed),
        (members, None) => format!("{members} may acknowledge ({} needed)", acks.needed),
    }
}

fn instances(out: &mut String, rows: &[Row], open: bool, style: Style) {
    let cells: Vec<[String; 6]> = rows.iter().map(|row| cells(row, open)).collect();
    let widths: Vec<usize> = HEADINGS
        .iter()
        .enumerate()
        .map(|(column, heading)| {
            let longest = cells
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max();
            longest.unwrap_or(0).max(heading.len())
        })
        .collect();
    line(out, HEADINGS.map(ToOwned::to_owned).as_slice(), &widths, Style::Plain);
    for row in &cells {
        line(out, row, &widths, style);
    }
}

fn line(out: &mut String, cells: &[String], widths: &[usize], style: Style) {
    let mut text = String::from(" ");
    for (cell, width) in cells.iter().zip(widths) {
        // Padded before it is painted: escape sequences have no width.
        let padded = format!("{cell:<width$}");
        let painted = if cell == "PRIMARY" {
            style.paint(BOLD, &padded)
        } else {
            padded
        };
        let _ = write!(text, " {painted} ");
    }
    out.push_str(text.trim_end());
    out.push('\n');
}

/// `open`: the recorded primary is one at present, and not only the last one.
fn cells(row: &Row, open: bool) -> [String; 6] {
    let unknown = || "?".to_owned();
    let role = match row.role {
        Some(Role::Primary) if open => "PRIMARY",
        Some(Role::Primary) if row.fenced => "primary (fenced)",
        Some(Role::Primary) => "primary (closed)",
        Some(Role::Replica) | None if row.fenced => "fenced",
        Some(Role::Replica) => "replica",
        None => "-",
    };
    let lag = match row.lag {
        Lag::None => "-".to_owned(),
        Lag::Following(seconds) => format!("{seconds:.1} s"),
        Lag::Detached => "detached".to_owned(),
        Lag::Stopped => "stopped".to_owned(),
        Lag::Down => "down".to_owned(),
        Lag::Unknown => unknown(),
    };
    let acknowledges = match row.acknowledges {
        Acknowledges::None => "-".to_owned(),
        Acknowledges::Yes => "yes".to_owned(),
        Acknowledges::No => "no".to_owned(),
        Acknowledges::Unknown => unknown(),
    };
    let node = row.node.clone().unwrap_or_else(|| "-".to_owned());
    [
        row.instance.clone(),
        role.to_owned(),
        node,
        lag,
        acknowledges,
        row.disk.map_or_else(unknown, disk),
    ]
}

/// `41 % of 20 Gi`.
fn disk(disk: Disk) -> String {
    // u128: the product of two volumes' sizes does not fit into 64 bits.
    let percent = u128::from(disk.used_bytes) * 100 / u128::from(disk.size_bytes.max(1));
    format!("{percent} % of {}", size(disk.size_bytes))
}

/// A size as Kubernetes writes it, with at most one decimal: `20 Gi`, `1.5 Ti`, `512 Mi`.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let Some((unit, scale)) = UNITS.iter().find(|(_, scale)| bytes >= *scale) else {
        return format!("{bytes} B");
    };
    let tenths = (u128::from(bytes) * 10 + u128::from(*scale) / 2) / u128::from(*scale);
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        tenth => format!("{}.{tenth} {unit}", tenths / 10),
    }
}

/// `Backups: shop-nightly-… 9h ago, restored and checked 2d ago; recoverable to 3s ago`.
fn backup_line(backups: &Backups, now: Timestamp) -> String {
    let ago = |reference: &BackupReference| format!("{} ago", age(reference.completed_at.0, now));
    let good = backups.last_successful.as_ref();
    let mut text = good.map_or_else(
        || "none has succeeded yet".to_owned(),
        |good| format!("{} {}", good.name, ago(good)),
    );
    if let Some(verified) = &backups.last_verified {
        let _ = write!(text, ", restored and checked {}", ago(verified));
    }
    if let Some(run) = &backups.verification {
        text.push_str(&verification(run, now));
    }
    if let Some(failed) = &backups.last_failed {
        let _ = write!(text, ", {} failed {}", failed.name, ago(failed));
    }
    if let Some(recoverable) = backups.recoverable {
        let _ = write!(text, "; recoverable to {}", reach(recoverable, now));
    }
    format!("Backups: {text}")
}

/// What the newest run adds to when one succeeded last.
fn verification(run: &VerificationStatus, now: Timestamp) -> String {
    match (run.result, &run.reached_time, &run.completed_at) {
        (Some(VerificationResult::Verified), Some(reached), _) => format!(" up to {}", reached.0),
        (Some(VerificationResult::Running), ..) => ", one is being restored and checked now".to_owned(),
        (Some(VerificationResult::Failed), _, Some(at)) => format!(", a verification failed {} ago", age(at.0, now)),
        (Some(VerificationResult::Verified | VerificationResult::Failed) | None, ..) => String::new(),
    }
}

fn reach(recoverable: Recoverable, now: Timestamp) -> String {
    match recoverable {
        Recoverable::AgeMs(age_ms) => {
            let since = SignedDuration::from_millis(i64::try_from(age_ms).unwrap_or(i64::MAX));
            let through = now.checked_sub(since).unwrap_or(now);
            format!("{} ago", age(through, now))
        }
        Recoverable::Through(through) => format!("{} ago or later", age(through, now)),
    }
}

pub(crate) fn last_change(change: &Change, now: Timestamp) -> String {
    let ago = age(change.at, now);
    if change.kind == ChangeKind::Bootstrap {
        return format!("Primary: {} since the cluster was made, {ago} ago", change.to);
    }
    let what = described(change.kind, change.from.as_deref(), &change.to);
    let blocked = change
        .writes_blocked_ms
        .map_or_else(String::new, |ms| format!(", {}", lasted(change.kind, ms)));
    let parts = change.phases.as_ref().map(parts).filter(|parts| !parts.is_empty());
    let parts = parts.map_or_else(String::new, |parts| format!(" ({parts})"));
    format!("Last change of primary: {what}, {ago} ago{blocked}{parts}")
}

/// How far the recovery of the first data is. Why it fails is told by a condition.
fn recovered(recovery: &RecoveryStatus, now: Timestamp) -> String {
    let text = match recovery.phase {
        RecoveryPhase::Failed => return String::new(),
        RecoveryPhase::Running => recovery
            .message
            .clone()
            .unwrap_or_else(|| "is about to begin".to_owned()),
        RecoveryPhase::Done => {
            let ended = recovery.completed_at.as_ref();
            let ago = ended.map_or_else(String::new, |ended| format!("{} ago, ", age(ended.0, now)));
            let backup = recovery.backup.as_deref().unwrap_or("a backup");
            let time = recovery.reached_time.as_ref();
            let time = time.map_or_else(String::new, |time| format!(" and its archive up to {}", time.0));
            format!("{ago}from {backup}{time}")
        }
    };
    format!("Recovery: {text}\n")
}

fn problem_lines(out: &mut String, problem: &Problem, now: Timestamp, style: Style) {
    let since = problem
        .since
        .map_or_else(String::new, |since| format!(" for {}", age(since, now)));
    let what = style.paint(YELLOW, &problem.what);
    if problem.why.is_empty() {
        let _ = writeln!(out, "{what}{since}");
    } else {
        let _ = writeln!(out, "{what}{since}: {}", problem.why);
    }
    if let Some(remedy) = &problem.remedy {
        let _ = writeln!(out, "  What to do: {remedy}");
    }
}

/// The time from `since` to `now` in the unit that says enough, as kubectl does: `41s`, `9m`, `9h`, `12d`.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    match now.duration_since(since).as_secs().max(0) {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7200 => format!("{}m", s / 60),
        s @ 7200..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
