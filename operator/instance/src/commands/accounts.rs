//! Restores Mainstay's own accounts when somebody changed them.
//!
//! Each instance looks after its own copy, outside of the binlog: a replica gets no GTID of its own, and the primary waits for
//! no acknowledgement. (A statement about accounts that waits for one keeps everybody from logging in, the replica among them
//! that would give it.) A replica has to leave `super_read_only` for that, as a fence does; it is not reported meanwhile.
//!
//! It takes its turn among the commands, and a fence interrupts it: nothing changes who may log in while a command tells that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::observed::Mysqld;
use mainstay_core::rules::MemberId;
use mainstay_mysql::accounts::{
    AccountName, Finding, Reference, Restoration, SystemAccounts, Way, Wrong, replication_ordinal, replication_user,
};
use mainstay_mysql::{MysqlError, ServerState};
use tokio::time::{Instant, sleep};

use super::allow::enforce_list;
use super::{Commands, Context, Listed, Refusal, refusal};
use crate::shutdown;

/// Between two moments at which there may be a reason to look.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two looks without a reason.
const EVERY: Duration = Duration::from_secs(5);
/// How long a replica that receives waits: what somebody changes in several statements may be on its way.
const GRACE: Duration = Duration::from_secs(3);
/// How long a look may take: somebody's statement about accounts holds it up while it waits for an acknowledgement.
const LOOK: Duration = Duration::from_secs(1);
/// How long restoring may take, and becoming read-only again.
const LIMIT: Duration = Duration::from_secs(2);

/// Errors of statements about an account that does not exist, or lacks what is taken from it: `CREATE`, `DROP`, `ALTER` and
/// `RENAME USER`, `REVOKE`, `GRANT`.
const ACCOUNT_ERRORS: [u32; 5] = [1396, 1141, 1269, 3162, 1410];

/// What is known of the accounts of one server process.
#[derive(Default)]
struct Keeper {
    /// Number of the server process.
    run: u64,
    reference: Reference,
    looked: Option<Instant>,
    /// Logins that were refused, at the last look.
    refused: u64,
    /// Since when something is wrong.
    wrong_since: Option<Instant>,
    /// What the applier said when it was started again.
    retried: Option<String>,
}

/// What is to be done about the accounts.
struct Work {
    state: ServerState,
    findings: Vec<Finding>,
    /// The list in force on an open primary, if a lock differs from it or an account is about to be made.
    list: Option<Listed>,
    /// It is the open primary.
    primary: bool,
}

impl Keeper {
    /// A login was refused where it matters, an applier stopped at an account, or it is time.
    fn is_due(&self, state: &ServerState, now: Instant) -> bool {
        let regularly = self.looked.is_none_or(|at| now.saturating_duration_since(at) >= EVERY);
        let refused = state.counters.aborted_connects > self.refused && !state.receives();
        let stopped = stopped_at_an_account(state).filter(|text| Some(*text) != self.retried.as_deref());
        regularly || refused || stopped.is_some()
    }
}

/// What the applier says, if it stopped because one of Mainstay's accounts is not as it is at the source.
fn stopped_at_an_account(state: &ServerState) -> Option<&str> {
    let channel = state.channel.as_ref().filter(|channel| !channel.applier_running)?;
    let error = channel.applier_error.as_ref()?;
    let ours = ACCOUNT_ERRORS.contains(&error.code) && error.text.contains("mainstay");
    ours.then_some(error.text.as_str())
}

/// Whether an account may log in that should not, or the other way round.
fn locks_differ(seen: &SystemAccounts, list: &Listed) -> bool {
    let mut replication = seen
        .accounts
        .iter()
        .filter(|(name, _)| name.host == "%")
        .filter_map(|(name, account)| Some((replication_ordinal(&name.user)?, account.locked)));
    replication.any(|(ordinal, locked)| locked == list.ordinals.contains(&ordinal))
}

