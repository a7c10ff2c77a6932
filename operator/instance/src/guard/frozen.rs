//! Stall detection: a server that gives no answer, and commits that do not end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::GtidSet;
use mainstay_core::observed::{Mysqld, Standstill};
use mainstay_mysql::{MysqlError, ServerState};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::seconds;
use crate::disk::{self, Device};
use crate::process;
use crate::server::Server;
use crate::shared::{Process, Reading, Shared};
use crate::stall::{Commits, Finding, Limits, Pace, Sight, Stall};

/// Between two looks.
const TICK: Duration = Duration::from_millis(100);
/// A member that said within this time that it receives does.
const RECEIVES: Duration = Duration::from_millis(1500);
/// How long the probe commit may take before nobody waits for it any more.
const PROBE: Duration = Duration::from_secs(30);
/// What a process that makes progress writes at least between two looks; less may be a line of a log.
const WROTE: u64 = 64 * 1024;

/// Until the end of the process.
pub(crate) async fn end_what_is_frozen(shared: Arc<Shared>, server: Arc<dyn Server>) {
    let device = disk::device(&shared.config.paths.volume);
    let mut watch = Watch {
        shared,
        server,
        device,
        last_look: Instant::now(),
        run: 0,
        life: Life::default(),
    };
    loop {
        sleep(TICK).await;
        watch.look().await;
    }
}

struct Watch {
    shared: Arc<Shared>,
    server: Arc<dyn Server>,
    /// The device of the data volume, if it has one.
    device: Option<Device>,
    last_look: Instant,
    /// The server process to which `life` belongs.
    run: u64,
    life: Life,
}

/// What is known of one server process.
#[derive(Default)]
struct Life {
    stall: Stall,
    /// When the newest reading was made.
    read_at: Option<Instant>,
    executed: GtidSet,
    written: Option<Written>,
    /// For how long its threads had waited for processors at the look before; measured only while it is suspected.
    queued: Option<Duration>,
    greeting: Option<JoinHandle<bool>>,
    probe: Option<JoinHandle<Result<(), MysqlError>>>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(greeting) = &self.greeting {
            greeting.abort();
        }
        if let Some(probe) = &self.probe {
            probe.abort();
        }
    }
}

/// What was written so far.
#[derive(Clone, Copy)]
struct Written {
    /// Writes that the device has completed.
    device: Option<u64>,
    /// Bytes that mysqld wrote to files.
    process: Option<u64>,
}

impl Watch {
    async fn look(&mut self) {
        let elapsed = self.last_look.elapsed();
        self.last_look = Instant::now();
        let process = self.shared.process();
        if process.phase != Mysqld::Running || process.run != self.run {
            self.run = process.run;
            self.life = Life::default();
            return;
        }
        let Some(reading) = self.shared.reading() else { return };
        let is_primary = !reading.state.super_read_only;
        let told = self.shared.state().told;
        let timing = &self.shared.config.timing;
        let is_needed = is_primary && told.acks_required > 0;
        let limits = Limits {
            silent: if is_needed { timing.stall } else { timing.stall_unneeded },
            stuck: is_needed.then_some(timing.stall),
            busy_disk: timing.busy_disk,
        };
        let pace = Pace {
            tick: TICK,
            elapsed,
            queued: self.queued(&process, limits),
        };
        let sight = self.sight(pace.counts(), &process, &reading).await;
        match self.life.stall.look(sight, limits) {
            Finding::Fine => {}
            Finding::Greet => self.greet(limits.silent / 2),
            Finding::Probe => self.probe(),
            Finding::Frozen => {
                let why = format!("it gave no answer for {} and was killed", seconds(limits.silent));
                self.kill(why).await;
            }
            Finding::Stuck => {
                let cause = match self.shared.standstill() {
                    Some(Standstill::DiskFull) => ", because the data volume is full,",
                    Some(Standstill::GlobalLock { .. }) | None => "",
                };
                let why = format!(
                    "commits did not end for {}{cause} and it was killed",
                    seconds(limits.stuck.unwrap_or_default())
                );
                self.kill(why).await;
            }
            Finding::Unacknowledged => {
                let why = format!(
                    "commits were not acknowledged for {} by members that receive, and it was killed",
                    seconds(limits.stuck.unwrap_or_default() * 2)
                );
                self.kill(why).await;
            }
        }
    }

