//! What is in the stores: listed in the background, kept until something changes, and listed anew before anything is deleted.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Preconditions;
use mainstay_api::{MySQLBackup, MySQLCluster};
use mainstay_core::backup::plan::{BackupAction, BackupSeen, Listing, retire};
use mainstay_core::backup::retention::{Folder, Policies};
use mainstay_core::backup::{BackupId, ClusterIdentity};
use mainstay_core::names::Names;
use mainstay_store::{ACCESS_FILE, Access, Store};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::seen::backup_seen;
use crate::backups::listing::{self, Contents};
use crate::context::Context;
use crate::error::chain;
use crate::events::{Events, Line};
use crate::index::{ClusterName, Index};
use crate::platform::Clock;
use crate::requests::Requests;
use crate::secret_data;
use crate::stores::Stores;
use crate::trigger::Triggers;

/// Stores that are listed at the same time.
const AT_ONCE: usize = 4;
/// Pause after a failure; twice as long after each further one, …
const FIRST_PAUSE: Duration = Duration::from_mins(1);
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// The stores of all clusters, as far as they were listed. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shelves {
    shelves: Arc<Mutex<HashMap<ClusterName, Shelf>>>,
    permits: Arc<Semaphore>,
}

impl Default for Shelves {
    fn default() -> Self {
        Self {
            shelves: Arc::default(),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

/// What is kept of one.
#[derive(Default)]
struct Shelf {
    /// For what the listing is.
    stamp: Option<Stamp>,
    listing: Option<Listing>,
    /// Why it could not be listed.
    error: Option<String>,
    failures: u32,
    not_before: Option<Instant>,
    /// It is being listed, or something in it deleted.
    busy: bool,
}

/// A listing is as good as new while these are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    /// The cluster.
    uid: String,
    /// Version of the Secret with the access.
    access: String,
    /// Backups that ended: one more has changed the store.
    ended: BTreeSet<String>,
}

/// What work on a store needs, without the pass that called for it.
#[derive(Clone)]
pub(crate) struct Work {
    shelves: Shelves,
    requests: Requests,
    stores: Arc<dyn Stores>,
    clock: Arc<dyn Clock>,
    triggers: Triggers,
    events: Events,
    backups: Index<MySQLBackup>,
    cluster: ClusterName,
    uid: String,
}

impl Work {
    pub(crate) fn new(context: &Context, cluster: &ClusterName, uid: &str) -> Self {
        Self {
            shelves: context.shelves.clone(),
            requests: context.requests.clone(),
            stores: Arc::clone(&context.stores),
            clock: Arc::clone(&context.platform.clock),
            triggers: context.triggers.clone(),
            events: context.events.clone(),
            backups: context.world.backups.clone(),
            cluster: cluster.clone(),
            uid: uid.to_owned(),
        }
    }
}

impl Shelves {
    /// What is in the store of a cluster. Unless that is known, it is listed from now on, and a pass is called when it is.
    pub(crate) fn look(&self, context: &Context, cluster: &ClusterName, uid: &str, ended: BTreeSet<String>) -> Listing {
        let name = Names::new(&cluster.namespace, &cluster.name).store_secret();
        let secret = context.world.secrets.get(cluster, &name);
        let Some(secret) = secret.filter(|secret| secret.keys.iter().any(|key| key == ACCESS_FILE)) else {
            return Listing::Unknown { reason: None };
        };
        let stamp = Stamp {
            uid: uid.to_owned(),
            access: format!("{}/{}", secret.uid, secret.resource_version),
            ended,
        };
        let mut shelves = self.lock();
        let shelf = shelves.entry(cluster.clone()).or_default();
        let unknown = Listing::Unknown {
            reason: shelf.error.clone(),
        };
        if shelf.busy {
            return unknown;
        }
        let same = shelf.stamp.as_ref() == Some(&stamp);
        if let Some(listing) = shelf.listing.as_ref().filter(|_| same) {
            return listing.clone();
        }
        // Another access may work: it is not made to wait for what the former one did.
        let early = shelf.not_before.is_some_and(|at| Instant::now() < at);
        if same && early {
            return unknown;
        }
        shelf.stamp = Some(stamp);
        shelf.listing = None;
        shelf.busy = true;
        drop(shelves);
        let work = Work::new(context, cluster, uid);
        context.leadership.spawn(async move { work.list().await });
        unknown
    }

    /// A cluster is gone, or stores nothing any more.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.lock().remove(cluster);
    }

    /// This process does not lead any more: what was going on has ended in the middle.
    pub(crate) fn end(&self) {
        self.lock().clear();
    }

    /// Takes the store of a cluster for a deletion; false when something is going on there.
    fn take(&self, cluster: &ClusterName) -> bool {
        let mut shelves = self.lock();
        let Some(shelf) = shelves.get_mut(cluster) else {
            return false;
        };
        !std::mem::replace(&mut shelf.busy, true)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ClusterName, Shelf>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// Something was listed, or could not be; the pause after which it is tried again.
    fn listed(&mut self, found: Result<Listing, String>) -> Option<Duration> {
        self.busy = false;
        match found {
            Ok(listing) => {
                *self = Self {
                    stamp: self.stamp.take(),
                    listing: Some(listing),
                    ..Self::default()
                };
                None
            }
            Err(reason) => {
                let doublings = self.failures.min(10);
                self.failures = self.failures.saturating_add(1);
                let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
                self.not_before = Some(Instant::now() + pause);
                self.error = Some(reason);
                Some(pause)
            }
        }
    }
}

impl Work {
    async fn list(self) {
        let found = self.contents().await.map(|(_, contents)| contents.listing);
        if let Err(reason) = &found {
            tracing::warn!(cluster = %self.cluster, reason, "the store cannot be listed");
        }
        self.conclude(found).await;
    }

    /// Notes what was found, and calls a pass; and another one when it may be tried again.
    async fn conclude(&self, found: Result<Listing, String>) {
        let pause = {
            let mut shelves = self.shelves.lock();
            shelves.get_mut(&self.cluster).and_then(|shelf| shelf.listed(found))
        };
        self.triggers.poke(&self.cluster);
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
            self.triggers.poke(&self.cluster);
        }
    }

    /// Opens the store with what the instances are given, and lists it.
    async fn contents(&self) -> Result<(Arc<dyn Store>, Contents), String> {
        // A bound for the whole operator: the semaphore is never closed.
        let _permit = self
            .shelves
            .permits
            .acquire()
            .await
            .map_err(|error| error.to_string())?;
        let name = Names::new(&self.cluster.namespace, &self.cluster.name).store_secret();
        let secret = self.requests.typed::<Secret>(&self.cluster.namespace).get(&name).await;
        let secret = secret.map_err(|error| chain(&error))?;
        let document = secret
            .as_ref()
            .and_then(|secret| secret_data::secret(secret, ACCESS_FILE));
        let document = document.ok_or_else(|| format!("Secret {name} has no access to a store"))?;
        let access = Access::from_json(&document).map_err(|error| chain(&error))?;
        drop(document);
        let cluster = self.identity()?;
        if access.cluster != cluster {
            return Err(format!("Secret {name} is of another cluster"));
        }
        let store = self.stores.open(access.store).await?;
        let contents = listing::read(store.as_ref(), &cluster)
            .await
            .map_err(|error| chain(&error))?;
        Ok((store, contents))
    }

    fn identity(&self) -> Result<ClusterIdentity, String> {
        let ClusterName { namespace, name } = &self.cluster;
        ClusterIdentity::new(namespace, name, &self.uid).map_err(|error| error.to_string())
    }

    /// Deletes what a plan asked for, if a new listing says the same. Everything about it is told to the next pass by a listing.
    pub(crate) async fn delete(self, about: MySQLCluster, policies: Policies, wanted: BackupAction) {
        if !self.shelves.take(&self.cluster) {
            return;
        }
        let result = self.delete_now(&about, &policies, &wanted).await;
        let found = match result {
            Ok(()) => self.contents().await.map(|(_, contents)| contents.listing),
            Err(reason) => {
                tracing::warn!(cluster = %self.cluster, reason, "what expired cannot be deleted");
                Err(reason)
            }
        };
        self.conclude(found).await;
    }

    async fn delete_now(&self, about: &MySQLCluster, policies: &Policies, wanted: &BackupAction) -> Result<(), String> {
        let (store, contents) = self.contents().await?;
        let backups: Vec<BackupSeen> = self
            .backups
            .of(&self.cluster)
            .values()
            .map(|backup| backup_seen(backup))
            .collect();
        // The plan was made from a listing that may be hours old.
        let (now_due, _) = retire(policies, &backups, &contents.listing, self.clock.now());
        match now_due {
            Some(BackupAction::Expire { folder, id }) if is_same_backup(wanted, &id) => {
                self.expire(store.as_ref(), &folder, &id).await?;
                self.delete_object(&id, &backups).await?;
                let note = format!("the stored backup {id} was deleted, as the retention says");
                self.events
                    .publish(about, Line::normal("BackupExpired", "Delete", note));
                Ok(())
            }
            Some(BackupAction::Prune { folder, keys }) => {
                let count = keys.len();
                contents
                    .prune(store.as_ref(), &folder, &keys)
                    .await
                    .map_err(|error| chain(&error))?;
                tracing::info!(cluster = %self.cluster, count, "segments were deleted that no backup needs any more");
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The manifest first: what is left of a backup that was interrupted here is none.
    async fn expire(&self, store: &dyn Store, folder: &Folder, id: &str) -> Result<(), String> {
        let id = BackupId::parse(id).map_err(|error| error.to_string())?;
        let cluster = self.identity()?;
        listing::delete_backup(store, &cluster, &id, folder)
            .await
            .map_err(|error| chain(&error))?;
        tracing::info!(cluster = %self.cluster, %id, "a stored backup was deleted, as the retention says");
        Ok(())
    }

    /// The `MySQLBackup` of what is not in the store any more.
    async fn delete_object(&self, id: &str, backups: &[BackupSeen]) -> Result<(), String> {
        let own = |backup: &&BackupSeen| backup.id().is_ok_and(|own| own.as_str() == id);
        let Some(backup) = backups.iter().find(own) else {
            return Ok(());
        };
        let seen = Preconditions {
            uid: Some(backup.uid.clone()),
            resource_version: None,
        };
        let objects = self.requests.typed::<MySQLBackup>(&self.cluster.namespace);
        objects
            .delete(&backup.name, seen, None)
            .await
            .map_err(|error| chain(&error))?;
        Ok(())
    }
}

fn is_same_backup(wanted: &BackupAction, id: &str) -> bool {
    matches!(wanted, BackupAction::Expire { id: wanted, .. } if wanted == id)
}
