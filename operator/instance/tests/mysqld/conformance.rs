//! Real servers show the facts that the simulation's model of MySQL shows (`operator/sim/tests/conformance`).

#[path = "../../../sim/tests/conformance/script.rs"]
mod script;

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::raw::Pair;
use crate::support::wire::Wire;
use crate::support::{show_logs, until};
use script::{Answer, Servers, State, play};

const PATIENCE: Duration = Duration::from_secs(4);

struct Real {
    pair: Pair,
    wire: Wire,
    row: u64,
    commits: Vec<JoinHandle<Result<(), mysql_async::Error>>>,
}

impl Real {
    async fn clients(&self, number: &str) {
        until("the source notices its replica", async || {
            self.pair.source.status("Rpl_semi_sync_source_clients").await == number
        })
        .await;
    }
}

impl Servers for Real {
    async fn begin(&mut self) {
        self.row += 1;
        let insert = format!("INSERT INTO app.t VALUES ({})", self.row);
        self.commits.push(self.pair.source.begin(&insert));
        sleep(Duration::from_millis(200)).await;
    }

    async fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        for mut commit in std::mem::take(&mut self.commits) {
            answers.push(match timeout(PATIENCE, &mut commit).await {
                Ok(Ok(Ok(()))) => Answer::Committed,
                Ok(_) => Answer::Lost,
                Err(_) => {
                    self.commits.push(commit);
                    Answer::Nothing
                }
            });
        }
        answers
    }

    async fn stop_receiver(&mut self) {
        self.wire.replace().await;
        self.pair.replica.run(&["STOP REPLICA IO_THREAD"]).await;
        self.clients("0").await;
    }

    async fn start_receiver(&mut self) {
        self.pair.replica.run(&[&self.pair.replica.start_receiver()]).await;
        self.clients("1").await;
    }

    async fn stop_applier(&mut self) {
        self.pair.replica.run(&["STOP REPLICA SQL_THREAD"]).await;
    }

    async fn start_applier(&mut self) {
        self.pair.replica.run(&["START REPLICA SQL_THREAD"]).await;
    }

    async fn mute_replica(&mut self) {
        self.wire.cut_to_server();
    }

    async fn crash_source(&mut self) {
        self.pair.source.kill();
        self.pair.source.start_again().await;
        self.pair.source.semi_sync(1).await;
    }

    async fn crash_replica(&mut self) {
        self.pair.replica.kill();
        self.pair.replica.start_again().await;
    }

    async fn state(&mut self) -> State {
        let mut last = None;
        loop {
            let source = self.pair.source.executed().await.count();
            let (replica, received) = (self.pair.replica.executed().await, self.pair.replica.received().await);
            let state = State {
                source,
                replica: replica.count(),
                relay: received.subtract(&replica).count(),
            };
            if last == Some(state) {
                return state;
            }
            last = Some(state);
            sleep(Duration::from_millis(500)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn real_servers_show_what_the_model_shows() {
    show_logs();
    let pair = Pair::strangers(&[], &[]).await;
    let wire = Wire::to(pair.source.admin()).await;
    pair.attach(wire.address).await;
    let mut real = Real {
        pair,
        wire,
        row: 0,
        commits: Vec::new(),
    };
    play(&mut real).await;
}
