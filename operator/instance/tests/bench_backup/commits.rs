//! A client of the primary that commits a row every ten milliseconds, and times it.

use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable as _;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::support::Node;

/// Between two commits.
const PERIOD: Duration = Duration::from_millis(10);

/// The client, until its figures are asked for.
pub(crate) struct Commits {
    end: oneshot::Sender<()>,
    task: JoinHandle<Vec<f64>>,
}

impl Commits {
    pub(crate) async fn of(primary: &Node) -> Self {
        let mut client = primary.root().await;
        let (end, mut ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut times = Vec::new();
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while ended.try_recv().is_err() {
                ticks.tick().await;
                let began = Instant::now();
                client
                    .query_drop("INSERT INTO bench.commits (word) VALUES ('committed while something is measured')")
                    .await
                    .unwrap();
                times.push(began.elapsed().as_secs_f64() * 1000.0);
            }
            times
        });
        Self { end, task }
    }

    /// In milliseconds.
    pub(crate) async fn figures(self) -> Value {
        self.end.send(()).expect("it commits");
        let mut times = self.task.await.unwrap();
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100);
            (times[rank.saturating_sub(1)] * 10.0).round() / 10.0
        };
        json!({"n": times.len(), "p50": at(50), "p99": at(99), "max": at(100)})
    }
}
