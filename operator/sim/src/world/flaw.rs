//! Rules that instances break on purpose: tests of the tests.
//!
//! Each flaw is a plausible mistake, and the reason of one of the rules. A scenario that holds with honest instances and
//! not with flawed ones shows that the simulation would notice the mistake.

/// What all instances of a world do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A commit is answered without an acknowledgement (rule 6: semi-synchronous replication is never switched off).
    NoWait,
    /// What was acknowledged is not durable: a replica forgets its relay log when it dies (C6, `sync_relay_log`).
    VolatileRelayLog,
    /// Who is not on the allow list receives and acknowledges all the same (rule 1, C14).
    OpenDoors,
    /// A command that is not newer than the persisted pair is carried out (rule 0, C8).
    OldCommands,
    /// A writable mysqld is stopped cleanly, which acknowledges what waits (decision A1).
    CleanStop,
}
