//! Field paths and sets of them: the small part of structured-merge-diff that server-side apply needs.
//!
//! Approximations, all of them harmless for the objects of this project: lists and maps that are not in [`list_kind`]
//! or [`is_atomic_map`] are treated as a generic CRD's would be (lists atomic, maps granular); ownership of an empty
//! map is a leaf; `.` markers of maps are not kept, those of list items are.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Member of a map or struct.
    Field(String),
    /// Item of a list with merge keys: the keys as compact JSON.
    Item(String),
    /// Value in a set, as compact JSON.
    Value(String),
}

/// A path from the root of an object.
pub type Path = Vec<Step>;
/// A set of leaves and list items.
pub type FieldSet = BTreeSet<Path>;

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// As a whole.
    Atomic,
    /// By value.
    Set,
    /// By these keys; each with the default that stands for a missing key.
    Map(&'static [(&'static str, Option<&'static str>)]),
}

/// How the list at `path` is merged, from the openapi markers of the built-in types.
#[must_use]
pub fn list_kind(path: &[Step]) -> ListKind {
    let Some(Step::Field(name)) = path.last() else {
        return ListKind::Atomic;
    };
    let in_pod = path
        .iter()
        .any(|s| matches!(s, Step::Field(f) if f == "containers" || f == "initContainers"));
    let depth = path.len();
    match name.as_str() {
        "containers" | "initContainers" | "volumes" | "schedulingGates" | "resourceClaims" | "claims" => {
            ListKind::Map(&[("name", None)])
        }
        "env" if in_pod => ListKind::Map(&[("name", None)]),
        "imagePullSecrets" if depth > 1 => ListKind::Map(&[("name", None)]),
        "volumeMounts" if in_pod => ListKind::Map(&[("mountPath", None)]),
        "volumeDevices" if in_pod => ListKind::Map(&[("devicePath", None)]),
        "ports" if in_pod => ListKind::Map(&[("containerPort", None), ("protocol", Some("TCP"))]),
        "ports" if depth == 2 => ListKind::Map(&[("port", None), ("protocol", Some("TCP"))]),
        "conditions" if depth == 2 => ListKind::Map(&[("type", None)]),
        "ownerReferences" => ListKind::Map(&[("uid", None)]),
        "finalizers" => ListKind::Set,
        "topologySpreadConstraints" => ListKind::Map(&[("topologyKey", None), ("whenUnsatisfiable", None)]),
        "hostAliases" | "podIPs" => ListKind::Map(&[("ip", None)]),
        "secrets" if depth == 1 => ListKind::Map(&[("name", None)]),
        _ => ListKind::Atomic,
    }
}

/// Whether the map at `path` is replaced as a whole.
#[must_use]
pub fn is_atomic_map(path: &[Step]) -> bool {
    let Some(Step::Field(name)) = path.last() else {
        return false;
    };
    matches!(
        name.as_str(),
        "selector"
            | "labelSelector"
            | "nodeSelector"
            | "configMapKeyRef"
            | "secretKeyRef"
            | "fieldRef"
            | "resourceFieldRef"
    )
}

/// The merge key of a list's item.
#[must_use]
pub fn item_step(kind: ListKind, item: &Value) -> Option<Step> {
    match kind {
        ListKind::Atomic => None,
        ListKind::Set => Some(Step::Value(item.to_string())),
        ListKind::Map(keys) => {
            let mut found = Map::new();
            for (key, default) in keys {
                let value = item.get(*key).cloned().or_else(|| default.map(|d| json!(d)))?;
                found.insert((*key).to_owned(), value);
            }
            Some(Step::Item(Value::Object(found).to_string()))
        }
    }
}

