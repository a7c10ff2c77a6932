//! What Mainstay remembers in the data itself: the attribute of its monitoring account, a JSON object that is replicated,
//! cloned and backed up with the data.

use std::collections::BTreeSet;

use serde_json::{Value, json};

const KEY: &str = "mainstay";

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// The DBA's account and the application were made once.
    pub(crate) first_accounts: bool,
    /// Events (schema, name) that are disabled on purpose.
    disabled_events: BTreeSet<(String, String)>,
}

impl Notes {
    /// What is merged into the attribute when the first accounts were made.
    pub(crate) const FIRST_ACCOUNTS_MADE: &str = r#"{"mainstay":{"firstAccounts":true}}"#;

    /// Reads the attribute. What is not there, or not understood, was not noted.
    pub(crate) fn read(attribute: &str) -> Self {
        let value: Value = serde_json::from_str(attribute).unwrap_or(Value::Null);
        let notes = value.get(KEY).unwrap_or(&Value::Null);
        Self {
            first_accounts: notes.get("firstAccounts").and_then(Value::as_bool).unwrap_or(false),
            disabled_events: pairs(notes.get("disabledEvents").unwrap_or(&Value::Null)),
        }
    }

    pub(crate) fn is_disabled(&self, schema: &str, name: &str) -> bool {
        self.disabled_events.contains(&(schema.to_owned(), name.to_owned()))
    }

    /// What has to be merged so that these events (a JSON array of pairs) are noted; nothing if they are.
    pub(crate) fn with_disabled_events(&self, events: &str) -> Option<String> {
        let events = pairs(&serde_json::from_str(events).unwrap_or(Value::Null));
        let list: Vec<_> = events.iter().map(|(schema, name)| json!([schema, name])).collect();
        (events != self.disabled_events).then(|| json!({KEY: {"disabledEvents": list}}).to_string())
    }
}

fn pairs(list: &Value) -> BTreeSet<(String, String)> {
    let pair = |value: &Value| Some((value.get(0)?.as_str()?.to_owned(), value.get(1)?.as_str()?.to_owned()));
    list.as_array().into_iter().flatten().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_again() {
        assert_eq!(Notes::read(""), Notes::default());
        assert_eq!(Notes::read("{\"other\": 1}"), Notes::default());
        assert!(Notes::read(Notes::FIRST_ACCOUNTS_MADE).first_accounts);
        let text = Notes::default()
            .with_disabled_events(r#"[["app","nightly"],["app","x.y"]]"#)
            .unwrap();
        let notes = Notes::read(&text);
        assert!(notes.is_disabled("app", "nightly") && notes.is_disabled("app", "x.y"));
        assert!(!notes.is_disabled("app", "other"));
    }

    #[test]
    fn nothing_is_written_when_nothing_changed() {
        assert_eq!(Notes::default().with_disabled_events(""), None);
        let notes = Notes::read(
            &Notes::default()
                .with_disabled_events(r#"[["b","e"],["a","e"]]"#)
                .unwrap(),
        );
        assert_eq!(notes.with_disabled_events(r#"[["a","e"],["b","e"]]"#), None);
        assert_eq!(
            notes.with_disabled_events("").as_deref(),
            Some(r#"{"mainstay":{"disabledEvents":[]}}"#)
        );
    }
}
