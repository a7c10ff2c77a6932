//! The operator's commands (rule 0): checked, made durable, carried out one at a time, answered with the state after.

mod accounts;
mod allow;
mod attach;
mod clone;
mod fence;
mod mark;
mod open;
mod purge;
mod relogin;
mod restart;
mod set_right;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::action::Verb;
use mainstay_core::observed::{Mysqld, Persisted};
use mainstay_core::rules::{Incarnation, MemberId};
use mainstay_mysql::{Mysql, MysqlError};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout_at};

use crate::archive::{Archive, Told};
use crate::config::ordinal_of;
use crate::duties::Duties;
use crate::mysqld::chain;
use crate::proto;
use crate::server::Server;
use crate::shared::{ListEnded, Shared};

/// Beyond its deadline, for what a fence writes to the state file.
const WRITE: Duration = Duration::from_millis(1500);
/// How long it may take to end the session of a statement that was given up.
const SETTLE: Duration = Duration::from_secs(2);

/// Head of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Epoch under which it is given.
    pub(crate) epoch: u64,
    /// Number within the epoch.
    pub(crate) seq: u64,
    /// Data directory for which it is meant.
    pub(crate) incarnation: Incarnation,
    /// How long it may take.
    pub(crate) deadline: Duration,
}

/// What became of a command that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Applied,
    Already,
}

/// Why a command was not carried out, for a person.
#[derive(Debug)]
struct Refusal(String);

impl From<MysqlError> for Refusal {
    fn from(error: MysqlError) -> Self {
        Self(error.to_string())
    }
}

/// A refusal in these words.
fn refusal(text: impl Into<String>) -> Refusal {
    Refusal(text.into())
}

type Outcome = Result<Done, Refusal>;

/// What an effect works with.
struct Context<'a> {
    shared: &'a Arc<Shared>,
    mysql: &'a dyn Mysql,
    server: &'a dyn Server,
    duties: &'a Duties,
    deadline: Instant,
}

impl Context<'_> {
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The server answers, or the command is refused with what it does instead; and nothing that was given up before can
    /// come after this.
    async fn ready(&self) -> Result<(), Refusal> {
        self.server.running(self.left()).await.map_err(Refusal)?;
        Ok(self.mysql.settle(self.left()).await?)
    }
}

/// See the module.
pub(crate) struct Commands {
    shared: Arc<Shared>,
    server: Arc<dyn Server>,
    duties: Duties,
    archive: Archive,
    /// Held by the command that is carried out.
    serial: Mutex<()>,
    /// Rises with every fence: what runs is interrupted.
    fences: watch::Sender<u64>,
}

impl Commands {
    /// Ready for commands.
    #[must_use]
    pub(crate) fn new(shared: Arc<Shared>, server: Arc<dyn Server>) -> Self {
        let duties = Duties::new(Arc::clone(&shared));
        let archive = Archive::new(Arc::clone(&shared));
        Self {
            shared,
            server,
            duties,
            archive,
            serial: Mutex::new(()),
            fences: watch::Sender::new(0),
        }
    }

    /// Lets everything that is executed be stored, if that is soon: before the server is stopped.
    pub(crate) async fn finish_archive(&self, limit: Duration) {
        self.archive.finish(limit).await;
    }

    /// Nothing is stored any more.
    pub(crate) async fn end_archive(&self) {
        self.archive.end().await;
    }

    /// Carries a command out and answers. It goes on when nobody waits for the answer any more.
    pub(crate) async fn execute(self: Arc<Self>, head: Head, verb: Verb) -> proto::CommandReply {
        let span = tracing::info_span!(
            "command",
            verb = verb.kind().as_str(),
            epoch = head.epoch,
            seq = head.seq
        );
        let work = async move { self.carry_out(&head, &verb).await };
        match tokio::spawn(tracing::Instrument::instrument(work, span)).await {
            Ok(reply) => reply,
            Err(error) => proto::CommandReply {
                result: proto::command_reply::Result::Refused.into(),
                reason: format!("the manager failed to carry it out: {error}"),
                ..proto::CommandReply::default()
            },
        }
    }

    async fn carry_out(&self, head: &Head, verb: &Verb) -> proto::CommandReply {
        let began = Instant::now();
        let outcome = self.attempt(head, verb, began + head.deadline).await;
        let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &outcome {
            Ok(done) => tracing::info!(?done, milliseconds, "carried out"),
            Err(Refusal(reason)) => tracing::warn!(reason, milliseconds, "refused"),
        }
        let status = self.shared.observe().await;
        self.shared.expect_change();
        let told = self.shared.state().told;
        let (result, reason) = match outcome {
            Ok(Done::Applied) => (proto::command_reply::Result::Applied, String::new()),
            Ok(Done::Already) => (proto::command_reply::Result::Already, String::new()),
            Err(Refusal(reason)) => (proto::command_reply::Result::Refused, reason),
        };
        proto::CommandReply {
            result: result.into(),
            reason,
            epoch: told.epoch,
            seq: told.seq,
            status: Some((*status).clone()),
        }
    }

