//! What an open primary does besides serving: none of it delays its opening, and all of it ends before a command changes
//! what the instance is.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::action::Application;
use mainstay_core::observed::Mysqld;
use mainstay_mysql::MysqlError;
use mainstay_mysql::accounts::{self, CLONE, ROOT, replication_user};
use mainstay_mysql::port::{FirstApplication, REPLICATION_ACCOUNTS, SharedPassword};
use secrecy::SecretString;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::shared::Shared;

/// How long one statement may take; writes wait for acknowledgements.
const LIMIT: Duration = Duration::from_secs(10);
/// Between two attempts, and between two rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// Rounds between two looks at which events are disabled.
const EVENTS_EVERY: u32 = 5;

/// The duties of an open primary, as a task.
pub(crate) struct Duties {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Duties {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            task: Mutex::new(None),
        }
    }

    /// Takes the duties up, if they are not; they end by themselves with the server process.
    pub(crate) fn start(&self, application: Option<Application>) {
        let Ok(mut task) = self.task.try_lock() else { return };
        if task.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        *task = Some(tokio::spawn(async move { fulfil(&shared, application.as_ref()).await }));
    }

    /// They are fulfilled: this is the open primary.
    pub(crate) async fn are_fulfilled(&self) -> bool {
        self.task.lock().await.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Lays them down. When this returns nothing of them is begun any more; what had begun in the server is ended by
    /// `Mysql::settle`, where it could do harm.
    pub(crate) async fn stop(&self) {
        if let Some(task) = self.task.lock().await.take() {
            task.abort();
            drop(task.await);
        }
    }
}

async fn fulfil(shared: &Shared, application: Option<&Application>) {
    let run = shared.process().run;
    let is_present = || {
        let process = shared.process();
        process.run == run && process.phase == Mysqld::Running
    };
    let mut due = vec![
        Duty::Passwords,
        Duty::FirstAccounts,
        Duty::Events,
        Duty::Scheduler,
        Duty::FormerSource,
    ];
    let mut round: u32 = 0;
    while is_present() {
        while let Some(duty) = due.last().copied() {
            if let Err(error) = attempt(shared, duty, application).await {
                tracing::warn!(?duty, %error, "failed, tried again");
                break;
            }
            due.pop();
        }
        sleep(PAUSE).await;
        round = round.wrapping_add(1);
        if shared.credentials_differ() && !due.contains(&Duty::Passwords) {
            due.push(Duty::Passwords);
        }
        if round.is_multiple_of(EVENTS_EVERY) && !due.contains(&Duty::DisabledEvents) {
            due.insert(0, Duty::DisabledEvents);
        }
    }
}

/// One duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// Forget the source that was followed before.
    FormerSource,
    /// Run events again.
    Scheduler,
    /// Enable those that a former primary owned (decision A18).
    Events,
    /// Create the DBA's and the application's account, once.
    FirstAccounts,
    /// Set passwords that were changed.
    Passwords,
    /// Note which events are disabled on purpose.
    DisabledEvents,
}

async fn attempt(shared: &Shared, duty: Duty, application: Option<&Application>) -> Result<(), MysqlError> {
    let mysql = shared.mysql.as_ref();
    match duty {
        Duty::FormerSource => match mysql.read_state().await?.channel {
            Some(_) => mysql.forget_source(LIMIT).await,
            None => Ok(()),
        },
        Duty::Scheduler => mysql.set_event_scheduler(true, LIMIT).await,
        Duty::Events => {
            let own = shared.config.server_id();
            let base = shared.config.server_id_base;
            let others: Vec<u32> = (base..base.saturating_add(REPLICATION_ACCOUNTS))
                .filter(|id| *id != own)
                .collect();
            let enabled = mysql.enable_events_of(&others, LIMIT).await?;
            if enabled > 0 {
                tracing::info!(enabled, "enabled events of former primaries");
            }
            Ok(())
        }
        Duty::FirstAccounts => create_first_accounts(shared, application).await,
        Duty::Passwords => set_passwords(shared, application).await,
        Duty::DisabledEvents => {
            acknowledgers_are_connected(shared).await?;
            mysql.note_disabled_events(LIMIT).await
        }
    }
}

async fn create_first_accounts(shared: &Shared, application: Option<&Application>) -> Result<(), MysqlError> {
    // Every primary is told of the application: what it lacks now does not matter any more.
    if shared.mysql.first_accounts_made(LIMIT).await? {
        return Ok(());
    }
    let secrets = shared.secrets();
    let first = match (application, &secrets.application) {
        (Some(application), Some(password)) => Some(FirstApplication {
            database: application.database.clone(),
            user: application.user.clone(),
            password: password.clone(),
        }),
        (Some(_), None) => {
            return Err(MysqlError::Unexpected {
                what: "create the first database and users",
                reason: "the password of the application's user is not known".to_owned(),
            });
        }
        (None, _) => None,
    };
    acknowledgers_are_connected(shared).await?;
    if shared
        .mysql
        .create_first_accounts(secrets.root.as_ref(), first.as_ref(), LIMIT)
        .await?
    {
        tracing::info!("created the first database and users");
    }
    Ok(())
}

/// While a statement about accounts waits for an acknowledgement nobody can log in, the replicas that would give it among
/// them: it is not begun without them.
async fn acknowledgers_are_connected(shared: &Shared) -> Result<(), MysqlError> {
    let semi_sync = shared.mysql.read_state().await?.semi_sync;
    if semi_sync.on && semi_sync.clients < semi_sync.wait_for {
        return Err(MysqlError::Unexpected {
            what: "write accounts or notes",
            reason: format!(
                "{} replicas are connected, and {} have to acknowledge it",
                semi_sync.clients, semi_sync.wait_for
            ),
        });
    }
    Ok(())
}

/// Makes passwords what the Secrets say, where they are not.
async fn set_passwords(shared: &Shared, application: Option<&Application>) -> Result<(), MysqlError> {
    let secrets = shared.secrets();
    let mysql = shared.mysql.as_ref();
    let mut accounts = Vec::new();
    if shared.credentials_differ() {
        mysql.set_local_passwords(&secrets.credentials, LIMIT).await?;
        accounts.extend(network_accounts(&secrets.credentials));
    }
    let users = [(ROOT, secrets.root.as_ref(), false)]
        .into_iter()
        .chain(application.map(|application| (application.user.as_str(), secrets.application.as_ref(), true)));
    for (user, password, retain) in users {
        let Some(password) = password else { continue };
        if !mysql.can_log_in(user, password, LIMIT).await? {
            accounts.push(shared_password(user, password, retain));
        }
    }
    if !accounts.is_empty() {
        acknowledgers_are_connected(shared).await?;
        mysql.set_shared_passwords(&accounts, LIMIT).await?;
        tracing::info!(
            accounts = accounts.len(),
            "set passwords that differed from their Secrets"
        );
    }
    shared.credentials_applied(&secrets);
    Ok(())
}

fn network_accounts(credentials: &accounts::Credentials) -> Vec<SharedPassword> {
    let replication = credentials.replication.iter().flat_map(|password| {
        (0..REPLICATION_ACCOUNTS).map(|ordinal| shared_password(&replication_user(ordinal), password, true))
    });
    let clone = credentials
        .clone
        .iter()
        .map(|password| shared_password(CLONE, password, true));
    replication.chain(clone).collect()
}

fn shared_password(user: &str, password: &SecretString, retain: bool) -> SharedPassword {
    SharedPassword {
        user: user.to_owned(),
        host: "%".to_owned(),
        password: password.clone(),
        retain,
    }
}
