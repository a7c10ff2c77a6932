//! Query strings and selectors.

use std::collections::BTreeMap;

use serde_json::Value;

/// The decoded query parameters of a request.
#[derive(Clone, Debug, Default)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Decodes the part of a URI behind the question mark.
    #[must_use]
    pub fn parse(query: &str) -> Self {
        Self(
            query
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key), decode(value))
                })
                .collect(),
        )
    }

    /// The value of a parameter, absent when it is missing or empty.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// Whether a parameter is set to a true value.
    #[must_use]
    pub fn is_set(&self, key: &str) -> bool {
        matches!(self.get(key), Some("true" | "1"))
    }
}

/// Decodes `application/x-www-form-urlencoded` text.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&hex, 16).unwrap_or(b'?'));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Label and field selectors of a list or watch.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Clone, Debug)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    /// Reads the selectors of a request.
    #[must_use]
    pub fn of(query: &Query) -> Self {
        Self {
            labels: query.get("labelSelector").map(labels).unwrap_or_default(),
            fields: query.get("fieldSelector").map(fields).unwrap_or_default(),
        }
    }

    /// Whether an object is selected.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| {
            object
                .pointer("/metadata/labels")
                .and_then(|l| l.get(key))
                .and_then(Value::as_str)
        };
        self.labels.iter().all(|r| match r {
            Requirement::In(key, values) => label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|v| values.iter().all(|w| w != v)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
        }) && self.fields.iter().all(|(path, equal, want)| {
            let pointer = format!("/{}", path.replace('.', "/"));
            let found = object.pointer(&pointer).and_then(Value::as_str).unwrap_or_default();
            (found == want) == *equal
        })
    }
}

/// Splits at commas that are not inside of parentheses.
fn clauses(text: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let mut clauses = vec![String::new()];
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                clauses.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = clauses.last_mut() {
            last.push(c);
        }
    }
    clauses
        .into_iter()
        .map(|c| c.trim().to_owned())
        .filter(|c| !c.is_empty())
        .collect()
}

fn labels(text: &str) -> Vec<Requirement> {
    clauses(text).iter().map(|clause| requirement(clause)).collect()
}

fn requirement(clause: &str) -> Requirement {
    let set = |list: &str| -> Vec<String> {
        list.trim()
            .trim_matches(['(', ')'])
            .split(',')
            .map(|v| v.trim().to_owned())
            .collect()
    };
    if let Some((key, list)) = clause.split_once(" notin ") {
        return Requirement::NotIn(key.trim().to_owned(), set(list));
    }
    if let Some((key, list)) = clause.split_once(" in ") {
        return Requirement::In(key.trim().to_owned(), set(list));
    }
    if let Some((key, value)) = clause.split_once("!=") {
        return Requirement::NotIn(key.trim().to_owned(), vec![value.trim().to_owned()]);
    }
    if let Some((key, value)) = clause.split_once('=') {
        return Requirement::In(
            key.trim().to_owned(),
            vec![value.trim_start_matches('=').trim().to_owned()],
        );
    }
    match clause.strip_prefix('!') {
        Some(key) => Requirement::Absent(key.trim().to_owned()),
        None => Requirement::Exists(clause.to_owned()),
    }
}

fn fields(text: &str) -> Vec<(String, bool, String)> {
    clauses(text)
        .iter()
        .filter_map(|clause| {
            let (key, equal, value) = match clause.split_once("!=") {
                Some((key, value)) => (key, false, value),
                None => clause.split_once('=').map(|(key, value)| (key, true, value))?,
            };
            Some((
                key.trim().to_owned(),
                equal,
                value.trim_start_matches('=').trim().to_owned(),
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Query, Selector};

    #[test]
    fn selectors_select() {
        let object = json!({"metadata": {"name": "x", "labels": {"a": "1", "b": "2"}}});
        let table = [
            ("labelSelector=a%3D1", true),
            ("labelSelector=a%3D%3D1%2Cb%3D2", true),
            ("labelSelector=a%21%3D1", false),
            ("labelSelector=c%21%3D1", true),
            ("labelSelector=a+in+%281%2C3%29", true),
            ("labelSelector=a+notin+%281%2C3%29", false),
            ("labelSelector=%21a", false),
            ("labelSelector=b", true),
            ("fieldSelector=metadata.name%3Dx", true),
            ("fieldSelector=metadata.name%21%3Dx", false),
            ("limit=5", true),
        ];
        for (query, want) in table {
            assert_eq!(Selector::of(&Query::parse(query)).matches(&object), want, "{query}");
        }
    }
}
