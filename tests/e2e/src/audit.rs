//! What the operator asked of the API server, from the API server's audit log.
//!
//! `apiserver_request_total` counts by verb and resource but not by client, so the testbed's API server writes one line
//! of metadata a request of Mainstay.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::testbed::Testbed;

/// What Mainstay calls itself in requests (feature A6).
const AGENT: &str = "mainstay/";

/// One line of the audit log, as far as it is needed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Annotation of a line: what the rights of the client say of the request. (An answer 403 may as well be an admission's, as
/// for what is created in a namespace that is being deleted.)
const DECISION: &str = "authorization.k8s.io/decision";

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

/// Number of lines: where a later count begins.
pub async fn position(testbed: &Testbed) -> Result<usize> {
    Ok(testbed.audit_log().await?.lines().count())
}

/// Writes of the operator about a namespace since a position: `verb resource/name` → how often. Events count, too.
pub async fn writes_since(testbed: &Testbed, position: usize, namespace: &str) -> Result<BTreeMap<String, usize>> {
    count(&testbed.audit_log().await?, position, |line| {
        line.object_ref
            .as_ref()
            .is_some_and(|object| object.namespace == namespace)
    })
}

/// Writes of the operator that its rights did not allow, since the log began.
pub async fn forbidden(testbed: &Testbed) -> Result<BTreeMap<String, usize>> {
    count(&testbed.audit_log().await?, 0, |line| {
        line.annotations
            .get(DECISION)
            .is_some_and(|decision| decision == "forbid")
    })
}

fn count(text: &str, position: usize, wanted: impl Fn(&Line) -> bool) -> Result<BTreeMap<String, usize>> {
    let mut writes = BTreeMap::new();
    for line in text.lines().skip(position) {
        let line: Line = serde_json::from_str(line).with_context(|| format!("failed to parse audit line {line}"))?;
        let Some(object) = &line.object_ref else { continue };
        // Reviews are POSTs that change nothing.
        let review = object.resource.ends_with("reviews");
        if line.stage == "ResponseComplete" && line.user_agent.starts_with(AGENT) && !review && wanted(&line) {
            let slash = if object.subresource.is_empty() { "" } else { "/" };
            let key = format!(
                "{} {}/{}{slash}{}",
                line.verb, object.resource, object.name, object.subresource
            );
            *writes.entry(key).or_insert(0) += 1;
        }
    }
    Ok(writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_wanted_after_the_position() {
        let line = |agent: &str, namespace: &str| {
            format!(
                r#"{{"stage":"ResponseComplete","verb":"update","userAgent":"{agent}","objectRef":{{"resource":"mysqlclusters","namespace":"{namespace}","name":"shop","subresource":"status"}}}}"#
            )
        };
        let log = [
            line("mainstay/0.1.0", "a"),
            line("mainstay/0.1.0", "a"),
            line("mainstay/0.1.0", "a"),
            line("kubectl/1", "a"),
            line("mainstay/0.1.0", "b"),
        ];
        let of_a = |l: &Line| l.object_ref.as_ref().is_some_and(|o| o.namespace == "a");
        let writes = count(&log.join("\n"), 1, of_a).unwrap();
        assert_eq!(
            writes,
            BTreeMap::from([("update mysqlclusters/shop/status".to_owned(), 2)])
        );
    }
}
