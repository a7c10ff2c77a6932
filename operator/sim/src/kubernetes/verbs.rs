//! What requests do to the store.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::admission::Admission;
use super::defaults;
use super::failure::Failure;
use super::managed::{self, Manager};
use super::resource::{Resource, Route};
use super::store::{Key, Store};
use super::validate;

/// The parts of a write request that are not its body.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Field manager.
    pub manager: String,
    /// Take fields over from other managers.
    pub force: bool,
    /// Do everything but store.
    pub dry_run: bool,
    /// Leave the owners of fields as they are: writes of the rest of the world, which nobody contests.
    pub unowned: bool,
}

/// How a PATCH body is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 7386, also used for strategic merge patches, which is an approximation.
    Merge,
    /// RFC 6902
    Json,
    /// Server-side apply.
    Apply,
}

/// The store together with what changes requests on their way in.
#[derive(Debug)]
pub struct Verbs<'a> {
    /// The objects.
    pub store: &'a mut Store,
    /// Mutating webhooks.
    pub admission: &'a Admission,
}

fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .filter(|t| !t.is_empty())
}

fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    defaults::ensure_metadata(object);
    match object.get_mut("metadata") {
        Some(Value::Object(map)) => map,
        _ => unreachable!("an object has metadata"),
    }
}

fn missing(resource: &Resource, name: &str) -> Failure {
    Failure::not_found(format!("{} \"{name}\" not found", resource.plural))
}

