//! Values as literals that give exactly the same value again.

use crate::quote;

/// How values of a column are written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Digits.
    Number,
    /// Text in UTF-8, or what is read from text: times, JSON.
    Text,
    /// FLOAT prints six digits, and a DOUBLE with decimals as many as were declared: both are read as what they are.
    Real,
    /// Bytes as they are, in hexadecimal.
    Bytes,
    /// A member of an ENUM. Number 0 is shown as an empty string, which may be a member, too: its number comes before it.
    Member,
    /// The number of such a member.
    Index,
    /// Text in a character set of which not everything comes back from UTF-8: its bytes, and the name of the set.
    Encoded(String),
}

/// Character sets of which every text comes back from UTF-8 as the same bytes.
const LOSSLESS: [&str; 5] = ["utf8mb4", "utf8mb3", "utf8", "ascii", "latin1"];

/// A column whose values are dumped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    name: String,
    kind: Kind,
}

impl Column {
    /// `None` when the type is not known. Names are those of information_schema.COLUMNS.
    pub(super) fn new(name: &str, data_type: &str, character_set: Option<&str>) -> Option<Self> {
        let kind = match data_type.to_ascii_lowercase().as_str() {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" => Kind::Number,
            "float" | "double" => Kind::Real,
            "date" | "time" | "datetime" | "timestamp" | "year" | "json" => Kind::Text,
            "bit" | "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "vector"
            | "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring" | "multipolygon"
            | "geometrycollection" | "geomcollection" => Kind::Bytes,
            "enum" if character_set.is_some_and(|set| LOSSLESS.contains(&set)) => Kind::Member,
            "enum" => Kind::Index,
            "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "set" => match character_set {
                Some("binary") => Kind::Bytes,
                Some(set) if !LOSSLESS.contains(&set) => Kind::Encoded(set.to_owned()),
                Some(_) | None => Kind::Text,
            },
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            kind,
        })
    }

    /// Its name, quoted.
    pub(super) fn quoted(&self) -> String {
        quote::identifier(&self.name)
    }

    /// What is selected of it.
    pub(super) fn expression(&self) -> String {
        let name = self.quoted();
        match self.kind {
            Kind::Number | Kind::Text | Kind::Bytes => name,
            Kind::Real => format!("CAST({name} AS DOUBLE)"),
            Kind::Member => format!("CONCAT({name}+0,':',{name})"),
            Kind::Index => format!("{name}+0"),
            Kind::Encoded(_) => format!("CAST({name} AS BINARY)"),
        }
    }

    /// Writes a value of it, as the server gave it in text; `None` is NULL.
    pub(super) fn write(&self, out: &mut Vec<u8>, value: Option<&[u8]>) {
        let Some(value) = value else {
            out.extend_from_slice(b"NULL");
            return;
        };
        match &self.kind {
            Kind::Number | Kind::Index => out.extend_from_slice(value),
            Kind::Member => match value.strip_prefix(b"0:") {
                Some(_) => out.push(b'0'),
                None => quote::write_bytes(out, member(value)),
            },
            // A literal of digits is a DECIMAL, and one of zero has no sign.
            Kind::Text | Kind::Real => quote::write_bytes(out, value),
            Kind::Bytes => hexadecimal(out, "", value),
            Kind::Encoded(set) => hexadecimal(out, set, value),
        }
    }
}

/// What comes behind the number.
fn member(value: &[u8]) -> &[u8] {
    let colon = value.iter().position(|byte| *byte == b':');
    colon.and_then(|at| value.get(at + 1..)).unwrap_or(value)
}

