//! Runs of mysqld and of the tools beside it: command lines, files, output.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use mainstay_mysql::Version;
use mainstay_mysql::accounts::{InitFile, init_file};
use rustix::process::Signal;
use secrecy::ExposeSecret as _;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinHandle;

use crate::cnf;
use crate::config::Config;
use crate::errorlog::{self, Tail};
use crate::process::{Child, Exit, Reaper};
use crate::secrets::{Redactor, Secrets};

/// How long mysqld may take to look at its options.
const VALIDATION: Duration = Duration::from_secs(10);
/// How long a tool may take to say something short.
const TOOL: Duration = Duration::from_mins(1);

/// Why a program could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// A file could not be written or read.
    #[error("failed to {what}")]
    File {
        /// What was attempted.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A value cannot stand in a my.cnf.
    #[error("failed to write my.cnf")]
    Render(#[source] cnf::RenderError),
    /// The program could not be started.
    #[error("failed to start {program}")]
    Start {
        /// The program.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It ended with an error.
    #[error("{program} failed: {exit}")]
    Failed {
        /// The program.
        program: &'static str,
        /// How it ended, with its own words where there are some.
        exit: String,
    },
    /// It said something else.
    #[error("{0}")]
    Unexpected(String),
}

/// Starts programs.
#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) config: Arc<Config>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) redactor: Redactor,
}

/// mysqld while it runs.
pub(crate) struct Server {
    pub(crate) child: Child,
    tail: Tail,
    output: JoinHandle<()>,
}

impl Server {
    /// Its last words, and what all of them point to; they are complete when it has ended.
    pub(crate) fn words(&self) -> Tail {
        self.tail.clone()
    }

    /// How it ended, once its last words are read.
    pub(crate) async fn ended(&mut self) -> (Exit, String) {
        let exit = self.child.wait().await;
        // Its output is closed when it ended; a grandchild that kept it open is not waited for.
        // It may be asked more than once, and a task must not be.
        if !self.output.is_finished() {
            drop(tokio::time::timeout(Duration::from_secs(1), &mut self.output).await);
        }
        // Who is killed from outside says nothing of it: its last error is about something else.
        let killed = matches!(exit, Exit::Signal(9 | 15));
        let reason = self.tail.reason().filter(|_| !killed);
        (
            exit,
            reason.map_or_else(|| exit.to_string(), |reason| format!("{exit}: {reason}")),
        )
    }
}

fn command(program: &[OsString]) -> Command {
    let (first, rest) = program
        .split_first()
        .map_or((OsStr::new("false"), &[][..]), |(first, rest)| (first, rest));
    let mut command = Command::new(first);
    command.args(rest);
    command
}

impl Runner {
    /// Version of the image's mysqld (decision B16).
    pub(crate) async fn version(&self) -> Result<Version, RunError> {
        const PROGRAM: &str = "mysqld --version";
        let mut command = command(&self.config.programs.mysqld);
        command.arg("--version");
        let version = Version::from_banner(&self.output_of(PROGRAM, &mut command).await?)
            .map_err(|error| RunError::Unexpected(error.to_string()))?;
        if version.is_supported() {
            Ok(version)
        } else {
            Err(RunError::Unexpected(format!(
                "MySQL {version} is not supported: Mainstay needs 8.0.26 or later"
            )))
        }
    }

    /// Whether mysqld has nothing against the options with which a server was started last; `None` when it does not say.
    pub(crate) async fn takes_options(&self) -> Option<bool> {
        let mut command = command(&self.config.programs.mysqld);
        command.arg(option("--defaults-file=", &self.config.paths.defaults()));
        command.args(&self.config.programs.mysqld_args);
        command.arg("--validate-config");
        let mut child = self.reaper.spawn(&mut command).ok()?;
        match tokio::time::timeout(VALIDATION, child.wait()).await {
            Ok(exit) => Some(exit == Exit::Code(0)),
            Err(_elapsed) => {
                child.signal(Signal::KILL);
                None
            }
        }
    }

    /// Statements that load the image's time zones; `None` when the image brings none.
    pub(crate) async fn time_zones(&self) -> Option<String> {
        const PROGRAM: &str = "mysql_tzinfo_to_sql";
        let mut command = command(&self.config.programs.tzinfo);
        command.arg(&self.config.programs.zoneinfo);
        match self.output_of(PROGRAM, &mut command).await {
            // A pseudo zone of some images has a name that is too long for its column.
            Ok(sql) => Some(sql.replace("Local time zone must be set--see zic manual page", "FCTY")),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the time-zone tables stay empty: CONVERT_TZ knows offsets only");
                None
            }
        }
    }

    async fn output_of(&self, program: &'static str, command: &mut Command) -> Result<String, RunError> {
        let mut child = self
            .reaper
            .spawn(command)
            .map_err(|source| RunError::Start { program, source })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (mut text, mut errors) = (Vec::new(), Vec::new());
            let read_errors = async {
                if let Some(mut stderr) = stderr {
                    drop(stderr.read_to_end(&mut errors).await);
                }
            };
            let read_text = async {
                if let Some(mut stdout) = stdout {
                    drop(stdout.read_to_end(&mut text).await);
                }
            };
            tokio::join!(read_text, read_errors);
            (child.wait().await, text, errors)
        };
        let Ok((exit, text, errors)) = tokio::time::timeout(TOOL, work).await else {
            return Err(RunError::Failed {
                program,
                exit: format!("no answer within {TOOL:?}"),
            });
        };
        if exit == Exit::Code(0) {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        let errors = String::from_utf8_lossy(&errors);
        let last = errors.lines().last().unwrap_or_default();
        Err(RunError::Failed {
            program,
            exit: format!("{exit}: {last}"),
        })
    }

    /// Makes a data directory.
    pub(crate) fn initialise(
        &self,
        directory: &Path,
        secrets: &Secrets,
        time_zones: Option<&str>,
    ) -> Result<Server, RunError> {
        let mut args: Vec<OsString> = cnf::INITIALISE.iter().map(Into::into).collect();
        args.push(option("--datadir=", directory));
        let cluster = std::fs::read_to_string(&self.config.paths.config_file).map_err(|source| RunError::File {
            what: "read the cluster's my.cnf",
            source,
        })?;
        let defaults = cnf::render_initialise(&self.config, &cluster).map_err(RunError::Render)?;
        self.start(InitFile::Initialise { time_zones }, secrets, &defaults, args)
    }

    /// Starts a small server without network and binlog on the data directory: to be cloned into, or to be booted once.
    pub(crate) fn serve_copy(&self, purpose: InitFile<'_>, secrets: &Secrets) -> Result<Server, RunError> {
        let defaults = cnf::render_copy(&self.config).map_err(RunError::Render)?;
        let args = cnf::COPY_ARGUMENTS.iter().map(Into::into).collect();
        self.start(purpose, secrets, &defaults, args)
    }

    /// Starts a server on the data directory.
    pub(crate) fn serve(
        &self,
        purpose: InitFile<'_>,
        secrets: &Secrets,
        args: &[&'static str],
    ) -> Result<Server, RunError> {
        let defaults = cnf::render(&self.config).map_err(RunError::Render)?;
        self.start(purpose, secrets, &defaults, args.iter().map(Into::into).collect())
    }

    /// Starts a server on recovered files: without network and without binlog, so that nobody sees it, and what is replayed
    /// is written once. Its syncs are worth nothing: what is not whole in the end is made anew.
    pub(crate) fn recover(
        &self,
        directory: &Path,
        relay_logs: &Path,
        secrets: &Secrets,
        size: cnf::Size,
    ) -> Result<Server, RunError> {
        let mut args: Vec<OsString> = cnf::RECOVER.iter().map(Into::into).collect();
        args.push(option("--datadir=", directory));
        args.push(option("--relay-log=", &relay_logs.join("relay")));
        let rendered = match size {
            cnf::Size::Instance => cnf::render(&self.config),
            cnf::Size::Small => cnf::render_copy(&self.config),
        };
        let defaults = rendered.map_err(RunError::Render)?;
        // A clone brings its donor's replication channel along, and so does a backup of one (decision B19).
        self.start(InitFile::AfterClone, secrets, &defaults, args)
    }

    fn start(
        &self,
        purpose: InitFile<'_>,
        secrets: &Secrets,
        defaults: &str,
        args: Vec<OsString>,
    ) -> Result<Server, RunError> {
        const PROGRAM: &str = "mysqld";
        let paths = &self.config.paths;
        let file = |what| move |source| RunError::File { what, source };
        write_private(&paths.defaults(), defaults.as_bytes()).map_err(file("write my.cnf"))?;
        remove_socket(&paths.socket()).map_err(file("remove the socket of a mysqld that has ended"))?;
        let statements = init_file(purpose, &secrets.credentials);
        write_private(&paths.init_file(), statements.expose_secret().as_bytes())
            .map_err(file("write the init file"))?;

        let mut command = command(&self.config.programs.mysqld);
        command.arg(option("--defaults-file=", &paths.defaults()));
        command.args(&self.config.programs.mysqld_args);
        command.args(args);
        command.arg(option("--init-file=", &paths.init_file()));
        // CLONE and RESTART end mysqld only for a parent that starts it again, and this names it (decision A3).
        command.env("MYSQLD_PARENT_PID", std::process::id().to_string());
        let mut child = self.reaper.spawn(&mut command).map_err(|source| RunError::Start {
            program: PROGRAM,
            source,
        })?;
        let tail = Tail::default();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (kept, redactor) = (tail.clone(), self.redactor.clone());
        let output = tokio::spawn(async move {
            let out = async {
                if let Some(stdout) = stdout {
                    errorlog::follow(stdout, PROGRAM, Tail::default(), redactor.clone()).await;
                }
            };
            let err = async {
                if let Some(stderr) = stderr {
                    errorlog::follow(stderr, PROGRAM, kept, redactor.clone()).await;
                }
            };
            tokio::join!(out, err);
        });
        Ok(Server { child, tail, output })
    }

    /// The init file has been read, or will not be: its passwords need not lie there.
    pub(crate) fn remove_init_file(&self) {
        if let Err(error) = std::fs::remove_file(self.config.paths.init_file())
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "failed to remove the init file");
        }
    }
}

fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}

/// No server of this pod lives when one is started. What a killed container left in the pod's folder stays there, and the
/// process that the lock names may be a thread of this manager by now: mysqld would take it for a server and end.
fn remove_socket(socket: &Path) -> io::Result<()> {
    let mut lock = socket.as_os_str().to_owned();
    lock.push(".lock");
    for path in [socket, Path::new(&lock)] {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Writes a file that nobody else can read, whole or not at all.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    std::fs::rename(&temporary, path)
}

/// An error with its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
