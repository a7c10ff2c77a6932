//! Problems of the archive of the binlog, as the open primary tells them.

use crate::analyse::{Analysis, ProblemCode};
use crate::observed::StoreSecret;
use crate::view::View;

/// What keeps transactions out of the archive. While no primary is open nobody can tell.
pub(super) fn primary(view: &View<'_>, analysis: &mut Analysis) {
    let (Some(true), Some(open)) = (view.subject.archives(), view.open_primary()) else {
        return;
    };
    let name = &open.instance.name;
    let Some(archive) = &open.report.archive else {
        let why = match &view.observed.secrets.store {
            StoreSecret::Refused { field, message } => format!(" ({field}: {message})"),
            _ => String::new(),
        };
        let message = format!("the primary {name} does not archive its binlog{why}");
        analysis.found_on(ProblemCode::ArchiveNotRunning, name, message);
        return;
    };
    if !archive.missing.is_empty() {
        let message = format!("{} is missing in the archive", archive.missing);
        analysis.found_on(ProblemCode::ArchiveGap, name, message);
    }
    if !archive.error.is_empty() {
        analysis.found_on(ProblemCode::ArchiveFailing, name, format!("{name}: {}", archive.error));
    }
}
