//! Whether an object has to be applied: the fields that Mainstay owns, compared with what is there.
//!
//! Two questions, and either is enough. Does the object carry the hash of what was last applied? If not, a field may
//! have been taken out of the desired object since, which no comparison of present fields can show. And does each field
//! of the desired object stand in the observed one? Defaults and what other writers added are none of our business
//! (case F30), so that an idle cluster is never written to.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::quantity::Amount;

/// Annotation that holds the hash of the object as it was last applied.
pub const APPLIED: &str = "mysql.mainstay.dev/applied";

/// Annotations in JSON pointer form.
const ANNOTATIONS: &str = "/metadata/annotations";

/// Keys by which Kubernetes tells the items of a list apart, in the order in which they are tried.
const MERGE_KEYS: [&str; 7] = [
    "name",
    "mountPath",
    "containerPort",
    "port",
    "topologyKey",
    "uid",
    "key",
];

/// Maps whose values are quantities: `1000m` and `1` are the same.
const QUANTITIES: [&str; 4] = ["requests", "limits", "capacity", "sizeLimit"];

/// The desired object with the hash of itself among its annotations.
#[must_use]
pub fn stamped(mut desired: Value) -> Value {
    let hash = hash(&desired);
    if let Some(metadata) = desired.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata
            .entry("annotations")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(APPLIED.to_owned(), Value::String(hash));
        }
    }
    desired
}

/// A [`stamped`] object with one more annotation, stamped again.
#[must_use]
pub fn annotated(mut desired: Value, name: &str, text: &str) -> Value {
    if let Some(annotations) = desired.pointer_mut(ANNOTATIONS).and_then(Value::as_object_mut) {
        annotations.remove(APPLIED);
        annotations.insert(name.to_owned(), Value::String(text.to_owned()));
    }
    stamped(desired)
}

/// The first 16 hexadecimal digits of the SHA-256 of a value; maps are hashed in the order of their keys.
#[must_use]
pub fn hash(value: &Value) -> String {
    digest(&canonical(value))
}

/// The first 16 hexadecimal digits of the SHA-256 of some bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let first = hash.iter().take(8).fold(0, |bits, byte| (bits << 8) | u64::from(*byte));
    format!("{first:016x}")
}

/// The path of the first difference if `desired` (which is [`stamped`]) has to be applied over `observed`.
#[must_use]
pub fn needs_apply(desired: &Value, observed: &Value) -> Option<String> {
    let applied = |object: &Value| object.pointer(ANNOTATIONS).and_then(|a| a.get(APPLIED)).cloned();
    if applied(desired) != applied(observed) {
        return Some(format!("metadata.annotations[{APPLIED}]"));
    }
    differs(desired, observed, "", false)
}

fn differs(desired: &Value, observed: &Value, path: &str, quantity: bool) -> Option<String> {
    match (desired, observed) {
        (Value::Object(wanted), Value::Object(there)) => objects(wanted, there, path, quantity),
        (Value::Array(wanted), Value::Array(there)) => lists(wanted, there, path),
        (wanted, there) if same_scalar(wanted, there, quantity) => None,
        // The API server gives an empty list of an EndpointSlice back as null.
        (wanted, there) if is_empty(wanted) && is_empty(there) => None,
        _ => Some(path.trim_start_matches('.').to_owned()),
    }
}

fn objects(wanted: &Map<String, Value>, there: &Map<String, Value>, path: &str, quantity: bool) -> Option<String> {
    wanted.iter().find_map(|(key, value)| {
        let path = format!("{path}.{key}");
        let quantity = quantity || QUANTITIES.contains(&key.as_str());
        match there.get(key) {
            Some(observed) => differs(value, observed, &path, quantity),
            None if is_empty(value) => None,
            None => Some(path.trim_start_matches('.').to_owned()),
        }
    })
}

fn lists(wanted: &[Value], there: &[Value], path: &str) -> Option<String> {
    match merge_key(wanted) {
        Some(key) => wanted.iter().find_map(|item| {
            let id = item.get(key)?;
            let path = format!("{path}[{}]", text(id));
            match there.iter().find(|other| other.get(key) == Some(id)) {
                Some(observed) => differs(item, observed, &path, false),
                None => Some(path.trim_start_matches('.').to_owned()),
            }
        }),
        None if wanted.len() != there.len() => Some(path.trim_start_matches('.').to_owned()),
        None => wanted
            .iter()
            .zip(there)
            .enumerate()
            .find_map(|(index, (item, observed))| differs(item, observed, &format!("{path}[{index}]"), false)),
    }
}

/// The key that tells all items apart, if there is one: others may add items to such a list.
fn merge_key(items: &[Value]) -> Option<&'static str> {
    MERGE_KEYS.into_iter().find(|key| {
        let ids: Vec<&Value> = items.iter().filter_map(|item| item.get(key)).collect();
        let distinct = ids
            .iter()
            .enumerate()
            .all(|(n, id)| !ids.iter().skip(n + 1).any(|other| other == id));
        !items.is_empty() && ids.len() == items.len() && distinct
    })
}

