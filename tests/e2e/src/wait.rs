//! Waiting for conditions, with a deadline and never with a sleep: objects are watched, SQL is asked again.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use futures::{Stream, StreamExt as _, pin_mut};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watch_object, watcher};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

/// What can be watched.
pub trait Watched: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug + Send + 'static {}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug + Send + 'static> Watched for K {}

/// Watches one object until `check` gives a value; the error of a missed deadline shows the last object seen.
pub async fn object<K: Watched, T>(
    api: &Api<K>,
    name: &str,
    what: &str,
    limit: Duration,
    mut check: impl FnMut(Option<&K>) -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    let stream = watch_object(api.clone(), name);
    pin_mut!(stream);
    let mut last = String::from("it was never seen");
    loop {
        match next(&mut stream, deadline).await {
            Next::Item(seen) => {
                if let Some(value) = check(seen.as_ref()) {
                    return Ok(value);
                }
                last = seen.as_ref().map_or_else(|| "it does not exist".to_owned(), brief);
            }
            Next::Trouble(error) => last = format!("the watch failed: {error}"),
            Next::Late => {
                let kind = K::kind(&());
                let now = api
                    .get_opt(name)
                    .await
                    .with_context(|| format!("failed to get {kind} {name}"))?;
                let Some(value) = check(now.as_ref()) else {
                    bail!("{kind} {name}: {what}: not within {limit:?}; last seen: {last}");
                };
                eprintln!("{kind} {name}: {what}: it is so, but the watch still shows: {last}");
                return Ok(value);
            }
            Next::End => bail!("{} {name}: {what}: the watch ended", K::kind(&())),
        }
    }
}

/// Watches the objects of a selection until `check` gives a value for all of them together.
pub async fn objects<K: Watched, T>(
    api: &Api<K>,
    labels: &str,
    what: &str,
    limit: Duration,
    mut check: impl FnMut(&BTreeMap<String, K>) -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    let stream = watcher(api.clone(), watcher::Config::default().labels(labels)).default_backoff();
    pin_mut!(stream);
    let mut store = BTreeMap::new();
    let mut fresh = BTreeMap::new();
    let mut listed = false;
    loop {
        match next(&mut stream, deadline).await {
            Next::Item(Event::Init) => fresh = BTreeMap::new(),
            Next::Item(Event::InitApply(k)) => drop(fresh.insert(k.name_any(), k)),
            Next::Item(Event::InitDone) => {
                store = std::mem::take(&mut fresh);
                listed = true;
            }
            Next::Item(Event::Apply(k)) => drop(store.insert(k.name_any(), k)),
            Next::Item(Event::Delete(k)) => drop(store.remove(&k.name_any())),
            Next::Trouble(_) => continue,
            Next::Late => {
                let seen: Vec<String> = store.iter().map(|(n, k)| format!("{n}: {}", brief(k))).collect();
                bail!(
                    "{} {labels}: {what}: not within {limit:?}; last seen: {}",
                    K::kind(&()),
                    seen.join("; ")
                );
            }
            Next::End => bail!("{} {labels}: {what}: the watch ended", K::kind(&())),
        }
        if listed && let Some(value) = check(&store) {
            return Ok(value);
        }
    }
}

enum Next<T> {
    Item(T),
    Trouble(String),
    Late,
    End,
}

async fn next<T, E: std::fmt::Display>(
    stream: &mut (impl Stream<Item = Result<T, E>> + Unpin),
    deadline: Instant,
) -> Next<T> {
    match timeout_at(deadline, stream.next()).await {
        Err(_) => Next::Late,
        Ok(None) => Next::End,
        Ok(Some(Ok(item))) => Next::Item(item),
        Ok(Some(Err(error))) => Next::Trouble(error.to_string()),
    }
}

/// What matters of an object when a wait failed: its deletion mark and status, cut to a readable length.
fn brief<K: Watched>(object: &K) -> String {
    const LONGEST: usize = 3000;
    let value = serde_json::to_value(object).unwrap_or_default();
    let mut text = value
        .get("status")
        .map_or_else(|| "(no status)".to_owned(), ToString::to_string);
    if object.meta().deletion_timestamp.is_some() {
        text.insert_str(0, "(being deleted) ");
    }
    if text.len() > LONGEST {
        let cut = (0..=LONGEST).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// Asks again, five times a second, until `attempt` succeeds; the error of a missed deadline is the last attempt's.
pub async fn eventually<T, F>(what: &str, limit: Duration, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + limit;
    let mut ticks = interval(Duration::from_millis(200));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = anyhow!("no attempt ended");
    while timeout_at(deadline, ticks.tick()).await.is_ok() {
        match timeout_at(deadline, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => last = error,
            Err(_) => break,
        }
    }
    Err(last).with_context(|| format!("{what}: not within {limit:?}"))
}

/// Watches for `span` that `check` holds at every change: the opposite of a wait.
pub async fn throughout<K: Watched>(
    api: &Api<K>,
    labels: &str,
    span: Duration,
    mut check: impl FnMut(&BTreeMap<String, K>) -> Result<()>,
) -> Result<()> {
    let mut broken = None;
    let waited = objects(api, labels, "(watching that it holds)", span, |store| {
        broken = check(store).err();
        broken.is_some().then_some(())
    })
    .await;
    match (waited, broken) {
        (Ok(()), Some(error)) => Err(error),
        (Ok(()) | Err(_), _) => Ok(()),
    }
}
