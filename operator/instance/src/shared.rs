//! What the parts of a manager share: what is known, and how it becomes a status.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::observed::{Mysqld, Persisted, Recovered, Standstill};
use mainstay_mysql::{Mysql, ServerState, Version};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::archive;
use crate::config::Config;
use crate::disk::{self, Space};
use crate::failing::Failing;
use crate::hearing::Hearing;
use crate::proto;
use crate::receipt::Receipt;
use crate::secrets::{Redactor, Secrets};
use crate::standstill::{self, Sight};
use crate::state::{Found, Stage, State, StateError, StateFile};
use crate::status;
use crate::volume;

/// Between two looks at the volume while the server answers, and so shows that it works for the most part.
const LOOK: Duration = Duration::from_secs(5);
/// The same while it does not answer, or the last look failed.
const LOOK_CLOSELY: Duration = Duration::from_millis(500);
/// After a command or the start of a process, samples are taken often for this long.
const BUSY: Duration = Duration::from_secs(3);

/// What the supervisor says of mysqld.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    /// What it does. `Running` here: a server process answered at least once.
    pub(crate) phase: Mysqld,
    /// Number of the server process: rises with every start.
    pub(crate) run: u64,
    /// Why it is not running, or was not before; progress while a data directory is made.
    pub(crate) message: String,
    /// Restarts since the manager began.
    pub(crate) restarts: u32,
    /// Starts in a row that failed, and data directories that could not be made.
    pub(crate) failures: u32,
    /// Starts in a row that failed for a reason that may lie in the data directory.
    pub(crate) refusals: u32,
    /// Its process id, once there was one.
    pub(crate) pid: Option<i32>,
}

/// What a server process said of itself when it last answered.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Number of the server process.
    run: u64,
    /// Data directory that it was started with.
    incarnation: String,
    /// When it had answered.
    pub(crate) at: Instant,
    /// What it said.
    pub(crate) state: Arc<ServerState>,
}

/// End of the binlog after the last marker transaction.
struct Marker {
    run: u64,
    set: GtidSet,
}

/// What has become of the list of who may acknowledge, and k, with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListEnded {
    /// The list that was told last is in force, or nobody writes.
    InForce,
    /// A list was told to an open server, and something of it failed.
    Failed,
    /// The command has nothing to do with it.
    Untouched,
}

/// What statuses say of the state file.
struct Reported {
    told: Persisted,
    /// Something of the newest list failed on an open server: nobody knows which one is in force.
    fails: bool,
}

/// A look at the volume that may be on its way.
struct VolumeLook {
    /// When it began.
    began: Instant,
    task: Option<JoinHandle<io::Result<()>>>,
}

