//! The supervisor: makes the data directory, keeps a server running on it, and ends it on orders.

mod clone;
mod directory;
mod recovery;
mod refill;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::observed::{Disk, Mysqld};
use mainstay_mysql::accounts::InitFile;
use rustix::process::Signal;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use self::directory::blocking;
use crate::caretaker;
use crate::copy::RESTART_ME;
use crate::disk;
use crate::mysqld::{RunError, Runner, Server, chain};
use crate::process::Exit;
use crate::restore::RestoreError;
use crate::secrets::Secrets;
use crate::server::{Order, Origin, Request};
use crate::shared::{Process, Shared};
use crate::state::{Stage, StateError};
use crate::verdict::{self, Signs, Verdict, Volume};

/// A server that answered for this long before it ended was no failed start.
const STABLE: Duration = Duration::from_secs(10);
/// Between starts that fail: at once, then longer and longer.
const BACKOFF: [u64; 7] = [0, 1, 2, 4, 8, 16, 30];
/// What is said of a server that ends cleanly.
const STOPPING: &str = "it is being stopped";
/// How long a look at the volume may take.
const LOOK: Duration = Duration::from_secs(2);
/// So many starts in a row that failed make it `Failed` rather than `Down`.
const FAILED_AFTER: usize = 2;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuperviseError {
    /// A program.
    #[error(transparent)]
    Run(RunError),
    /// The state file.
    #[error(transparent)]
    State(StateError),
    /// The volume.
    #[error("failed to {what}")]
    Volume {
        /// What was attempted.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// mysqld ended.
    #[error("{0}")]
    Ended(String),
    /// What is stored cannot be restored.
    #[error(transparent)]
    Restore(RestoreError),
    /// The server does what it does too long, or not at all.
    #[error("{0}")]
    Mysql(mainstay_mysql::MysqlError),
}

/// What comes after a server has ended.
enum Next {
    /// Start again.
    Again,
    /// Replace the data directory first.
    Clone(Origin),
    /// The end.
    Shutdown,
}

impl Next {
    /// What comes next when this is ordered, and something else was before. A pod that is being stopped starts no server
    /// again, whatever a fence kills meanwhile: nobody would be left to stop that one, and the pod would never end.
    fn after(self, former: Option<&Self>) -> Self {
        match former {
            Some(Self::Shutdown) => Self::Shutdown,
            Some(Self::Again | Self::Clone(_)) | None => self,
        }
    }
}

async fn until_running(process: &mut watch::Receiver<Process>) {
    // The sender lives as long as the supervisor; and what is borrowed must not be kept.
    drop(process.wait_for(|process| process.phase == Mysqld::Running).await);
}

/// See the module.
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) runner: Runner,
    pub(crate) requests: mpsc::Receiver<Request>,
    /// Orders that are answered when the server has ended.
    waiting: Vec<oneshot::Sender<Result<(), String>>>,
    /// Starts in a row that failed.
    failures: usize,
    /// Starts in a row that failed for a reason that may lie in the data directory.
    refusals: u32,
}

impl Supervisor {
    pub(crate) fn new(shared: Arc<Shared>, runner: Runner, requests: mpsc::Receiver<Request>) -> Self {
        Self {
            shared,
            runner,
            requests,
            waiting: Vec::new(),
            failures: 0,
            refusals: 0,
        }
    }

    /// Runs until it is told to shut down.
    pub(crate) async fn run(mut self) {
        let mut steps = VecDeque::from([Next::Again]);
        while let Some(step) = steps.pop_front() {
            let next = match step {
                Next::Shutdown => break,
                Next::Clone(origin) => self.clone(origin).await,
                Next::Again => self.once().await,
            };
            steps.push_back(next);
        }
        self.answer_waiting();
    }

    /// One life of a server, with what has to be made before it, and the pause after it.
    async fn once(&mut self) -> Next {
        let next = match self.prepare().await {
            Ok(None) => self.serve().await,
            Ok(Some(next)) => return next,
            Err(error) => Err(error),
        };
        match next {
            Ok(next) => next,
            Err(error) => {
                self.failures += 1;
                self.report_failure(&chain(&error));
                self.answer_waiting();
                self.pause().await
            }
        }
    }

    fn report_failure(&self, reason: &str) {
        let phase = if self.failures >= FAILED_AFTER {
            Mysqld::Failed
        } else {
            Mysqld::Down
        };
        tracing::error!(reason, failures = self.failures, "mysqld is down");
        self.shared.set_process(|process| {
            process.phase = phase;
            process.failures = u32::try_from(self.failures).unwrap_or(u32::MAX);
            process.refusals = self.refusals;
            reason.clone_into(&mut process.message);
        });
    }

