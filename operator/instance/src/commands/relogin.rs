//! Logs a receiver in again whose password is not accepted any more, with the one that is mounted now.
//!
//! It starts a receiver, as a command does, so it takes its turn among the commands, and a fence interrupts it: nothing
//! starts a receiver that a fence has stopped.

use std::sync::Arc;
use std::time::Duration;

use mainstay_mysql::{MysqlError, Receiver, ServerState};
use secrecy::SecretString;
use tokio::time::sleep;

use super::Commands;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(2);
/// How long a statement may take.
const LIMIT: Duration = Duration::from_secs(5);
/// MySQL's error for a login that was refused.
const ACCESS_DENIED: u32 = 1045;

impl Commands {
    /// Until the end of the process.
    pub(crate) async fn keep_receiver_logged_in(self: Arc<Self>) {
        loop {
            sleep(PAUSE).await;
            let denied = self.shared.last_state().is_some_and(|state| is_denied(&state));
            let secrets = self.shared.secrets();
            let (true, Some(password)) = (denied, &secrets.credentials.replication) else {
                continue;
            };
            match self.in_turn(self.log_in(password)).await {
                Some(Ok(())) => tracing::info!("the receiver logs in with the mounted password"),
                Some(Err(error)) => tracing::warn!(%error, "the receiver is not logged in"),
                None => {}
            }
        }
    }

    async fn log_in(&self, password: &SecretString) -> Result<(), MysqlError> {
        let mysql = self.shared.mysql.as_ref();
        // It may have been fenced since it was seen.
        if !is_denied(&mysql.read_state().await?) {
            return Ok(());
        }
        mysql.stop_receiver(LIMIT).await?;
        mysql.start_receiver(self.shared.config.ordinal, password, LIMIT).await
    }
}

fn is_denied(state: &ServerState) -> bool {
    state.channel.as_ref().is_some_and(|channel| {
        channel.receiver == Receiver::Connecting
            && channel
                .receiver_error
                .as_ref()
                .is_some_and(|error| error.code == ACCESS_DENIED)
    })
}
