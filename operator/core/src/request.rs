//! Requests of people: the annotation `mysql.mainstay.dev/request` (decision B5), read and written in one place, so that
//! the operator understands what the kubectl plugin writes.
//!
//! A request is a JSON object, for example `{"id":"7f3a","verb":"promote","instance":"shop-1"}`. It is carried out once
//! for each id; what became of it stands in `status.request`.

use serde::{Deserialize, Serialize};

use crate::diff::digest;
use crate::rules::InstanceName;

/// Longest id: it is repeated in status.
const LONGEST_ID: usize = 64;

/// What a person asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Asked {
    /// Another one for each request.
    pub id: String,
    /// What is to be done.
    pub verb: Verb,
    /// The instance that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// With `promote`: acknowledged writes may be lost, if it cannot be done otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_data_loss: bool,
    /// Epoch of the reign (`status.primary.epoch`) that the person looked at: refused when it is another one by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reign: Option<u64>,
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Make an instance the primary.
    Promote,
    /// Keep an instance out of the cluster.
    Fence,
    /// Let it in again.
    Unfence,
    /// Replace the data directory of an instance by a clone.
    Rebuild,
    /// Not in this version.
    Pause,
    /// Not in this version.
    Resume,
    /// Not in this version.
    Abort,
}

impl Verb {
    /// The verb as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Promote => "promote",
            Self::Fence => "fence",
            Self::Unfence => "unfence",
            Self::Rebuild => "rebuild",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Abort => "abort",
        }
    }
}

impl Asked {
    /// The instance that it is about.
    #[must_use]
    pub fn name(&self) -> Option<InstanceName> {
        self.instance.clone().map(InstanceName)
    }

    /// The value of the annotation.
    ///
    /// # Errors
    /// None that a value of this type can cause.
    pub fn annotation(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

/// An annotation that is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to read the request: {reason}")]
pub struct Malformed {
    /// Its id; one made from its text if it has none, so that it is answered once.
    pub id: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads the annotation.
///
/// # Errors
/// It is no JSON object with an id and a verb that is known, or holds a field that is not: a misspelt `acceptDataLoss` must
/// not become a request without it.
pub fn read(text: &str) -> Result<Asked, Malformed> {
    let malformed = |reason: String| Malformed {
        id: id_of(text),
        reason,
    };
    // A list would be read field by field, by their order.
    if !text.trim_start().starts_with('{') {
        return Err(malformed(
            r#"expected a JSON object, for example {"id":"1","verb":"promote","instance":"shop-1"}"#.to_owned(),
        ));
    }
    let asked: Asked = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    if is_id(&asked.id) {
        Ok(asked)
    } else {
        Err(malformed(format!(
            "an id has 1 to {LONGEST_ID} letters, digits, '-', '_', '.' or ':'"
        )))
    }
}

fn is_id(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    !id.is_empty() && id.len() <= LONGEST_ID && id.chars().all(allowed)
}

/// The id of a text that is no request, or one made from the text.
fn id_of(text: &str) -> String {
    let value = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    let id = value.get("id").and_then(serde_json::Value::as_str);
    id.filter(|id| is_id(id))
        .map_or_else(|| digest(text.as_bytes()), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promote() -> Asked {
        Asked {
            id: "7f3a".to_owned(),
            verb: Verb::Promote,
            instance: Some("shop-1".to_owned()),
            accept_data_loss: false,
            reign: None,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = promote().annotation().unwrap();
        assert_eq!(text, r#"{"id":"7f3a","verb":"promote","instance":"shop-1"}"#);
        assert_eq!(read(&text), Ok(promote()));
        let forced = Asked {
            accept_data_loss: true,
            reign: Some(7),
            ..promote()
        };
        assert_eq!(read(&forced.annotation().unwrap()), Ok(forced));
    }

    #[test]
    fn what_is_no_request_says_why_and_keeps_its_id() {
        for (text, id, reason) in [
            (
                r#"{"id":"1","verb":"promte","instance":"a"}"#,
                Some("1"),
                "unknown variant `promte`, expected one of `promote`",
            ),
            (
                r#"{"id":"1","verb":"promote","acceptDataLos":true}"#,
                Some("1"),
                "unknown field `acceptDataLos`",
            ),
            (r#"{"id":"1"}"#, Some("1"), "missing field `verb`"),
            (r#"{"verb":"fence"}"#, None, "missing field `id`"),
            (r#"{"id":"","verb":"fence"}"#, None, "an id has 1 to 64"),
            (r#"{"id":"a b","verb":"fence"}"#, None, "an id has 1 to 64"),
            (r#"{"id":7,"verb":"fence"}"#, None, "invalid type: integer"),
            (r#"["promote"]"#, None, "expected a JSON object"),
            ("promote shop-1", None, "expected a JSON object"),
            ("", None, "expected a JSON object"),
        ] {
            let malformed = read(text).unwrap_err();
            assert!(malformed.reason.contains(reason), "{text}: {}", malformed.reason);
            match id {
                Some(id) => assert_eq!(malformed.id, id),
                None => assert_eq!(malformed.id.len(), 16, "{text}"),
            }
        }
        assert_eq!(read("x").unwrap_err(), read("x").unwrap_err());
        assert_ne!(read("x").unwrap_err().id, read("y").unwrap_err().id);
    }
}
