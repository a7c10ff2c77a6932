//! What a manager does by itself for a server that answers, whatever its role: it starts the applier for what was
//! received, and follows the mounted files.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::observed::Mysqld;
use mainstay_mysql::MysqlError;
use tokio::time::{sleep, timeout};

use crate::mysqld::chain;
use crate::secrets::Secrets;
use crate::shared::Shared;
use crate::tls::Reloadable;

/// How long a statement may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// An applier that stopped with an error is started again after this time, and then each time when twice as much has passed:
/// some errors pass, a full disk for one.
const RETRY: Duration = Duration::from_secs(10);

/// Starts the applier once for each server process with something to apply, and again when it stopped with an error, until
/// the end of the process.
pub(crate) async fn apply_what_was_received(shared: Arc<Shared>) {
    let mut process = shared.watch_process();
    let mut served = 0;
    let mut again = RETRY;
    loop {
        let next = process.wait_for(|process| process.phase == Mysqld::Running && process.run != served);
        let woken = timeout(RETRY / 2, next).await;
        let run = match woken.map(|woken| woken.map(|process| process.run)) {
            Ok(Ok(run)) => run,
            Ok(Err(_ended)) => return,
            Err(_elapsed) => {
                again = start_again(&shared, again).await;
                continue;
            }
        };
        match start_applier(&shared).await {
            Ok(()) => served = run,
            Err(error) => {
                tracing::warn!(%error, "the relay log is not being applied yet");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Starts an applier that has been failing for `when`; for how long it has to fail until the next attempt.
async fn start_again(shared: &Shared, when: Duration) -> Duration {
    let failing = shared.last_state().and_then(|state| state.channel?.failing_for);
    let Some(age) = failing else { return RETRY };
    if age < when {
        return when;
    }
    if let Err(error) = start_applier(shared).await {
        tracing::warn!(%error, "the applier is not started again");
    }
    age * 2
}

/// Harmless beside any command: an applier runs on every instance that is not a primary, and a primary has nothing to
/// apply.
async fn start_applier(shared: &Shared) -> Result<(), MysqlError> {
    let state = shared.mysql.read_state().await?;
    let stopped = state.channel.as_ref().is_some_and(|channel| !channel.applier_running);
    if state.super_read_only && stopped && !state.fully_applied() {
        tracing::info!("applying what was received");
        shared.mysql.start_applier(LIMIT).await?;
    }
    Ok(())
}

/// Follows the mounted files until the end of the process.
pub(crate) async fn follow_files(shared: Arc<Shared>, tls: Reloadable) {
    let mut known = tls.files().fingerprint();
    let mut reload_mysqld = false;
    loop {
        sleep(shared.config.timing.files).await;
        let paths = shared.config.paths.clone();
        let files = tls.files().clone();
        let Ok((secrets, fingerprint)) =
            tokio::task::spawn_blocking(move || (Secrets::read(&paths), files.fingerprint())).await
        else {
            continue;
        };
        note_secrets(&shared, secrets);
        if fingerprint.is_some() && fingerprint != known {
            known = fingerprint;
            reload_mysqld = true;
            match tls.reload() {
                Ok(()) => tracing::info!("TLS files were read again"),
                Err(error) => tracing::error!(error = %chain(&error), "the former TLS files stay in use"),
            }
        }
        if reload_mysqld && shared.process().phase == Mysqld::Running {
            match shared.mysql.reload_tls(LIMIT).await {
                Ok(()) => reload_mysqld = false,
                Err(error) => tracing::warn!(%error, "mysqld uses its former TLS files"),
            }
        }
    }
}

/// Takes note of what is mounted now.
pub(crate) fn note_secrets(shared: &Shared, secrets: Secrets) {
    let before = shared.secrets();
    for problem in secrets
        .problems
        .iter()
        .filter(|problem| !before.problems.contains(problem))
    {
        tracing::warn!(problem, "a Secret cannot be used");
    }
    if shared.set_secrets(secrets) {
        tracing::info!("passwords were changed");
        if let Some(password) = &shared.secrets().credentials.manager {
            shared.mysql.offer_password(password.clone());
        }
    }
}