impl Commands {
    /// Until the end of the process.
    pub(crate) async fn keep_accounts(self: Arc<Self>) {
        let mut keeper = Keeper::default();
        loop {
            sleep(PAUSE).await;
            if let Err(Refusal(reason)) = self.look_after_accounts(&mut keeper).await {
                tracing::warn!(reason, "an account of Mainstay's is not restored yet");
            }
        }
    }

    /// One look, and what follows from it.
    async fn look_after_accounts(&self, keeper: &mut Keeper) -> Result<(), Refusal> {
        let process = self.shared.process();
        if process.run != keeper.run {
            *keeper = Keeper {
                run: process.run,
                ..Keeper::default()
            };
        }
        let Some(state) = self.shared.last_state().filter(|_| process.phase == Mysqld::Running) else {
            return Ok(());
        };
        if !keeper.is_due(&state, Instant::now()) {
            return Ok(());
        }
        match self.examine(keeper).await {
            Ok(Some(_work)) => {}
            Ok(None) => return Ok(()),
            // Somebody's statement may hold it up for as long as nobody acknowledges it.
            Err(Refusal(reason)) => {
                tracing::debug!(reason, "Mainstay's accounts cannot be looked at");
                return Ok(());
            }
        }
        self.in_turn(self.examine_and_restore(keeper)).await.unwrap_or(Ok(()))
    }

    async fn examine_and_restore(&self, keeper: &mut Keeper) -> Result<(), Refusal> {
        let Some(work) = self.examine(keeper).await? else {
            return Ok(());
        };
        for finding in &work.findings {
            tracing::warn!(%finding, "an account of Mainstay's was changed by somebody, and is restored");
        }
        if work.primary {
            return self.restore_on_primary(keeper, work).await;
        }
        if !work.findings.is_empty() {
            self.restore_on_closed(keeper, &work).await?;
            keeper.wrong_since = None;
        }
        self.apply_again(keeper, &work).await
    }

    /// What there is to do; nothing while the accounts are sound, or somebody else sees to them.
    async fn examine(&self, keeper: &mut Keeper) -> Result<Option<Work>, Refusal> {
        let (shared, mysql) = (&self.shared, self.shared.mysql.as_ref());
        let state = mysql.read_state().await?;
        keeper.looked = Some(Instant::now());
        keeper.refused = state.counters.aborted_connects;
        let open = !state.super_read_only;
        let primary = open && self.duties.are_fulfilled().await;
        if open && !primary {
            // A stranger, which is about to be fenced.
            return Ok(None);
        }
        let seen = mysql.system_accounts(LOOK).await?;
        // What the duties of a primary are about to set is not wrong.
        let passwords = !(primary && shared.credentials_differ());
        let secrets = shared.secrets();
        let findings = keeper.reference.compare(&secrets.credentials, &seen, passwords);
        if primary {
            let list = self.list_in_force()?;
            let list = list.filter(|list| !findings.is_empty() || locks_differ(&seen, list));
            let work = Work {
                state,
                findings,
                list,
                primary,
            };
            return Ok((!work.findings.is_empty() || work.list.is_some()).then_some(work));
        }
        let stopped = stopped_at_an_account(&state).map(str::to_owned);
        let due = if findings.is_empty() {
            keeper.wrong_since = None;
            stopped.is_some() && stopped != keeper.retried
        } else {
            let since = keeper.wrong_since.get_or_insert_with(Instant::now);
            since.elapsed() >= GRACE || stopped.is_some() || !state.receives()
        };
        Ok(due.then_some(Work {
            state,
            findings,
            list: None,
            primary,
        }))
    }

    /// Who may acknowledge, unless nobody knows.
    fn list_in_force(&self) -> Result<Option<Listed>, Refusal> {
        if self.shared.is_list_uncertain() {
            return Ok(None);
        }
        let told = self.shared.state().told;
        let members: BTreeSet<MemberId> = told.members.iter().cloned().collect();
        Listed::new(&members, told.acks_required).map(Some)
    }

