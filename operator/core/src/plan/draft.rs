//! A plan in the making: keeps the order that `action` promises, and rule 0.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::action::{Action, InstanceCommand, Record, Verb};
use crate::observed::Heard;
use crate::plan::{Plan, Wait};
use crate::progress::Stage;
use crate::rules::{MemberId, Request, Rules};
use crate::view::{Seen, View, age};

/// A plan in the making.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    record: Option<Record>,
    commands: Vec<InstanceCommand>,
    rest: Vec<Action>,
    risky: bool,
    waiting: Vec<Wait>,
    look_again: Option<Duration>,
    answer: Option<Request>,
    stage: Option<Stage>,
}

impl Draft {
    /// Answers a request that changes nothing.
    pub(crate) fn answer(&mut self, answer: Request) {
        self.answer = Some(answer);
    }

    /// Says where a change of primary is.
    pub(crate) fn stage(&mut self, stage: Stage) {
        self.stage = Some(stage);
    }

    /// Says what is waited for.
    pub(crate) fn wait(&mut self, who: impl Into<String>, for_what: impl Into<String>) {
        self.waits(Wait {
            who: who.into(),
            for_what: for_what.into(),
            lasting: true,
        });
    }

    /// Says what is waited for, and will have come in a moment, or is told elsewhere.
    pub(crate) fn wait_briefly(&mut self, who: impl Into<String>, for_what: impl Into<String>) {
        self.waits(Wait {
            who: who.into(),
            for_what: for_what.into(),
            lasting: false,
        });
    }

    fn waits(&mut self, wait: Wait) {
        if !self.waiting.contains(&wait) {
            self.waiting.push(wait);
        }
    }

    /// Something may be different after this time although nothing was heard.
    pub(crate) fn look_in(&mut self, after: Duration) {
        // A little later than the moment itself, so that it has come.
        let after = after.saturating_add(Duration::from_millis(5));
        self.look_again = Some(self.look_again.map_or(after, |before| before.min(after)));
    }

    /// The memory of the rules is written, or an instance is told something.
    pub(crate) fn commands_or_records(&self) -> bool {
        self.record.is_some() || !self.commands.is_empty()
    }

    /// A write of the memory is planned already.
    pub(crate) fn records(&self) -> bool {
        self.record.is_some()
    }

    /// Plans a write of the memory, in the name of this process; a second one in a pass is not planned.
    ///
    /// If another process owns the epoch, it is raised, whatever the write is about (rule 0).
    pub(crate) fn record(&mut self, view: &View<'_>, mut rules: Rules, reason: &'static str, message: String) {
        if self.record.is_some() {
            return;
        }
        if !view.mine() && rules.epoch == view.rules.epoch {
            rules.epoch = rules.epoch.saturating_add(1);
        }
        rules.owner = view.observed.operator.clone();
        self.record = Some(Record { rules, reason, message });
    }

    /// Plans the first write of a memory.
    pub(crate) fn first_record(&mut self, rules: Rules, reason: &'static str, message: String) {
        self.record = Some(Record { rules, reason, message });
    }

    /// Plans a command, unless one is on its way to that instance or the same one did not help a moment ago.
    pub(crate) fn command(&mut self, view: &View<'_>, to: Seen<'_>, verb: Verb, why: impl Into<String>) -> bool {
        if self
            .commands
            .iter()
            .any(|command| command.to.instance == to.instance.name)
        {
            return false;
        }
        let epoch = self
            .record
            .as_ref()
            .map_or(view.rules.epoch, |record| record.rules.epoch);
        if let Some(heard) = to.instance.heard()
            && let Err(hold) = may_command(view, heard, &verb, epoch)
        {
            let Hold { look_in, reason } = hold;
            self.waits(Wait {
                who: to.instance.name.0.clone(),
                for_what: reason,
                lasting: false,
            });
            if let Some(after) = look_in {
                self.look_in(after);
            }
            return false;
        }
        let deadline = deadline(view, &verb);
        self.commands.push(InstanceCommand {
            to: to.id(),
            epoch: view.rules.epoch,
            deadline,
            verb,
            why: why.into(),
        });
        true
    }

    /// Tells an instance to follow `source`.
    pub(crate) fn attach(&mut self, view: &View<'_>, to: Seen<'_>, source: Seen<'_>) {
        let source = view.endpoint(source);
        self.command(view, to, Verb::Attach { source }, "");
    }

