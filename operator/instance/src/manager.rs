//! Puts the parts together and runs them until the pod is stopped.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use mainstay_core::layout;
use mainstay_mysql::Mysql;
use mainstay_mysql::adapter::Adapter;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::caretaker;
use crate::commands::Commands;
use crate::config::Config;
use crate::grpc;
use crate::guard;
use crate::http;
use crate::mysqld::{Runner, chain};
use crate::peers;
use crate::process::Reaper;
use crate::secrets::{Redactor, Secrets};
use crate::server::{Handle, Order, Server};
use crate::shared::Shared;
use crate::shutdown;
use crate::state::{Found, Stage, StateError, StateFile};
use crate::supervise::Supervisor;
use crate::tls::{self, Reloadable, TlsFiles};

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a manager cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The operating system refused something basic.
    #[error("failed to {what}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The state file.
    #[error("failed to know what this instance was told")]
    State(#[source] Cause),
    /// The server's version cannot be had.
    #[error("failed to know the version of the image's mysqld")]
    Version(#[source] Cause),
    /// The certificates.
    #[error("failed to read the certificates")]
    Tls(#[source] Cause),
    /// gRPC could not be served.
    #[error("failed to serve gRPC")]
    Grpc(#[source] tonic::transport::Error),
}

fn system(what: &'static str) -> impl Fn(io::Error) -> ManagerError {
    move |source| ManagerError::System { what, source }
}

/// A manager that runs.
pub struct Manager {
    shared: Arc<Shared>,
    server: Handle,
    commands: Arc<Commands>,
    supervisor: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
}

impl Manager {
    /// Starts everything. When this returns, probes and gRPC are served and mysqld is being made or started.
    pub async fn start(config: Config) -> Result<Self, ManagerError> {
        std::fs::create_dir_all(&config.paths.run).map_err(system("make the directories"))?;
        let (state, found) = open_state(&config).map_err(|error| ManagerError::State(error.into()))?;
        let reaper = Reaper::start(config.adopt_orphans).map_err(system("wait for child processes"))?;
        let secrets = Secrets::read(&config.paths);
        for problem in &secrets.problems {
            tracing::warn!(problem, "a Secret cannot be used");
        }
        let runner = Runner {
            config: Arc::new(config.clone()),
            reaper,
            redactor: Redactor::default(),
        };
        let version = runner
            .version()
            .await
            .map_err(|error| ManagerError::Version(error.into()))?;
        let mysql: Arc<dyn Mysql> = Arc::new(Adapter::new(config.paths.socket()));
        let shared = Arc::new(Shared::new(config, mysql, version, state, secrets));
        let runner = Runner {
            redactor: shared.redactor.clone(),
            ..runner
        };
        if let Some(found) = found {
            adopt_unknown_data(&shared, found)
                .await
                .map_err(|error| ManagerError::State(error.into()))?;
        }
        let files = TlsFiles::in_directories(&shared.config.paths.server_tls, &shared.config.paths.client_ca);
        let tls = Reloadable::load(files).map_err(|error| ManagerError::Tls(error.into()))?;

        let (requests, orders) = mpsc::channel(16);
        let server = Handle::new(requests, shared.watch_process());
        let supervisor = tokio::spawn(Supervisor::new(Arc::clone(&shared), runner, orders).run());
        let port: Arc<dyn Server> = Arc::new(server.clone());
        let commands = Arc::new(Commands::new(Arc::clone(&shared), Arc::clone(&port)));
        let mut tasks = serve_http(&shared).await?;
        tasks.push(serve_grpc(&shared, &commands, tls.clone()).await?);
        tasks.extend(attend(&shared, &commands, &port, tls));
        Ok(Self {
            shared,
            server,
            commands,
            supervisor,
            tasks,
        })
    }

    /// Ends mysqld by the shutdown rule (decision A1), and then the manager.
    pub async fn stop(self) {
        self.shared.leave();
        let timing = self.shared.config.timing;
        let look = shutdown::make_read_only(self.shared.mysql.as_ref(), timing.read_only);
        let proof = timeout(timing.read_only + timing.read_only, look).await.ok().flatten();
        // A clean stop writes, and one that finds no room, or a broken disk, waits or fails.
        let proof = proof.filter(|_| !self.shared.is_full() && !self.shared.is_failing());
        if proof.is_some() {
            // Nobody may be left who has the end of the binlog and could store it.
            self.commands.finish_archive(timing.finish_archive).await;
            shutdown::end_sessions(self.shared.mysql.as_ref()).await;
        } else {
            tracing::warn!(
                "mysqld cannot be made read-only, or its volume is full or broken: it is killed, for a clean stop could lose \
                 commits or take for ever"
            );
        }
        if let Err(reason) = self.server.order(Order::Shutdown(proof)).await {
            tracing::warn!(reason, "failed to stop mysqld");
        }
        self.end().await;
    }

    /// Kills mysqld and the manager at once, as a power cut does; for tests.
    pub async fn kill(self) {
        if let Err(reason) = self.server.order(Order::Shutdown(None)).await {
            tracing::warn!(reason, "failed to kill mysqld");
        }
        self.end().await;
    }

    async fn end(self) {
        self.commands.end_archive().await;
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            drop(task.await);
        }
        drop(self.supervisor.await);
        drop(std::fs::remove_file(self.shared.config.paths.manager_socket()));
        self.shared.release();
    }
}

/// Opens the state file. On a volume that does not let it, the manager runs all the same: whoever is to replace the volume
/// has to hear of it, and a container that ends again and again says nothing. The supervisor tries again.
fn open_state(config: &Config) -> Result<(StateFile, Option<Found>), StateError> {
    let path = config.paths.state();
    let opened = std::fs::create_dir_all(&config.paths.volume)
        .map_err(|source| StateError::Io {
            what: "make the folder of",
            path: path.clone(),
            source,
        })
        .and_then(|()| StateFile::open(&path));
    match opened {
        Ok((file, found)) => Ok((file, Some(found))),
        Err(error @ StateError::Io { .. }) => {
            tracing::error!(error = %chain(&error), "what this instance was told is not known: nothing is started");
            Ok((StateFile::unknown(&path), None))
        }
        Err(error) => Err(error),
    }
}

/// A data directory whose identity is not known (the state file was lost or damaged) is nobody's member: it gets a new
/// incarnation, and the operator compares it before anything else (rule 9).
pub(crate) async fn adopt_unknown_data(shared: &Arc<Shared>, found: Found) -> Result<(), StateError> {
    if found == Found::Damage {
        tracing::error!("no part of the state file is whole: what this instance was told is not known");
    }
    if found == Found::State || !shared.config.paths.data().is_dir() {
        return Ok(());
    }
    tracing::warn!("the data directory gets a new incarnation: nothing is known of it");
    shared
        .write_state(|state| {
            state.begin_life();
            state.stage = Stage::Ready;
        })
        .await
}

/// What is done until the end, whatever the operator commands.
fn attend(
    shared: &Arc<Shared>,
    commands: &Arc<Commands>,
    server: &Arc<dyn Server>,
    tls: Reloadable,
) -> Vec<JoinHandle<()>> {
    let sampler = Arc::clone(shared);
    vec![
        tokio::spawn(async move { sampler.sample().await }),
        tokio::spawn(caretaker::apply_what_was_received(Arc::clone(shared))),
        tokio::spawn(caretaker::follow_files(Arc::clone(shared), tls)),
        tokio::spawn(Arc::clone(commands).keep_receiver_logged_in()),
        tokio::spawn(Arc::clone(commands).keep_accounts()),
        tokio::spawn(Arc::clone(commands).keep_right()),
        tokio::spawn(peers::keep_in_touch(Arc::clone(shared))),
        tokio::spawn(guard::fence_oneself(Arc::clone(shared), Arc::clone(server))),
        tokio::spawn(guard::end_what_is_frozen(Arc::clone(shared), Arc::clone(server))),
        tokio::spawn(guard::give_up_lost_history(Arc::clone(shared), Arc::clone(server))),
    ]
}

async fn serve_http(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, ManagerError> {
    let listener = tls::listen(shared.config.http_addr())
        .await
        .map_err(system("listen for probes"))?;
    let socket = shared.config.paths.manager_socket();
    drop(std::fs::remove_file(&socket));
    let local = UnixListener::bind(&socket).map_err(system("listen on the manager's socket"))?;
    let (public, private) = (http::public(Arc::clone(shared)), http::private(Arc::clone(shared)));
    Ok(vec![
        tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, public).await {
                tracing::error!(%error, "probes are not served any more");
            }
        }),
        tokio::spawn(async move {
            if let Err(error) = axum::serve(local, private).await {
                tracing::error!(%error, "the manager's socket is not served any more");
            }
        }),
    ])
}

