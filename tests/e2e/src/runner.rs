//! Runs named scenarios on one shared Kubernetes and says how they went.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use futures::future::BoxFuture;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, HEAL};
use crate::env::Env;
use crate::evidence;
use crate::manifest::Manifest;

/// Which run a scenario belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Every run.
    Ci,
    /// Only the long run.
    Long,
}

/// What a scenario does to others that run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Runs beside everything that does not disturb, from the beginning.
    Background,
    /// Touches only its own namespaces.
    Calm,
    /// Stops the operator or nodes.
    Disturbing,
}

/// A named scenario.
pub struct Scenario {
    /// Name on the command line.
    pub name: &'static str,
    /// What it shows, in a sentence; cases by their numbers.
    pub shows: &'static str,
    /// Which run it belongs to.
    pub suite: Suite,
    /// What it does to others.
    pub manner: Manner,
    /// Longest time that it may take.
    pub limit: Duration,
    /// The scenario.
    pub run: fn(Arc<Context>) -> BoxFuture<'static, Result<()>>,
}

/// The cluster that scenarios share when they leave it as they found it.
type Shared = Arc<tokio::sync::Mutex<Option<Cluster>>>;

/// What a scenario works with.
pub struct Context {
    /// The run.
    pub env: Env,
    name: &'static str,
    namespaces: Mutex<Vec<String>>,
    notes: Mutex<Vec<String>>,
    shared: Shared,
}

impl Context {
    /// A context outside of the runner, for benches.
    #[must_use]
    pub fn new(env: Env, name: &'static str, shared: Shared) -> Self {
        Self {
            env,
            name,
            namespaces: Mutex::default(),
            notes: Mutex::default(),
            shared,
        }
    }

    /// A new namespace, deleted when the scenario ends.
    pub async fn namespace(&self) -> Result<String> {
        self.namespace_for(self.name).await
    }

    /// A further namespace, deleted when the scenario ends.
    pub async fn namespace_for(&self, purpose: &str) -> Result<String> {
        let name = self.env.namespace(purpose).await?;
        lock(&self.namespaces).push(name.clone());
        Ok(name)
    }

    /// A manifest with the run's image.
    #[must_use]
    pub fn manifest(&self, name: &str, replicas: i32) -> Manifest {
        Manifest::new(name, replicas, &self.env.mysql_image)
    }

    /// The healthy cluster of three instances, `shop`, that scenarios share; made when there is none, or when an earlier
    /// scenario left it broken.
    pub async fn shared(&self) -> Result<Cluster> {
        let mut shared = self.shared.lock().await;
        if let Some(cluster) = shared.as_ref() {
            match cluster.serves(HEAL).await {
                Ok(()) => return Ok(cluster.clone()),
                Err(error) => self.note(format!("the shared cluster was broken before: {error:#}")),
            }
            self.env.delete_namespace(&cluster.namespace).await?;
            *shared = None;
        }
        let namespace = self.env.namespace(&format!("shared-{}", self.name)).await?;
        let cluster = Cluster::at(&self.env, &namespace, "shop");
        // Known before it is healthy, so that its evidence is collected when it never becomes so.
        *shared = Some(cluster.clone());
        Cluster::create(&self.env, &namespace, &self.manifest("shop", 3).with_app()).await?;
        Ok(cluster)
    }

    /// A figure or remark that is printed with the result.
    pub fn note(&self, text: String) {
        lock(&self.notes).push(text);
    }