    /// Records other members: a new epoch begins with them (rule 0).
    pub(crate) fn record_members(
        &mut self,
        view: &View<'_>,
        members: BTreeSet<MemberId>,
        reason: &'static str,
        message: String,
    ) {
        let rules = Rules {
            epoch: view.rules.epoch.saturating_add(1),
            members,
            ..view.rules.clone()
        };
        self.record(view, rules, reason, message);
    }

    /// Plans a command to an instance of a cluster that has no memory yet; the record of this pass gives the epoch.
    pub(crate) fn first_command(&mut self, command: InstanceCommand) {
        self.commands.push(command);
    }

    /// Plans something that is neither a record nor a command.
    pub(crate) fn push(&mut self, action: Action) {
        self.rest.push(action);
    }

    /// Takes the pass's one risky action; false when it was taken already.
    pub(crate) fn take_risk(&mut self) -> bool {
        !std::mem::replace(&mut self.risky, true)
    }

    /// The plan. A process that does not own the epoch raises it before its first command (rule 0).
    pub(crate) fn finish(mut self, view: Option<&View<'_>>) -> Plan {
        if let Some(view) = view
            && !self.commands.is_empty()
            && self.record.is_none()
            && !view.mine()
        {
            let rules = Rules {
                epoch: view.rules.epoch.saturating_add(1),
                ..view.rules.clone()
            };
            self.record(
                view,
                rules,
                "OperatorChanged",
                "this operator process takes over the commands".to_owned(),
            );
        }
        if let Some(record) = &self.record {
            for command in &mut self.commands {
                command.epoch = record.rules.epoch;
            }
        }
        let mut actions: Vec<_> = self
            .record
            .map(|record| Action::Record(Box::new(record)))
            .into_iter()
            .collect();
        if !self.commands.is_empty() {
            actions.push(Action::Command(self.commands));
        }
        actions.extend(self.rest);
        Plan {
            actions,
            waiting: self.waiting,
            look_again: self.look_again,
            answer: self.answer,
            stage: self.stage,
        }
    }
}

/// Why an instance is not told anything at the moment.
struct Hold {
    look_in: Option<Duration>,
    reason: String,
}

/// Whether an instance may be told `verb` now; `epoch` is the one under which it would be told.
///
/// A fence overtakes what is on its way from an earlier epoch, and nothing of its own: an Open or an Attach that this
/// epoch ordered is not interrupted because its effect is not confirmed yet.
fn may_command(view: &View<'_>, heard: &Heard, verb: &Verb, epoch: u64) -> Result<(), Hold> {
    let overtakes = matches!(verb, Verb::Fence);
    if let Some(busy) = heard.busy
        && !(overtakes && busy.epoch < epoch)
    {
        return Err(Hold {
            look_in: None,
            reason: format!("its answer to {}", busy.verb.as_str()),
        });
    }
    let Some(answer) = &heard.answer else { return Ok(()) };
    if answer.verb != verb.kind() || answer.epoch != view.rules.epoch || !view.mine() {
        return Ok(());
    }
    // After a success the report shows the effect; that it does not means that it went away again: not in a hot loop.
    let helped = answer.failure.is_none() && heard.report.replication.receiver_error.is_empty();
    let pause = if helped {
        view.timing.retry / 5
    } else {
        view.timing.retry
    };
    let since = age(view.now, answer.at);
    if since >= pause {
        return Ok(());
    }
    let reason = answer.failure.as_ref().map_or_else(
        || format!("the effect of {}", answer.verb.as_str()),
        |failure| format!("{} was refused: {failure}", answer.verb.as_str()),
    );
    Err(Hold {
        look_in: Some(pause.saturating_sub(since)),
        reason,
    })
}

fn deadline(view: &View<'_>, verb: &Verb) -> Duration {
    match verb {
        Verb::Fence => view.timing.fence,
        Verb::Open { .. } => view.timing.opening,
        Verb::Attach { .. }
        | Verb::Allow { .. }
        | Verb::Mark
        | Verb::Clone { .. }
        | Verb::Refill { .. }
        | Verb::Restart
        | Verb::Purge { .. } => view.timing.command,
    }
}
