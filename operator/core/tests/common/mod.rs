//! Clusters from the manifests that the end-to-end tests use too.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use mainstay_api::MySQLCluster;
use mainstay_core::validate::{SpecProblem, ValidatedCluster};

/// Folder of the manifests.
pub(crate) const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");

/// The manifests of a folder below [`FIXTURES`], sorted, with their text.
#[expect(clippy::disallowed_methods, reason = "the test reads its table")]
pub(crate) fn manifests(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(FIXTURES).join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

/// A manifest as the API server would hold it.
pub(crate) fn stored(text: &str) -> MySQLCluster {
    let mut cluster: MySQLCluster = serde_norway::from_str(text).unwrap();
    cluster.metadata.namespace = Some("prod".to_owned());
    cluster.metadata.uid = Some("7a6c1d52-3a0e-4c2f-9c39-5e9a2f1f0001".to_owned());
    cluster.metadata.generation = Some(1);
    cluster
}

/// The same, checked.
pub(crate) fn checked(text: &str) -> Result<ValidatedCluster, Vec<SpecProblem>> {
    ValidatedCluster::new(&stored(text))
}
