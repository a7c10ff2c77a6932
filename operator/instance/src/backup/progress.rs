//! How far a backup or a verification is, and whether it moves.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainstay_core::backup::plan::{BackupStep, Progress};
use tokio::time::{Instant, sleep};

use super::Failure;

/// Over how long a rate is measured.
const WINDOW: Duration = Duration::from_secs(10);
/// Between two looks whether it moves.
const LOOK: Duration = Duration::from_secs(1);

/// The course of one.
pub(crate) struct Course(Mutex<State>);

struct State {
    step: BackupStep,
    bytes: u64,
    total: Option<u64>,
    /// Rows that are in these bytes.
    rows: Option<u64>,
    /// When something last moved, be it only the server's own writing.
    moved: Instant,
    /// What the server had written then.
    written: u64,
    /// Bytes at the times of late.
    samples: VecDeque<(Instant, u64)>,
}

impl Default for Course {
    fn default() -> Self {
        Self(Mutex::new(State::new(BackupStep::Copy, None)))
    }
}

impl State {
    fn new(step: BackupStep, total: Option<u64>) -> Self {
        Self {
            step,
            bytes: 0,
            total,
            rows: None,
            moved: Instant::now(),
            written: 0,
            samples: VecDeque::new(),
        }
    }

    fn sample(&mut self, now: Instant) {
        self.samples.push_back((now, self.bytes));
        while self
            .samples
            .front()
            .is_some_and(|(at, _)| now.duration_since(*at) > WINDOW)
        {
            self.samples.pop_front();
        }
    }

    fn rate(&self) -> Option<u64> {
        let ((from, first), (to, last)) = (self.samples.front()?, self.samples.back()?);
        let millis = u64::try_from(to.duration_since(*from).as_millis()).ok()?;
        (millis >= 500).then(|| last.saturating_sub(*first).saturating_mul(1000) / millis)
    }
}

impl Course {
    /// Another step begins.
    pub(crate) fn begin(&self, step: BackupStep, total: Option<u64>) {
        tracing::info!(?step, total, "a step begins");
        *self.lock() = State::new(step, total);
    }

    /// So much of this step is done; it begins with that, unless it has begun.
    pub(crate) fn reach(&self, step: BackupStep, done: u64, total: Option<u64>) {
        if self.lock().step != step {
            self.begin(step, total);
        }
        self.done(done, total);
    }

    /// So many bytes of the step are done.
    pub(crate) fn done(&self, bytes: u64, total: Option<u64>) {
        let mut state = self.lock();
        let now = Instant::now();
        if state.bytes != bytes {
            state.moved = now;
        }
        state.bytes = bytes;
        state.total = total.or(state.total);
        state.sample(now);
    }

    /// So many rows, in so many bytes, were dumped.
    pub(crate) fn dumped(&self, bytes: u64, rows: u64) {
        self.done(bytes, None);
        self.lock().rows = Some(rows);
    }

    /// The server has written, or moved, so many bytes so far: a recovery of its own moves nothing else.
    pub(crate) fn written(&self, bytes: u64) {
        let mut state = self.lock();
        if state.written != bytes {
            state.written = bytes;
            state.moved = Instant::now();
        }
    }

    /// What the page shows.
    pub(crate) fn progress(&self) -> Progress {
        let state = self.lock();
        Progress {
            step: state.step,
            bytes: state.bytes,
            // An estimate of MySQL's that was too low is none.
            total: state.total.map(|total| total.max(state.bytes)),
            rate: state.rate(),
            rows: state.rows,
        }
    }

    /// The present step, in words.
    fn doing(&self) -> &'static str {
        match self.lock().step {
            BackupStep::Copy => "the donor was copied",
            BackupStep::Boot => "the copy was started",
            BackupStep::Upload => "it was stored",
            BackupStep::Dump => "it was dumped",
            BackupStep::Fetch => "what is stored was fetched",
            BackupStep::Replay => "the archive was applied",
            BackupStep::Check => "tables were checked",
        }
    }

    /// Returns when nothing has moved for so long, with what is said then.
    pub(crate) async fn stalled(&self, limit: Duration) -> Failure {
        while self.lock().moved.elapsed() < limit {
            sleep(LOOK).await;
        }
        let minutes = limit.as_secs() / 60;
        Failure::new(
            "Stalled",
            format!("nothing moved for {minutes} minutes while {}", self.doing()),
        )
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_moves_is_not_stalled() {
        let course = Course::default();
        let limit = Duration::from_mins(1);
        let began = Instant::now();
        let moves = async {
            for bytes in 1..=5 {
                sleep(Duration::from_secs(50)).await;
                course.done(bytes, None);
            }
            for bytes in 1..=2 {
                sleep(Duration::from_secs(50)).await;
                course.written(bytes);
                // The same again is nothing new.
                course.done(5, None);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _failure = course.stalled(limit) => {}
            () = moves => {}
        }
        let elapsed = began.elapsed();
        assert!((410..=412).contains(&elapsed.as_secs()), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_of_the_last_seconds() {
        let course = Course::default();
        course.begin(BackupStep::Upload, Some(10_000));
        course.done(0, None);
        assert_eq!(course.progress().rate, None);
        for second in 1..=20_u64 {
            sleep(Duration::from_secs(1)).await;
            course.done(if second <= 5 { 0 } else { (second - 5) * 100 }, None);
        }
        let progress = course.progress();
        assert_eq!(
            (progress.bytes, progress.total, progress.rate),
            (1500, Some(10_000), Some(100))
        );
        course.begin(BackupStep::Boot, None);
        assert_eq!((course.progress().bytes, course.progress().total), (0, None));
    }
}
