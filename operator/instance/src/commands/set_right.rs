//! Sets right what somebody changed by hand, and no command says: what an acknowledgement rests on (a commit and a relay log
//! are on the disk before they are answered, the open primary waits for k acknowledgements, for ever), and that clients may
//! write to the open primary and read from a replica that receives.
//!
//! What was committed meanwhile may be on the primary alone until the next acknowledged commit: the binlog goes out in order.
//! It takes its turn among the commands, and a fence interrupts it.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::observed::Mysqld;
use mainstay_core::rules::MemberId;
use mainstay_mysql::{Channel, Receiver, ServerState};
use tokio::time::sleep;

use super::{Commands, Refusal};

/// Between two moments at which there may be a reason to look.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a statement may take.
const LIMIT: Duration = Duration::from_secs(2);

/// What somebody changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changed {
    /// Variables of which the names are in [`ServerState::not_durable`].
    Durability,
    /// The open primary does not wait for this many acknowledgements.
    Acknowledgements(u32),
    /// `read_only` or `offline_mode` of the open primary.
    Closed,
    /// `offline_mode` of a replica that receives.
    Offline,
}

impl Commands {
    /// Until the end of the process.
    pub(crate) async fn keep_right(self: Arc<Self>) {
        loop {
            sleep(PAUSE).await;
            let running = self.shared.process().phase == Mysqld::Running;
            let Some(state) = self.shared.last_state().filter(|_| running) else {
                continue;
            };
            if self.changed(&state).is_empty() {
                continue;
            }
            if let Some(Err(Refusal(reason))) = self.in_turn(self.set_right()).await {
                tracing::warn!(reason, "what somebody changed by hand is not set right yet");
            }
        }
    }

    async fn set_right(&self) -> Result<(), Refusal> {
        let mysql = self.shared.mysql.as_ref();
        let state = mysql.read_state().await?;
        for changed in self.changed(&state) {
            tracing::warn!(
                ?changed,
                variables = state.not_durable,
                "somebody changed variables by hand: they are set right"
            );
            match changed {
                Changed::Durability => mysql.make_durable(LIMIT).await?,
                Changed::Acknowledgements(acks) => mysql.semi_sync_on(acks, LIMIT).await?,
                Changed::Closed => mysql.open_writes(LIMIT).await?,
                Changed::Offline => mysql.serve_clients(true, LIMIT).await?,
            }
        }
        Ok(())
    }

    /// In the order in which it is set right: clients come last.
    fn changed(&self, state: &ServerState) -> Vec<Changed> {
        let known = self.shared.state();
        let told = &known.told;
        let own = |id: &MemberId| id.instance == self.shared.config.instance && id.incarnation == known.incarnation();
        let open = !state.super_read_only && told.primary.as_ref().is_some_and(own) && !self.shared.is_list_uncertain();
        let acks = told.acks_required;
        let waits = acks == 0 || (state.semi_sync.enabled && state.semi_sync.wait_for == acks);
        let receives = |channel: &Channel| channel.receiver == Receiver::On;
        let replica = state.super_read_only && state.channel.as_ref().is_some_and(receives);
        let guarded = self.shared.keeps_clients_out();
        let found = [
            (!state.not_durable.is_empty(), Changed::Durability),
            (open && !waits, Changed::Acknowledgements(acks)),
            (open && !guarded && (state.read_only || state.offline), Changed::Closed),
            (replica && !guarded && state.offline, Changed::Offline),
        ];
        let is_so = |(is_so, changed): (bool, Changed)| is_so.then_some(changed);
        found.into_iter().filter_map(is_so).collect()
    }
}

#[cfg(test)]
#[path = "set_right_tests.rs"]
mod tests;
