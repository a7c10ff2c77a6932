//! What a source and its semi-synchronous replica do, step by step: played by the model of the simulation, and by real
//! servers (`operator/instance/tests/mysqld/conformance.rs`). Both have to show the same, which is what `facts.txt` says.

use std::fmt::Write as _;

/// What both have to show.
const FACTS: &str = include_str!("facts.txt");

/// Transactions of the script: how many each server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Executed by the source: clients can read them.
    pub(crate) source: u64,
    /// Executed by the replica.
    pub(crate) replica: u64,
    /// In the replica's relay log, complete, and not executed.
    pub(crate) relay: u64,
}

/// What a client was told of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is committed.
    Committed,
    /// Nothing within seconds.
    Nothing,
    /// The connection was lost.
    Lost,
}

/// A source whose commits wait for one acknowledgement, and its replica.
pub(crate) trait Servers {
    /// Begins to commit a transaction on the source.
    async fn begin(&mut self);
    /// What the clients of all transactions are told that had no answer before.
    async fn answers(&mut self) -> Vec<Answer>;
    /// The receiver ends its connection.
    async fn stop_receiver(&mut self);
    /// The receiver connects again to the source that it had.
    async fn start_receiver(&mut self);
    /// The applier stops.
    async fn stop_applier(&mut self);
    /// The applier goes on.
    async fn start_applier(&mut self);
    /// What the replica says is lost from now on, what it hears is not; until its receiver connects again.
    async fn mute_replica(&mut self);
    /// Power cut and restart; it comes up open, and its commits wait for one acknowledgement.
    async fn crash_source(&mut self);
    /// Power cut and restart; neither receiver nor applier run.
    async fn crash_replica(&mut self);
    /// What is there when nothing moves any more.
    async fn state(&mut self) -> State;
}

/// Plays the script; panics when it shows anything but the facts.
pub(crate) async fn play(servers: &mut impl Servers) {
    let mut seen = String::new();
    while_it_is_connected(servers, &mut seen).await;
    over_a_crash_of_the_replica(servers, &mut seen).await;
    without_its_acknowledgement(servers, &mut seen).await;
    over_a_crash_of_the_source(servers, &mut seen).await;
    assert_eq!(seen, FACTS, "this is what was seen:\n{seen}");
}

async fn note(servers: &mut impl Servers, seen: &mut String, what: &str) {
    let answers = servers.answers().await;
    let State { source, replica, relay } = servers.state().await;
    writeln!(
        seen,
        "{what}\n    clients {answers:?}, source {source}, replica {replica} + {relay}"
    )
    .unwrap();
}

async fn while_it_is_connected(servers: &mut impl Servers, seen: &mut String) {
    servers.begin().await;
    note(servers, seen, "a commit").await;
    servers.stop_applier().await;
    servers.begin().await;
    note(
        servers,
        seen,
        "a commit while the applier is stopped: received is enough",
    )
    .await;
}

async fn over_a_crash_of_the_replica(servers: &mut impl Servers, seen: &mut String) {
    servers.crash_replica().await;
    note(servers, seen, "the replica crashed: its relay log is there").await;
    servers.begin().await;
    note(servers, seen, "a commit that no replica is there to receive").await;
    servers.start_receiver().await;
    note(
        servers,
        seen,
        "the replica is connected again, and gets what it has not",
    )
    .await;
    servers.start_applier().await;
    note(servers, seen, "it applies both").await;
}

/// L5 of docs/failover.md.
async fn without_its_acknowledgement(servers: &mut impl Servers, seen: &mut String) {
    servers.mute_replica().await;
    servers.begin().await;
    note(
        servers,
        seen,
        "a commit that is received, and its acknowledgement is lost",
    )
    .await;
    servers.stop_receiver().await;
    servers.start_receiver().await;
    servers.begin().await;
    note(
        servers,
        seen,
        "the replica is connected again: only a later commit is acknowledged, and what was before it",
    )
    .await;
}

async fn over_a_crash_of_the_source(servers: &mut impl Servers, seen: &mut String) {
    servers.stop_receiver().await;
    servers.begin().await;
    note(servers, seen, "a commit that no replica receives").await;
    servers.crash_source().await;
    note(
        servers,
        seen,
        "the source crashed: recovery commits what nobody acknowledged",
    )
    .await;
    servers.start_receiver().await;
    note(servers, seen, "the replica gets it").await;
    servers.stop_applier().await;
    servers.begin().await;
    note(servers, seen, "a commit that the replica does not apply").await;
    servers.crash_source().await;
    servers.crash_replica().await;
    note(servers, seen, "both crashed").await;
    servers.start_applier().await;
    note(servers, seen, "what was received is applied without the source").await;
}
