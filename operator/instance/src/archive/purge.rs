//! Which binlogs hold nothing but what is stored. Everything here blocks.

use std::ffi::OsStr;
use std::path::Path;

use mainstay_core::GtidSet;

use super::source::{SourceError, list, previous};

/// The oldest binlog that has to stay, when there are some before it: every transaction of those is in `stored`. `purged` is the
/// server's `gtid_purged`, as of now or before.
///
/// What the files before one hold is what it says was logged before it, without what no file holds. It grows from file to file,
/// so the first one that says too much ends the search. One that cannot be read is no bound; that the file which is written to
/// stays follows from there being none behind it.
pub(crate) fn first_to_stay(
    directory: &Path,
    purged: &GtidSet,
    stored: &GtidSet,
) -> Result<Option<String>, SourceError> {
    let files = list(directory)?;
    let mut bound = None;
    for file in files.iter().skip(1) {
        match previous(file) {
            Ok(Some(previous)) if stored.contains(&previous.subtract(purged)) => bound = Some(file),
            Ok(Some(_)) => break,
            // It was made and not written to yet, or a purge by somebody else did not come to its end.
            Ok(None) => {}
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bound.and_then(|file| name(file)))
}

/// The oldest binlog that there is.
pub(crate) fn oldest(directory: &Path) -> Result<Option<String>, SourceError> {
    let files = list(directory)?;
    Ok(files.iter().find(|file| file.exists()).and_then(|file| name(file)))
}

fn name(path: &Path) -> Option<String> {
    path.file_name().and_then(OsStr::to_str).map(str::to_owned)
}
