//! Hand-written pieces of the schema, where a Rust type says less than Kubernetes needs.

use schemars::{Schema, SchemaGenerator, json_schema};

/// MySQL variables: names as MySQL writes them, values integers or strings.
///
/// Booleans are refused on purpose: YAML turns an unquoted `ON` into one, and MySQL has variables for which `1`, `ON`
/// and `true` differ. The number of properties is bounded because CEL cost is estimated from it.
pub(crate) fn variables(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 200,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "maxLength": 4096
        }
    })
}

/// A Kubernetes quantity. CEL says in words what a pattern would say in signs.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 32,
        "x-kubernetes-validations": [{
            "rule": "isQuantity(string(self)) && !quantity(string(self)).isLessThan(quantity('0'))",
            "message": "not a quantity; write a number with an optional suffix, for example 500m, 2, 1500M, 20Gi or 2e9"
        }]
    })
}

/// A map of quantities (requests and limits).
pub(crate) fn quantities(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": quantity(generator)
    })
}

/// Annotations of an object that Mainstay makes.
pub(crate) fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 4096 }
    })
}

/// A strategic overlay of `PodTemplateSpec`.
///
/// The full schema would make the definition too large for a client-side apply; the built StatefulSet is checked by a
/// dry run instead, and its refusal becomes the condition `SpecAccepted`.
pub(crate) fn pod_template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true
    })
}
