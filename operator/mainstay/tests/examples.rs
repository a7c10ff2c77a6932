//! The manifests that people copy are accepted, and say what their comments say.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};

use mainstay_api::MySQLCluster;
use mainstay_core::validate::ValidatedCluster;

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn read(path: &Path) -> MySQLCluster {
    let text = std::fs::read_to_string(path).unwrap();
    serde_norway::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_example_is_accepted() {
    let files = examples();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let problems = ValidatedCluster::new(&read(&file)).err();
        assert_eq!(problems, None, "{}", file.display());
    }
}

/// `examples/full.yaml` promises every field: whatever the types know is in the file.
#[test]
fn the_full_example_has_every_field() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/full.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let given: serde_json::Value = serde_norway::from_str(&text).unwrap();
    let definitions = mainstay_api::custom_resource_definitions();
    let schema = serde_json::to_value(&definitions[0].spec.versions[0].schema).unwrap();
    let mut missing = Vec::new();
    compare(
        &schema["openAPIV3Schema"]["properties"]["spec"],
        &given["spec"],
        "spec",
        &mut missing,
    );
    assert!(missing.is_empty(), "not in examples/full.yaml: {missing:?}");
}

/// Fields of which another one stands in the file, because only one of the two may be set.
const ALTERNATIVES: [&str; 3] = [
    "spec.bootstrap.recovery",
    "spec.backup.store.identity",
    "spec.backup.store.caBundle",
];

fn compare(schema: &serde_json::Value, given: &serde_json::Value, path: &str, missing: &mut Vec<String>) {
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match given.get(name) {
            Some(value) => compare(child, value, &path, missing),
            None if ALTERNATIVES.contains(&path.as_str()) => {}
            None => missing.push(path),
        }
    }
}
