//! The generated definitions: what is committed, and what the API server demands of them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use mainstay_api::{custom_resource_definitions, file_name, render};
use serde_json::Value;

/// `make gen` was run after the last change of the types.
#[test]
fn committed_definitions_are_current() {
    for definition in custom_resource_definitions() {
        let path = format!("{}/../../crds/{}", env!("CARGO_MANIFEST_DIR"), file_name(&definition));
        let committed = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("failed to read {path}: {error}"));
        assert!(
            committed == render(&definition).unwrap(),
            "{path} is not what the types say: run `make gen`"
        );
    }
}

#[test]
fn rendering_is_deterministic() {
    let once: Vec<_> = custom_resource_definitions()
        .iter()
        .map(|d| render(d).unwrap())
        .collect();
    let again: Vec<_> = custom_resource_definitions()
        .iter()
        .map(|d| render(d).unwrap())
        .collect();
    assert_eq!(once, again);
}

/// Calls `check` with every schema below `schema`, its path and what it lies in.
fn walk(schema: &Value, path: &str, check: &mut dyn FnMut(&str, &Value)) {
    check(path, schema);
    for (name, child) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        walk(child, &format!("{path}.{name}"), check);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = schema.get(key).filter(|child| child.is_object()) {
            walk(child, &format!("{path}[]"), check);
        }
    }
}

fn schemas() -> Vec<(String, Value)> {
    let definitions = custom_resource_definitions();
    let versions = definitions.iter().flat_map(|definition| {
        let kind = definition.spec.names.kind.clone();
        definition
            .spec
            .versions
            .iter()
            .map(move |version| (kind.clone(), version))
    });
    versions
        .map(|(kind, version)| {
            (
                kind,
                serde_json::to_value(version).unwrap()["schema"]["openAPIV3Schema"].clone(),
            )
        })
        .collect()
}

/// Decision A17: the cost of a CEL rule is estimated from these bounds, and without them the definition is refused.
#[test]
fn everything_in_a_spec_is_bounded() {
    for (kind, schema) in schemas() {
        walk(
            &schema["properties"]["spec"],
            &format!("{kind}.spec"),
            &mut |path, schema| {
                let bound = match schema["type"].as_str() {
                    Some("string") if schema.get("enum").is_none() => "maxLength",
                    Some("array") => "maxItems",
                    Some("object") if schema.get("additionalProperties").is_some() => "maxProperties",
                    None if schema["x-kubernetes-int-or-string"] == true => "maxLength",
                    _ => return,
                };
                assert!(schema.get(bound).is_some(), "{path} has no {bound}");
            },
        );
    }
}

#[test]
fn every_field_is_documented() {
    for (kind, schema) in schemas() {
        for part in ["spec", "status"] {
            walk(
                &schema["properties"][part],
                &format!("{kind}.{part}"),
                &mut |path, schema| {
                    let text = schema["description"].as_str().unwrap_or_default();
                    assert!(path.ends_with("[]") || !text.is_empty(), "{path} has no description");
                },
            );
        }
    }
}

/// A structural schema may not close an object with `additionalProperties: false`; the API server prunes instead.
#[test]
fn no_object_is_closed() {
    for (kind, schema) in schemas() {
        walk(&schema, &kind, &mut |path, schema| {
            assert_ne!(schema.get("additionalProperties"), Some(&Value::Bool(false)), "{path}");
        });
    }
}

#[test]
fn every_rule_has_a_message() {
    for (kind, schema) in schemas() {
        walk(&schema, &kind, &mut |path, schema| {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                let text = rule["message"].as_str().or(rule["messageExpression"].as_str());
                assert!(text.is_some_and(|text| !text.is_empty()), "{path}: {rule}");
            }
        });
    }
}

#[test]
fn kubectl_shows_the_columns_of_the_first_answer() {
    let definitions = custom_resource_definitions();
    let shown = |kind: usize, wide: bool| {
        let columns = definitions[kind].spec.versions[0]
            .additional_printer_columns
            .iter()
            .flatten();
        let chosen = columns.filter(move |column| (column.priority.unwrap_or(0) > 0) == wide);
        chosen.map(|column| column.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(
        shown(0, false),
        ["Phase", "Health", "Primary", "Ready", "Why", "Spec", "Age"]
    );
    assert_eq!(shown(0, true), ["Version", "Epoch", "Last Backup", "Recoverable To"]);
    assert_eq!(
        shown(1, false),
        ["Cluster", "Method", "Phase", "Message", "Completed", "Age"]
    );
    assert_eq!(shown(1, true), ["Instance", "Location", "Executed"]);
    assert!(
        definitions[1].spec.versions[0]
            .subresources
            .as_ref()
            .unwrap()
            .status
            .is_some()
    );
    let version = &definitions[0].spec.versions[0];
    let subresources = version.subresources.as_ref().unwrap();
    assert!(subresources.status.is_some());
    assert_eq!(
        subresources.scale.as_ref().unwrap().spec_replicas_path,
        ".spec.replicas"
    );
}

/// A17: what the API server adds up for one definition is at most 10^8, and 10^7 for one rule. Its own estimate needs its own
/// code; what it multiplies are these bounds, and a rule on a text below a list costs its length for each element.
#[test]
fn no_rule_reads_more_text_than_it_may() {
    for (kind, schema) in schemas() {
        let mut read = 0_u64;
        walk(&schema, &kind, &mut |path, schema| {
            let rules = schema["x-kubernetes-validations"].as_array().map_or(0, Vec::len);
            let length = schema["maxLength"].as_u64().unwrap_or(64);
            // The lists of this schema hold at most 200 elements and are never nested.
            let times = if path.contains("[]") { 200 } else { 1 };
            read += u64::try_from(rules).unwrap() * length * times;
        });
        assert!(read < 1_000_000, "{kind}: {read}");
    }
}