/// See the module.
pub(crate) struct Shared {
    /// What the manager was told at its start.
    pub(crate) config: Config,
    /// The server.
    pub(crate) mysql: Arc<dyn Mysql>,
    /// Version of the image's server.
    pub(crate) version: Version,
    /// Takes passwords out of what is shown.
    pub(crate) redactor: Redactor,
    /// Who was heard when.
    pub(crate) hearing: Arc<Hearing>,
    file: Mutex<StateFile>,
    /// The file could not be opened: nobody knows what it holds.
    state_unknown: AtomicBool,
    /// What the file holds. Apart from it: a write may take for ever when the disk does, and nobody may wait for it who
    /// only wants to know.
    state: RwLock<State>,
    /// What statuses say of the state file: as of the newest command that has ended.
    reported: Mutex<Reported>,
    secrets: watch::Sender<Arc<Secrets>>,
    process: watch::Sender<Process>,
    leaving: watch::Sender<bool>,
    marker: Mutex<Option<Marker>>,
    archive: Mutex<Option<archive::Report>>,
    status: watch::Sender<Arc<proto::Status>>,
    last: Mutex<Option<ServerState>>,
    receipt: Mutex<Receipt>,
    failing: Mutex<Failing>,
    remainder: Mutex<Option<JoinHandle<()>>>,
    /// The guard keeps clients out.
    kept_out: AtomicBool,
    reading: Mutex<Option<Reading>>,
    standstill: Mutex<standstill::Watch>,
    volume: Mutex<volume::Watch>,
    volume_look: Mutex<Option<VolumeLook>>,
    server_uuid: Mutex<KnownUuid>,
    observing: tokio::sync::Mutex<u64>,
    history: Mutex<History>,
    history_lost: watch::Sender<Option<String>>,
    busy_until: Mutex<Instant>,
    wake: Notify,
    applied: Mutex<[u8; 32]>,
    turned: Mutex<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while one of these is held, and what they hold is whole at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Nothing runs yet.
    #[must_use]
    pub(crate) fn new(
        config: Config,
        mysql: Arc<dyn Mysql>,
        version: Version,
        state: StateFile,
        secrets: Secrets,
    ) -> Self {
        let redactor = Redactor::default();
        redactor.learn(&secrets);
        let process = Process {
            phase: Mysqld::Starting,
            run: 0,
            message: "the manager begins".to_owned(),
            restarts: 0,
            failures: 0,
            refusals: 0,
            pid: None,
        };
        let shared = Self {
            hearing: Arc::new(Hearing::new(&config.cluster, config.instance.clone())),
            reported: Mutex::new(Reported {
                told: state.state().told.clone(),
                fails: false,
            }),
            state: RwLock::new(state.state().clone()),
            state_unknown: AtomicBool::new(!state.is_known()),
            file: Mutex::new(state),
            secrets: watch::Sender::new(Arc::new(secrets)),
            process: watch::Sender::new(process),
            leaving: watch::Sender::new(false),
            marker: Mutex::new(None),
            archive: Mutex::new(None),
            status: watch::Sender::new(Arc::default()),
            last: Mutex::new(None),
            receipt: Mutex::default(),
            failing: Mutex::default(),
            remainder: Mutex::default(),
            kept_out: AtomicBool::default(),
            reading: Mutex::new(None),
            standstill: Mutex::default(),
            volume: Mutex::default(),
            volume_look: Mutex::default(),
            server_uuid: Mutex::default(),
            observing: tokio::sync::Mutex::new(0),
            history: Mutex::default(),
            history_lost: watch::Sender::new(None),
            busy_until: Mutex::new(Instant::now()),
            wake: Notify::new(),
            applied: Mutex::default(),
            turned: Mutex::new(Instant::now()),
            config,
            mysql,
            version,
            redactor,
        };
        let space = shared.space();
        lock(&shared.volume).measured(Instant::now(), space, 0);
        let first = Arc::new(shared.compose(0, &shared.basis(), space, None));
        shared.status.send_replace(first);
        shared
    }

    /// What the state file holds.
    #[must_use]
    pub(crate) fn state(&self) -> State {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the state file; durable when it returns what the change does.
    pub(crate) async fn write_state<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, StateError> {
        let shared = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || {
            let mut file = lock(&shared.file);
            let mut state = file.state().clone();
            let changed = change(&mut state);
            file.write(state)?;
            *shared.state.write().unwrap_or_else(PoisonError::into_inner) = file.state().clone();
            Ok(changed)
        });
        match written.await {
            Ok(result) => result,
            Err(error) => Err(StateError::Io {
                what: "write",
                path: self.config.paths.state(),
                source: io::Error::other(error.to_string()),
            }),
        }
    }

    /// Whether it is known what this instance was told.
    #[must_use]
    pub(crate) fn knows_state(&self) -> bool {
        !self.state_unknown.load(Ordering::Relaxed)
    }

    /// Opens the state file that could not be opened before.
    pub(crate) async fn open_state(self: &Arc<Self>) -> Result<Found, StateError> {
        let shared = Arc::clone(self);
        let path = self.config.paths.state();
        let opened = tokio::task::spawn_blocking(move || {
            let (opened, found) = StateFile::open(&shared.config.paths.state())?;
            let mut file = lock(&shared.file);
            *shared.state.write().unwrap_or_else(PoisonError::into_inner) = opened.state().clone();
            *file = opened;
            shared.state_unknown.store(false, Ordering::Relaxed);
            Ok(found)
        });
        match opened.await {
            Ok(result) => result,
            Err(error) => Err(StateError::Io {
                what: "open",
                path,
                source: io::Error::other(error.to_string()),
            }),
        }
    }

