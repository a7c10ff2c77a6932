//! A `MySQLCluster` that this version cannot read: it says so in a condition, and no other cluster notices.

use jiff::Timestamp;
use kube::core::error_boundary::InvalidObject;
use kube::core::{ApiResource, DynamicObject};
use mainstay_api::MySQLCluster;
use serde_json::{Value, json};

use crate::context::Context;
use crate::execute::ExecuteError;
use crate::index::ClusterName;

const TYPE: &str = "SpecAccepted";
const REASON: &str = "Unreadable";

/// Writes the condition, unless it is there. Nothing else of the status is touched: it may hold the rules' memory.
pub(crate) async fn report(
    context: &Context,
    cluster: &ClusterName,
    invalid: &InvalidObject,
) -> Result<(), ExecuteError> {
    let attempt = "report that the object cannot be read";
    let resource = ApiResource::erase::<MySQLCluster>(&());
    let clusters = context.requests.dynamic(&cluster.namespace, &resource);
    let found = clusters
        .get(&cluster.name)
        .await
        .map_err(|error| ExecuteError::kube(attempt, error))?;
    let Some(mut object) = found else { return Ok(()) };
    let message = format!("the object cannot be read: {}", invalid.error);
    if set_condition(&mut object, &message, context.platform.now()) {
        tracing::warn!(%cluster, error = invalid.error, "a MySQLCluster cannot be read");
        clusters
            .replace_status(&cluster.name, &object)
            .await
            .map_err(|error| ExecuteError::kube(attempt, error))?;
    }
    Ok(())
}

/// Sets the condition; `false`: it was so before.
fn set_condition(object: &mut DynamicObject, message: &str, now: Timestamp) -> bool {
    let generation = object.metadata.generation;
    let Some(data) = object.data.as_object_mut() else {
        return false;
    };
    let status = data.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else {
        return false;
    };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return false;
    };
    let old = conditions.iter().position(|condition| condition["type"] == TYPE);
    let is_false = |condition: &Value| condition["status"] == "False";
    let old_value = old.and_then(|at| conditions.get(at)).cloned();
    if let Some(old) = &old_value
        && is_false(old)
        && old["message"] == message
    {
        return false;
    }
    let since = old_value.filter(is_false).map_or_else(
        || json!(now.to_string()),
        |c| c.get("lastTransitionTime").cloned().unwrap_or_default(),
    );
    let condition = json!({
        "type": TYPE, "status": "False", "reason": REASON, "message": message,
        "observedGeneration": generation, "lastTransitionTime": since,
    });
    match old.and_then(|at| conditions.get_mut(at)) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_written_once_and_leaves_the_rest_of_the_status() {
        let mut object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "mysql.mainstay.dev/v1", "kind": "MySQLCluster",
            "metadata": {"name": "shop", "generation": 4},
            "status": {"epoch": 7, "conditions": [
                {"type": "Available", "status": "True"}, {"type": TYPE, "status": "True"}]}
        }))
        .unwrap();
        assert!(set_condition(&mut object, "bad", Timestamp::UNIX_EPOCH));
        assert_eq!(object.data["status"]["epoch"], 7);
        assert_eq!(object.data["status"]["conditions"][0]["status"], "True");
        assert_eq!(object.data["status"]["conditions"][1]["message"], "bad");
        assert_eq!(
            object.data["status"]["conditions"][1]["lastTransitionTime"],
            "1970-01-01T00:00:00Z"
        );
        assert!(!set_condition(&mut object, "bad", Timestamp::MAX));
        assert!(set_condition(&mut object, "worse", Timestamp::MAX));
        assert_eq!(
            object.data["status"]["conditions"][1]["lastTransitionTime"],
            "1970-01-01T00:00:00Z"
        );
    }
}
