//! Self-fencing: when nobody is heard, and when somebody else was made primary.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::observed::{Mysqld, Persisted};
use mainstay_mysql::{MysqlError, Receiver, Sessions};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::seconds;
use crate::apiserver;
use crate::isolation::{Clients, Standing, Step, Verdict, judge, step};
use crate::server::Server;
use crate::shared::{Reading, Shared};

/// Between two looks.
const TICK: Duration = Duration::from_millis(200);
/// A look that came so late was slept over: what arrived meanwhile has to be read before anybody is judged by it.
const OVERSLEPT: Duration = Duration::from_secs(1);
/// How long that may take.
const AWAKE: Duration = Duration::from_secs(1);
/// How long the API server may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Between two questions to it, and between two looks at who is connected in spite of all.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a statement may take.
const STATEMENT: Duration = Duration::from_secs(1);

/// Until the end of the process.
pub(crate) async fn fence_oneself(shared: Arc<Shared>, server: Arc<dyn Server>) {
    let now = Instant::now();
    let mut watch = Watch {
        shared,
        server,
        last_look: now,
        woke: now,
        question: None,
        asked: None,
        evicted: None,
    };
    loop {
        sleep(TICK).await;
        watch.look().await;
    }
}

struct Watch {
    shared: Arc<Shared>,
    server: Arc<dyn Server>,
    last_look: Instant,
    woke: Instant,
    /// A question to the API server that is on its way.
    question: Option<JoinHandle<()>>,
    asked: Option<Instant>,
    evicted: Option<Instant>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(question) = &self.question {
            question.abort();
        }
    }
}

impl Watch {
    async fn look(&mut self) {
        let now = Instant::now();
        if now - self.last_look > OVERSLEPT {
            self.woke = now;
        }
        self.last_look = now;
        if self.shared.process().phase != Mysqld::Running {
            return;
        }
        let Some(reading) = self.shared.reading() else { return };
        let state = self.shared.state();
        let standing = self.standing(&reading, &state.told);
        if standing.writable
            && let Some(reign) = self.shared.hearing.deposed_by(&state.told, &state.incarnation())
        {
            let why = format!(
                "it fenced itself: {} was made primary in epoch {}, and this instance in epoch {}",
                reign.primary.instance, reign.told_epoch, state.told.told_epoch
            );
            return self.kill(why).await;
        }
        let contacts = self.shared.hearing.contacts(&state.told);
        let verdict = judge(&contacts, self.shared.config.timing.fencing);
        let is_used = standing.writable || standing.clients != Clients::KeptOut;
        if verdict != Verdict::Connected && is_used {
            self.ask_the_api_server();
        }
        match step(verdict, standing) {
            Step::Stay => {
                if verdict == Verdict::Connected && standing.clients == Clients::LetIn {
                    self.shared.keep_clients_out(false);
                }
            }
            // Signs of life that came while this process slept may not have been read yet.
            Step::Kill if self.woke.elapsed() < AWAKE => {}
            Step::Kill => {
                let why = self.nobody_was_heard(&state.told);
                self.kill(why).await;
            }
            Step::SendAway => self.send_away(standing).await,
            Step::Welcome => self.welcome().await,
        }
    }

    fn standing(&self, reading: &Reading, told: &Persisted) -> Standing {
        let channel = reading.state.channel.as_ref();
        Standing {
            writable: !reading.state.super_read_only,
            acks_required: told.acks_required,
            clients: match (reading.state.offline, self.shared.keeps_clients_out()) {
                (false, _) => Clients::LetIn,
                (true, false) => Clients::KeptOut,
                (true, true) => Clients::SentAway,
            },
            receives: channel.is_some_and(|channel| channel.receiver == Receiver::On),
        }
    }

    async fn kill(&mut self, why: String) {
        tracing::error!(why, "mysqld is killed");
        self.shared.keep_clients_out(true);
        self.server.kill(&why).await;
    }

    fn nobody_was_heard(&self, told: &Persisted) -> String {
        let members: Vec<String> = told.members.iter().map(|id| id.instance.to_string()).collect();
        format!(
            "it fenced itself: for {} it heard neither the operator, nor the API server, nor {} of {}",
            seconds(self.shared.config.timing.fencing),
            told.acks_required,
            members.join(", ")
        )
    }

    /// Nobody asks it while others are heard: it has better things to do than to answer every primary every second.
    fn ask_the_api_server(&mut self) {
        let is_asked = self.question.as_ref().is_some_and(|question| !question.is_finished());
        if is_asked || self.asked.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        self.asked = Some(Instant::now());
        let shared = Arc::clone(&self.shared);
        self.question = Some(tokio::spawn(async move {
            let Some(server) = &shared.config.api_server else {
                return;
            };
            match apiserver::answers(server, ANSWER).await {
                Ok(()) => shared.hearing.api_server(),
                Err(reason) => tracing::warn!(reason, "the API server does not answer, nor is anybody else heard"),
            }
        }));
    }

    /// Reads here would be older and older. Whoever has the privilege to stay is ended each time it comes over the network;
    /// a person in the container is left alone.
    async fn send_away(&mut self, standing: Standing) {
        if self.evicted.is_some_and(|at| at.elapsed() < PAUSE) && standing.clients != Clients::LetIn {
            return;
        }
        self.evicted = Some(Instant::now());
        match self.keep_out(standing).await {
            Ok(0) if self.shared.keeps_clients_out() => {}
            Ok(_) => tracing::error!("nobody is heard: clients are kept out until this instance receives again"),
            Err(error) => tracing::warn!(%error, "clients may still be connected"),
        }
        self.shared.keep_clients_out(true);
        self.shared.expect_change();
    }

    async fn keep_out(&self, standing: Standing) -> Result<usize, MysqlError> {
        if standing.clients == Clients::LetIn {
            self.shared.mysql.serve_clients(false, STATEMENT).await?;
        }
        self.shared.mysql.end_client_sessions(Sessions::Remote, STATEMENT).await
    }

    async fn welcome(&mut self) {
        match self.shared.mysql.serve_clients(true, STATEMENT).await {
            Ok(()) => {
                tracing::info!("this instance receives again: clients may come");
                self.shared.keep_clients_out(false);
                self.shared.expect_change();
            }
            Err(error) => tracing::warn!(%error, "clients are still kept out"),
        }
    }
}