impl Verbs<'_> {
    /// GET of one object.
    ///
    /// # Errors
    /// 404
    pub fn get(&self, key: &Key) -> Result<Arc<Value>, Failure> {
        self.store.get(key).ok_or_else(|| missing(key.resource, &key.name))
    }

    /// POST of a new object.
    ///
    /// # Errors
    /// What a real server answers: exists, invalid, namespace missing or terminating.
    pub fn create(&mut self, route: &Route, body: Value, options: &Options) -> Result<Arc<Value>, Failure> {
        if !body.is_object() {
            return Err(Failure::bad_request("the body is not an object"));
        }
        self.insert(route, body, options, false)
    }

    fn insert(
        &mut self,
        route: &Route,
        mut body: Value,
        options: &Options,
        applied: bool,
    ) -> Result<Arc<Value>, Failure> {
        let resource = route.resource;
        self.check_namespace(route)?;
        if text(&body, "/metadata/name").is_none()
            && let Some(prefix) = text(&body, "/metadata/generateName").map(ToOwned::to_owned)
        {
            let name = format!("{prefix}{}", self.store.suffix());
            metadata(&mut body).insert("name".to_owned(), json!(name));
        }
        let name = text(&body, "/metadata/name").unwrap_or_default().to_owned();
        let key = Key::new(resource, &route.namespace, &name);
        if self.store.get(&key).is_some() {
            return Err(Failure::already_exists(format!(
                "{} \"{name}\" already exists",
                resource.plural
            )));
        }
        if text(&body, "/metadata/resourceVersion").is_some() {
            return Err(Failure::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if resource.status
            && let Value::Object(map) = &mut body
        {
            map.remove("status");
        }
        self.admission.run(resource, None, &mut body)?;
        defaults::fill(resource, &mut body);
        if resource.kind == "Pod" {
            body["status"] = json!({"phase": "Pending"});
        }
        validate::create(resource, &body)?;
        let (uid, time) = (self.store.uid(), self.store.clock.rfc3339());
        let meta = metadata(&mut body);
        meta.insert("uid".to_owned(), json!(uid));
        meta.insert("creationTimestamp".to_owned(), json!(time));
        if resource.namespaced {
            meta.insert("namespace".to_owned(), json!(route.namespace));
        }
        if resource.generation {
            meta.insert("generation".to_owned(), json!(1));
        }
        stamp(resource, &mut body);
        if !applied && !options.unowned {
            managed::track_update(None, &mut body, &manager(options, false, None), &time);
        }
        if options.dry_run {
            return Ok(Arc::new(body));
        }
        Ok(self.store.put(key, body))
    }

    fn check_namespace(&self, route: &Route) -> Result<(), Failure> {
        if !route.resource.namespaced {
            return Ok(());
        }
        if route.namespace.is_empty() {
            return Err(Failure::bad_request(
                "an empty namespace may not be set during creation",
            ));
        }
        let namespaces = Resource::find("", "namespaces").ok_or_else(|| Failure::of_code(500))?;
        match self.store.get(&Key::new(namespaces, "", &route.namespace)) {
            None => Err(Failure::not_found(format!(
                "namespaces \"{}\" not found",
                route.namespace
            ))),
            Some(ns) if text(&ns, "/metadata/deletionTimestamp").is_some() => {
                Err(Failure::terminating(&route.namespace))
            }
            Some(_) => Ok(()),
        }
    }

    /// PUT of an object or its status.
    ///
    /// # Errors
    /// What a real server answers: missing, conflict, invalid.
    pub fn replace(&mut self, route: &Route, key: &Key, body: Value, options: &Options) -> Result<Arc<Value>, Failure> {
        let live = self.get(key)?;
        if text(&body, "/metadata/resourceVersion").is_none()
            && !key.resource.group.is_empty()
            && is_custom(key.resource)
        {
            return Err(Failure::invalid(
                "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update",
            ));
        }
        self.update(route, key, &live, body, options, false)
    }

    /// PATCH of an object or its status; server-side apply creates it.
    ///
    /// # Errors
    /// What a real server answers: missing, conflict, invalid.
    pub fn patch(
        &mut self,
        route: &Route,
        key: &Key,
        kind: PatchKind,
        body: Value,
        options: &Options,
    ) -> Result<Arc<Value>, Failure> {
        if kind == PatchKind::Apply {
            return self.apply(route, key, body, options);
        }
        let live = self.get(key)?;
        let mut new = Value::clone(&live);
        // A patch that does not name a version applies to whatever is there.
        metadata(&mut new).remove("resourceVersion");
        if kind == PatchKind::Merge {
            json_patch::merge(&mut new, &body);
        } else {
            let patch: json_patch::Patch =
                serde_json::from_value(body).map_err(|e| Failure::bad_request(e.to_string()))?;
            json_patch::patch(&mut new, &patch).map_err(|e| Failure::invalid(e.to_string()))?;
        }
        self.update(route, key, &live, new, options, false)
    }

    fn apply(&mut self, route: &Route, key: &Key, mut body: Value, options: &Options) -> Result<Arc<Value>, Failure> {
        if options.manager.is_empty() {
            return Err(Failure::bad_request(
                "PatchOptions.fieldManager: Required value: is required for apply patch",
            ));
        }
        if text(&body, "/metadata/managedFields").is_some() {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        let manager = manager(options, true, route.subresource.as_deref());
        let time = self.store.clock.rfc3339();
        let Some(live) = self.store.get(key) else {
            if route.subresource.is_some() || text(&body, "/metadata/uid").is_some() {
                return Err(missing(key.resource, &key.name));
            }
            metadata(&mut body).insert("name".to_owned(), json!(key.name));
            let mut bare = json!({"metadata": {"name": key.name}});
            stamp(key.resource, &mut bare);
            let mut merged = managed::apply(&bare, &body, &manager, options.force, &time)?;
            metadata(&mut merged).insert("name".to_owned(), json!(key.name));
            return self.insert(route, merged, options, true);
        };
        if let Some(uid) = text(&body, "/metadata/uid")
            && text(&live, "/metadata/uid") != Some(uid)
        {
            return Err(Failure::conflict(
                "uid mismatch: the provided object specified another uid",
            ));
        }
        if route.subresource.as_deref() == Some("status")
            && let Value::Object(map) = &mut body
        {
            map.retain(|key, _| key == "status" || key == "metadata");
        } else if key.resource.status
            && let Value::Object(map) = &mut body
        {
            map.remove("status");
        }
        let mut merged = managed::apply(&live, &body, &manager, options.force, &time)?;
        match text(&body, "/metadata/resourceVersion") {
            Some(version) => metadata(&mut merged).insert("resourceVersion".to_owned(), json!(version)),
            None => metadata(&mut merged).remove("resourceVersion"),
        };
        self.update(route, key, &live, merged, options, true)
    }

    fn update(
        &mut self,
        route: &Route,
        key: &Key,
        live: &Arc<Value>,
        mut new: Value,
        options: &Options,
        applied: bool,
    ) -> Result<Arc<Value>, Failure> {
        let resource = key.resource;
        check_identity(key, live, &new)?;
        keep_protected(live, &mut new, resource, route.subresource.as_deref());
        if route.subresource.is_none() {
            self.admission.run(resource, Some(live), &mut new)?;
        }
        defaults::fill(resource, &mut new);
        stamp(resource, &mut new);
        validate::update(resource, live, &new)?;
        if resource.generation && new.get("spec") != live.get("spec") {
            let generation = live
                .pointer("/metadata/generation")
                .and_then(Value::as_i64)
                .unwrap_or(0);
            metadata(&mut new).insert("generation".to_owned(), json!(generation + 1));
        }
        if !applied && !options.unowned {
            let manager = manager(options, false, route.subresource.as_deref());
            managed::track_update(Some(live), &mut new, &manager, &self.store.clock.rfc3339());
        }
        let finalized = new
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty);
        let deleting = text(live, "/metadata/deletionTimestamp").is_some();
        let version = live.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
        metadata(&mut new).insert("resourceVersion".to_owned(), version);
        if options.dry_run {
            return Ok(Arc::new(new));
        }
        if deleting && finalized && resource.kind != "Pod" && resource.kind != "Namespace" {
            self.store.remove(key);
            return Ok(Arc::new(new));
        }
        if new == **live {
            return Ok(Arc::clone(live));
        }
        Ok(self.store.put(key.clone(), new))
    }
}

fn is_custom(resource: &Resource) -> bool {
    resource.group == mainstay_api::GROUP
}

fn manager(options: &Options, applies: bool, subresource: Option<&str>) -> Manager {
    Manager {
        name: options.manager.clone(),
        applies,
        subresource: subresource.unwrap_or_default().to_owned(),
    }
}

/// apiVersion and kind are what the path says.
fn stamp(resource: &Resource, object: &mut Value) {
    if let Value::Object(map) = object {
        map.insert("apiVersion".to_owned(), json!(resource.api_version()));
        map.insert("kind".to_owned(), json!(resource.kind));
    }
}

/// Optimistic concurrency: name, uid and resourceVersion in the body are preconditions.
fn check_identity(key: &Key, live: &Value, new: &Value) -> Result<(), Failure> {
    let what = format!("{} \"{}\"", key.resource.plural, key.name);
    if text(new, "/metadata/name").is_some_and(|n| n != key.name) {
        return Err(Failure::bad_request(format!(
            "the name of the object does not match the name on the URL ({what})"
        )));
    }
    for pointer in ["/metadata/uid", "/metadata/resourceVersion"] {
        if let Some(given) = text(new, pointer)
            && text(live, pointer) != Some(given)
        {
            return Err(Failure::conflict(format!(
                "Operation cannot be fulfilled on {what}: the object has been modified; please apply your changes to the latest version and try again"
            )));
        }
    }
    Ok(())
}

/// Fields that a client cannot change, and the half that belongs to the other subresource, come from the live object.
fn keep_protected(live: &Value, new: &mut Value, resource: &Resource, subresource: Option<&str>) {
    if subresource == Some("status") {
        let (status, managed) = (
            new.get("status").cloned(),
            new.pointer("/metadata/managedFields").cloned(),
        );
        *new = live.clone();
        if let Value::Object(map) = new {
            match status {
                Some(status) => map.insert("status".to_owned(), status),
                None => map.remove("status"),
            };
        }
        if let Some(managed) = managed {
            metadata(new).insert("managedFields".to_owned(), managed);
        }
        return;
    }
    if resource.status
        && let Value::Object(map) = new
    {
        match live.get("status") {
            Some(status) => map.insert("status".to_owned(), status.clone()),
            None => map.remove("status"),
        };
    }
    let protected = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ];
    for field in protected {
        let value = live.pointer(&format!("/metadata/{field}")).cloned();
        match value {
            Some(value) => metadata(new).insert(field.to_owned(), value),
            None => metadata(new).remove(field),
        };
    }
}
