//! Runs named scenarios on one shared Kubernetes and says how they went.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use futures::future::{BoxFuture, join_all};
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, HEAL};
use crate::env::Env;
use crate::evidence;
use crate::manifest::Manifest;

/// How long a namespace may take to end.
const END: Duration = Duration::from_secs(90);

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
    /// Lasts long and costs nothing: runs beside everything that does not disturb, from the beginning.
    Background,
    /// Works with the shared cluster: one after the other.
    Shared,
    /// Touches only its own namespaces: one after the other, beside those that work with the shared cluster.
    Own,
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

/// Runs scenarios: those that do not disturb in lanes beside each other, then those that do.
pub async fn run(env: &Env, scenarios: Vec<&'static Scenario>, options: Options) -> Summary {
    let state = State {
        env: env.clone(),
        options,
        shared: Shared::default(),
        total: scenarios.len(),
        summary: Mutex::default(),
        ends: Mutex::default(),
    };
    let of = |manner: Manner| {
        let chosen = scenarios.iter().copied().filter(move |s| s.manner == manner);
        chosen.collect::<Vec<_>>()
    };
    let background = join_all(of(Manner::Background).into_iter().map(|s| state.one(s)));
    tokio::join!(background, state.lane(of(Manner::Shared)), state.lane(of(Manner::Own)));
    state.lane(of(Manner::Disturbing)).await;
    state.clean_up().await;
    state.summary.into_inner().unwrap_or_else(PoisonError::into_inner)
}

struct State {
    env: Env,
    options: Options,
    shared: Shared,
    total: usize,
    summary: Mutex<Summary>,
    /// Namespaces that are being deleted.
    ends: Mutex<Vec<JoinHandle<Result<()>>>>,
}

impl State {
    async fn lane(&self, scenarios: Vec<&'static Scenario>) {
        for scenario in scenarios {
            self.one(scenario).await;
        }
    }

    async fn one(&self, scenario: &'static Scenario) {
        {
            let mut summary = lock(&self.summary);
            if self.options.fail_fast && !summary.failed.is_empty() {
                summary.skipped += 1;
                return;
            }
        }
        say(&format!("         {:<24} {}", scenario.name, scenario.shows));
        let context = Arc::new(Context::new(self.env.clone(), scenario.name, Arc::clone(&self.shared)));
        let began = Instant::now();
        // A task of its own, so that a panic is a failure like any other.
        let work = tokio::spawn(tokio::time::timeout(
            scenario.limit,
            (scenario.run)(Arc::clone(&context)),
        ));
        let result = match work.await {
            Ok(Ok(result)) => result,
            Ok(Err(_elapsed)) => Err(anyhow!("not done within {:?}", scenario.limit)),
            Err(error) => Err(error).context("the scenario panicked"),
        };
        self.finish(scenario.name, &context, result, began.elapsed()).await;
    }

    async fn finish(&self, name: &'static str, context: &Context, result: Result<()>, took: Duration) {
        let number = {
            let mut summary = lock(&self.summary);
            if result.is_ok() {
                summary.passed += 1;
            } else {
                summary.failed.push(name);
            }
            summary.passed + summary.failed.len()
        };
        let word = if result.is_ok() { "ok     " } else { "FAILED " };
        let (total, seconds) = (self.total, took.as_secs_f64());
        let mut text = format!("[{number:>2}/{total}]  {name:<24} {word} {seconds:6.1} s");
        for note in lock(&context.notes).iter() {
            text.extend(["\n           ", note.as_str()]);
        }
        say(&text);
        let mine = lock(&context.namespaces).clone();
        if let Err(error) = result {
            say(&format!("           {error:#}"));
            self.keep_evidence(context, &error).await;
            if self.options.keep {
                say(&format!("           kept: {}", mine.join(", ")));
                return;
            }
        }
        for namespace in mine {
            self.end(namespace);
        }
    }

    async fn keep_evidence(&self, context: &Context, error: &anyhow::Error) {
        let namespaces = context.all_namespaces().await;
        match evidence::collect(&self.env, context.name, &namespaces, error).await {
            Ok(folder) => say(&format!("           evidence: {}", folder.display())),
            Err(error) => say(&format!("           no evidence: {error:#}")),
        }
    }

    /// Begins the end of a namespace.
    fn end(&self, namespace: String) {
        let env = self.env.clone();
        let end = tokio::spawn(async move { env.end_namespace(&namespace, END).await });
        lock(&self.ends).push(end);
    }

    /// Waits for the end of everything: a namespace that hangs is a failure (F27).
    async fn clean_up(&self) {
        if (!self.options.keep || lock(&self.summary).failed.is_empty())
            && let Some(cluster) = self.shared.lock().await.take()
        {
            self.end(cluster.namespace);
        }
        let ends = std::mem::take(&mut *lock(&self.ends));
        for ended in join_all(ends).await {
            let ended = ended.context("the clean-up panicked").and_then(|ended| ended);
            if let Err(error) = ended {
                say(&format!("           {error:#}"));
                lock(&self.summary).failed.push("clean-up");
            }
        }
    }
}

/// Prints a line at once, also into a pipe.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