    /// Waits before the next start, unless an order comes.
    async fn pause(&mut self) -> Next {
        let seconds = BACKOFF
            .get(self.failures.saturating_sub(1))
            .or(BACKOFF.last())
            .copied()
            .unwrap_or(0);
        let until = Instant::now() + Duration::from_secs(seconds);
        loop {
            let request = tokio::select! {
                () = sleep_until(until) => return Next::Again,
                request = self.requests.recv() => request,
            };
            if let Some(next) = self.idle_order(request).await {
                return next;
            }
        }
    }

    /// Carries out an order while no server runs that could be stopped or killed: there is none, or one that makes a data
    /// directory.
    async fn idle_order(&mut self, request: Option<Request>) -> Option<Next> {
        let Some(Request { order, done }) = request else {
            return Some(Next::Shutdown);
        };
        match order {
            Order::Kill(_) | Order::Stop(_) => {
                drop(done.send(Ok(())));
                None
            }
            Order::Shutdown(_) => {
                self.waiting.push(done);
                Some(Next::Shutdown)
            }
            Order::Clone(order) => self.accept_clone(order, done).await,
        }
    }

    fn answer_waiting(&mut self) {
        for done in self.waiting.drain(..) {
            drop(done.send(Ok(())));
        }
    }

    /// Starts a server and stays with it until it has ended.
    async fn serve(&mut self) -> Result<Next, SuperviseError> {
        let stage = self.shared.state().stage;
        let purpose = if stage == Stage::Cloned {
            InitFile::AfterClone
        } else {
            InitFile::Start
        };
        self.release_reserve().await;
        // What is mounted now: a file that was edited a moment ago may not have been read yet.
        caretaker::note_secrets(&self.shared, Secrets::read(&self.shared.config.paths));
        let secrets = self.shared.secrets();
        let server = self.runner.serve(purpose, &secrets, &[]).map_err(SuperviseError::Run)?;
        self.shared.credentials_applied(&secrets);
        self.started(Mysqld::Starting, server.child.pid());
        let (began, words) = (Instant::now(), server.words());
        let (next, exit, reason) = self.attend(server, stage).await;
        self.runner.remove_init_file();
        let answered = self.shared.process().phase == Mysqld::Running;
        if let Some(next) = next {
            self.shared.set_process(|process| process.phase = Mysqld::Down);
            self.answer_waiting();
            self.failures = 0;
            return Ok(next);
        }
        if answered && began.elapsed() >= STABLE {
            self.failures = 0;
        }
        if exit == RESTART_ME {
            return Ok(Next::Again);
        }
        if answered {
            self.refusals = 0;
        } else if self.lies_in_the_data(exit, words.signs()).await {
            self.refusals = self.refusals.saturating_add(1);
        }
        Err(SuperviseError::Ended(reason))
    }

    /// Whether the reason for which a server did not start may lie in the data directory.
    async fn lies_in_the_data(&self, exit: Exit, signs: Signs) -> bool {
        let volume = if self.is_volume_sound().await {
            Volume::Sound
        } else {
            Volume::Unfit
        };
        let verdict = verdict::judge(exit, signs, volume);
        let lies_there = match verdict {
            Verdict::Data => true,
            Verdict::Elsewhere => false,
            Verdict::UnlessOptions => self.runner.takes_options().await == Some(true),
        };
        tracing::info!(?verdict, lies_there, "whether the reason may lie in the data directory");
        lies_there
    }

    /// There is room on the volume, and it works, as of now; one that does not say so soon does not.
    async fn is_volume_sound(&self) -> bool {
        let paths = self.shared.config.paths.clone();
        let look = blocking("look at the volume", move || {
            disk::look(&paths.state(), &paths.volume)?;
            Ok(disk::space(&paths.volume)?.free >= Disk::FULL)
        });
        timeout(LOOK, look)
            .await
            .is_ok_and(|has_room| has_room.unwrap_or(false))
    }

    /// Says that a server process was started. Why the one before ended is said until this one answers.
    fn started(&self, phase: Mysqld, pid: i32) {
        self.shared.mysql.server_started(self.shared.version.clone());
        self.shared.set_process(|process| {
            process.restarts = if process.run == 0 { 0 } else { process.restarts + 1 };
            process.run += 1;
            process.failures = u32::try_from(self.failures).unwrap_or(u32::MAX);
            process.refusals = self.refusals;
            process.phase = phase;
            process.pid = Some(pid);
        });
    }