/// Every leaf and list item of `value`.
#[must_use]
pub fn field_set(value: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    collect(value, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, path: &mut Path, set: &mut FieldSet) {
    match value {
        Value::Object(map) if !map.is_empty() && !is_atomic_map(path) => {
            for (key, child) in map {
                path.push(Step::Field(key.clone()));
                collect(child, path, set);
                path.pop();
            }
        }
        Value::Array(items) if list_kind(path) != ListKind::Atomic => {
            let kind = list_kind(path);
            for item in items {
                let Some(step) = item_step(kind, item) else { continue };
                path.push(step);
                set.insert(path.clone());
                if matches!(kind, ListKind::Map(_)) {
                    collect(item, path, set);
                }
                path.pop();
            }
        }
        _ => {
            if !path.is_empty() {
                set.insert(path.clone());
            }
        }
    }
}

/// The value at `path`.
#[must_use]
pub fn get<'a>(root: &'a Value, path: &[Step]) -> Option<&'a Value> {
    let mut at = root;
    for (depth, step) in path.iter().enumerate() {
        at = match step {
            Step::Field(name) => at.get(name)?,
            Step::Item(_) | Step::Value(_) => {
                let kind = list_kind(path.get(..depth)?);
                at.as_array()?
                    .iter()
                    .find(|item| item_step(kind, item).as_ref() == Some(step))?
            }
        };
    }
    Some(at)
}

/// Removes what is at `path`, and the maps and lists that become empty by it.
pub fn remove(root: &mut Value, path: &[Step]) {
    remove_at(root, path, 0);
}

