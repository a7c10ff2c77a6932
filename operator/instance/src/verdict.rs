//! Whether the reason for which a server did not start may lie in its data directory: a decision about how it ended, what it
//! logged, and what is known of the volume, without I/O.
//!
//! It is the operator's ground for another life of the data directory, so what lies elsewhere must not count: the next life
//! would not start either. What lies elsewhere is a list of its own, because servers say it in known words: an option, the
//! operating system, a port, a version. What comes from InnoDB otherwise, and a crash, is laid to the data. The rest is not
//! known by its words; `mysqld --validate-config` tells options from the rest then.

use crate::errorlog::{Line, Severity};
use crate::process::Exit;

/// What one line of the error log points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Something that no data directory mends, whatever else is logged: the operating system, options, the version.
    Elsewhere,
    /// A plugin or a component that is missing, without which it may start all the same.
    Part,
    /// InnoDB cannot work with its files, or the server crashed.
    Data,
}

/// What the lines of one server process point to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    elsewhere: bool,
    part: bool,
    data: bool,
}

/// What is known of the data volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volume {
    /// It works, and there is room.
    Sound,
    /// It is full, or does not work.
    Unfit,
}

/// Where the reason lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may lie in the data directory.
    Data,
    /// It lies elsewhere.
    Elsewhere,
    /// In the data directory if mysqld has nothing against its options.
    UnlessOptions,
}

/// Errors of mysqld's readers of options: files that cannot be read, groups, directives; variables that are not known; values
/// that are none.
const OPTIONS: [std::ops::RangeInclusive<u32>; 3] = [47..=56, 58..=58, 67..=85];
/// The server is older, or much newer, than the one that wrote the data directory; an upgrade did not go through.
const VERSIONS: [u32; 5] = [13_171, 13_178, 13_377, 14_060, 14_061];
/// `lower_case_table_names` is not what the data directory was made with.
const LOWER_CASE: u32 = 11_087;

/// Errors of the operating system that are nobody's data: EPERM, ENOMEM, EACCES, ENFILE, EMFILE, ENOSPC, EROFS, EADDRINUSE,
/// EADDRNOTAVAIL, EDQUOT. (EIO on a volume that works otherwise is a part of it that does not: that is in the data directory.)
const ERRNOS: [u32; 10] = [1, 12, 13, 23, 24, 28, 30, 98, 99, 122];

/// How messages write such a number.
const ERRNO: [&str; 6] = [
    "errno: ",
    "errno ",
    "errno=",
    "os error: ",
    "os error code ",
    "operating system error number ",
];

/// Phrases of messages that name no number, or are about something else than data.
const ELSEWHERE: [&str; 15] = [
    "no space left on device",
    "permission denied",
    "disk is full",
    "disk quota exceeded",
    "too many open files",
    "read-only file system",
    "cannot allocate memory",
    "out of memory",
    "can't start server",
    "address already in use",
    "another process with pid",
    "unable to lock ./",
    "must be writable",
    "start-up parameter",
    "keyring",
];

/// What the server itself says of an option that it understands and does not take, once it is too late for
/// `--validate-config` to notice.
const REFUSED_OPTION: [&str; 2] = ["option --", "invalid value"];

/// What a missing file of a plugin or a component is told with.
const PARTS: [&str; 3] = ["shared library", "component", "can't find symbol"];

/// What a crash is told with, in a line that is no regular one.
const CRASHES: [&str; 2] = ["mysqld got signal", "mysqld got exception"];

/// SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV: what only a process itself brings about. Others come from outside, as SIGKILL of
/// the kernel that has no memory left.
const OWN_SIGNALS: [i32; 5] = [4, 6, 7, 8, 11];

impl Signs {
    /// Takes note of a line.
    pub(crate) fn add(&mut self, line: &Line<'_>) {
        match sign(line) {
            Some(Sign::Elsewhere) => self.elsewhere = true,
            Some(Sign::Part) => self.part = true,
            Some(Sign::Data) => self.data = true,
            None => {}
        }
    }
}

