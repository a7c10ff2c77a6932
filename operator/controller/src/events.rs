//! Kubernetes events: one line for each decision, about the `MySQLCluster`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tokio::time::Instant;

use crate::requests::{FIELD_MANAGER, Requests};

/// The same line about the same cluster is not written again within this time.
const REPEAT_AFTER: Duration = Duration::from_mins(5);
/// The API server's limit for the note of an event.
const LONGEST_NOTE: usize = 1024;

/// Writes events; a failure to write one is logged and forgotten.
#[derive(Clone)]
pub(crate) struct Events {
    client: Client,
    reporter: Reporter,
    written: Arc<Mutex<HashMap<u64, Instant>>>,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) warning: bool,
    /// CamelCase.
    pub(crate) reason: String,
    /// What was done: a verb.
    pub(crate) action: String,
    /// The sentence.
    pub(crate) note: String,
}

impl Line {
    pub(crate) fn normal(reason: &str, action: &str, note: String) -> Self {
        Self {
            warning: false,
            reason: reason.to_owned(),
            action: action.to_owned(),
            note,
        }
    }

    pub(crate) fn warning(reason: &str, action: &str, note: String) -> Self {
        Self {
            warning: true,
            ..Self::normal(reason, action, note)
        }
    }
}

impl Events {
    pub(crate) fn new(requests: &Requests, instance: String) -> Self {
        let reporter = Reporter {
            controller: format!("{FIELD_MANAGER}.dev/operator"),
            instance: Some(instance),
        };
        Self {
            client: requests.client(),
            reporter,
            written: Arc::default(),
        }
    }

    /// Writes a line about an object, unless it was written a short time ago. Never makes a pass wait.
    pub(crate) fn publish<K: Resource<DynamicType = ()>>(&self, about: &K, line: Line) {
        let reference = about.object_ref(&());
        if !self.is_new(&reference, &line) {
            return;
        }
        // Of its own: a recorder counts every event of the same reason onto its first one, whatever the later ones say.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        tokio::spawn(async move {
            let mut note = line.note;
            note.truncate(note.floor_char_boundary(LONGEST_NOTE));
            let event = Event {
                type_: if line.warning {
                    EventType::Warning
                } else {
                    EventType::Normal
                },
                reason: line.reason,
                action: line.action,
                note: Some(note),
                secondary: None,
            };
            if let Err(error) = recorder.publish(&event, &reference).await {
                tracing::debug!(error = crate::error::chain(&error), "failed to write an event");
            }
        });
    }

    fn is_new(&self, about: &ObjectReference, line: &Line) -> bool {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        (&about.uid, &line.reason, &line.note).hash(&mut hasher);
        let now = Instant::now();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|_, at| now.duration_since(*at) < REPEAT_AFTER);
        written.insert(hasher.finish(), now).is_none()
    }
}
