//! Child processes, and the duties of PID 1.
//!
//! One place waits for processes: it hands the status of a known child to whoever started it, and buries orphans, if this
//! is PID 1. (Two waiters would steal statuses from each other.)

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait, waitpid};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// SIGCHLD may be merged with another, so dead children are looked for without it too.
const LOOK: Duration = Duration::from_secs(1);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

impl From<WaitStatus> for Exit {
    fn from(status: WaitStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(-1),
        }
    }
}

/// A child that runs.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    exit: oneshot::Receiver<Exit>,
    ended: Option<Exit>,
    reaper: Arc<Reaper>,
    /// What it writes to standard output; taken by whoever reads it.
    pub stdout: Option<pipe::Receiver>,
    /// What it writes to standard error.
    pub stderr: Option<pipe::Receiver>,
}

impl Child {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits until it has ended. May be called again, and dropped, at any time.
    pub async fn wait(&mut self) -> Exit {
        if let Some(exit) = self.ended {
            return exit;
        }
        // The reaper lives as long as the child, so it does answer.
        let exit = (&mut self.exit).await.unwrap_or(Exit::Code(-1));
        self.ended = Some(exit);
        exit
    }

    /// Sends it a signal, unless it has ended: its number may be another process's by then.
    pub fn signal(&self, signal: Signal) {
        self.handle().signal(signal);
    }

    /// What sends it signals while somebody else waits for its end.
    #[must_use]
    pub fn handle(&self) -> ChildHandle {
        ChildHandle {
            pid: self.pid,
            reaper: Arc::clone(&self.reaper),
        }
    }
}

/// See [`Child::handle`].
#[derive(Clone, Debug)]
pub struct ChildHandle {
    pid: Pid,
    reaper: Arc<Reaper>,
}

impl ChildHandle {
    /// Sends a signal, unless the child has ended.
    pub fn signal(&self, signal: Signal) {
        let children = self.reaper.children();
        let pid = self.pid.as_raw_nonzero().get();
        if children.contains_key(&pid)
            && let Err(error) = kill_process(self.pid, signal)
        {
            tracing::warn!(pid, %error, "failed to send a signal");
        }
    }
}

/// Bytes that a process wrote to files and pipes so far; `None` when the kernel does not tell.
#[must_use]
pub fn written(pid: i32) -> Option<u64> {
    io(pid, &["wchar:"])
}

/// Bytes that a process read and wrote so far, past the page cache too; `None` when the kernel does not tell.
#[must_use]
pub fn moved(pid: i32) -> Option<u64> {
    io(pid, &["rchar:", "wchar:", "read_bytes:"])
}

/// The sum of some counters.
fn io(pid: i32, counters: &[&str]) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let counter = |name: &&str| {
        let line = text.lines().find_map(|line| line.strip_prefix(*name))?;
        line.trim().parse::<u64>().ok()
    };
    counters.iter().map(counter).sum()
}

/// For how long the threads of a process, taken together, could have run and had no processor; `None` when the kernel does
/// not tell.
#[must_use]
pub fn queued(pid: i32) -> Option<Duration> {
    let mut nanos: u64 = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // Time on a processor, time in the queue for one, turns. A thread may have ended meanwhile.
        let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) else {
            continue;
        };
        let queued: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
        nanos = nanos.saturating_add(queued);
    }
    Some(Duration::from_nanos(nanos))
}

/// Starts children and waits for them.
#[derive(Debug)]
pub struct Reaper {
    children: Mutex<HashMap<i32, oneshot::Sender<Exit>>>,
    adopt_orphans: bool,
}

impl Reaper {
    /// Begins to wait for children; for orphans too, when this process is PID 1.
    pub fn start(adopt_orphans: bool) -> io::Result<Arc<Self>> {
        let reaper = Arc::new(Self {
            children: Mutex::default(),
            adopt_orphans,
        });
        let mut signals = signal(SignalKind::child())?;
        let weak = Arc::downgrade(&reaper);
        tokio::spawn(async move {
            loop {
                // Either way it is time to look.
                drop(tokio::time::timeout(LOOK, signals.recv()).await);
                match weak.upgrade() {
                    Some(reaper) => reaper.bury(),
                    None => return,
                }
            }
        });
        Ok(reaper)
    }

    /// Starts a program in a process group of its own (a terminal's Ctrl-C is not its business), with both outputs piped
    /// and nothing to read.
    pub fn spawn(self: &Arc<Self>, command: &mut Command) -> io::Result<Child> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let (sender, exit) = oneshot::channel();
        // Held across the start: the child may end before it is known.
        let mut children = self.children();
        let mut child = command.spawn()?;
        let raw = i32::try_from(child.id()).map_err(io::Error::other)?;
        children.insert(raw, sender);
        drop(children);
        let pid = Pid::from_raw(raw).ok_or_else(|| io::Error::other("the process has no id"))?;
        let stdout = child.stdout.take().map(|out| reader(out.into())).transpose()?;
        let stderr = child.stderr.take().map(|err| reader(err.into())).transpose()?;
        Ok(Child {
            pid,
            exit,
            ended: None,
            reaper: Arc::clone(self),
            stdout,
            stderr,
        })
    }

    fn children(&self) -> MutexGuard<'_, HashMap<i32, oneshot::Sender<Exit>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Collects the dead. Children first, one by one, so that nothing but an orphan is left for the second loop.
    fn bury(&self) {
        let mut children = self.children();
        let known: Vec<i32> = children.keys().copied().collect();
        for raw in known {
            if let Ok(Some((_, status))) = waitpid(Pid::from_raw(raw), WaitOptions::NOHANG) {
                tell(&mut children, raw, status);
            }
        }
        if self.adopt_orphans {
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                tell(&mut children, pid.as_raw_nonzero().get(), status);
            }
        }
    }
}

fn tell(children: &mut HashMap<i32, oneshot::Sender<Exit>>, pid: i32, status: WaitStatus) {
    if let Some(sender) = children.remove(&pid) {
        // Nobody listens any more: then nobody wants to know.
        sender.send(status.into()).ok();
    }
}

fn reader(fd: OwnedFd) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(fd)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn a_child_tells_its_exit_and_its_output() {
        let reaper = Reaper::start(false).unwrap();
        let mut child = reaper.spawn(&mut shell("echo out; echo err >&2; exit 16")).unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
        child.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
        assert_eq!((out.as_str(), err.as_str()), ("out\n", "err\n"));
        assert_eq!(child.wait().await, Exit::Code(16));
    }

    #[test]
    fn what_a_process_writes_is_counted() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = written(own).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0; 100_000]).unwrap();
        assert!(written(own).unwrap() >= before + 100_000);
        assert_eq!(written(0), None);
    }

    #[tokio::test]
    async fn a_killed_child_tells_the_signal() {
        let reaper = Reaper::start(false).unwrap();
        let mut child = reaper.spawn(&mut shell("sleep 60")).unwrap();
        child.signal(Signal::KILL);
        assert_eq!(child.wait().await, Exit::Signal(9));
        child.signal(Signal::KILL);
    }

    #[tokio::test]
    async fn many_short_children_are_all_told_apart() {
        let reaper = Reaper::start(false).unwrap();
        let mut children: Vec<_> = (0..20)
            .map(|n| (n, reaper.spawn(&mut shell(&format!("exit {n}"))).unwrap()))
            .collect();
        for (n, child) in &mut children {
            assert_eq!(child.wait().await, Exit::Code(*n));
        }
    }
}
