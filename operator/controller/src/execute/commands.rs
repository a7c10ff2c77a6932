//! `Command`: sent to all at the same time, and not waited for; the answers call the next pass.

use std::time::{Duration, Instant};

use mainstay_core::action::InstanceCommand;
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
            let (verb, epoch, why) = (command.verb.kind().as_str(), command.epoch, command.why.clone());
            let instance = command.to.instance.clone();
            let start = Instant::now();
            let answer = self.context.pool.command(self.cluster, &self.uid, command);
            self.context.leadership.spawn(async move {
                let answer = answer.await;
                let (result, text) = outcome(&answer, start.elapsed());
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
fn outcome(answer: &Result<Reply, CommandError>, took: Duration) -> (&'static str, String) {
    match answer {
        Ok(reply) => match &reply.outcome {
            Outcome::Applied => ("applied", format!("done in {}", human(took))),
            Outcome::Already => ("already", "it was so before".to_owned()),
            Outcome::Refused { reason } => ("refused", format!("refused: {reason}")),
        },
        Err(error) => ("unanswered", chain(error)),
    }
}