fn hexadecimal(out: &mut Vec<u8>, character_set: &str, value: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if value.is_empty() {
        out.extend_from_slice(b"''");
        return;
    }
    if !character_set.is_empty() {
        out.push(b'_');
        out.extend_from_slice(character_set.as_bytes());
        out.push(b' ');
    }
    out.reserve(2 + 2 * value.len());
    out.extend_from_slice(b"0x");
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
    for byte in value {
        out.push(digit(byte >> 4));
        out.push(digit(byte & 15));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(data_type: &str, character_set: Option<&str>, value: Option<&[u8]>) -> String {
        let mut out = Vec::new();
        Column::new("c", data_type, character_set)
            .unwrap()
            .write(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_type_has_its_literal() {
        let utf8 = Some("utf8mb4");
        for (data_type, set, value, literal) in [
            ("int", None, Some(&b"-5"[..]), "-5"),
            ("decimal", None, Some(b"1.50"), "1.50"),
            ("double", None, Some(b"-0"), "'-0'"),
            ("year", None, Some(b"0000"), "'0000'"),
            (
                "timestamp",
                None,
                Some(b"2026-01-01 00:00:00.000000"),
                "'2026-01-01 00:00:00.000000'",
            ),
            ("bit", None, Some(b"\x05"), "0x05"),
            ("varbinary", None, Some(b""), "''"),
            ("blob", None, Some(b"\x00\xffA"), "0x00FF41"),
            ("vector", None, Some(b"\x00\x00\x80\x3f"), "0x0000803F"),
            ("varchar", utf8, Some("ä'\\\n;;".as_bytes()), "'ä''\\\\\\n;;'"),
            ("varchar", Some("gbk"), Some(b"\x81\x5c"), "_gbk 0x815C"),
            ("varchar", Some("gbk"), Some(b""), "''"),
            ("char", Some("binary"), Some(b"a"), "0x61"),
            ("json", None, Some(br#"{"a": "\""}"#), r#"'{"a": "\\""}'"#),
            ("enum", utf8, None, "NULL"),
            ("enum", utf8, Some(b"0:"), "0"),
            ("enum", utf8, Some(b"3:"), "''"),
            ("enum", utf8, Some(b"12:it's: 0"), "'it''s: 0'"),
            ("enum", Some("sjis"), Some(b"2"), "2"),
        ] {
            assert_eq!(written(data_type, set, value), literal, "{data_type}");
        }
        assert_eq!(Column::new("c", "of tomorrow", None), None);
    }

    #[test]
    fn what_loses_on_its_way_is_read_as_it_is_stored() {
        let expression = |data_type, set| Column::new("a`b", data_type, set).unwrap().expression();
        assert_eq!(expression("float", None), "CAST(`a``b` AS DOUBLE)");
        assert_eq!(expression("text", Some("cp932")), "CAST(`a``b` AS BINARY)");
        assert_eq!(expression("text", Some("utf8mb4")), "`a``b`");
        assert_eq!(expression("enum", Some("ascii")), "CONCAT(`a``b`+0,':',`a``b`)");
    }

    /// Reads a string literal as MySQL does with an `sql_mode` that allows backslashes.
    fn read_text(literal: &[u8]) -> Option<Vec<u8>> {
        let inner = literal.strip_prefix(b"'")?.strip_suffix(b"'")?;
        let (mut bytes, mut text) = (inner.iter(), Vec::new());
        while let Some(byte) = bytes.next() {
            text.push(match byte {
                b'\'' => bytes.next().filter(|next| **next == b'\'').copied()?,
                b'\\' => match bytes.next()? {
                    b'0' => 0,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b'Z' => 0x1a,
                    other => *other,
                },
                other => *other,
            });
        }
        Some(text)
    }

    proptest! {
        #[test]
        fn text_is_read_as_it_was_written(text in any::<String>()) {
            let literal = written("longtext", Some("utf8mb4"), Some(text.as_bytes()));
            prop_assert_eq!(read_text(literal.as_bytes()), Some(text.into_bytes()));
            prop_assert!(!literal.contains(['\n', '\r', '\0']));
        }

        #[test]
        fn bytes_are_read_as_they_were_written(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
            let literal = written("blob", None, Some(&bytes));
            let digits = literal.strip_prefix("0x").unwrap();
            let read: Vec<u8> = (0..digits.len() / 2)
                .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            prop_assert_eq!(read, bytes);
        }
    }
}