fn remove_at(at: &mut Value, path: &[Step], depth: usize) {
    let Some(step) = path.get(depth) else { return };
    let last = depth + 1 == path.len();
    match (at, step) {
        (Value::Object(map), Step::Field(name)) => {
            if last {
                map.remove(name);
            } else if let Some(child) = map.get_mut(name) {
                remove_at(child, path, depth + 1);
                if is_empty(child) {
                    map.remove(name);
                }
            }
        }
        (Value::Array(items), Step::Item(_) | Step::Value(_)) => {
            let kind = list_kind(path.get(..depth).unwrap_or_default());
            if last {
                items.retain(|item| item_step(kind, item).as_ref() != Some(step));
            } else if let Some(child) = items
                .iter_mut()
                .find(|item| item_step(kind, item).as_ref() == Some(step))
            {
                remove_at(child, path, depth + 1);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Merges `change` over `live` by the rules of server-side apply.
pub fn merge(live: &mut Value, change: &Value) {
    merge_at(live, change, &mut Vec::new());
}

fn merge_at(live: &mut Value, change: &Value, path: &mut Path) {
    match (&mut *live, change) {
        (Value::Object(into), Value::Object(from)) if !is_atomic_map(path) => {
            for (key, value) in from {
                path.push(Step::Field(key.clone()));
                merge_at(into.entry(key.clone()).or_insert(Value::Null), value, path);
                path.pop();
            }
        }
        (Value::Array(into), Value::Array(from)) if list_kind(path) != ListKind::Atomic => {
            let kind = list_kind(path);
            for item in from {
                let Some(step) = item_step(kind, item) else { continue };
                match into.iter_mut().find(|old| item_step(kind, old).as_ref() == Some(&step)) {
                    Some(old) => {
                        path.push(step);
                        merge_at(old, item, path);
                        path.pop();
                    }
                    None => into.push(item.clone()),
                }
            }
        }
        _ => *live = change.clone(),
    }
}

/// What differs between two values.
#[derive(Debug, Default)]
pub struct Difference {
    /// Leaves and items that are new or have another value.
    pub changed: FieldSet,
    /// Leaves and items that are gone.
    pub removed: FieldSet,
}

/// Compares two values leaf by leaf.
#[must_use]
pub fn difference(old: &Value, new: &Value) -> Difference {
    let (before, after) = (field_set(old), field_set(new));
    let changed = after
        .iter()
        .filter(|p| !before.contains(*p) || (is_leaf(p, new) && get(old, p) != get(new, p)));
    Difference {
        changed: changed.cloned().collect(),
        removed: before.difference(&after).cloned().collect(),
    }
}

/// A list item with fields of its own is not compared as a whole: its fields are leaves themselves.
fn is_leaf(path: &[Step], value: &Value) -> bool {
    !(matches!(path.last(), Some(Step::Item(_))) && get(value, path).is_some_and(Value::is_object))
}

/// Whether two paths cannot be owned independently: equal, or one inside of the other where that is a leaf.
#[must_use]
pub fn overlaps(a: &[Step], b: &[Step]) -> bool {
    let shared = a.len().min(b.len());
    let prefix = a.get(..shared) == b.get(..shared);
    let inside_item = |shorter: &[Step], longer: &[Step]| {
        shorter.len() < longer.len() && matches!(shorter.last(), Some(Step::Item(_)))
    };
    prefix && !inside_item(a, b) && !inside_item(b, a)
}

/// `fieldsV1` of a managed fields entry.
#[must_use]
pub fn to_fields_v1(set: &FieldSet) -> Value {
    let mut root = Value::Object(Map::new());
    for path in set {
        let mut at = &mut root;
        for step in path {
            let key = match step {
                Step::Field(name) => format!("f:{name}"),
                Step::Item(keys) => format!("k:{keys}"),
                Step::Value(value) => format!("v:{value}"),
            };
            let Value::Object(map) = at else { break };
            at = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
        }
        if let (Some(Step::Item(_)), Value::Object(map)) = (path.last(), at) {
            map.insert(".".to_owned(), json!({}));
        }
    }
    root
}

/// The set that a `fieldsV1` describes.
#[must_use]
pub fn from_fields_v1(value: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    read_fields(value, &mut Vec::new(), &mut set);
    set
}

fn read_fields(value: &Value, path: &mut Path, set: &mut FieldSet) {
    let Value::Object(map) = value else { return };
    if map.is_empty() && !path.is_empty() {
        set.insert(path.clone());
    }
    for (key, child) in map {
        let step = match key.split_once(':') {
            Some(("f", name)) => Step::Field(name.to_owned()),
            Some(("k", keys)) => Step::Item(keys.to_owned()),
            Some(("v", value)) => Step::Value(value.to_owned()),
            _ => {
                set.insert(path.clone());
                continue;
            }
        };
        path.push(step);
        read_fields(child, path, set);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{difference, field_set, from_fields_v1, merge, remove, to_fields_v1};

    #[test]
    fn sets_survive_their_textual_form() {
        let object = json!({
            "metadata": {"labels": {"a": "1"}, "finalizers": ["x"], "annotations": {}},
            "spec": {
                "selector": {"app": "x", "tier": "y"},
                "template": {"spec": {"containers": [
                    {"name": "mysql", "ports": [{"containerPort": 3306}], "command": ["a", "b"], "env": [{"name": "A", "value": "1"}]},
                ]}},
            },
        });
        let set = field_set(&object);
        assert_eq!(from_fields_v1(&to_fields_v1(&set)), set);
        assert_eq!(set.len(), 12, "{set:#?}");
    }

    #[test]
    fn lists_with_keys_merge_by_item() {
        let mut live = json!({"spec": {"containers": [
            {"name": "a", "image": "1", "imagePullPolicy": "Always"}, {"name": "injected"}]}});
        merge(
            &mut live,
            &json!({"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "b"}]}}),
        );
        assert_eq!(
            live,
            json!({"spec": {"containers": [
                {"name": "a", "image": "2", "imagePullPolicy": "Always"}, {"name": "injected"}, {"name": "b"}]}})
        );
    }

    #[test]
    fn removing_the_last_field_of_a_map_removes_the_map() {
        let mut live = json!({"metadata": {"labels": {"a": "1"}, "name": "x"}});
        let gone = field_set(&json!({"metadata": {"labels": {"a": "1"}}}));
        for path in &gone {
            remove(&mut live, path);
        }
        assert_eq!(live, json!({"metadata": {"name": "x"}}));
    }

    #[test]
    fn a_changed_field_of_an_item_is_not_a_changed_item() {
        let old = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}});
        let new = json!({"spec": {"containers": [{"name": "a", "image": "2"}]}});
        let difference = difference(&old, &new);
        assert_eq!(difference.changed.len(), 1, "{difference:#?}");
        assert_eq!(difference.removed.len(), 2, "{difference:#?}");
    }
}