    /// What the manager does by itself takes its turn among the commands: `None` while one is carried out, and when a fence
    /// interrupts it. What was seen before has to be looked at anew in `work`, because a command may have come first.
    async fn in_turn<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut fences = self.fences.subscribe();
        let _serial = self.serial.try_lock().ok()?;
        tokio::select! {
            biased;
            _ = fences.changed() => None,
            result = work => Some(result),
        }
    }

    async fn attempt(&self, head: &Head, verb: &Verb, deadline: Instant) -> Outcome {
        self.check(head)?;
        // Before the queue: a fence that comes while this one waits interrupts it as soon as it begins.
        let fences = self.fences.subscribe();
        if matches!(verb, Verb::Fence) {
            self.fences.send_modify(|fences| *fences += 1);
        }
        let _serial = timeout_at(deadline, self.serial.lock())
            .await
            .map_err(|_elapsed| refusal("another command is still being carried out"))?;
        // Another one may have come first.
        self.check(head)?;
        // From here on the command has begun, whatever becomes of it.
        let Some(outcome) = self.work_unless_fenced(head, verb, deadline, fences).await else {
            // It has not ended: what it began may have an effect until the fence has seen to that.
            if matches!(verb, Verb::Open { .. } | Verb::Allow { .. }) {
                self.shared.list_is_uncertain();
            }
            return Err(refusal("a fence interrupted it"));
        };
        if outcome.is_err() {
            self.end_what_was_given_up().await;
        }
        let list = self.list_ended(verb, outcome.is_ok()).await;
        self.shared.command_ended(list);
        outcome
    }

    /// Whether what was told of the list is so now.
    async fn list_ended(&self, verb: &Verb, succeeded: bool) -> ListEnded {
        match (verb, succeeded) {
            (Verb::Mark | Verb::Purge { .. }, _)
            | (Verb::Fence | Verb::Attach { .. } | Verb::Clone { .. } | Verb::Refill { .. } | Verb::Restart, false) => {
                ListEnded::Untouched
            }
            (Verb::Allow { .. } | Verb::Open { .. }, false) if !self.is_closed().await => ListEnded::Failed,
            _ => ListEnded::InForce,
        }
    }

    /// Nobody writes, as far as it is known.
    async fn is_closed(&self) -> bool {
        if self.server.process().phase != Mysqld::Running {
            return true;
        }
        let state = self.shared.mysql.read_state().await;
        state.is_ok_and(|state| state.super_read_only)
    }

    /// A command has ended when nothing of it can have an effect any more (promise p2 in docs/failover.md). A statement
    /// that timed out can, until its session is gone; if it does not go, mysqld has to.
    async fn end_what_was_given_up(&self) {
        if self.server.process().phase != Mysqld::Running {
            return;
        }
        if let Err(error) = self.shared.mysql.settle(SETTLE).await {
            tracing::warn!(%error, "mysqld is killed: a statement that was given up cannot be ended otherwise");
            self.server
                .kill("it was killed, for a statement that was given up could not be ended otherwise")
                .await;
        }
    }

    /// Rule 0: for this incarnation, and newer than anything before.
    fn check(&self, head: &Head) -> Result<(), Refusal> {
        let state = self.shared.state();
        if head.incarnation != state.incarnation() {
            return Err(Refusal(format!(
                "it is meant for the incarnation {:?}, and this is {:?}",
                head.incarnation.0, state.incarnation
            )));
        }
        let persisted = (state.told.epoch, state.told.seq);
        if (head.epoch, head.seq) <= persisted {
            return Err(Refusal(format!(
                "(epoch, seq) ({}, {}) is not newer than the persisted ({}, {})",
                head.epoch, head.seq, persisted.0, persisted.1
            )));
        }
        Ok(())
    }

    /// Durable when it returns. What is given up before may become so later, unless a newer command is by then. So nothing
    /// but a fence may give it up: a list that the server does not enforce is told of a read-only server only.
    async fn persist(&self, head: &Head, verb: &Verb) -> Result<(), Refusal> {
        let own = MemberId {
            instance: self.shared.config.instance.clone(),
            incarnation: self.shared.state().incarnation(),
        };
        let before = self.shared.state().told;
        let told = tell(&before, head, verb, &own);
        if told.members != before.members || told.acks_required != before.acks_required {
            // What was marked was acknowledged by another list (rule 1 b).
            self.shared.set_marker(None);
        }
        let (head, verb) = (head.clone(), verb.clone());
        let executed = self.shared.reading().map(|reading| reading.state.executed.clone());
        let write = self.shared.write_state(move |state| {
            let newer = (head.epoch, head.seq) > (state.told.epoch, state.told.seq);
            if newer {
                state.told = tell(&state.told, &head, &verb, &own);
                if let Some(executed) = &executed {
                    state.note_executed(executed);
                }
                // Its data becomes what counts.
                state.history_reset &= !matches!(verb, Verb::Open { .. });
            }
            newer
        });
        if write.await.map_err(|error| Refusal(chain(&error)))? {
            Ok(())
        } else {
            // A write that was given up before has become durable in the meantime.
            Err(refusal("a newer command came first"))
        }
    }

    /// `None`: a fence interrupted it.
    async fn work_unless_fenced(
        &self,
        head: &Head,
        verb: &Verb,
        deadline: Instant,
        mut fences: watch::Receiver<u64>,
    ) -> Option<Outcome> {
        if matches!(verb, Verb::Fence) {
            return Some(self.fence(head, verb, deadline).await);
        }
        let work = async {
            self.persist(head, verb).await?;
            self.effect(verb, deadline).await
        };
        tokio::select! {
            biased;
            Ok(()) = fences.changed() => None,
            outcome = work => Some(outcome),
        }
    }

    /// It only takes away, so its effect waits for no disk; its answer does. One that ends between the two was not answered,
    /// and is as good as never given.
    async fn fence(&self, head: &Head, verb: &Verb, deadline: Instant) -> Outcome {
        let persist = async {
            let written = timeout_at(deadline + WRITE, self.persist(head, verb)).await;
            written.unwrap_or_else(|_elapsed| Err(refusal("its disk does not take the state file in time")))
        };
        let (outcome, written) = tokio::join!(self.effect(verb, deadline), persist);
        written.and(outcome)
    }

    async fn effect(&self, verb: &Verb, deadline: Instant) -> Outcome {
        let context = Context {
            shared: &self.shared,
            mysql: self.shared.mysql.as_ref(),
            server: self.server.as_ref(),
            duties: &self.duties,
            deadline,
        };
        self.shared.end_remainder().await;
        if !matches!(verb, Verb::Allow { .. } | Verb::Mark | Verb::Purge { .. }) {
            self.duties.stop().await;
            self.archive.end().await;
        }
        match verb {
            Verb::Fence => fence::fence(&context).await,
            Verb::Restart => restart::restart(&context).await,
            Verb::Clone { donor, keep_former } => clone::clone(&context, donor, *keep_former).await,
            Verb::Refill { at_least, keep_former } => clone::refill(&context, at_least, *keep_former).await,
            Verb::Attach { source } => {
                context.ready().await?;
                attach::attach(&context, source).await
            }
            Verb::Open {
                members,
                acks_required,
                baseline,
                recorded,
                application,
            } => {
                context.ready().await?;
                let list = Listed::new(members, *acks_required)?;
                let opened = open::open(&context, &list, baseline, application.as_ref()).await?;
                self.archive.begin(Told {
                    recorded: *recorded,
                    baseline: baseline.clone(),
                });
                Ok(opened)
            }
            Verb::Allow { members, acks_required } => {
                context.ready().await?;
                allow::allow(&context, &Listed::new(members, *acks_required)?).await
            }
            Verb::Mark => {
                context.ready().await?;
                mark::mark(&context).await
            }
            Verb::Purge { stored } => {
                context.ready().await?;
                purge::purge(&context, stored).await
            }
        }
    }
}

