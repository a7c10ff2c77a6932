//! Refusals of a real API server that an operator can run into.

use serde_json::Value;

use super::failure::Failure;
use super::resource::Resource;

/// Checks a changed object against the stored one.
///
/// # Errors
/// 422 when a field changes that cannot be changed.
pub fn update(resource: &Resource, old: &Value, new: &Value) -> Result<(), Failure> {
    let name = new
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let immutable = |pointer: &str| -> Result<(), Failure> {
        if old.pointer(pointer) == new.pointer(pointer) {
            return Ok(());
        }
        let field = pointer.trim_start_matches('/').replace('/', ".");
        Err(Failure::invalid(format!(
            "{} \"{name}\" is invalid: {field}: field is immutable",
            resource.kind
        )))
    };
    match resource.kind {
        "StatefulSet" => ["serviceName", "podManagementPolicy", "selector", "volumeClaimTemplates"]
            .iter()
            .try_for_each(|field| immutable(&format!("/spec/{field}"))),
        "ConfigMap" | "Secret" => {
            if old.get("immutable") == Some(&Value::Bool(true)) {
                ["/data", "/binaryData", "/stringData", "/immutable"]
                    .iter()
                    .try_for_each(|p| immutable(p))?;
            }
            if resource.kind == "Secret" {
                immutable("/type")
            } else {
                Ok(())
            }
        }
        "Service" => {
            // Another type may drop the address; within one type it stays.
            let same_type = old.pointer("/spec/type") == new.pointer("/spec/type");
            if same_type {
                immutable("/spec/clusterIP")
            } else {
                Ok(())
            }
        }
        "EndpointSlice" => immutable("/addressType"),
        "PersistentVolumeClaim" => ["storageClassName", "accessModes", "volumeMode"]
            .iter()
            .try_for_each(|field| immutable(&format!("/spec/{field}"))),
        _ => Ok(()),
    }
}

/// Checks a new object.
///
/// # Errors
/// 422 when its name or an obligatory part is wrong.
pub fn create(resource: &Resource, object: &Value) -> Result<(), Failure> {
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let limit = match resource.kind {
        "Service" => 63,
        _ => 253,
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let wrong = name.is_empty() || name.len() > limit || !name.chars().all(plain) || name.starts_with('-');
    if wrong {
        return Err(Failure::invalid(format!(
            "{} \"{name}\" is invalid: metadata.name: Invalid value: at most {limit} of [a-z0-9.-]",
            resource.kind
        )));
    }
    if resource.kind == "StatefulSet" && object.pointer("/spec/selector/matchLabels").is_none() {
        return Err(Failure::invalid(
            "StatefulSet is invalid: spec.selector: Required value",
        ));
    }
    labels(object)
}

/// Label values have at most 63 characters (F01).
fn labels(object: &Value) -> Result<(), Failure> {
    let all = [
        "/metadata/labels",
        "/spec/template/metadata/labels",
        "/spec/selector/matchLabels",
    ];
    for value in all
        .iter()
        .filter_map(|p| object.pointer(p))
        .filter_map(Value::as_object)
        .flat_map(|m| m.values())
    {
        let text = value.as_str().unwrap_or_default();
        if text.len() > 63 {
            return Err(Failure::invalid(format!(
                "metadata.labels: Invalid value: \"{text}\": must be no more than 63 characters"
            )));
        }
    }
    Ok(())
}
