//! What a real API server adds to objects by itself: defaults and the canonical form of quantities.
//!
//! Only the kinds that the operator builds; enough that a comparison of desired and observed objects which does not
//! expect defaults turns into a visible hot loop.

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use super::resource::Resource;

/// Fills in defaults.
pub fn fill(resource: &Resource, object: &mut Value) {
    match resource.kind {
        "StatefulSet" => stateful_set(object),
        "Pod" => {
            if let Some(spec) = object.get_mut("spec") {
                pod_spec(spec);
            }
        }
        "Service" => service(object),
        "PersistentVolumeClaim" => claim(object),
        "Secret" => secret(object),
        "EndpointSlice" => {
            for port in items(object, "/ports") {
                absent(port, "protocol", json!("TCP"));
            }
        }
        _ => {}
    }
}

fn absent(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(map) = object {
        let slot = map.entry(key.to_owned()).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value;
        }
    }
}

fn items<'a>(object: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    object
        .pointer_mut(pointer)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

fn stateful_set(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else { return };
    absent(spec, "replicas", json!(1));
    absent(spec, "podManagementPolicy", json!("OrderedReady"));
    absent(spec, "revisionHistoryLimit", json!(10));
    absent(
        spec,
        "updateStrategy",
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
    );
    absent(
        spec,
        "persistentVolumeClaimRetentionPolicy",
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
    );
    if let Some(template) = spec.pointer_mut("/template/spec") {
        pod_spec(template);
    }
    if let Some(metadata) = spec.pointer_mut("/template/metadata") {
        absent(metadata, "creationTimestamp", Value::Null);
    }
    for claim_template in items(spec, "/volumeClaimTemplates") {
        absent(claim_template, "apiVersion", json!("v1"));
        absent(claim_template, "kind", json!("PersistentVolumeClaim"));
        absent(claim_template, "status", json!({"phase": "Pending"}));
        claim(claim_template);
    }
}

/// `stringData` is write-only: it ends up in `data`.
fn secret(object: &mut Value) {
    absent(object, "type", json!("Opaque"));
    let Value::Object(map) = object else { return };
    let Some(Value::Object(strings)) = map.remove("stringData") else {
        return;
    };
    let data = map.entry("data".to_owned()).or_insert_with(|| json!({}));
    if let Value::Object(data) = data {
        for (key, value) in strings {
            let bytes = ByteString(value.as_str().unwrap_or_default().as_bytes().to_vec());
            data.insert(key, serde_json::to_value(bytes).unwrap_or_default());
        }
    }
}

fn claim(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        absent(spec, "volumeMode", json!("Filesystem"));
        quantities(spec, "/resources");
    }
}

fn quantities(object: &mut Value, pointer: &str) {
    let Some(resources) = object.pointer_mut(pointer) else {
        return;
    };
    for side in ["requests", "limits"] {
        if let Some(Value::Object(values)) = resources.get_mut(side) {
            for value in values.values_mut() {
                *value = json!(canonical(value));
            }
        }
    }
}

fn pod_spec(spec: &mut Value) {
    absent(spec, "restartPolicy", json!("Always"));
    absent(spec, "dnsPolicy", json!("ClusterFirst"));
    absent(spec, "schedulerName", json!("default-scheduler"));
    absent(spec, "terminationGracePeriodSeconds", json!(30));
    absent(spec, "securityContext", json!({}));
    if let Some(name) = spec.get("serviceAccountName").cloned() {
        absent(spec, "serviceAccount", name);
    }
    for list in ["/containers", "/initContainers"] {
        for container in items(spec, list) {
            container_defaults(container);
        }
    }
    for volume in items(spec, "/volumes") {
        for (kind, mode) in [
            ("secret", 0o644),
            ("configMap", 0o644),
            ("projected", 0o644),
            ("downwardAPI", 0o644),
        ] {
            if let Some(source) = volume.get_mut(kind) {
                absent(source, "defaultMode", json!(mode));
            }
        }
    }
}

