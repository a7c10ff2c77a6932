//! Deletion: preconditions, grace periods, finalizers, owners and namespaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::failure::Failure;
use super::resource::Resource;
use super::store::{Key, Store};

/// `metav1.DeleteOptions`, as far as it matters.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Only an object with this uid.
    pub uid: Option<String>,
    /// Only an object of this version.
    pub resource_version: Option<String>,
    /// Seconds that a pod gets; 0 removes it at once ("force").
    pub grace: Option<i64>,
    /// Leave what the object owns.
    pub orphan: bool,
    /// Do everything but delete.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Reads the body of a DELETE request.
    #[must_use]
    pub fn read(body: &Value) -> Self {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(ToOwned::to_owned);
        Self {
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            grace: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            // Foreground deletion is approximated by background deletion.
            orphan: text("/propagationPolicy").as_deref() == Some("Orphan"),
            dry_run: body
                .get("dryRun")
                .is_some_and(|d| d.as_array().is_some_and(|a| !a.is_empty())),
        }
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Deletes an object, or marks it as being deleted where that takes time.
///
/// # Errors
/// 404 when it does not exist, 409 when a precondition does not hold.
pub fn delete(store: &mut Store, key: &Key, options: &DeleteOptions) -> Result<Arc<Value>, Failure> {
    let what = format!("{} \"{}\"", key.resource.plural, key.name);
    let live = store
        .get(key)
        .ok_or_else(|| Failure::not_found(format!("{what} not found")))?;
    for (given, pointer) in [
        (&options.uid, "/metadata/uid"),
        (&options.resource_version, "/metadata/resourceVersion"),
    ] {
        if let Some(given) = given
            && text(&live, pointer) != given
        {
            return Err(Failure::conflict(format!(
                "Operation cannot be fulfilled on {what}: Precondition failed: {pointer} {given}, the object has {}",
                text(&live, pointer)
            )));
        }
    }
    if options.dry_run {
        return Ok(live);
    }
    if options.orphan {
        orphan(store, text(&live, "/metadata/uid"));
    }
    let finalizers = live
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .is_some_and(|f| !f.is_empty());
    let grace = grace(&live, options.grace);
    if finalizers || grace > 0 || key.resource.kind == "Namespace" {
        return Ok(mark(store, key, &live, grace));
    }
    store.remove(key);
    Ok(live)
}

/// Seconds that the object is given: only a pod on a node gets any.
fn grace(object: &Value, asked: Option<i64>) -> i64 {
    let running = !matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
    if text(object, "/kind") != "Pod" || text(object, "/spec/nodeName").is_empty() || !running {
        return 0;
    }
    let own = object
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(30);
    asked.unwrap_or(own)
}

fn mark(store: &mut Store, key: &Key, live: &Arc<Value>, grace: i64) -> Arc<Value> {
    if !text(live, "/metadata/deletionTimestamp").is_empty() {
        return Arc::clone(live);
    }
    let mut object = Value::clone(live);
    object["metadata"]["deletionTimestamp"] = json!(store.clock.rfc3339());
    if key.resource.kind == "Pod" {
        object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    }
    if key.resource.kind == "Namespace" {
        object["status"] = json!({"phase": "Terminating"});
    }
    store.put(key.clone(), object)
}

fn orphan(store: &mut Store, uid: &str) {
    for (key, object) in owned(store) {
        let mut object = Value::clone(&object);
        let Some(references) = object
            .pointer_mut("/metadata/ownerReferences")
            .and_then(Value::as_array_mut)
        else {
            continue;
        };
        let before = references.len();
        references.retain(|r| text(r, "/uid") != uid);
        if references.len() != before {
            store.put(key, object);
        }
    }
}

fn owned(store: &Store) -> Vec<(Key, Arc<Value>)> {
    store
        .all()
        .filter(|(_, o)| {
            o.pointer("/metadata/ownerReferences")
                .and_then(Value::as_array)
                .is_some_and(|r| !r.is_empty())
        })
        .map(|(k, o)| (k.clone(), Arc::clone(o)))
        .collect()
}

/// One pass of the garbage collector and of the namespace controller; returns how many objects it deleted.
///
/// An object goes when none of its owners exists, by uid: an owner that was replaced by one of the same name is gone.
pub fn collect_garbage(store: &mut Store) -> usize {
    let uids: BTreeSet<&str> = store.all().map(|(_, o)| text(o, "/metadata/uid")).collect();
    let orphaned = |o: &Value| {
        let references = o.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        references.is_some_and(|r| !r.is_empty() && r.iter().all(|r| !uids.contains(text(r, "/uid"))))
    };
    let mut doomed: Vec<Key> = store
        .all()
        .filter(|(_, o)| orphaned(o))
        .map(|(key, _)| key.clone())
        .collect();
    let terminating: BTreeSet<String> = store
        .all()
        .filter(|(k, o)| k.resource.kind == "Namespace" && !text(o, "/metadata/deletionTimestamp").is_empty())
        .map(|(k, _)| k.name.clone())
        .collect();
    doomed.extend(
        store
            .all()
            .map(|(k, _)| k)
            .filter(|k| terminating.contains(&k.namespace))
            .cloned(),
    );
    let mut deleted = 0;
    for key in doomed {
        let marked = store
            .get(&key)
            .is_some_and(|o| !text(&o, "/metadata/deletionTimestamp").is_empty());
        if !marked && delete(store, &key, &DeleteOptions::default()).is_ok() {
            deleted += 1;
        }
    }
    deleted + remove_empty_namespaces(store, &terminating)
}

fn remove_empty_namespaces(store: &mut Store, terminating: &BTreeSet<String>) -> usize {
    let Some(namespaces) = Resource::find("", "namespaces") else {
        return 0;
    };
    let empty: Vec<&String> = terminating
        .iter()
        .filter(|name| !store.all().any(|(k, _)| &k.namespace == *name))
        .collect();
    empty
        .iter()
        .filter(|name| store.remove(&Key::new(namespaces, "", name)).is_some())
        .count()
}
