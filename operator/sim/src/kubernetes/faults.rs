//! Faults that a test injects into requests and watches, and the log of what was asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// A request, as far as rules and counters need it.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    /// When it arrived.
    pub at: Instant,
    /// Which client made it.
    pub client: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `apply`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// Subresource.
    pub subresource: Option<String>,
    /// Namespace.
    pub namespace: String,
    /// Name; empty for collections.
    pub name: String,
    /// Answer; 0 when the client never got one.
    pub code: u16,
}

impl RequestInfo {
    /// Whether it changes something.
    #[must_use]
    pub fn mutates(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }

    /// A write other than the renewal of a lease: what an idle operator must not make.
    #[must_use]
    pub fn is_work(&self) -> bool {
        self.mutates() && self.resource != "leases"
    }
}

impl fmt::Display for RequestInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subresource = self.subresource.as_ref().map(|s| format!("/{s}")).unwrap_or_default();
        write!(
            f,
            "{} {} {}/{}/{}{subresource} → {}",
            self.client, self.verb, self.resource, self.namespace, self.name, self.code
        )
    }
}

/// What happens to a request that a rule selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answered with this code; nothing is done.
    Refuse(u16),
    /// The connection breaks before anything is done.
    LoseRequest,
    /// It is done, then the connection breaks.
    LoseAnswer,
    /// Never answered, nothing is done: the moment before a crash of the client, or a black hole.
    HangBefore,
    /// Done and never answered: the moment after which the client crashed.
    HangAfter,
    /// Answered this much later.
    Delay(Duration),
}

type Matcher = Arc<dyn Fn(&RequestInfo) -> bool + Send + Sync>;

/// Selects requests, and says what happens to them.
#[derive(Clone)]
pub struct Rule {
    matches: Matcher,
    skip: u64,
    times: u64,
    effect: Effect,
    fired: watch::Sender<u64>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("skip", &self.skip)
            .field("times", &self.times)
            .field("effect", &self.effect)
            .finish_non_exhaustive()
    }
}

impl Rule {
    /// A rule for every request for which `matches` is true.
    #[must_use]
    pub fn when(effect: Effect, matches: impl Fn(&RequestInfo) -> bool + Send + Sync + 'static) -> Self {
        Self {
            matches: Arc::new(matches),
            skip: 0,
            times: u64::MAX,
            effect,
            fired: watch::Sender::new(0),
        }
    }

    /// Only the `n`-th of them, counted from 1.
    #[must_use]
    pub const fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self.times = 1;
        self
    }

    /// Only the first `n` of them.
    #[must_use]
    pub const fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }
}

/// Tells how often a rule took effect.
#[derive(Clone, Debug)]
pub struct Fired(watch::Receiver<u64>);

impl Fired {
    /// How often so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        *self.0.borrow()
    }

    /// Waits for the first time.
    pub async fn wait(&mut self) {
        // The sender lives as long as the rule; without it the rule cannot fire any more.
        if self.0.wait_for(|n| *n > 0).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What a watch of this client does to its events.
#[derive(Clone, Debug)]
pub struct WatchFault {
    /// Name of the client, as a prefix.
    pub client: String,
    /// Plural name of the resource; absent for all.
    pub resource: Option<String>,
    /// Every event arrives this much later.
    pub hold: Duration,
    /// Events of one object that wait together are merged into the last.
    pub merge: bool,
    /// This percentage of events is never delivered on the present connection.
    pub drop_percent: u64,
}

impl WatchFault {
    /// A fault that does nothing yet, for all watches of a client.
    #[must_use]
    pub fn of(client: &str) -> Self {
        Self {
            client: client.to_owned(),
            resource: None,
            hold: Duration::ZERO,
            merge: false,
            drop_percent: 0,
        }
    }

    /// Whether it concerns the watch of a client on a resource.
    #[must_use]
    pub fn concerns(&self, client: &str, resource: &str) -> bool {
        client.starts_with(&self.client) && self.resource.as_ref().is_none_or(|r| r == resource)
    }
}

/// Lists that show the past, as those of a server that lags behind.
#[derive(Clone, Debug)]
pub struct StaleLists {
    /// Name of the client, as a prefix.
    pub client: String,
    /// Version that they show.
    pub version: u64,
    /// How many lists more.
    pub times: u64,
}

/// All rules in force.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Vec<Rule>,
    /// Faults of watches.
    pub watches: Vec<WatchFault>,
    /// Stale lists.
    pub stale: Option<StaleLists>,
    /// Time that every request takes.
    pub latency: Duration,
}

impl Faults {
    /// Adds a rule.
    pub fn add(&mut self, rule: Rule) -> Fired {
        let fired = Fired(rule.fired.subscribe());
        self.rules.push(rule);
        fired
    }

    /// Removes all rules and faults; latency stays.
    pub fn clear(&mut self) {
        self.rules.clear();
        self.watches.clear();
        self.stale = None;
    }

    /// What happens to this request.
    pub fn effect(&mut self, request: &RequestInfo) -> Option<Effect> {
        for rule in &mut self.rules {
            if !(rule.matches)(request) || rule.times == 0 {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            rule.fired.send_modify(|n| *n += 1);
            return Some(rule.effect);
        }
        None
    }

    /// The version that a list of this client shows, when it is stale.
    pub fn stale_version(&mut self, client: &str) -> Option<u64> {
        let stale = self
            .stale
            .as_mut()
            .filter(|s| client.starts_with(&s.client) && s.times > 0)?;
        stale.times -= 1;
        Some(stale.version)
    }
}