    /// Stays with a server until it has ended; what was ordered, and how it ended.
    async fn attend(&mut self, mut server: Server, stage: Stage) -> (Option<Next>, Exit, String) {
        let mut process = self.shared.watch_process();
        let mut answered = false;
        let mut next = None;
        let mut kill_at: Option<Instant> = None;
        loop {
            let deadline = kill_at.unwrap_or_else(|| Instant::now() + Duration::from_hours(1));
            tokio::select! {
                (exit, reason) = server.ended() => return (next, exit, reason),
                () = sleep_until(deadline), if kill_at.is_some() => {
                    tracing::warn!("mysqld did not end in time, it is killed");
                    server.child.signal(Signal::KILL);
                    kill_at = None;
                }
                () = until_running(&mut process), if !answered => {
                    answered = true;
                    self.runner.remove_init_file();
                    self.first_answer(stage).await;
                }
                request = self.requests.recv() => {
                    let (order, limit) = self.serve_order(request, &server).await;
                    if let Some(order) = order {
                        next = Some(order.after(next.as_ref()));
                        kill_at = limit;
                    }
                }
            }
        }
    }

    /// Carries out an order on a running server; what comes after it has ended, and when to kill it.
    async fn serve_order(&mut self, request: Option<Request>, server: &Server) -> (Option<Next>, Option<Instant>) {
        let patience = Some(Instant::now() + self.shared.config.timing.shutdown);
        let Some(Request { order, done }) = request else {
            // Nobody is left who could have made it read-only.
            server.child.signal(Signal::KILL);
            return (Some(Next::Shutdown), None);
        };
        match order {
            Order::Kill(why) => {
                // Said first: a process that waits for a disk does not end, but it does nothing any more either.
                self.say_down(&why);
                server.child.signal(Signal::KILL);
                self.waiting.push(done);
                (Some(Next::Again), None)
            }
            Order::Stop(_read_only) => {
                self.say_down(STOPPING);
                server.child.signal(Signal::TERM);
                self.waiting.push(done);
                (Some(Next::Again), patience)
            }
            Order::Shutdown(Some(_read_only)) => {
                self.say_down(STOPPING);
                server.child.signal(Signal::TERM);
                self.waiting.push(done);
                (Some(Next::Shutdown), patience)
            }
            Order::Shutdown(None) => {
                server.child.signal(Signal::KILL);
                self.waiting.push(done);
                (Some(Next::Shutdown), None)
            }
            Order::Clone(order) => match self.accept_clone(order, done).await {
                Some(next) => {
                    server.child.signal(Signal::KILL);
                    (Some(next), None)
                }
                None => (None, None),
            },
        }
    }

    /// It is about to end on purpose, and nobody looks at it any more.
    fn say_down(&self, why: &str) {
        self.shared.set_process(|process| {
            process.phase = Mysqld::Down;
            why.clone_into(&mut process.message);
        });
    }

    /// What is due when a server answers for the first time.
    async fn first_answer(&mut self, stage: Stage) {
        if stage == Stage::Cloned
            && let Err(error) = self.shared.write_state(|state| state.stage = Stage::Ready).await
        {
            // It will forget its donor's channel once more at the next start; that harms nothing.
            tracing::warn!(error = %chain(&error), "failed to note that the clone is complete");
        }
        let paths = self.shared.config.paths.clone();
        let work = blocking("make the reserve", move || {
            disk::keep_reserve(&paths.volume, &paths.reserve())
        });
        if let Err(error) = work.await {
            tracing::warn!(error = %chain(&error), "the reserve is missing");
        }
    }

    async fn release_reserve(&self) {
        let paths = self.shared.config.paths.clone();
        let work = blocking("look at the disk", move || {
            if disk::release_reserve(&paths.volume, &paths.reserve())? {
                tracing::warn!("the disk is full: the reserve was given up");
            }
            std::fs::create_dir_all(paths.tmp())
        });
        if let Err(error) = work.await {
            tracing::warn!(error = %chain(&error), "the disk may be full, or broken");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Next;

    #[test]
    fn a_pod_that_is_being_stopped_starts_no_server_again() {
        assert!(matches!(Next::Again.after(None), Next::Again));
        assert!(matches!(Next::Shutdown.after(Some(&Next::Again)), Next::Shutdown));
        assert!(matches!(Next::Again.after(Some(&Next::Shutdown)), Next::Shutdown));
    }
}
