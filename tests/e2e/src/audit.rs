//! What the operator asked of the API server, from the API server's audit log.
//!
//! `apiserver_request_total` counts by verb and resource but not by client, so the testbed's API server writes one line
//! of metadata a request of Mainstay.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// One line of the audit log, as far as it is needed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
}

#[derive(Debug, Deserialize)]
struct ObjectRef {
    resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    subresource: String,
}

/// Length of the log: where a later count begins.
pub fn position(log: &Path) -> Result<u64> {
    Ok(std::fs::metadata(log).with_context(|| format!("failed to look at {}", log.display()))?.len())
}

/// Mutating requests of Mainstay since a position: `verb resource/name` → how often. Events and leases count too.
pub fn writes_since(log: &Path, position: u64, namespace: &str) -> Result<BTreeMap<String, usize>> {
    use std::io::{Read as _, Seek as _};
    let shown = log.display();
    let mut file = std::fs::File::open(log).with_context(|| format!("failed to open {shown}"))?;
    file.seek(std::io::SeekFrom::Start(position)).with_context(|| format!("failed to seek in {shown}"))?;
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(|| format!("failed to read {shown}"))?;
    count(&text, namespace)
}

fn count(text: &str, namespace: &str) -> Result<BTreeMap<String, usize>> {
    let mut writes = BTreeMap::new();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).with_context(|| format!("failed to parse audit line {line}"))?;
        let Some(object) = line.object_ref else { continue };
        let mutating = matches!(line.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection");
        let ours = line.user_agent.starts_with("mainstay/") && object.namespace == namespace;
        // Reviews are POSTs that change nothing.
        let review = object.resource.ends_with("reviews");
        if line.stage == "ResponseComplete" && mutating && ours && !review {
            let slash = if object.subresource.is_empty() { "" } else { "/" };
            let key = format!("{} {}/{}{slash}{}", line.verb, object.resource, object.name, object.subresource);
            *writes.entry(key).or_insert(0) += 1;
        }
    }
    Ok(writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_mutations_of_mainstay_in_the_namespace() {
        let line = |verb: &str, agent: &str, namespace: &str| {
            format!(
                r#"{{"stage":"ResponseComplete","verb":"{verb}","userAgent":"{agent}","objectRef":{{"resource":"mysqlclusters","namespace":"{namespace}","name":"shop","subresource":"status"}}}}"#
            )
        };
        let log = [
            line("update", "mainstay/0.1.0", "a"),
            line("update", "mainstay/0.1.0", "a"),
            line("get", "mainstay/0.1.0", "a"),
            line("update", "kubectl/1", "a"),
            line("update", "mainstay/0.1.0", "b"),
        ];
        let writes = count(&log.join("\n"), "a").unwrap();
        assert_eq!(writes, BTreeMap::from([("update mysqlclusters/shop/status".to_owned(), 2)]));
    }
}