fn container_defaults(container: &mut Value) {
    absent(container, "terminationMessagePath", json!("/dev/termination-log"));
    absent(container, "terminationMessagePolicy", json!("File"));
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let latest = !image.contains('@') && !image.rsplit('/').next().unwrap_or_default().contains(':');
    let policy = if latest || image.ends_with(":latest") {
        "Always"
    } else {
        "IfNotPresent"
    };
    absent(container, "imagePullPolicy", json!(policy));
    absent(container, "resources", json!({}));
    quantities(container, "/resources");
    for port in items(container, "/ports") {
        absent(port, "protocol", json!("TCP"));
    }
    for env in items(container, "/env") {
        if let Some(field) = env.pointer_mut("/valueFrom/fieldRef") {
            absent(field, "apiVersion", json!("v1"));
        }
    }
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            for (key, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                absent(probe, key, json!(value));
            }
            if let Some(get) = probe.get_mut("httpGet") {
                absent(get, "scheme", json!("HTTP"));
                absent(get, "path", json!("/"));
            }
        }
    }
}

fn service(object: &mut Value) {
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let Some(spec) = object.get_mut("spec") else { return };
    absent(spec, "type", json!("ClusterIP"));
    absent(spec, "sessionAffinity", json!("None"));
    absent(spec, "internalTrafficPolicy", json!("Cluster"));
    absent(spec, "ipFamilies", json!(["IPv4"]));
    absent(spec, "ipFamilyPolicy", json!("SingleStack"));
    let sum: u32 = name.bytes().map(u32::from).sum();
    absent(
        spec,
        "clusterIP",
        json!(format!("10.96.{}.{}", sum / 250 % 250, sum % 250)),
    );
    if let Some(ip) = spec.get("clusterIP").cloned() {
        absent(spec, "clusterIPs", json!([ip]));
    }
    for port in items(spec, "/ports") {
        absent(port, "protocol", json!("TCP"));
        if let Some(number) = port.get("port").cloned() {
            absent(port, "targetPort", number);
        }
    }
}

/// The canonical form of a quantity, as the API server stores it: `1000m` becomes `1`, `1024Mi` becomes `1Gi`.
fn canonical(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let decimal = ["m", "", "k", "M", "G", "T", "P", "E"];
    let units: &[&str] = if suffix.ends_with('i') { &binary } else { &decimal };
    let base: i128 = if suffix.ends_with('i') { 1024 } else { 1000 };
    let (Some(mut unit), Some(mut amount)) = (units.iter().position(|u| *u == suffix), parse_decimal(number)) else {
        return text;
    };
    // The amount is held in thousandths; whole units are made by going down, zeros are removed by going up.
    while amount % 1000 != 0 && unit > 0 {
        amount *= base;
        unit -= 1;
    }
    let mut whole = amount / 1000;
    while whole != 0 && whole % base == 0 && unit + 1 < units.len() {
        whole /= base;
        unit += 1;
    }
    format!("{whole}{}", units.get(unit).copied().unwrap_or_default())
}

/// A decimal number in thousandths.
fn parse_decimal(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
    Some(whole.parse::<i128>().ok()? * 1000 + fraction.parse::<i128>().ok()?)
}

/// Makes sure that an object has metadata that can be written to.
pub fn ensure_metadata(object: &mut Value) {
    if let Value::Object(map) = object {
        let slot = map
            .entry("metadata".to_owned())
            .or_insert_with(|| Value::Object(Map::new()));
        if !slot.is_object() {
            *slot = Value::Object(Map::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::canonical;

    #[test]
    fn quantities_are_made_canonical() {
        let table = [
            (json!("1000m"), "1"),
            (json!("1500m"), "1500m"),
            (json!("0.5"), "500m"),
            (json!(2), "2"),
            (json!("1024Mi"), "1Gi"),
            (json!("1.5Gi"), "1536Mi"),
            (json!("1500M"), "1500M"),
            (json!("2000M"), "2G"),
            (json!("0"), "0"),
        ];
        for (given, want) in table {
            assert_eq!(canonical(&given), want, "{given}");
        }
    }
}
