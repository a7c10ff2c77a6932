//! The one way in which text gets into SQL.
//!
//! Strings are written with backslash escapes, so the session must not have `NO_BACKSLASH_ESCAPES` in its `sql_mode`:
//! [`SESSION_MODE`] is the first statement of every session and of every init file. A written string has no line break
//! in it, because an init file is read line by line.

/// First statement of every session: what quoting and the reading of time stamps rely on. The server does not close a
/// session that has nothing to do: another one might not be had when clients use all connections (case F08).
pub const SESSION_MODE: &str = "SET SESSION sql_mode='', time_zone='+00:00', wait_timeout=31536000";

/// A string literal.
#[must_use]
pub fn string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for character in text.chars() {
        match character {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            '\0' => quoted.push_str("\\0"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\u{1a}' => quoted.push_str("\\Z"),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

/// Writes a string literal of bytes of UTF-8, or of any other character set in which no other character has bytes of ASCII.
pub(crate) fn write_bytes(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 2);
    out.push(b'\'');
    for byte in text {
        match byte {
            b'\'' => out.extend_from_slice(b"''"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0 => out.extend_from_slice(b"\\0"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0x1a => out.extend_from_slice(b"\\Z"),
            other => out.push(*other),
        }
    }
    out.push(b'\'');
}

/// An identifier in backticks. MySQL has no identifiers with NUL; one is left out.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('\0', "").replace('`', "``"))
}

/// The database of a grant, where `_` and `%` are wildcards unless the server has `partial_revokes`.
#[must_use]
pub fn granted_database(name: &str, partial_revokes: bool) -> String {
    if partial_revokes {
        return identifier(name);
    }
    identifier(&name.replace('\\', "\\\\").replace('_', "\\_").replace('%', "\\%"))
}

/// An account name, `'user'@'host'`.
#[must_use]
pub fn account(user: &str, host: &str) -> String {
    format!("{}@{}", string(user), string(host))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a literal as MySQL does with an empty `sql_mode`; `None` when it does not end where the text ends.
    fn read(literal: &str) -> Option<String> {
        let mut characters = literal.strip_prefix('\'')?.chars().peekable();
        let mut text = String::new();
        loop {
            match characters.next()? {
                '\'' if characters.peek() == Some(&'\'') => {
                    characters.next();
                    text.push('\'');
                }
                '\'' => return characters.next().is_none().then_some(text),
                '\\' => text.push(match characters.next()? {
                    '0' => '\0',
                    'n' => '\n',
                    'r' => '\r',
                    'Z' => '\u{1a}',
                    other => other,
                }),
                other => text.push(other),
            }
        }
    }

    #[test]
    fn f11_awkward_passwords() {
        for text in [
            "",
            "'",
            "\"",
            "\\",
            "\\'",
            "'; DROP USER root; --",
            "a\nb",
            "$#<>%@:/?& ;*",
            "ä\u{1F600}",
            "\0",
        ] {
            for text in [
                text.to_owned(),
                format!("{text}x"),
                format!("x{text}"),
                format!("{text}{text}"),
            ] {
                assert_eq!(read(&string(&text)).as_deref(), Some(text.as_str()), "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_literal_is_read_as_it_was_written(text in any::<String>()) {
            let literal = string(&text);
            prop_assert_eq!(read(&literal), Some(text));
            prop_assert!(!literal.contains(['\n', '\r', '\0']));
        }

        #[test]
        fn an_identifier_ends_at_its_last_backtick(name in "[^\0]*") {
            let quoted = identifier(&name);
            let inner = quoted.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).unwrap();
            prop_assert!(!inner.replace("``", "").contains('`'));
            prop_assert_eq!(inner.replace("``", "`"), name);
        }
    }

    #[test]
    fn a_granted_database_is_no_pattern() {
        assert_eq!(granted_database("my_app", false), "`my\\_app`");
        assert_eq!(granted_database("my_app", true), "`my_app`");
        assert_eq!(granted_database("50%", false), "`50\\%`");
    }
}