    /// For how long its threads waited for processors since the look before.
    fn queued(&mut self, process: &Process, limits: Limits) -> Option<Duration> {
        let pid = process.pid.filter(|_pid| self.life.stall.suspects(limits));
        let now = pid.and_then(process::queued);
        let before = std::mem::replace(&mut self.life.queued, now);
        before.zip(now).map(|(before, now)| now.saturating_sub(before))
    }

    async fn sight(&mut self, awake: Duration, process: &Process, reading: &Reading) -> Sight {
        let mut sight = Sight {
            awake,
            ..Sight::default()
        };
        if self.life.read_at != Some(reading.at) {
            self.life.read_at = Some(reading.at);
            sight.answered = true;
            sight.commits = Some(self.commits(&reading.state));
            sight.wrote = self.wrote(process, sight.commits);
        }
        if let Some(greeted) = ended(&mut self.life.greeting).await {
            sight.answered |= greeted;
        }
        if let Some(result) = ended(&mut self.life.probe).await {
            sight.probe_ended = !matches!(result, Err(MysqlError::Timeout { .. }));
        }
        if sight.commits.is_some_and(|commits| !commits.under_way || commits.ended)
            && let Some(probe) = self.life.probe.take()
        {
            probe.abort();
        }
        sight
    }

    fn commits(&mut self, state: &ServerState) -> Commits {
        let told = self.shared.state().told;
        let before = std::mem::replace(&mut self.life.executed, state.executed.clone());
        Commits {
            under_way: state.committing > 0,
            ended: state.executed != before,
            wait_for_replicas: state.semi_sync.waiters > 0,
            replicas_receive: self.shared.hearing.receivers(&told, RECEIVES) >= told.acks_required,
            replicas_connected: state.semi_sync.on && state.semi_sync.clients >= state.semi_sync.wait_for,
        }
    }

    /// Whether anything was written since it was last so; looked at only while commits do not end.
    fn wrote(&mut self, process: &Process, commits: Option<Commits>) -> bool {
        if !commits.is_some_and(|commits| commits.under_way && !commits.ended) {
            self.life.written = None;
            return false;
        }
        let now = Written {
            device: self.device.as_ref().and_then(Device::completed_writes),
            process: process.pid.and_then(process::written),
        };
        let Some(before) = self.life.written else {
            self.life.written = Some(now);
            return false;
        };
        let grew = |before: Option<u64>, now: Option<u64>, by: u64| {
            before
                .zip(now)
                .is_some_and(|(before, now)| now >= before.saturating_add(by))
        };
        let wrote = grew(before.device, now.device, 1) || grew(before.process, now.process, WROTE);
        if wrote {
            self.life.written = Some(now);
        }
        wrote
    }

    /// A new connection: the greeting comes from threads that no statement of the manager can block.
    fn greet(&mut self, limit: Duration) {
        if self.life.greeting.is_some() {
            return;
        }
        let admin = SocketAddr::new(self.shared.config.pod_ip, self.shared.config.ports.admin);
        self.life.greeting = Some(tokio::spawn(async move {
            let greeting = async { TcpStream::connect(admin).await?.read_u8().await };
            timeout(limit, greeting).await.is_ok_and(|read| read.is_ok())
        }));
    }

    fn probe(&mut self) {
        tracing::warn!("commits do not end: one more is made, to see whether it does");
        let shared = Arc::clone(&self.shared);
        self.life.probe = Some(tokio::spawn(
            async move { shared.mysql.mark(PROBE).await.map(|_set| ()) },
        ));
        self.life.stall.probe_begins();
        self.shared.expect_change();
    }

    async fn kill(&mut self, why: String) {
        tracing::error!(why, "mysqld is killed");
        self.server.kill(&why).await;
    }
}

/// The result of a task, once it has one.
async fn ended<T>(task: &mut Option<JoinHandle<T>>) -> Option<T> {
    let finished = task.take_if(|task| task.is_finished())?;
    finished.await.ok()
}