/// What a line points to; `None` when it says nothing about that.
#[must_use]
pub(crate) fn sign(line: &Line<'_>) -> Option<Sign> {
    if line.code.is_empty() {
        let crashed = CRASHES.iter().any(|phrase| line.message.contains(phrase));
        return crashed.then_some(Sign::Data);
    }
    if line.severity != Severity::Error {
        return None;
    }
    let code = line.code.strip_prefix("MY-").and_then(|code| code.parse::<u32>().ok());
    let message = line.message.to_lowercase();
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    let known = code.is_some_and(|code| {
        OPTIONS.iter().any(|range| range.contains(&code)) || VERSIONS.contains(&code) || code == LOWER_CASE
    });
    let refused = line.subsystem == "Server" && has(&REFUSED_OPTION);
    if known || refused || has(&ELSEWHERE) || errno(&message).is_some_and(|number| ERRNOS.contains(&number)) {
        Some(Sign::Elsewhere)
    } else if has(&PARTS) {
        Some(Sign::Part)
    } else {
        (line.subsystem == "InnoDB").then_some(Sign::Data)
    }
}

/// The number of the operating system's error in a message.
fn errno(message: &str) -> Option<u32> {
    ERRNO.iter().find_map(|before| {
        let (_, rest) = message.split_once(before)?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..digits)?.parse().ok()
    })
}

