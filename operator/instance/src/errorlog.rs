//! mysqld's error log: passed on as lines of the manager's own log, and kept for "why does it not start".

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use crate::secrets::Redactor;
use crate::verdict::Signs;

/// Errors that are kept.
const KEPT: usize = 8;
/// Longest line that is passed on, in bytes.
const LONGEST: usize = 8 * 1024;
/// Longest reason that is told, in characters.
const LONGEST_REASON: usize = 300;

/// Severity in the error log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// `[System]` and `[Note]`
    Info,
    /// `[Warning]`
    Warning,
    /// `[ERROR]`
    Error,
}

/// A line of the error log, taken apart:
/// `2026-11-29T19:45:57.152844Z 1 [System] [MY-013577] [InnoDB] InnoDB initialization has ended.`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// How bad.
    pub(crate) severity: Severity,
    /// `MY-013577`; empty when it is no regular line.
    pub(crate) code: &'a str,
    /// `InnoDB`
    pub(crate) subsystem: &'a str,
    /// The rest.
    pub(crate) message: &'a str,
}

/// Takes a line apart; one that is not regular (a stack trace) is all message.
#[must_use]
pub(crate) fn parse(line: &str) -> Line<'_> {
    regular(line).unwrap_or(Line {
        severity: Severity::Info,
        code: "",
        subsystem: "",
        message: line,
    })
}

fn regular(line: &str) -> Option<Line<'_>> {
    let (_time, rest) = line.split_once(' ')?;
    let (_thread, rest) = rest.split_once(' ')?;
    let (label, rest) = bracket(rest)?;
    let (code, rest) = bracket(rest)?;
    let (subsystem, message) = bracket(rest)?;
    let severity = match label {
        "ERROR" => Severity::Error,
        "Warning" => Severity::Warning,
        "System" | "Note" => Severity::Info,
        _ => return None,
    };
    Some(Line {
        severity,
        code,
        subsystem,
        message,
    })
}

fn bracket(text: &str) -> Option<(&str, &str)> {
    let (inner, rest) = text.strip_prefix('[')?.split_once(']')?;
    Some((inner, rest.trim_start()))
}

/// The last errors of a process, and what all of its lines point to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    errors: Arc<Mutex<VecDeque<String>>>,
    signs: Arc<Mutex<Signs>>,
}

impl Tail {
    fn note(&self, line: &Line<'_>) {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner).add(line);
    }

    /// What its lines point to.
    #[must_use]
    pub(crate) fn signs(&self) -> Signs {
        *self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, message: &str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() == KEPT {
            errors.pop_front();
        }
        errors.push_back(message.trim_end_matches('.').chars().take(LONGEST_REASON).collect());
    }

    /// The error that says why it ended: the last one that is more than the announcement that it ends.
    #[must_use]
    pub(crate) fn reason(&self) -> Option<String> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors
            .iter()
            .rev()
            .find(|error| !is_announcement(error))
            .or_else(|| errors.back())
            .cloned()
    }
}

fn is_announcement(error: &str) -> bool {
    [
        "Aborting",
        "Data Dictionary initialization failed",
        "Failed to initialize DD Storage Engine",
        "Plugin initialization aborted",
        "Cannot continue operation",
        "Can't init tc log",
        "Use --innodb-directories",
        "The designated data directory",
        "The newly created data dir",
    ]
    .iter()
    .any(|start| error.starts_with(start))
}

/// Passes on everything that comes out of `source` until it is closed, as lines of this program's log.
pub(crate) async fn follow(source: impl AsyncRead + Unpin, program: &'static str, tail: Tail, redactor: Redactor) {
    let mut reader = BufReader::new(source);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match reader.read_until(b'\n', &mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let whole = String::from_utf8_lossy(bytes.get(..bytes.len().min(LONGEST)).unwrap_or_default());
        let text = redactor.redact(whole.trim_end());
        if text.is_empty() {
            continue;
        }
        let line = parse(&text);
        tail.note(&line);
        let Line {
            severity,
            code,
            subsystem,
            message,
        } = line;
        match severity {
            Severity::Info => tracing::info!(program, code, subsystem, "{message}"),
            Severity::Warning => tracing::warn!(program, code, subsystem, "{message}"),
            Severity::Error => {
                tracing::error!(program, code, subsystem, "{message}");
                tail.keep(message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_line() {
        let line = "2026-11-29T20:02:57.610627Z 5 [ERROR] [MY-000061] [Server] 1396  Operation failed.";
        let parsed = parse(line);
        assert_eq!(parsed.severity, Severity::Error);
        assert_eq!((parsed.code, parsed.subsystem), ("MY-000061", "Server"));
        assert_eq!(parsed.message, "1396  Operation failed.");
    }

    #[test]
    fn what_is_not_regular_is_all_message() {
        for line in [
            "",
            "mysqld got signal 11 ;",
            "2026-11-29T20:02:57Z UTC - mysqld got signal 11",
            "a b [c] [d] e",
        ] {
            assert_eq!(parse(line).message, line);
        }
    }

    #[tokio::test]
    async fn what_follows_from_an_error_is_not_the_reason() {
        let log: &[u8] = b"2026-11-30T23:02:50Z 1 [ERROR] [MY-013862] [InnoDB] Neither found #innodb_redo subdirectory, nor \
            ib_logfile* files in ./\n\
            2026-11-30T23:02:50Z 1 [ERROR] [MY-012930] [InnoDB] Plugin initialization aborted with error Generic error.\n\
            2026-11-30T23:02:50Z 1 [ERROR] [MY-010334] [Server] Failed to initialize DD Storage Engine\n\
            2026-11-30T23:02:50Z 0 [ERROR] [MY-010020] [Server] Data Dictionary initialization failed.\n\
            2026-11-30T23:02:50Z 0 [ERROR] [MY-010119] [Server] Aborting\n";
        let tail = Tail::default();
        follow(log, "mysqld", tail.clone(), Redactor::default()).await;
        let reason = "Neither found #innodb_redo subdirectory, nor ib_logfile* files in ./";
        assert_eq!(tail.reason().as_deref(), Some(reason));
    }

    #[tokio::test]
    async fn the_reason_is_the_last_error_that_says_something() {
        let log: &[u8] =
            b"2026-11-29T20:02:57Z 0 [ERROR] [MY-000067] [Server] unknown variable 'query_cache_size=1'.\n\
            2026-11-29T20:02:57Z 0 [Warning] [MY-010952] [Server] The privilege system failed to initialize.\n\
            2026-11-29T20:02:57Z 0 [ERROR] [MY-010119] [Server] Aborting\n\xff\xfe\n";
        let tail = Tail::default();
        follow(log, "mysqld", tail.clone(), Redactor::default()).await;
        assert_eq!(tail.reason().as_deref(), Some("unknown variable 'query_cache_size=1'"));
        assert_eq!(Tail::default().reason(), None);
    }
}
