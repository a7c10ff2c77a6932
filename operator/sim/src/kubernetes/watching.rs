//! Watch streams: each reads the log of changes from its own position, so that nothing is lost and nothing is queued.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::{Server, WatchGuard};
use super::failure::Failure;
use super::faults::WatchFault;
use super::query::{Query, Selector};
use super::resource::Resource;
use super::store::{Change, Key};

/// Time between two bookmarks.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// One watch stream.
#[derive(Debug)]
pub struct Watching {
    server: Server,
    resource: &'static Resource,
    namespace: String,
    selector: Selector,
    metadata_only: bool,
    position: u64,
    queue: VecDeque<Value>,
    bookmark: Option<Instant>,
    end: Instant,
    wake: tokio::sync::watch::Receiver<u64>,
    guard: WatchGuard,
}

/// What a stream does next.
enum Next {
    Event(Value),
    End,
    WaitUntil(Instant),
}

impl Watching {
    /// Opens a watch as the query says.
    #[must_use]
    pub fn open(
        server: Server,
        resource: &'static Resource,
        namespace: &str,
        query: &Query,
        metadata_only: bool,
        guard: WatchGuard,
    ) -> Self {
        let seconds = query.get("timeoutSeconds").and_then(|t| t.parse().ok()).unwrap_or(1800);
        let now = Instant::now();
        let wake = server.wake();
        let mut watching = Self {
            server,
            resource,
            namespace: namespace.to_owned(),
            selector: Selector::of(query),
            metadata_only,
            position: query.get("resourceVersion").and_then(|v| v.parse().ok()).unwrap_or(0),
            queue: VecDeque::new(),
            bookmark: query.is_set("allowWatchBookmarks").then(|| now + BOOKMARKS),
            end: now + Duration::from_secs(seconds),
            wake,
            guard,
        };
        watching.begin(query.is_set("sendInitialEvents"));
        watching
    }

    /// The first events: a snapshot, the news since a version, or the refusal of a version that is too old.
    fn begin(&mut self, initial_events: bool) {
        let server = self.server.clone();
        let (objects, version, compacted) = server.with(|s| {
            let list: Vec<_> = s
                .store
                .list(self.resource, &self.namespace)
                .map(|(_, o)| Arc::clone(o))
                .collect();
            (list, s.store.version(), s.store.compacted())
        });
        if initial_events || self.position == 0 {
            let selected = objects.iter().filter(|o| self.selector.matches(o));
            let added: Vec<_> = selected.map(|o| self.event("ADDED", Value::clone(o))).collect();
            self.queue.extend(added);
            self.position = version;
            if initial_events {
                let mut end = self.bookmark_event();
                end["object"]["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
                self.queue.push_back(end);
            }
        } else if self.position < compacted {
            let message = format!("too old resource version: {} ({compacted})", self.position);
            self.queue
                .push_back(json!({"type": "ERROR", "object": Failure::expired(message).to_status()}));
            self.end = Instant::now();
        }
    }

    fn event(&self, kind: &str, mut object: Value) -> Value {
        if self.metadata_only {
            object = super::service::only_metadata(&object);
        }
        json!({"type": kind, "object": object})
    }

    fn bookmark_event(&self) -> Value {
        json!({"type": "BOOKMARK", "object": {
            "apiVersion": self.resource.api_version(),
            "kind": self.resource.kind,
            "metadata": {"resourceVersion": self.position.to_string(), "creationTimestamp": null},
        }})
    }

    /// The next event; `None` when the server ends the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            self.wake.borrow_and_update();
            match self.step() {
                Next::Event(event) => return Some(event),
                Next::End => return None,
                Next::WaitUntil(deadline) => {
                    tokio::select! {
                        biased;
                        changed = self.wake.changed() => if changed.is_err() { return None },
                        () = tokio::time::sleep_until(deadline) => {}
                    }
                }
            }
        }
    }

    fn step(&mut self) -> Next {
        let now = Instant::now();
        if self.server.is_cut(self.guard.client()) {
            // Nothing passes, not even the end.
            return Next::WaitUntil(now + Duration::from_hours(1));
        }
        if let Some(event) = self.queue.pop_front() {
            return Next::Event(event);
        }
        if self.guard.is_disconnected() || now >= self.end {
            return Next::End;
        }
        let held_until = self.advance(now);
        if let Some(event) = self.queue.pop_front() {
            return Next::Event(event);
        }
        if self.bookmark.is_some_and(|at| at <= now) && held_until.is_none() {
            self.bookmark = Some(now + BOOKMARKS);
            return Next::Event(self.bookmark_event());
        }
        let deadlines = [Some(self.end), self.bookmark.filter(|at| *at > now), held_until];
        Next::WaitUntil(deadlines.into_iter().flatten().min().unwrap_or(self.end))
    }

    /// Takes what is new from the log; returns until when an event is held back.
    fn advance(&mut self, now: Instant) -> Option<Instant> {
        let server = self.server.clone();
        server.with(|s| {
            let client = self.guard.client().to_owned();
            let fault = s
                .faults
                .watches
                .iter()
                .find(|f| f.concerns(&client, self.resource.plural))
                .cloned();
            let fault = fault.unwrap_or_else(|| WatchFault::of(&client));
            let mut due = Vec::new();
            let mut held = None;
            let mut position = self.position;
            for change in s.store.changes_after(self.position) {
                if change.at + fault.hold > now {
                    held = Some(change.at + fault.hold);
                    break;
                }
                position = change.version;
                let here = change.key.resource == self.resource
                    && (self.namespace.is_empty() || change.key.namespace == self.namespace);
                if here {
                    due.push(change.clone());
                }
            }
            self.position = position;
            if fault.merge {
                due = merged(due);
            }
            for change in due {
                let dropped = fault.drop_percent > 0 && s.random.percent(fault.drop_percent);
                if let (false, Some(event)) = (dropped, self.shown(&change)) {
                    self.queue.push_back(event);
                }
            }
            held
        })
    }

    /// How a change looks through the selector.
    fn shown(&self, change: &Change) -> Option<Value> {
        let selected = |o: &Option<Arc<Value>>| o.as_ref().is_some_and(|o| self.selector.matches(o));
        let (kind, object) = match (selected(&change.old), selected(&change.new)) {
            (false, false) => return None,
            (false, true) => ("ADDED", change.new.as_ref()),
            (true, true) => ("MODIFIED", change.new.as_ref()),
            (true, false) => ("DELETED", change.new.as_ref().or(change.old.as_ref())),
        };
        let mut object = Value::clone(object?);
        object["metadata"]["resourceVersion"] = json!(change.version.to_string());
        Some(self.event(kind, object))
    }
}

/// Several changes of one object become one from the first to the last state.
fn merged(changes: Vec<Change>) -> Vec<Change> {
    let mut first: BTreeMap<Key, Option<Arc<Value>>> = BTreeMap::new();
    let mut last: BTreeMap<Key, Change> = BTreeMap::new();
    for change in changes {
        first.entry(change.key.clone()).or_insert_with(|| change.old.clone());
        last.insert(change.key.clone(), change);
    }
    let mut merged: Vec<Change> = last
        .into_values()
        .map(|mut change| {
            change.old = first.remove(&change.key).flatten();
            change
        })
        .collect();
    merged.sort_by_key(|c| c.version);
    merged
}