/// What an instance has been told when this command is accepted.
fn tell(before: &Persisted, head: &Head, verb: &Verb, own: &MemberId) -> Persisted {
    let mut told = Persisted {
        epoch: head.epoch,
        seq: head.seq,
        ..before.clone()
    };
    match verb {
        Verb::Fence
        | Verb::Mark
        | Verb::Restart
        | Verb::Attach { .. }
        | Verb::Clone { .. }
        | Verb::Refill { .. }
        | Verb::Purge { .. } => {}
        Verb::Open {
            members,
            acks_required,
            baseline,
            ..
        } => {
            told.told_epoch = head.epoch;
            told.primary = Some(own.clone());
            told.members = members.iter().cloned().collect();
            told.acks_required = *acks_required;
            told.baseline = baseline.clone();
        }
        Verb::Allow { members, acks_required } => {
            told.told_epoch = head.epoch;
            told.members = members.iter().cloned().collect();
            told.acks_required = *acks_required;
        }
    }
    told
}

/// Who may acknowledge, as ordinals, and k.
struct Listed {
    ordinals: BTreeSet<u32>,
    acks: u32,
}

impl Listed {
    fn new(members: &BTreeSet<MemberId>, acks: u32) -> Result<Self, Refusal> {
        let ordinal = |member: &MemberId| {
            let unknown = || Refusal(format!("{} is not the name of an instance", member.instance));
            ordinal_of(&member.instance).ok_or_else(unknown)
        };
        Ok(Self {
            ordinals: members.iter().map(ordinal).collect::<Result<_, _>>()?,
            acks,
        })
    }
}