async fn serve_grpc(
    shared: &Arc<Shared>,
    commands: &Arc<Commands>,
    tls: Reloadable,
) -> Result<JoinHandle<()>, ManagerError> {
    let listener = tls::listen(shared.config.grpc_addr())
        .await
        .map_err(system("listen for gRPC"))?;
    let uri = layout::instance_uri(&shared.config.namespace, &shared.config.cluster);
    let service = grpc::Service {
        shared: Arc::clone(shared),
        commands: Arc::clone(commands),
    };
    Ok(tokio::spawn(async move {
        if let Err(error) = grpc::serve(listener, tls, uri, service).await {
            tracing::error!(%error, "gRPC is not served any more");
        }
    }))
}

/// Runs the manager as PID 1 of the container: until SIGTERM, SIGINT or SIGQUIT, and then the shutdown rule.
pub async fn run(config: Config) -> Result<(), ManagerError> {
    let what = "listen for signals";
    let mut terminate = signal(SignalKind::terminate()).map_err(system(what))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system(what))?;
    let mut quit = signal(SignalKind::quit()).map_err(system(what))?;
    let manager = Manager::start(config).await?;
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        _ = quit.recv() => "SIGQUIT",
    };
    tracing::info!(signal = name, "stopping");
    manager.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// Copies this program to a directory, where the mysql container finds it: whole or not at all.
pub fn install(directory: &std::path::Path) -> Result<PathBuf, ManagerError> {
    let own = std::env::current_exe().map_err(system("find this program"))?;
    let target = directory.join("mainstay");
    let temporary = directory.join(".mainstay.new");
    std::fs::create_dir_all(directory).map_err(system("make the directory"))?;
    std::fs::copy(own, &temporary).map_err(system("copy this program"))?;
    std::fs::rename(&temporary, &target).map_err(system("rename the copy"))?;
    Ok(target)
}
