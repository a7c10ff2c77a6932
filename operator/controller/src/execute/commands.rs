//! `Command`: sent to all at the same time, and not waited for; the answers call the next pass.

use std::time::{Duration, Instant};

use mainstay_core::action::{InstanceCommand, VerbKind};
use mainstay_instance::convert::{Outcome, Reply};

use super::{Executor, human};
use crate::error::chain;
use crate::events::Line;
use crate::pool::CommandError;

impl Executor<'_> {
    pub(super) fn command(&self, commands: Vec<InstanceCommand>) {
        for command in commands {
            let (metrics, events) = (self.context.metrics.clone(), self.context.events.clone());
            let (cluster, about) = (self.cluster.clone(), self.object.clone());
            let (kind, epoch, why) = (command.verb.kind(), command.epoch, command.why.clone());
            let verb = kind.as_str();
            let instance = command.to.instance.clone();
            let start = Instant::now();
            let answer = self.context.pool.command(self.cluster, &self.uid, command);
            self.context.leadership.spawn(async move {
                let answer = answer.await;
                let (result, text) = outcome(&answer, kind, start.elapsed());
                metrics.command(verb, result);
                tracing::info!(%cluster, epoch, why, "{verb} {instance}: {text}");
                if !why.is_empty() {
                    let done = matches!(result, "applied" | "already");
                    let line = if done { Line::normal } else { Line::warning };
                    events.publish(
                        &about,
                        line("InstanceCommand", verb, format!("{why}; {verb} {instance}: {text}")),
                    );
                }
            });
        }
    }
}

/// The result as a label and as text.
fn outcome(answer: &Result<Reply, CommandError>, verb: VerbKind, took: Duration) -> (&'static str, String) {
    match answer {
        Ok(reply) => match &reply.outcome {
            // These are answered when they begin.
            Outcome::Applied if matches!(verb, VerbKind::Clone | VerbKind::Refill) => {
                ("applied", format!("handed over in {}", human(took)))
            }
            Outcome::Applied => ("applied", format!("done in {}", human(took))),
            Outcome::Already => ("already", "it was so before".to_owned()),
            Outcome::Refused { reason } => ("refused", format!("refused: {reason}")),
        },
        Err(error) => ("unanswered", chain(error)),
    }
}
