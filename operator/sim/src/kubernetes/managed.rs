//! Field ownership: what server-side apply and plain updates do to `metadata.managedFields`.
//!
//! Real servers keep one set per manager, operation, subresource and API version; there is one version here. Fields
//! that admission or defaulting adds belong to nobody here; a real server gives some of them to the requester.

use serde_json::{Value, json};

use super::failure::Failure;
use super::fields::{self, FieldSet, Path, Step};

/// Who owns fields, and by which kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// Name of the field manager.
    pub name: String,
    /// Server-side apply, or any other write.
    pub applies: bool,
    /// Subresource through which it writes; empty for the object itself.
    pub subresource: String,
}

#[derive(Clone, Debug)]
struct Entry {
    manager: Manager,
    fields: FieldSet,
    time: String,
}

/// Fields of metadata that nobody owns.
const UNOWNED: [&str; 10] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

/// The part of an object whose fields can be owned.
#[must_use]
pub fn owned_part(object: &Value) -> Value {
    let mut part = object.clone();
    if let Value::Object(map) = &mut part {
        map.remove("apiVersion");
        map.remove("kind");
        if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
            metadata.retain(|key, _| !UNOWNED.contains(&key.as_str()));
            if metadata.is_empty() {
                map.remove("metadata");
            }
        }
    }
    part
}

fn entries(object: &Value) -> Vec<Entry> {
    let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let list = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .map(|entry| Entry {
            manager: Manager {
                name: text(entry, "manager"),
                applies: text(entry, "operation") == "Apply",
                subresource: text(entry, "subresource"),
            },
            fields: fields::from_fields_v1(entry.get("fieldsV1").unwrap_or(&Value::Null)),
            time: text(entry, "time"),
        })
        .collect()
}

fn write_entries(object: &mut Value, api_version: &str, entries: &[Entry]) {
    let list: Vec<Value> = entries
        .iter()
        .filter(|e| !e.fields.is_empty())
        .map(|e| {
            let mut entry = json!({
                "manager": e.manager.name,
                "operation": if e.manager.applies { "Apply" } else { "Update" },
                "apiVersion": api_version,
                "time": e.time,
                "fieldsType": "FieldsV1",
                "fieldsV1": fields::to_fields_v1(&e.fields),
            });
            if let (Value::Object(map), false) = (&mut entry, e.manager.subresource.is_empty()) {
                map.insert("subresource".to_owned(), json!(e.manager.subresource));
            }
            entry
        })
        .collect();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("managedFields".to_owned(), Value::Array(list));
    }
}

fn api_version(object: &Value) -> String {
    object
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or("v1")
        .to_owned()
}

/// Records that `manager` made `new` out of `old` by a write other than apply.
pub fn track_update(old: Option<&Value>, new: &mut Value, manager: &Manager, time: &str) {
    let before = old.map(owned_part).unwrap_or_default();
    let difference = fields::difference(&before, &owned_part(new));
    let mut entries = entries(old.unwrap_or(&Value::Null));
    if !difference.changed.is_empty() || !difference.removed.is_empty() {
        for entry in &mut entries {
            let lost = |p: &Path| difference.changed.contains(p) || difference.removed.contains(p);
            entry.fields.retain(|p| !lost(p));
        }
        if !difference.changed.is_empty() {
            own(&mut entries, manager, time).extend(difference.changed);
        }
    }
    write_entries(new, &api_version(new), &entries);
}

fn own<'a>(entries: &'a mut Vec<Entry>, manager: &Manager, time: &str) -> &'a mut FieldSet {
    let at = entries.iter().position(|e| &e.manager == manager).unwrap_or_else(|| {
        entries.push(Entry {
            manager: manager.clone(),
            fields: FieldSet::new(),
            time: String::new(),
        });
        entries.len() - 1
    });
    let (_, tail) = entries.split_at_mut(at);
    match tail.first_mut() {
        Some(entry) => {
            time.clone_into(&mut entry.time);
            &mut entry.fields
        }
        None => unreachable!("the entry was found or pushed"),
    }
}

