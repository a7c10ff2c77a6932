//! Attach: follow a source.

use std::time::Duration;

use mainstay_core::action::Endpoint;
use mainstay_mysql::{Channel, Receiver, ReplicationSource, ServerState, Sessions};
use secrecy::SecretString;
use tokio::time::{Instant, sleep};

use super::{Context, Done, Outcome, Refusal, refusal};

/// Between two looks at how far the applier is.
const POLL: Duration = Duration::from_millis(20);
/// How long sessions of clients may take to be ended: the rest does not depend on it.
const CLIENTS: Duration = Duration::from_millis(500);
/// How long the answer waits for the connection to the source: a winner is recorded when its followers are connected, so
/// that nobody has to look a second time. One that takes longer is seen by the next sample.
const CONNECTED: Duration = Duration::from_millis(100);
/// Between two looks at the connection.
const LOOK: Duration = Duration::from_millis(5);

pub(super) async fn attach(context: &Context<'_>, source: &Endpoint) -> Outcome {
    let mysql = context.mysql;
    let state = mysql.read_state().await?;
    if !state.super_read_only {
        return Err(refusal("it is writable: it must be fenced first"));
    }
    let secrets = context.shared.secrets();
    let Some(password) = &secrets.credentials.replication else {
        return Err(refusal(
            "the password of the replication account is not known: see the Secret's file replication",
        ));
    };
    let source = ReplicationSource {
        host: source.host.clone(),
        port: source.port,
        ca: context
            .shared
            .config
            .paths
            .server_tls
            .join("ca.crt")
            .display()
            .to_string(),
    };
    let same = state
        .channel
        .as_ref()
        .filter(|channel| channel.host == source.host && channel.port == source.port);
    match same {
        Some(channel) if channel.applier_error.is_none() => return resume(context, &state, channel, password).await,
        Some(channel) if !state.fully_applied() => {
            resume(context, &state, channel, password).await?;
            return get_further(context, &state).await;
        }
        Some(_) | None => {}
    }
    follow_anew(context, &state, &source, password).await
}

/// It followed nobody, or another one, or cannot go on with what it has.
async fn follow_anew(
    context: &Context<'_>,
    state: &ServerState,
    source: &ReplicationSource,
    password: &SecretString,
) -> Outcome {
    let mysql = context.mysql;
    if state.receives() {
        mysql.stop_receiver(context.left()).await?;
    }
    let was_primary = state.semi_sync.enabled;
    if was_primary {
        step_down(context, state).await?;
    }
    apply_everything(context).await?;
    let on_the_fly = |channel: &Channel| channel.auto_position && channel.applier_running;
    if state.channel.as_ref().is_some_and(on_the_fly) {
        mysql.change_source(source, context.left()).await?;
    } else {
        mysql.set_source(source, context.left()).await?;
        mysql.start_applier(context.left()).await?;
    }
    welcome(context, state).await?;
    mysql
        .start_receiver(context.shared.config.ordinal, password, context.left())
        .await?;
    if was_primary && let Err(error) = mysql.end_client_sessions(Sessions::Clients, CLIENTS).await {
        tracing::warn!(%error, "clients of the former primary may still be connected");
    }
    connect(context).await?;
    Ok(Done::Applied)
}

/// Waits a moment for the receiver to be connected, or to say why it is not.
async fn connect(context: &Context<'_>) -> Result<(), Refusal> {
    let until = Instant::now() + CONNECTED.min(context.left());
    loop {
        let state = context.mysql.read_state().await?;
        let connecting = state
            .channel
            .as_ref()
            .is_some_and(|channel| channel.receiver == Receiver::Connecting && channel.receiver_error.is_none());
        if !connecting || Instant::now() + LOOK > until {
            return Ok(());
        }
        sleep(LOOK).await;
    }
}

/// It follows this source already, or did before: the relay log stays, whatever is in it. (Only an applier that cannot go on
/// although everything whole is applied, as with a relay log that was torn by a power cut, gets a new one.)
async fn resume(context: &Context<'_>, state: &ServerState, channel: &Channel, password: &SecretString) -> Outcome {
    let (receives, applies) = (channel.receiver != Receiver::Off, channel.applier_running);
    welcome(context, state).await?;
    if !applies {
        context.mysql.start_applier(context.left()).await?;
    }
    if !receives {
        context
            .mysql
            .start_receiver(context.shared.config.ordinal, password, context.left())
            .await?;
        connect(context).await?;
    }
    Ok(if receives && applies && !state.offline {
        Done::Already
    } else {
        Done::Applied
    })
}

/// An applier that had stopped with an error was started again: it gets further, or the command is refused with the reason.
/// The receiver runs in any case, so that the instance acknowledges what it cannot apply.
async fn get_further(context: &Context<'_>, before: &ServerState) -> Outcome {
    loop {
        let state = context.mysql.read_state().await?;
        if state.fully_applied() || state.executed != before.executed {
            return Ok(Done::Applied);
        }
        let stopped = state.channel.as_ref().filter(|channel| !channel.applier_running);
        if let Some(error) = stopped.and_then(|channel| channel.applier_error.as_ref()) {
            return Err(cannot_be_applied(&error.text));
        }
        if context.left() <= POLL {
            return Err(not_applied_yet(&state));
        }
        sleep(POLL).await;
    }
}

fn cannot_be_applied(error: &str) -> Refusal {
    Refusal(format!("received transactions cannot be applied: {error}"))
}

fn not_applied_yet(state: &ServerState) -> Refusal {
    let missing = state.received().subtract(&state.executed);
    Refusal(format!("{} received transactions are not applied yet", missing.count()))
}

/// It was compared, or it would not be attached: clients may read what it has (rule 7).
async fn welcome(context: &Context<'_>, state: &ServerState) -> Result<(), Refusal> {
    if state.offline {
        context.mysql.serve_clients(true, context.left()).await?;
    }
    Ok(())
}

/// A former primary waits for acknowledgements, and so would its applier. It is read-only, so nobody waits now. The
/// switch takes a second while semi-synchronous replicas are connected, and a millisecond without.
async fn step_down(context: &Context<'_>, state: &ServerState) -> Result<(), Refusal> {
    // Not only said to be: switching off acknowledges what waits.
    context.mysql.set_super_read_only(context.left()).await?;
    let connections: Vec<u64> = state.dump_threads.iter().map(|thread| thread.connection).collect();
    context.mysql.end_sessions(&connections, context.left()).await?;
    context.mysql.semi_sync_off(context.left()).await?;
    Ok(())
}

/// Setting the source drops the relay log, and it may hold the only copy of an acknowledged transaction (C3, decision
/// A5): everything received must be applied. Nothing is received any more here.
async fn apply_everything(context: &Context<'_>) -> Result<(), Refusal> {
    let mut started = false;
    loop {
        let state = context.mysql.read_state().await?;
        if state.fully_applied() {
            return Ok(());
        }
        let channel = state.channel.as_ref();
        if let Some(error) = channel
            .and_then(|channel| channel.applier_error.as_ref())
            .filter(|_| started)
        {
            return Err(cannot_be_applied(&error.text));
        }
        if channel.is_some_and(|channel| !channel.applier_running) {
            context.mysql.start_applier(context.left()).await?;
            started = true;
        }
        if context.left() <= POLL {
            return Err(not_applied_yet(&state));
        }
        sleep(POLL).await;
    }
}
