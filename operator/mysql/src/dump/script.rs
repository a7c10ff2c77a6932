//! Files of statements, for the `mysql` client and for [`Loader`](super::Loader).
//!
//! The first line is `DELIMITER x`, with an x that is in none of the statements, and each statement ends with x on a line of
//! its own. So whoever reads it need not understand what is in a statement.

use super::{FILE, File, NAMES};

/// What statements of a dump depend on. Values are what they were, also those that a stricter server would not take from a
/// client (a zero date), no key is added, and tables come in any order.
pub(super) const HEADER: &str = "SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO', time_zone='+00:00', foreign_key_checks=0, \
                                 unique_checks=0, innodb_strict_mode=0, sql_require_primary_key=0, \
                                 explicit_defaults_for_timestamp=1 /*!80030 , sql_generate_invisible_primary_key=0 */ \
                                 /*!80400 , restrict_fk_on_non_standard_key=0 */";

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Script {
    kind: &'static str,
    statements: Vec<Vec<u8>>,
    bytes: usize,
    rows: u64,
}

impl Script {
    pub(super) const fn new(kind: &'static str) -> Self {
        Self {
            kind,
            statements: Vec::new(),
            bytes: 0,
            rows: 0,
        }
    }

    pub(super) fn push(&mut self, statement: impl Into<Vec<u8>>) {
        let statement = statement.into();
        self.bytes += statement.len();
        self.statements.push(statement);
    }

    /// One that holds so many rows.
    pub(super) fn push_rows(&mut self, statement: Vec<u8>, rows: u64) {
        self.rows += rows;
        self.push(statement);
    }

    /// It has enough for a file.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes >= FILE
    }

    /// The file, if there is anything in it; it is empty then.
    pub(super) fn file(&mut self) -> Option<File> {
        let Self { statements, rows, .. } = std::mem::replace(self, Self::new(self.kind));
        if statements.is_empty() {
            return None;
        }
        let delimiter = delimiter(&statements);
        let end = format!("\n{delimiter}\n").into_bytes();
        let mut parts =
            vec![format!("DELIMITER {delimiter}\n{NAMES}\n{delimiter}\n{HEADER}\n{delimiter}\n").into_bytes()];
        for statement in statements {
            parts.push(statement);
            parts.push(end.clone());
        }
        Some(File {
            kind: self.kind,
            parts,
            rows,
        })
    }
}

fn delimiter(statements: &[Vec<u8>]) -> String {
    let unused = |candidate: &String| {
        let candidate = candidate.as_bytes();
        !statements.iter().any(|statement| find(statement, candidate).is_some())
    };
    let numbered = (1_u64..).map(|number| format!(";{number};"));
    let mut candidates = std::iter::once(";;".to_owned()).chain(numbered);
    // There are more numbers than places in a file.
    candidates.find(unused).unwrap_or_default()
}

/// Where something begins for the first time.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = wanted.first()?;
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let at = from + rest.iter().position(|byte| byte == first)?;
        if text.get(at..)?.starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// The statements of a file; `None` when it is none, or was cut.
pub(super) fn statements(file: &[u8]) -> Option<Vec<&[u8]>> {
    let rest = file.strip_prefix(b"DELIMITER ")?;
    let line = rest.iter().position(|byte| *byte == b'\n')?;
    let (delimiter, mut rest) = rest.split_at_checked(line)?;
    if delimiter.is_empty() {
        return None;
    }
    rest = rest.get(1..)?;
    let end = [b"\n", delimiter, b"\n"].concat();
    let mut statements = Vec::new();
    while !rest.is_empty() {
        let at = find(rest, &end)?;
        statements.push(rest.get(..at)?);
        rest = rest.get(at + end.len()..)?;
    }
    Some(statements)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(texts: &[&str]) -> Vec<u8> {
        let mut script = Script::new("rows");
        for text in texts {
            script.push(*text);
        }
        script.file().unwrap().parts.concat()
    }

    #[test]
    fn a_file_begins_with_what_it_depends_on() {
        let file = String::from_utf8(written(&["SELECT 1"])).unwrap();
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!(lines, ["DELIMITER ;;", NAMES, ";;", HEADER, ";;", "SELECT 1", ";;"]);
        assert_eq!(Script::new("rows").file(), None);
    }

    #[test]
    fn a_delimiter_is_in_no_statement() {
        let file = written(&["a;;b", "c\n;1;\nd", "e;"]);
        assert!(file.starts_with(b"DELIMITER ;2;\n"));
        let read = statements(&file).unwrap();
        assert_eq!(read[2..], [&b"a;;b"[..], b"c\n;1;\nd", b"e;"]);
    }

    #[test]
    fn what_was_cut_is_no_file() {
        let file = written(&["SELECT 1", "SELECT 2"]);
        for length in 0..file.len() - 1 {
            let whole = statements(&file[..length]).is_some_and(|read| read.len() == 4);
            assert!(!whole, "{length}");
        }
        assert_eq!(statements(b"SELECT 1;\n"), None);
    }

    proptest! {
        #[test]
        fn statements_are_read_as_they_were_written(texts in proptest::collection::vec("[;1\na-]{0,12}", 1..6)) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let file = written(&texts);
            let read = statements(&file).unwrap();
            let expected: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
            prop_assert_eq!(&read[2..], &expected[..]);
        }
    }
}