    async fn all_namespaces(&self) -> Vec<String> {
        let mut all = lock(&self.namespaces).clone();
        all.extend(self.shared.lock().await.as_ref().map(|c| c.namespace.clone()));
        all
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a run went.
#[derive(Debug, Default)]
pub struct Summary {
    /// Scenarios that passed.
    pub passed: usize,
    /// Names of those that failed.
    pub failed: Vec<&'static str>,
    /// Scenarios of the suite that were not run, because of `--fail-fast`.
    pub skipped: usize,
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Stop at the first failure.
    pub fail_fast: bool,
    /// Keep the namespaces of failed scenarios.
    pub keep: bool,
}

/// Runs scenarios: those in the background beside the calm ones, then those that disturb.
pub async fn run(env: &Env, scenarios: Vec<&'static Scenario>, options: Options) -> Summary {
    let total = scenarios.len();
    let mut state = State {
        env: env.clone(),
        options,
        shared: Shared::default(),
        summary: Summary::default(),
        total,
        namespaces: Vec::new(),
    };
    let (background, rest): (Vec<_>, Vec<_>) = scenarios.into_iter().partition(|s| s.manner == Manner::Background);
    let (calm, disturbing): (Vec<_>, Vec<_>) = rest.into_iter().partition(|s| s.manner == Manner::Calm);
    let mut running: Vec<_> = background.into_iter().map(|s| state.start(s)).collect();
    for scenario in calm {
        state.foreground(scenario).await;
    }
    for started in running.drain(..) {
        state.finish(started).await;
    }
    for scenario in disturbing {
        state.foreground(scenario).await;
    }
    state.clean_up().await;
    state.summary
}

struct Started {
    scenario: &'static Scenario,
    context: Arc<Context>,
    began: Instant,
    task: JoinHandle<(Result<()>, Duration)>,
}

struct State {
    env: Env,
    options: Options,
    shared: Shared,
    summary: Summary,
    total: usize,
    namespaces: Vec<String>,
}

impl State {
    fn start(&self, scenario: &'static Scenario) -> Started {
        say(&format!("         {:<24} {}", scenario.name, scenario.shows));
        let context = Arc::new(Context::new(self.env.clone(), scenario.name, Arc::clone(&self.shared)));
        let given = Arc::clone(&context);
        let began = Instant::now();
        let task = tokio::spawn(async move {
            let result = tokio::time::timeout(scenario.limit, (scenario.run)(given)).await;
            let result = result.unwrap_or_else(|_| Err(anyhow!("not done within {:?}", scenario.limit)));
            (result, began.elapsed())
        });
        Started {
            scenario,
            context,
            began,
            task,
        }
    }

    async fn foreground(&mut self, scenario: &'static Scenario) {
        if self.options.fail_fast && !self.summary.failed.is_empty() {
            self.summary.skipped += 1;
            return;
        }
        let started = self.start(scenario);
        self.finish(started).await;
    }

    async fn finish(&mut self, started: Started) {
        let Started {
            scenario,
            context,
            began,
            task,
        } = started;
        let (result, took) = match task.await {
            Ok(ended) => ended,
            Err(error) => (Err(error).context("the scenario panicked"), began.elapsed()),
        };
        let number = self.summary.passed + self.summary.failed.len() + 1;
        let head = format!("[{number:>2}/{}]  {:<24}", self.total, scenario.name);
        let seconds = took.as_secs_f64();
        for note in lock(&context.notes).iter() {
            say(&format!("           {note}"));
        }
        let mine = lock(&context.namespaces).clone();
        match result {
            Ok(()) => {
                self.summary.passed += 1;
                say(&format!("{head} ok      {seconds:6.1} s"));
            }
            Err(error) => {
                self.summary.failed.push(scenario.name);
                say(&format!("{head} FAILED  {seconds:6.1} s"));
                say(&format!("           {error:#}"));
                self.keep_evidence(&context, &error).await;
                if self.options.keep {
                    say(&format!("           kept: {}", mine.join(", ")));
                    return;
                }
            }
        }
        for namespace in mine {
            self.delete(namespace).await;
        }
    }

    async fn keep_evidence(&self, context: &Context, error: &anyhow::Error) {
        let namespaces = context.all_namespaces().await;
        match evidence::collect(&self.env, context.name, &namespaces, error).await {
            Ok(folder) => say(&format!("           evidence: {}", folder.display())),
            Err(error) => say(&format!("           no evidence: {error:#}")),
        }
    }

    async fn delete(&mut self, namespace: String) {
        if let Err(error) = self.env.delete_namespace(&namespace).await {
            say(&format!("           {error:#}"));
        }
        self.namespaces.push(namespace);
    }

    /// Deletes what is left and waits for its end: a namespace that hangs is a failure (F27).
    async fn clean_up(&mut self) {
        if self.options.keep && !self.summary.failed.is_empty() {
            return;
        }
        if let Some(cluster) = self.shared.lock().await.take() {
            self.namespaces.push(cluster.namespace.clone());
            if let Err(error) = self.env.delete_namespace(&cluster.namespace).await {
                say(&format!("           {error:#}"));
            }
        }
        for namespace in std::mem::take(&mut self.namespaces) {
            if let Err(error) = self.env.namespace_gone(&namespace, Duration::from_secs(90)).await {
                say(&format!("           namespace {namespace} does not end: {error:#}"));
                self.summary.failed.push("clean-up");
            }
        }
    }
}

/// Prints a line at once, also into a pipe.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