/// Where the reason lies for which a server ended that had not answered.
#[must_use]
pub(crate) fn judge(exit: Exit, signs: Signs, volume: Volume) -> Verdict {
    let from_outside = match exit {
        // Somebody told it to end.
        Exit::Code(code) => code == 0,
        Exit::Signal(signal) => !OWN_SIGNALS.contains(&signal),
    };
    if from_outside || volume == Volume::Unfit || signs.elsewhere {
        Verdict::Elsewhere
    } else if signs.data || matches!(exit, Exit::Signal(_)) {
        Verdict::Data
    } else if signs.part {
        Verdict::Elsewhere
    } else {
        Verdict::UnlessOptions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errorlog::parse;

    /// How a server ended, what it logged, and what follows on a volume that works.
    struct Case {
        name: &'static str,
        exit: Exit,
        log: &'static [&'static str],
        verdict: Verdict,
    }

    const ABORTED: Exit = Exit::Code(1);

    fn signs(log: &[&str]) -> Signs {
        let mut signs = Signs::default();
        for line in log {
            signs.add(&parse(line));
        }
        signs
    }

    const CASES: &[Case] = &[
        Case {
            name: "an unknown variable",
            exit: ABORTED,
            log: &[
                "2026-11-29T20:02:57.1Z 0 [ERROR] [MY-000067] [Server] unknown variable 'query_cache_size=1'.",
                "2026-11-29T20:02:57.2Z 0 [ERROR] [MY-010119] [Server] Aborting",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "a value that is none",
            exit: ABORTED,
            log: &[
                "2026-11-29T20:02:57.1Z 0 [ERROR] [MY-000077] [Server] /usr/sbin/mysqld: Error while setting value 'x' to \
                 'binlog_format'.",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "a value of which plugins decide",
            exit: ABORTED,
            log: &[
                "2026-11-30T23:27:55.1Z 0 [ERROR] [MY-013797] [Server] Option --authentication-policy is set to an invalid value. \
                 Please check if the specified authentication plugins are valid.",
                "2026-11-30T23:27:55.1Z 0 [ERROR] [MY-010119] [Server] Aborting",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "another page size",
            exit: ABORTED,
            log: &[
                "2026-11-30T23:27:40.1Z 1 [ERROR] [MY-012222] [InnoDB] Data file './ibdata1' uses page size 16384, but the \
                 innodb_page_size start-up parameter is 8192",
                "2026-11-30T23:27:40.1Z 1 [ERROR] [MY-012237] [InnoDB] Corrupted page [page id: space=0, page number=0] of \
                 datafile './ibdata1' could not be found in the doublewrite buffer.",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "another lower_case_table_names",
            exit: ABORTED,
            log: &[
                "2026-11-30T23:27:47.1Z 1 [ERROR] [MY-011087] [Server] Different lower_case_table_names settings for server \
                 ('1') and data dictionary ('0').",
                "2026-11-30T23:27:47.1Z 0 [ERROR] [MY-010020] [Server] Data Dictionary initialization failed.",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "a file that may not be read",
            exit: ABORTED,
            log: &[
                "2026-11-29T20:02:57.1Z 1 [ERROR] [MY-012592] [InnoDB] Operating system error number 13 in a file operation.",
                "2026-11-29T20:02:57.1Z 1 [ERROR] [MY-012595] [InnoDB] The error means mysqld does not have the access rights \
                 to the directory.",
                "2026-11-29T20:02:57.1Z 1 [ERROR] [MY-010334] [Server] Failed to initialize DD Storage Engine",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "no room, and InnoDB gives up with a crash",
            exit: Exit::Code(2),
            log: &[
                "2026-11-29T20:02:57.1Z 1 [ERROR] [MY-012639] [InnoDB] Write to file ./ibtmp1 failed at offset 0, 1048576 bytes \
                 should have been written, only 0 were written. Operating system error number 28.",
                "2026-11-29T20:02:57.1Z 1 [ERROR] [MY-013183] [InnoDB] Assertion failure: fsp0fsp.cc:3908 thread 1",
                "2026-11-29T20:02:57Z UTC - mysqld got signal 6 ;",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "killed for want of memory",
            exit: Exit::Signal(9),
            log: &["2026-11-29T20:02:57.1Z 1 [ERROR] [MY-012224] [InnoDB] something before"],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "no memory for the buffer pool",
            exit: ABORTED,
            log: &[
                "2026-11-29T20:02:57.1Z 1 [ERROR] [MY-012681] [InnoDB] mmap(137363456 bytes) failed; errno 12",
                "2026-11-29T20:02:57.1Z 1 [ERROR] [MY-012956] [InnoDB] Cannot allocate memory for the buffer pool",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "a port that is taken",
            exit: ABORTED,
            log: &[
                "2026-11-29T20:02:57.1Z 0 [ERROR] [MY-010262] [Server] Can't start server: Bind on TCP/IP port: Address already \
                 in use",
                "2026-11-29T20:02:57.1Z 0 [ERROR] [MY-010257] [Server] Do you already have another mysqld server running on \
                 port: 3306 ?",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "another server on the same files",
            exit: ABORTED,
            log: &["2026-11-29T20:02:57.1Z 1 [ERROR] [MY-012574] [InnoDB] Unable to lock ./ibdata1 error: 11"],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "a plugin that is missing",
            exit: ABORTED,
            log: &[
                "2026-11-29T20:02:57.1Z 0 [ERROR] [MY-010126] [Server] Can't open shared library \
                 '/usr/lib64/mysql/plugin/audit.so' (errno: 2 /usr/lib64/mysql/plugin/audit.so: cannot open shared object \
                 file: No such file or directory)",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "an older server",
            exit: ABORTED,
            log: &[
                "2026-11-29T20:02:57.1Z 1 [ERROR] [MY-014061] [Server] Invalid MySQL server downgrade: Cannot downgrade from \
                 90704 to 80400. Target MySQL server version is lower than the server downgrade threshold 90000.",
                "2026-11-29T20:02:57.1Z 0 [ERROR] [MY-010020] [Server] Data Dictionary initialization failed.",
            ],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "it was told to end",
            exit: Exit::Code(0),
            log: &[],
            verdict: Verdict::Elsewhere,
        },
        Case {
            name: "a crash of the recovery",
            exit: Exit::Code(2),
            log: &[
                "2026-11-29T20:02:57Z UTC - mysqld got signal 11 ;",
                "Most likely, you have hit a bug, but this error can also be caused by malfunctioning hardware.",
            ],
            verdict: Verdict::Data,
        },
        Case {
            name: "pages that are damaged",
            exit: Exit::Code(2),
            log: &[
                "2026-11-30T23:14:20.1Z 1 [ERROR] [MY-011906] [InnoDB] Database page corruption on disk or a failed file read \
                 of page [page id: space=0, page number=5]. You may have to recover from a backup.",
            ],
            verdict: Verdict::Data,
        },
        Case {
            name: "a redo log that was cut off",
            exit: ABORTED,
            log: &[
                "2026-11-30T23:14:07.1Z 1 [ERROR] [MY-013857] [InnoDB] The redo log file ./#innodb_redo/#ib_redo7 is smaller \
                 than 65536 bytes, which indicates it was not generated by InnoDB or become corrupted. Please restore the \
                 correct file.",
            ],
            verdict: Verdict::Data,
        },
        // The next four are what MySQL 9.7.4 says of harm that tests did (`tests/mysqld/healing.rs`).
        Case {
            name: "half of ibdata1",
            exit: ABORTED,
            log: &[
                "2026-11-30T23:02:50.9Z 1 [ERROR] [MY-012263] [InnoDB] The Auto-extending innodb_system data file './ibdata1' is \
                 of a different size 384 pages (rounded down to MB) than specified in the .cnf file: initial 768 pages, max 0 \
                 (relevant if non-zero) pages!",
                "2026-11-30T23:02:50.9Z 1 [ERROR] [MY-012930] [InnoDB] Plugin initialization aborted with error Generic error.",
                "2026-11-30T23:02:50.9Z 1 [ERROR] [MY-010334] [Server] Failed to initialize DD Storage Engine",
                "2026-11-30T23:02:50.9Z 0 [ERROR] [MY-010119] [Server] Aborting",
            ],
            verdict: Verdict::Data,
        },
        Case {
            name: "no ibdata1",
            exit: Exit::Code(3),
            log: &[
                "2026-11-30T23:03:09.9Z 1 [ERROR] [MY-012592] [InnoDB] Operating system error number 2 in a file operation.",
                "2026-11-30T23:03:09.9Z 1 [ERROR] [MY-012646] [InnoDB] File ./ibdata1: 'open' returned OS error 71. Cannot \
                 continue operation",
                "2026-11-30T23:03:09.9Z 1 [ERROR] [MY-012981] [InnoDB] Cannot continue operation.",
            ],
            verdict: Verdict::Data,
        },
        Case {
            name: "no redo log",
            exit: ABORTED,
            log: &[
                "2026-11-30T23:03:24.1Z 1 [ERROR] [MY-013862] [InnoDB] Neither found #innodb_redo subdirectory, nor ib_logfile* \
                 files in ./",
                "2026-11-30T23:03:24.1Z 1 [ERROR] [MY-012930] [InnoDB] Plugin initialization aborted with error Generic error.",
            ],
            verdict: Verdict::Data,
        },
        Case {
            name: "garbage in mysql.ibd",
            exit: ABORTED,
            log: &[
                "2026-11-30T23:03:45.6Z 1 [ERROR] [MY-012179] [InnoDB] Could not find any file associated with the tablespace \
                 ID: 4294967294",
                "2026-11-30T23:03:45.6Z 1 [ERROR] [MY-012964] [InnoDB] Use --innodb-directories to find the tablespace files. If \
                 that fails then use --innodb-force-recovery=1 to ignore this and to permanently lose all changes to the \
                 missing tablespace(s)",
            ],
            verdict: Verdict::Data,
        },
        Case {
            name: "a crash that leaves a core file",
            exit: Exit::Signal(6),
            log: &[],
            verdict: Verdict::Data,
        },
        Case {
            name: "a missing plugin is nothing beside data that cannot be read",
            exit: ABORTED,
            log: &[
                "2026-11-29T20:02:57.1Z 0 [ERROR] [MY-010126] [Server] Can't open shared library 'x.so' (errno: 2 x.so: cannot \
                 open shared object file: No such file or directory)",
                "2026-11-29T20:02:57.1Z 1 [ERROR] [MY-012224] [InnoDB] Header page contains inconsistent data in datafile: \
                 ./ibdata1",
            ],
            verdict: Verdict::Data,
        },
        Case {
            name: "a binlog that is named and gone, which is no error of InnoDB",
            exit: ABORTED,
            log: &[
                "2026-11-29T20:02:57.1Z 0 [ERROR] [MY-010958] [Server] Could not open log file.",
                "2026-11-29T20:02:57.1Z 0 [ERROR] [MY-010041] [Server] Can't init tc log",
                "2026-11-29T20:02:57.1Z 0 [ERROR] [MY-010119] [Server] Aborting",
            ],
            verdict: Verdict::UnlessOptions,
        },
        Case {
            name: "it says nothing at all",
            exit: ABORTED,
            log: &[
                "2026-11-29T20:02:57.1Z 0 [Warning] [MY-010918] [Server] something",
                "a line",
            ],
            verdict: Verdict::UnlessOptions,
        },
    ];

    #[test]
    fn where_the_reason_lies() {
        for case in CASES {
            assert_eq!(
                judge(case.exit, signs(case.log), Volume::Sound),
                case.verdict,
                "{}",
                case.name
            );
        }
    }

    #[test]
    fn on_a_volume_that_is_full_or_broken_nothing_is_laid_to_the_data() {
        for case in CASES {
            assert_eq!(
                judge(case.exit, signs(case.log), Volume::Unfit),
                Verdict::Elsewhere,
                "{}",
                case.name
            );
        }
    }

    #[test]
    fn numbers_of_the_operating_system() {
        for (message, number) in [
            ("mmap(1 bytes) failed; errno 12", Some(12)),
            ("(os errno 13 - permission denied)", Some(13)),
            ("operating system error number 28 in a file operation.", Some(28)),
            ("cannot open datafile './ibdata1' os error: 71", Some(71)),
            ("plugin initialization aborted with error 13", None),
            ("errno: ", None),
        ] {
            assert_eq!(errno(message), number, "{message}");
        }
    }
}
