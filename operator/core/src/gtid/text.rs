//! The text of GTIDs and GTID sets, as MySQL writes and reads it.
//!
//! `uuid:1-5:9:tag:1-3,\nuuid:…`: sources are separated by commas and any white space; a tag stands for the intervals
//! behind it up to the next tag. Read: upper and lower case, any order, overlaps, empty pieces between commas. Written:
//! lower case, sorted by UUID and tag, merged, without white space.

use std::fmt;
use std::str::FromStr;

use super::intervals::Interval;
use super::{Gtid, GtidSet, MAX_NUMBER, ServerUuid, Stream, Tag};

/// A text that is not a GTID or a GTID set; each message names the piece.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseGtidError {
    /// The text before the first colon is not a UUID.
    #[error("failed to read a GTID: `{0}` is not a server UUID")]
    Uuid(String),
    /// Neither a tag nor an interval.
    #[error("failed to read a GTID: `{0}` is neither a tag nor an interval")]
    Piece(String),
    /// Not a number from 1 to `MAX_NUMBER`, or the end lies before the beginning.
    #[error("failed to read a GTID: `{0}` is not an interval of numbers from 1 to {MAX_NUMBER}")]
    Interval(String),
    /// A source or a tag without an interval.
    #[error("failed to read a GTID: no interval follows `{0}`")]
    NoInterval(String),
    /// A single transaction was wanted, and this is not one.
    #[error("failed to read a GTID: `{0}` does not name exactly one transaction")]
    NotSingle(String),
}

impl FromStr for ServerUuid {
    type Err = ParseGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseGtidError::Uuid(text.to_owned());
        let dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        let mut value = 0_u128;
        for (at, character) in text.chars().enumerate() {
            match character.to_digit(16) {
                Some(digit) if !dash(at) => value = (value << 4) | u128::from(digit),
                None if dash(at) && character == '-' => {}
                _ => return Err(error()),
            }
        }
        if text.len() == 36 {
            Ok(Self(value))
        } else {
            Err(error())
        }
    }
}

impl FromStr for Tag {
    type Err = ParseGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let valid =
            text.starts_with(first) && text.len() <= 32 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if valid {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(ParseGtidError::Piece(text.to_owned()))
        }
    }
}

impl FromStr for GtidSet {
    type Err = ParseGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = Vec::new();
        for source in text.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
            read_source(source, &mut parts)?;
        }
        Ok(Self::collect(parts))
    }
}

impl FromStr for Gtid {
    type Err = ParseGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = Vec::new();
        read_source(text.trim(), &mut parts)?;
        match parts.as_slice() {
            [(stream, interval)] if interval.len() == 1 => Ok(Self {
                server: stream.server,
                tag: stream.tag.clone(),
                number: interval.first(),
            }),
            _ => Err(ParseGtidError::NotSingle(text.trim().to_owned())),
        }
    }
}

/// Reads `uuid:1-5:9:tag:1-3`.
fn read_source(text: &str, parts: &mut Vec<(Stream, Interval)>) -> Result<(), ParseGtidError> {
    let mut pieces = text.split(':').map(str::trim);
    let uuid = pieces.next().unwrap_or_default();
    let mut stream = Stream {
        server: uuid.parse()?,
        tag: Tag::default(),
    };
    let before = parts.len();
    let mut bare_tag = None;
    for piece in pieces {
        if piece.starts_with(|c: char| c.is_ascii_digit()) {
            parts.push((stream.clone(), read_interval(piece)?));
            bare_tag = None;
        } else if let Some(tag) = bare_tag.replace(piece) {
            return Err(ParseGtidError::NoInterval(str::to_owned(tag)));
        } else {
            stream.tag = piece.parse()?;
        }
    }
    match bare_tag {
        Some(tag) => Err(ParseGtidError::NoInterval(tag.to_owned())),
        None if parts.len() == before => Err(ParseGtidError::NoInterval(uuid.to_owned())),
        None => Ok(()),
    }
}

fn read_interval(text: &str) -> Result<Interval, ParseGtidError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |digits: &str| {
        let digits = digits.trim();
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse::<u64>().ok()).flatten()
    };
    number(first)
        .zip(number(last))
        .and_then(|(first, last)| Interval::new(first, last))
        .ok_or_else(|| ParseGtidError::Interval(text.to_owned()))
}

impl fmt::Display for ServerUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = |shift: u32, bits: u32| (self.0 >> shift) & ((1 << bits) - 1);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            group(96, 32),
            group(80, 16),
            group(64, 16),
            group(48, 16),
            group(0, 48)
        )
    }
}

impl fmt::Debug for ServerUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tag.as_str().is_empty() {
            write!(f, "{}:{}", self.server, self.number)
        } else {
            write!(f, "{}:{}:{}", self.server, self.tag.as_str(), self.number)
        }
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut server = None;
        for (stream, list) in &self.streams {
            if server != Some(stream.server) {
                let separator = if server.is_some() { "," } else { "" };
                write!(f, "{separator}{}", stream.server)?;
                server = Some(stream.server);
            }
            if !stream.tag.as_str().is_empty() {
                write!(f, ":{}", stream.tag.as_str())?;
            }
            for interval in list {
                write!(f, ":{interval}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len() == 1 {
            write!(f, "{}", self.first())
        } else {
            write!(f, "{}-{}", self.first(), self.last())
        }
    }
}