/// Merges an applied configuration over the live object.
///
/// # Errors
/// 409 when another manager owns a field with another value and `force` is not set.
pub fn apply(live: &Value, change: &Value, manager: &Manager, force: bool, time: &str) -> Result<Value, Failure> {
    let applied = owned_part(change);
    let wanted = fields::field_set(&applied);
    let mut merged = live.clone();
    fields::merge(&mut merged, &applied);
    let changed = fields::difference(&owned_part(live), &owned_part(&merged));
    let mut entries = entries(live);

    let mut conflicts = Vec::new();
    for entry in entries.iter_mut().filter(|e| &e.manager != manager) {
        let touched = |p: &Path| {
            let overlap = |q: &Path| fields::overlaps(p, q);
            changed.changed.iter().any(overlap) || changed.removed.iter().any(overlap)
        };
        let lost: Vec<Path> = entry.fields.iter().filter(|p| touched(p)).cloned().collect();
        for path in lost {
            conflicts.push(format!("{} owned by \"{}\"", display(&path), entry.manager.name));
            entry.fields.remove(&path);
        }
    }
    if !conflicts.is_empty() && !force {
        return Err(Failure::conflict(format!(
            "Apply failed with {} conflicts: {}",
            conflicts.len(),
            conflicts.join(", ")
        )));
    }

    let before = entries
        .iter()
        .find(|e| &e.manager == manager)
        .map(|e| e.fields.clone())
        .unwrap_or_default();
    let others: FieldSet = entries
        .iter()
        .filter(|e| &e.manager != manager)
        .flat_map(|e| e.fields.iter().cloned())
        .collect();
    for path in before.iter().filter(|p| !wanted.contains(*p)) {
        let kept = others.iter().chain(&wanted).any(|o| o.starts_with(path));
        if !kept {
            fields::remove(&mut merged, path);
        }
    }
    if before != wanted {
        *own(&mut entries, manager, time) = wanted;
    }
    write_entries(&mut merged, &api_version(live), &entries);
    Ok(merged)
}

fn display(path: &[Step]) -> String {
    path.iter()
        .map(|step| match step {
            Step::Field(name) => format!(".{name}"),
            Step::Item(keys) => format!("[{keys}]"),
            Step::Value(value) => format!("[={value}]"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Manager, apply, track_update};

    fn applier(name: &str) -> Manager {
        Manager {
            name: name.to_owned(),
            applies: true,
            subresource: String::new(),
        }
    }

    fn updater(name: &str) -> Manager {
        Manager {
            name: name.to_owned(),
            applies: false,
            subresource: String::new(),
        }
    }

    fn start() -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    }

    #[test]
    fn what_is_no_longer_applied_is_removed() {
        let first = apply(
            &start(),
            &json!({"data": {"a": "1", "b": "2"}}),
            &applier("m"),
            false,
            "t",
        )
        .unwrap();
        let second = apply(&first, &json!({"data": {"a": "1"}}), &applier("m"), false, "t").unwrap();
        assert_eq!(second["data"], json!({"a": "1"}));
    }

    #[test]
    fn what_another_manager_shares_stays() {
        let first = apply(
            &start(),
            &json!({"data": {"a": "1", "b": "2"}}),
            &applier("m"),
            false,
            "t",
        )
        .unwrap();
        let shared = apply(&first, &json!({"data": {"b": "2"}}), &applier("n"), false, "t").unwrap();
        let last = apply(&shared, &json!({"data": {"a": "1"}}), &applier("m"), false, "t").unwrap();
        assert_eq!(last["data"], json!({"a": "1", "b": "2"}));
    }

    #[test]
    fn a_changed_value_of_another_manager_conflicts_unless_forced() {
        let mut object = start();
        object["data"] = json!({"a": "theirs"});
        let mut object = object.clone();
        track_update(None, &mut object, &updater("kubectl-edit"), "t");
        let change = json!({"data": {"a": "ours"}});
        let refused = apply(&object, &change, &applier("m"), false, "t").unwrap_err();
        assert_eq!(refused.code, 409);
        assert!(
            refused.message.contains(".data.a owned by \"kubectl-edit\""),
            "{refused}"
        );
        let forced = apply(&object, &change, &applier("m"), true, "t").unwrap();
        assert_eq!(forced["data"]["a"], "ours");
        let managers = forced["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(managers.len(), 1, "{managers:?}");
    }

    #[test]
    fn fields_that_others_add_are_kept() {
        let pod = json!({"spec": {"template": {"spec": {"containers": [{"name": "mysql", "image": "1"}]}}}});
        let live = apply(&start(), &pod, &applier("m"), false, "t").unwrap();
        let mut injected = live.clone();
        injected["spec"]["template"]["spec"]["imagePullSecrets"] = json!([{"name": "s"}]);
        injected["spec"]["template"]["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "sidecar"}));
        track_update(Some(&live), &mut injected, &updater("webhook"), "t");
        let again = apply(&injected, &pod, &applier("m"), false, "t2").unwrap();
        assert_eq!(again, injected, "applying the same again changes nothing");
    }

    #[test]
    fn applying_the_same_twice_changes_nothing() {
        let change = json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "1"}});
        let once = apply(&start(), &change, &applier("m"), false, "t1").unwrap();
        assert_eq!(apply(&once, &change, &applier("m"), false, "t2").unwrap(), once);
    }
}