    /// While this is held no write of the state file ends.
    #[cfg(test)]
    pub(crate) fn hold_state_file(&self) -> MutexGuard<'_, StateFile> {
        lock(&self.file)
    }

    /// Something that a command began goes on beside the next ones, until it is stopped.
    pub(crate) fn goes_on(&self, task: JoinHandle<()>) {
        lock(&self.remainder).replace(task);
    }

    /// Notes whether the guard keeps clients out: reads here would be older and older.
    pub(crate) fn keep_clients_out(&self, kept_out: bool) {
        self.kept_out.store(kept_out, Ordering::Relaxed);
    }

    /// Whether the guard keeps clients out.
    #[must_use]
    pub(crate) fn keeps_clients_out(&self) -> bool {
        self.kept_out.load(Ordering::Relaxed)
    }

    /// Ends what an earlier command left behind: it must not touch what a later one does.
    pub(crate) async fn end_remainder(&self) {
        let task = lock(&self.remainder).take();
        if let Some(task) = task {
            task.abort();
            drop(task.await);
        }
    }

    /// Gives the volume up; the last thing that a manager does. A write that a disk does not end keeps it, and the end of the
    /// process takes it away.
    pub(crate) fn release(&self) {
        if let Ok(file) = self.file.try_lock() {
            file.unlock();
        }
    }

    /// A command has ended: from now on statuses carry what it was told, and whether the server enforces it (rule 1).
    pub(crate) fn command_ended(&self, list: ListEnded) {
        let told = self.state().told;
        let mut reported = lock(&self.reported);
        reported.told = told;
        reported.fails = match list {
            ListEnded::InForce => false,
            ListEnded::Failed => true,
            ListEnded::Untouched => reported.fails,
        };
    }

    /// Something of the newest list failed, or is not known: which one is in force.
    #[must_use]
    pub(crate) fn is_list_uncertain(&self) -> bool {
        lock(&self.reported).fails
    }

    /// A command about the list has begun and will not end: a fence comes.
    pub(crate) fn list_is_uncertain(&self) {
        lock(&self.reported).fails = true;
    }

    /// The passwords that are mounted.
    #[must_use]
    pub(crate) fn secrets(&self) -> Arc<Secrets> {
        self.secrets.borrow().clone()
    }

    /// Notes passwords that were read again; whether they differ.
    pub(crate) fn set_secrets(&self, secrets: Secrets) -> bool {
        self.redactor.learn(&secrets);
        let changed = secrets.fingerprint() != self.secrets().fingerprint();
        self.secrets.send_replace(Arc::new(secrets));
        changed
    }

    /// Notes with which passwords of Mainstay's accounts this server runs.
    pub(crate) fn credentials_applied(&self, secrets: &Secrets) {
        if let Some(password) = &secrets.credentials.manager {
            self.mysql.offer_password(password.clone());
        }
        *lock(&self.applied) = secrets.fingerprint();
    }

    /// Whether the mounted passwords are others than those with which this server runs.
    #[must_use]
    pub(crate) fn credentials_differ(&self) -> bool {
        *lock(&self.applied) != self.secrets().fingerprint()
    }

    /// What the supervisor says of mysqld.
    #[must_use]
    pub(crate) fn process(&self) -> Process {
        self.process.borrow().clone()
    }

    /// Follows what the supervisor says.
    #[must_use]
    pub(crate) fn watch_process(&self) -> watch::Receiver<Process> {
        self.process.subscribe()
    }

    /// Says something new of mysqld.
    pub(crate) fn set_process(&self, change: impl FnOnce(&mut Process)) {
        self.process.send_modify(change);
        self.expect_change();
    }

    /// Notes that the pod is being stopped.
    pub(crate) fn leave(&self) {
        self.leaving.send_replace(true);
        self.expect_change();
    }

    /// Notes the end of the binlog after a marker transaction of the present server process.
    pub(crate) fn set_marker(&self, marker: Option<GtidSet>) {
        let run = self.process().run;
        *lock(&self.marker) = marker.map(|set| Marker { run, set });
    }

    fn marker(&self, run: u64) -> Option<GtidSet> {
        lock(&self.marker)
            .as_ref()
            .filter(|marker| marker.run == run)
            .map(|marker| marker.set.clone())
    }

    /// Says how far the archive is, or that there is none.
    pub(crate) fn set_archive(&self, report: Option<archive::Report>) {
        *lock(&self.archive) = report;
    }

    /// Says something new of the archive, if there is one.
    pub(crate) fn change_archive(&self, change: impl FnOnce(&mut archive::Report)) {
        let mut archive = lock(&self.archive);
        let Some(report) = archive.as_mut() else { return };
        let before = (report.error.clone(), report.missing.clone());
        change(report);
        let news = (&report.error, &report.missing) != (&before.0, &before.1);
        drop(archive);
        if news {
            self.wake.notify_one();
        }
    }

    /// How far the archive is; `None` while there is none.
    #[must_use]
    pub(crate) fn archive(&self) -> Option<archive::Report> {
        lock(&self.archive).clone()
    }

    /// The last status, and each later one that says something new.
    #[must_use]
    pub(crate) fn watch_status(&self) -> watch::Receiver<Arc<proto::Status>> {
        self.status.subscribe()
    }

    /// The last reading of the server, for metrics; absent while it does not answer.
    #[must_use]
    pub(crate) fn last_state(&self) -> Option<ServerState> {
        lock(&self.last).clone()
    }

    /// The last reading of the present server process, however long ago that was. None of a life that is over: between the
    /// decision to clone and the start of the copy the process is still the one of before.
    #[must_use]
    pub(crate) fn reading(&self) -> Option<Reading> {
        let (run, incarnation) = (self.process().run, self.state().incarnation);
        lock(&self.reading)
            .clone()
            .filter(|reading| reading.run == run && reading.incarnation == incarnation)
    }

    /// Something is about to change: look at once, and often for a while.
    pub(crate) fn expect_change(&self) {
        *lock(&self.busy_until) = Instant::now() + BUSY;
        self.wake.notify_one();
    }

    /// When the sampler last came by; what the liveness probe looks at.
    #[must_use]
    pub(crate) fn turned(&self) -> Instant {
        *lock(&self.turned)
    }

    /// Looks at the server until the end of the process.
    pub(crate) async fn sample(&self) {
        loop {
            *lock(&self.turned) = Instant::now();
            self.observe().await;
            let busy = self.process().phase == Mysqld::Starting || *lock(&self.busy_until) > Instant::now();
            let timing = &self.config.timing;
            let pause = if busy { timing.busy_sample } else { timing.heartbeat };
            drop(tokio::time::timeout(pause, self.wake.notified()).await);
        }
    }

    /// Does something that must not be seen half-way: nothing is reported meanwhile, so it has to be short.
    pub(crate) async fn unobserved<T>(&self, work: impl Future<Output = T>) -> T {
        let _guard = self.observing.lock().await;
        work.await
    }

    /// Looks at the server and publishes what it saw. The pair in the status was persisted by a command that had ended
    /// before the server was looked at.
    pub(crate) async fn observe(&self) -> Arc<proto::Status> {
        let mut seq = self.observing.lock().await;
        *seq += 1;
        self.ask_who_locks().await;
        let basis = self.basis();
        let asked = Timestamp::now();
        let server = match basis.process.phase {
            Mysqld::Starting | Mysqld::Running => Some(self.mysql.read_state().await),
            Mysqld::Initialising | Mysqld::Down | Mysqld::Cloning | Mysqld::Failed => None,
        };
        let basis = self.note_answer(basis, server.as_ref().is_some_and(Result::is_ok));
        // Another process answered, or the server ended meanwhile: what was read belongs to nobody.
        let mut server = server.filter(|_| basis.process.run == self.process().run);
        if let Some(Ok(state)) = &mut server {
            lock(&self.receipt).look(basis.process.run, Instant::now(), state.channel.as_mut());
            lock(&self.failing).look(Instant::now(), state);
        }
        let answer = server.as_ref().and_then(|read| read.as_ref().ok()).cloned();
        if let Some(state) = &answer {
            *lock(&self.reading) = Some(Reading {
                run: basis.process.run,
                incarnation: basis.incarnation.clone(),
                at: Instant::now(),
                state: Arc::new(state.clone()),
            });
        }
        let space = self.space();
        self.look_at_volume(space, answer.is_some()).await;
        if let Some(state) = &answer {
            self.compare_history(&basis.incarnation, &state.executed);
            self.look_for_a_standstill(basis.process.run, state);
        }
        *lock(&self.last) = answer;
        let mut status = self.compose(*seq, &basis, space, server.as_ref());
        if let Some(Ok(server)) = &server {
            status.archive = self.archive().map(|report| status::archive(&report, server, asked));
        }
        let status = Arc::new(status);
        self.status.send_if_modified(|last| {
            let news = status::differs(last, &status);
            *last = Arc::clone(&status);
            news
        });
        status
    }

    /// What was executed once stays executed. Where it does not, whoever counts on this data has to know.
    fn compare_history(&self, incarnation: &str, executed: &GtidSet) {
        let state = self.state();
        if state.incarnation != incarnation {
            return;
        }
        let mut history = lock(&self.history);
        if history.incarnation != incarnation {
            *history = History {
                incarnation: incarnation.to_owned(),
                executed: state.executed.clone(),
            };
        }
        let lost = history.executed.subtract(executed);
        if lost.is_empty() || state.stands_alone(&self.config.instance) {
            if !lost.is_empty() {
                tracing::warn!(%lost, "binlogs and GTIDs were reset; nobody else holds data, so this is what counts");
            }
            history.executed = executed.clone();
        } else {
            tracing::error!(%lost, "binlogs and GTIDs were reset: nobody knows what this data directory holds");
            self.history_lost.send_replace(Some(incarnation.to_owned()));
        }
    }

    /// The incarnation whose history was lost, whenever one is seen.
    #[must_use]
    pub(crate) fn watch_history(&self) -> watch::Receiver<Option<String>> {
        self.history_lost.subscribe()
    }

    /// Space of the data volume; none at all while nobody knows.
    fn space(&self) -> Space {
        disk::space(&self.config.paths.volume).unwrap_or_default()
    }

    /// Takes note of the space of the volume and of the last look at it, and begins another look when it is time. It waits
    /// for none: a look takes as long as the disk does.
    async fn look_at_volume(&self, space: Space, answers: bool) {
        let ended = {
            let mut look = lock(&self.volume_look);
            let task = look
                .as_mut()
                .and_then(|look| look.task.take_if(|task| task.is_finished()));
            let pause = if answers && !lock(&self.volume).is_failing() {
                LOOK
            } else {
                LOOK_CLOSELY
            };
            let due = look
                .as_ref()
                .is_none_or(|look| look.task.is_none() && look.began.elapsed() >= pause);
            if due {
                let paths = &self.config.paths;
                let (state, volume) = (paths.state(), paths.volume.clone());
                *look = Some(VolumeLook {
                    began: Instant::now(),
                    task: Some(tokio::task::spawn_blocking(move || disk::look(&state, &volume))),
                });
            }
            task
        };
        let looked = match ended {
            Some(task) => task.await.ok(),
            None => None,
        };
        // Asked only while it matters. What cannot be seen was not given up.
        let full = lock(&self.volume).full_for(Instant::now()).is_some();
        let given_up = full && self.config.paths.reserve().try_exists().is_ok_and(|there| !there);
        let lent = if given_up { disk::RESERVE } else { 0 };
        let now = Instant::now();
        let mut volume = lock(&self.volume);
        volume.measured(now, space, lent);
        if let Some(looked) = looked {
            if let Err(error) = &looked
                && !volume.is_failing()
            {
                tracing::warn!(%error, "a look at the data volume failed");
            }
            volume.looked(now, &looked);
        }
    }

    /// The data volume is full, as far as is known.
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        lock(&self.volume).is_full()
    }

    /// The data volume may be broken.
    #[must_use]
    pub(crate) fn is_failing(&self) -> bool {
        lock(&self.volume).is_failing()
    }

    /// Before the reading, which is not to grow old: a lock is told when it has lasted for a while.
    async fn ask_who_locks(&self) {
        let suspected = lock(&self.standstill).suspects();
        if suspected && self.process().phase == Mysqld::Running {
            // Not to know it changes nothing else: that something is locked is known without it.
            let holder = self.mysql.global_lock_holder().await.unwrap_or_default();
            lock(&self.standstill).held_by(holder);
        }
    }

    fn look_for_a_standstill(&self, run: u64, state: &ServerState) {
        let sight = Sight {
            run,
            writable: !state.super_read_only,
            full: self.is_full(),
            committing: state.committing > 0,
            executed: &state.executed,
            locked_out: state.locked_out > 0,
        };
        lock(&self.standstill).look(Instant::now(), sight);
    }

    /// What keeps writes from ending although the server answers.
    #[must_use]
    pub(crate) fn standstill(&self) -> Option<Standstill> {
        lock(&self.standstill).finding(Instant::now(), self.config.timing.stall)
    }

    fn note_answer(&self, mut basis: Basis, answered: bool) -> Basis {
        if answered && basis.process.phase == Mysqld::Starting {
            self.process.send_if_modified(|process| {
                let first = process.run == basis.process.run && process.phase == Mysqld::Starting;
                if first {
                    process.phase = Mysqld::Running;
                    process.failures = 0;
                    process.refusals = 0;
                    process.message.clear();
                }
                first
            });
            basis.process = self.process();
        }
        basis
    }

    fn basis(&self) -> Basis {
        let process = self.process();
        let state = self.state();
        let reported = lock(&self.reported);
        Basis {
            // What is not known says nothing about the data either.
            history_reset: state.history_reset || !self.knows_state(),
            reported: reported.told.clone(),
            list_uncertain: reported.fails,
            incarnation: state.incarnation,
            recovered: state.recovered,
            process,
        }
    }

    fn compose(
        &self,
        seq: u64,
        basis: &Basis,
        space: Space,
        server: Option<&Result<ServerState, mainstay_mysql::MysqlError>>,
    ) -> proto::Status {
        let (full_for, unreadable) = {
            let volume = lock(&self.volume);
            (volume.full_for(Instant::now()), volume.is_unreadable())
        };
        let mut status = proto::Status {
            seq,
            instance: self.config.instance.0.clone(),
            incarnation: basis.incarnation.clone(),
            persisted: Some((&basis.reported).into()),
            mysqld: proto::status::Mysqld::from(basis.process.phase).into(),
            message: basis.process.message.clone(),
            restarts: basis.process.restarts,
            failures: basis.process.failures,
            refusals: basis.process.refusals,
            unreadable,
            version: self.version.to_string(),
            server_id: self.config.server_id(),
            disk: Some(proto::Disk {
                used_bytes: space.used(),
                size_bytes: space.size,
                full_for_ms: full_for.map(status::millis),
            }),
            config_hash: self.config.config_hash.clone(),
            leaving: *self.leaving.borrow(),
            list_uncertain: basis.list_uncertain,
            history_reset: basis.history_reset,
            recovered: basis.recovered.as_ref().map(Into::into),
            ..proto::Status::default()
        };
        match server {
            Some(Ok(server)) => {
                status::fill(&mut status, &self.config.cluster, server);
                status.marker = self.marker(basis.process.run).map(|set| set.to_string());
                status.pristine = !basis.history_reset && status::is_pristine(&basis.reported, server);
                status.message = self.secrets().problems.join("; ");
                status.standstill = self.standstill().as_ref().map(Into::into);
            }
            Some(Err(error)) => {
                status.mysqld = proto::status::Mysqld::Starting.into();
                if basis.process.phase == Mysqld::Running {
                    status.message = format!("mysqld runs and does not answer: {error}");
                }
            }
            None => {}
        }
        if status.server_uuid.is_empty() && self.state().stage == Stage::Ready {
            status.server_uuid = self.known_server_uuid(&basis.incarnation);
        } else {
            *lock(&self.server_uuid) = KnownUuid {
                incarnation: basis.incarnation.clone(),
                server_uuid: status.server_uuid.clone(),
            };
        }
        status
    }

    /// The server_uuid of a data directory whose server does not answer. Its file is read once: it lies on a disk that may
    /// be the reason why nothing answers.
    fn known_server_uuid(&self, incarnation: &str) -> String {
        let mut known = lock(&self.server_uuid);
        if known.incarnation != incarnation || known.server_uuid.is_empty() {
            *known = KnownUuid {
                incarnation: incarnation.to_owned(),
                server_uuid: server_uuid(&self.config.paths.data().join("auto.cnf")),
            };
        }
        known.server_uuid.clone()
    }
}

/// What was executed in a life of a data directory.
#[derive(Default)]
struct History {
    incarnation: String,
    executed: GtidSet,
}

/// A server_uuid, and the data directory that has it.
#[derive(Default)]
struct KnownUuid {
    incarnation: String,
    server_uuid: String,
}

/// The server_uuid of a data directory whose server does not answer; empty before its first start.
fn server_uuid(auto_cnf: &Path) -> String {
    let text = std::fs::read_to_string(auto_cnf).unwrap_or_default();
    let value = |line: &str| line.trim().strip_prefix("server-uuid=").map(str::to_owned);
    text.lines().find_map(value).unwrap_or_default()
}

/// What was known before the server was looked at.
struct Basis {
    history_reset: bool,
    reported: Persisted,
    list_uncertain: bool,
    incarnation: String,
    recovered: Option<Recovered>,
    process: Process,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_uuid_of_a_server_that_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("auto.cnf");
        assert_eq!(server_uuid(&file), "");
        std::fs::write(&file, "[auto]\nserver-uuid=3e11fa47-71ca-11e1-9e33-c80aa9429562\n").unwrap();
        assert_eq!(server_uuid(&file), "3e11fa47-71ca-11e1-9e33-c80aa9429562");
    }
}