fn same_scalar(wanted: &Value, there: &Value, quantity: bool) -> bool {
    let amount = |value: &Value| text(value).parse::<Amount>().ok();
    wanted == there || (quantity && amount(wanted).is_some_and(|wanted| amount(there) == Some(wanted)))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// JSON with the keys of every map in order, whatever the map type of `serde_json` preserves.
fn canonical(value: &Value) -> Vec<u8> {
    let mut json = Vec::with_capacity(4096);
    write_canonical(value, &mut json);
    json
}

fn write_canonical(value: &Value, json: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            json.push(b'{');
            for (n, (key, value)) in fields.into_iter().enumerate() {
                if n > 0 {
                    json.push(b',');
                }
                write_scalar(key, json);
                json.push(b':');
                write_canonical(value, json);
            }
            json.push(b'}');
        }
        Value::Array(items) => {
            json.push(b'[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    json.push(b',');
                }
                write_canonical(item, json);
            }
            json.push(b']');
        }
        scalar => write_scalar(scalar, json),
    }
}

/// Texts and scalars can always be written as JSON, and a vector always has room.
fn write_scalar(value: &impl serde::Serialize, json: &mut Vec<u8>) {
    let _ = serde_json::to_writer(json, value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn desired() -> Value {
        stamped(json!({
            "metadata": {"name": "shop", "labels": {"a": "b"}},
            "spec": {
                "replicas": 3,
                "containers": [{
                    "name": "mysql",
                    "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}},
                    "env": [{"name": "A", "value": "1"}],
                    "args": ["instance", "run"]
                }],
                "volumes": [{"name": "bin", "emptyDir": {}}]
            }
        }))
    }

    #[test]
    fn an_object_as_applied_needs_nothing() {
        assert_eq!(needs_apply(&desired(), &desired()), None);
    }

    #[test]
    fn f30_defaults_and_additions_of_others_need_nothing() {
        let mut observed = desired();
        observed["metadata"]["labels"]["team"] = json!("x");
        observed["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
        observed["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({"name": "proxy"}));
        observed["spec"]["containers"][1]["env"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "B"}));
        observed["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
        observed["status"] = json!({"replicas": 3});
        assert_eq!(needs_apply(&desired(), &observed), None);
    }

    #[test]
    fn nothing_is_nothing_however_it_is_written() {
        let wanted = stamped(json!({"metadata": {"name": "shop"}, "endpoints": [], "labels": {}}));
        let mut observed = wanted.clone();
        observed["endpoints"] = Value::Null;
        observed.as_object_mut().unwrap().remove("labels");
        assert_eq!(needs_apply(&wanted, &observed), None);
        observed["endpoints"] = json!([{"addresses": ["10.0.0.1"]}]);
        assert_eq!(needs_apply(&wanted, &observed).as_deref(), Some("endpoints"));
    }

    #[test]
    fn quantities_are_compared_by_value() {
        let mut observed = desired();
        observed["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "1", "memory": "1024Mi"});
        assert_eq!(needs_apply(&desired(), &observed), None);
        observed["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("2");
        assert_eq!(
            needs_apply(&desired(), &observed).as_deref(),
            Some("spec.containers[mysql].resources.limits.cpu")
        );
    }

    #[test]
    fn a_changed_or_missing_field_is_named() {
        let changes: [(&str, Value, &str); 4] = [
            ("/spec/replicas", json!(5), "spec.replicas"),
            (
                "/spec/containers/0/args",
                json!(["instance"]),
                "spec.containers[mysql].args",
            ),
            (
                "/spec/containers/0/args/1",
                json!("x"),
                "spec.containers[mysql].args[1]",
            ),
            ("/spec/containers/0/name", json!("other"), "spec.containers[mysql]"),
        ];
        for (pointer, value, path) in changes {
            let mut observed = desired();
            *observed.pointer_mut(pointer).unwrap() = value;
            assert_eq!(needs_apply(&desired(), &observed).as_deref(), Some(path));
        }
        let mut observed = desired();
        observed["spec"].as_object_mut().unwrap().remove("volumes");
        assert_eq!(needs_apply(&desired(), &observed).as_deref(), Some("spec.volumes"));
    }

    #[test]
    fn a_field_that_is_not_wanted_any_more_shows_in_the_hash() {
        let mut before = json!({"metadata": {"name": "shop", "annotations": {"cloud": "internal"}}});
        let observed = stamped(before.clone());
        before["metadata"].as_object_mut().unwrap().remove("annotations");
        assert!(needs_apply(&stamped(before), &observed).is_some());
    }

    /// Another hash of the same object would have every pod of every cluster made anew.
    #[test]
    fn the_hash_of_an_object_is_the_same_in_all_versions() {
        let object = json!({"b": [1, 2.5, null, true, "\u{e9}\"\n"], "a": {"d": {}, "c": []}});
        assert_eq!(
            canonical(&object),
            "{\"a\":{\"c\":[],\"d\":{}},\"b\":[1,2.5,null,true,\"\u{e9}\\\"\\n\"]}".as_bytes()
        );
        assert_eq!(hash(&json!({"a": 1})), "015abd7f5cc57a2d");
    }

    #[test]
    fn the_hash_does_not_depend_on_the_order_of_keys() {
        let one: Value = serde_json::from_str(r#"{"a": 1, "b": {"c": 2, "d": [1, 2]}}"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"b": {"d": [1, 2], "c": 2}, "a": 1}"#).unwrap();
        assert_eq!(hash(&one), hash(&other));
        assert_ne!(hash(&one), hash(&json!({"a": 1, "b": {"c": 2, "d": [2, 1]}})));
    }
}
