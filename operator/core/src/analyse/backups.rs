//! Problems of backups, told in the conditions `BackupHealthy` and `BackupVerified`.

use jiff::Timestamp;

use super::resources::shorten;
use crate::analyse::{Analysis, ProblemCode};
use crate::backup::plan::Listing;
use crate::backup::summary::summary;
use crate::backup::verify;
use crate::observed::{Observed, StoreSecret};
use crate::subject::Subject;

/// What stands between the declared backups and those that are made. Nothing while none are declared.
pub(super) fn find(subject: &Subject<'_>, observed: &Observed, now: Timestamp, analysis: &mut Analysis) {
    let Some(backup) = subject.spec.ok().and_then(|spec| spec.backup.as_ref()) else {
        return;
    };
    if let StoreSecret::Refused { field, message } = &observed.secrets.store {
        analysis.found(ProblemCode::StoreRefused, format!("{field}: {message}"));
    }
    let seen = &observed.backups;
    let summary = summary(Some(&seen.told), &backup.settings, seen, None, now);
    if let Some(failed) = summary.last_failed {
        let why = failed.message.as_deref().unwrap_or("it does not say why");
        analysis.found(
            ProblemCode::BackupFailed,
            format!("{} failed: {}", failed.name, shorten(why)),
        );
    }
    let verification = summary.verification.as_ref();
    if let Some(message) = verification.and_then(|verification| verify::failure(verification, seen)) {
        analysis.found(ProblemCode::BackupsNotVerified, shorten(&message));
    }
    if let Listing::Unknown { reason: Some(reason) } = &seen.store {
        let message = format!("the operator cannot list the store: {}", shorten(reason));
        analysis.found(ProblemCode::StoreNotListed, message);
    }
}
