//! `Command`: sent to all at the same time, and not waited for; the answers call the next pass.

use std::time::Instant;

use mainstay_core::action::InstanceCommand;
use mainstay_instance::convert::Outcome;

use super::{Executor, human};
use crate::error::chain;
use crate::events::Line;

impl Executor<'_> {
    pub(super) fn command(&self, commands: Vec<InstanceCommand>) {
        for command in commands {
            let context = self.context;
            let (pool, metrics, events) = (context.pool.clone(), context.metrics.clone(), context.events.clone());
            let (cluster, uid, about) = (self.cluster.clone(), self.uid.clone(), self.object.clone());
            context.leadership.spawn(async move {
                let verb = command.verb.kind().as_str();
                let start = Instant::now();
                let answer = pool.command(&cluster, &uid, &command).await;
                let took = human(start.elapsed());
                let instance = &command.to.instance;
                let (result, line) = match &answer {
                    Ok(reply) => match &reply.outcome {
                        Outcome::Applied => ("applied", format!("{verb} {instance}: done in {took}")),
                        Outcome::Already => ("already", format!("{verb} {instance}: it was so before")),
                        Outcome::Refused { reason } => ("refused", format!("{verb} {instance}: refused: {reason}")),
                    },
                    Err(error) => ("unanswered", format!("{verb} {instance}: {}", chain(error))),
                };
                metrics.command(verb, result);
                tracing::info!(%cluster, epoch = command.epoch, why = command.why, "{line}");
                if !command.why.is_empty() {
                    let note = format!("{}; {line}", command.why);
                    let done = matches!(result, "applied" | "already");
                    let line = if done { Line::normal } else { Line::warning };
                    events.publish(&about, line("InstanceCommand", verb, note));
                }
            });
        }
    }
}