    fn restoration(&self, keeper: &Keeper, way: Way, findings: &[Finding]) -> Restoration {
        Restoration {
            way,
            credentials: self.shared.secrets().credentials.clone(),
            findings: findings.to_vec(),
            own_grants: keeper.reference.own_grants().to_vec(),
            attribute: keeper.reference.attribute().to_owned(),
        }
    }

    async fn restore_on_primary(&self, keeper: &Keeper, work: Work) -> Result<(), Refusal> {
        let restored = !work.findings.is_empty();
        if restored {
            let restoration = self.restoration(keeper, Way::Primary, &work.findings);
            self.shared.mysql.restore_accounts(&restoration, LIMIT).await?;
        }
        // They were made locked: only the list lets anybody in.
        let Some(list) = &work.list else { return Ok(()) };
        let context = Context {
            shared: &self.shared,
            mysql: self.shared.mysql.as_ref(),
            server: self.server.as_ref(),
            duties: &self.duties,
            deadline: Instant::now() + LIMIT,
        };
        if enforce_list(&context, list, false).await? && !restored {
            tracing::warn!(
                "locks of replication accounts were changed by somebody, and follow the list in force again"
            );
        }
        Ok(())
    }

    /// Nobody can get an acknowledgement here, and `read_only` stays on. What a privileged client writes on a replica in these
    /// milliseconds is errant, as at any other time.
    async fn restore_on_closed(&self, keeper: &Keeper, work: &Work) -> Result<(), Refusal> {
        let mysql = self.shared.mysql.as_ref();
        let restoration = self.restoration(keeper, Way::Closed, &work.findings);
        let restore = async {
            let restored = match mysql.leave_super_read_only(LIMIT).await {
                Ok(()) => mysql.restore_accounts(&restoration, LIMIT).await,
                Err(error) => Err(error),
            };
            (restored, shutdown::close(mysql, LIMIT).await)
        };
        let (restored, closed): (Result<(), MysqlError>, _) = self.shared.unobserved(restore).await;
        if closed.is_none() {
            let why = "it was killed, for it could not be made read-only again after its accounts were restored";
            self.server.kill(why).await;
        }
        Ok(restored?)
    }

    /// What stopped the applier was an account that was missing here, or is so no more.
    async fn apply_again(&self, keeper: &mut Keeper, work: &Work) -> Result<(), Refusal> {
        let Some(text) = stopped_at_an_account(&work.state) else {
            return Ok(());
        };
        keeper.retried = Some(text.to_owned());
        tracing::info!("the applier is started again: it had stopped at an account of Mainstay's");
        Ok(self.shared.mysql.start_applier(LIMIT).await?)
    }
}

/// Makes the replication accounts of these ordinals, locked, on a server that may be changed: a list is about to be enforced
/// that names them.
pub(super) async fn make_replication_accounts(context: &Context<'_>, ordinals: &[u32]) -> Result<(), Refusal> {
    let findings: Vec<Finding> = ordinals.iter().map(|ordinal| missing(*ordinal)).collect();
    let credentials = context.shared.secrets().credentials.clone();
    if credentials.replication.is_none() {
        return Err(refusal(
            "a replication account is missing, and its password is not known: see the Secret's file replication",
        ));
    }
    for finding in &findings {
        tracing::warn!(%finding, "an account of Mainstay's was changed by somebody, and is restored");
    }
    let restoration = Restoration {
        way: Way::Primary,
        credentials,
        findings,
        own_grants: Vec::new(),
        attribute: String::new(),
    };
    context.mysql.restore_accounts(&restoration, context.left()).await?;
    Ok(())
}

fn missing(ordinal: u32) -> Finding {
    Finding {
        account: AccountName::new(&replication_user(ordinal), "%"),
        wrong: vec![Wrong::Missing],
    }
}

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod tests;
