//! `status.backup.archive`: how far the archive of the binlog reaches (decision D).

use crate::backup::summary::ArchivePoint;
use crate::gtid::OWN_TAG;
use crate::view::View;

/// How far the archive reaches; `None` when there is none, or nobody can say.
pub(super) fn point(view: &View<'_>, condition_changes: bool) -> Option<ArchivePoint> {
    let open = view.open_primary().filter(|_| view.subject.archives() == Some(true))?;
    let archive = open.report.archive.as_ref()?;
    let through = open
        .report
        .executed
        .subtract(&archive.behind)
        .subtract(&archive.missing);
    Some(ArchivePoint {
        own: through.with_tag(OWN_TAG),
        through,
        time: archive.through?,
        condition_changes,
    })
}
