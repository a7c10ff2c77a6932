//! The task of one pod: connect, listen, and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use mainstay_core::backup::summary;
use mainstay_core::rules::InstanceName;
use mainstay_instance::client::{CONNECT_TIMEOUT, ClientError};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;

use crate::error::chain;
use crate::index::ClusterName;
use crate::platform::Clock;
use crate::pool::SILENT_AFTER;
use crate::pool::link::{Dialler, Target};
use crate::pool::slot::{Change, Slot};
use crate::trigger::Triggers;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A little more than the time between two statements of status about the archive, so that each reminder comes in time for one.
const REMIND: Duration = summary::ARCHIVE.saturating_add(Duration::from_secs(1));
/// What a dial may take: its own limit ends it first, this one ends a dialler that has none.
const DIAL_LIMIT: Duration = CONNECT_TIMEOUT.saturating_mul(2);

/// All that the task of one pod needs.
pub(super) struct Session {
    pub(super) dialler: Arc<dyn Dialler>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) triggers: Triggers,
    pub(super) slot: Arc<Slot>,
    pub(super) cluster: ClusterName,
    pub(super) instance: InstanceName,
    pub(super) pod_uid: String,
    pub(super) addr: SocketAddr,
    pub(super) ca: watch::Receiver<Option<Arc<str>>>,
    pub(super) attentive: watch::Receiver<bool>,
}

/// How a session ended.
struct End {
    reason: String,
    /// It was up: the next one is tried soon.
    was_up: bool,
}

impl Session {
    /// Runs until the task is aborted.
    pub(super) async fn run(mut self) {
        let span = tracing::info_span!("instance", cluster = %self.cluster, instance = %self.instance);
        async {
            let mut pause = FIRST_PAUSE;
            loop {
                // An error means that the pool is gone, and with it whoever would read what is heard.
                let ca = self.ca.wait_for(Option::is_some).await.map(|ca| ca.clone());
                let Ok(Some(ca)) = ca else { return };
                let end = self.listen(ca).await;
                if self.slot.lost(&end.reason) {
                    tracing::info!(reason = end.reason, "instance is not heard any more");
                    self.triggers.poke(&self.cluster);
                } else {
                    tracing::debug!(reason = end.reason, "instance cannot be heard");
                }
                pause = if end.was_up {
                    FIRST_PAUSE
                } else {
                    pause.saturating_mul(2).min(LONGEST_PAUSE)
                };
                tokio::time::sleep(pause).await;
            }
        }
        .instrument(span)
        .await;
    }

    async fn listen(&self, ca: Arc<str>) -> End {
        let down = |reason| End { reason, was_up: false };
        let target = Target {
            cluster: self.cluster.clone(),
            instance: self.instance.clone(),
            pod_uid: self.pod_uid.clone(),
            addr: self.addr,
            ca,
        };
        let link = match timeout(DIAL_LIMIT, self.dialler.dial(target)).await {
            Ok(Ok(link)) => link,
            Ok(Err(error)) => return down(chain(&error)),
            Err(_) => return down(format!("no connection within {DIAL_LIMIT:?}")),
        };
        let mut messages = match timeout(SILENT_AFTER, link.watch()).await {
            Ok(Ok(messages)) => messages,
            Ok(Err(error)) => return down(chain(&error)),
            Err(_) => return down(format!("no stream within {SILENT_AFTER:?}")),
        };
        let session = self.slot.connected(link);
        let mut was_up = false;
        let mut archive = Reminder::default();
        loop {
            let reason = match timeout(SILENT_AFTER, messages.next()).await {
                Ok(Some(Ok(message))) => {
                    if !was_up {
                        tracing::info!("instance is heard");
                    }
                    was_up = true;
                    let change = self.slot.heard(session, &message, self.clock.now());
                    self.react(change, archive.is_due(change, Instant::now()));
                    continue;
                }
                // What cannot be understood is not a sign of life that a decision could use, and not an end either.
                Ok(Some(Err(error @ ClientError::Convert(_)))) => {
                    tracing::warn!(error = chain(&error), "failed to read a report");
                    continue;
                }
                Ok(Some(Err(error))) => lost(&error),
                Ok(None) => "it ended the stream".to_owned(),
                Err(_) => format!("no message for {SILENT_AFTER:?}"),
            };
            return End { reason, was_up };
        }
    }

    fn react(&self, change: Change, reminded: bool) {
        let call = match change {
            Change::State => true,
            Change::Progress | Change::Archive => reminded || *self.attentive.borrow(),
            Change::None => reminded,
        };
        if call {
            self.triggers.poke(&self.cluster);
        }
    }
}

/// Reminds of an archive that has grown: status says it once a minute at most, and also when the last transaction of a
/// minute was followed by none.
#[derive(Debug, Default)]
struct Reminder {
    grown: bool,
    reminded: Option<Instant>,
}

impl Reminder {
    /// Whether somebody has to be reminded now, with this message.
    fn is_due(&mut self, change: Change, now: Instant) -> bool {
        self.grown |= change == Change::Archive;
        let due = self.grown
            && self
                .reminded
                .is_none_or(|reminded| now.duration_since(reminded) > REMIND);
        if due {
            self.grown = false;
            self.reminded = Some(now);
        }
        due
    }
}

/// Why a stream ended, for a person: without the layers of HTTP/2.
fn lost(error: &ClientError) -> String {
    match error {
        ClientError::Call(status) => format!("the connection was lost ({})", status.message()),
        ClientError::Prepare { .. }
        | ClientError::Connect { .. }
        | ClientError::Timeout(_)
        | ClientError::Convert(_) => chain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_has_grown_is_a_reason_to_look_once_a_minute() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut reminder = Reminder::default();
        assert!(!reminder.is_due(Change::Progress, at(0)));
        assert!(reminder.is_due(Change::Archive, at(1)), "clients have begun");
        assert!(!reminder.is_due(Change::Archive, at(2)));
        assert!(!reminder.is_due(Change::None, at(61)));
        assert!(reminder.is_due(Change::None, at(63)), "the last of it is told, too");
        assert!(!reminder.is_due(Change::None, at(200)), "an idle cluster is left alone");
        assert!(reminder.is_due(Change::Archive, at(300)));
    }
}
