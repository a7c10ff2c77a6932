//! Sets of global transaction identifiers, exact and without a server.
//!
//! A transaction is named by the server that first committed it, an optional tag (MySQL 8.3 and later) and a number.
//! A set holds, for each pair of server and tag, sorted intervals that neither overlap nor touch; so two equal sets have
//! one representation, and every operation is one merge of two sorted lists. All decisions of failover (who contains
//! what, what is errant, what is legitimate) are made with these sets in the operator, never by asking MySQL.

mod intervals;
mod text;

use std::cmp::Ordering;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use intervals::Interval;
pub use text::ParseGtidError;

/// The largest transaction number that MySQL assigns (`GNO_END - 1`).
pub const MAX_NUMBER: u64 = i64::MAX as u64 - 1;

/// Tag of Mainstay's own transactions, where the server knows tags (MySQL 8.3 and later): probes and markers.
pub const OWN_TAG: &str = "mainstay";

/// server_uuid of a MySQL server; ordered and printed in lower case, as MySQL does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerUuid(u128);

impl ServerUuid {
    /// The UUID as MySQL writes it into events.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The UUID as MySQL writes it into events.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

/// Tag of a GTID (MySQL 8.3 and later): lower case, at most 32 characters; empty for a GTID without one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

impl Tag {
    /// The tag's text; empty for none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gtid {
    /// Server that first committed it.
    pub server: ServerUuid,
    /// Its tag; empty for none.
    pub tag: Tag,
    /// Its number, from 1 to [`MAX_NUMBER`].
    pub number: u64,
}

/// A server and a tag: transactions of one stream are numbered on their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Stream {
    server: ServerUuid,
    tag: Tag,
}

/// A set of transactions.
///
/// The order is total and stable but says nothing of containment; use [`GtidSet::contains`].
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GtidSet {
    /// Sorted by stream; no stream twice, none without intervals; each list normal as `intervals` defines it.
    streams: Vec<(Stream, Vec<Interval>)>,
}

/// An operation on the intervals of one stream of both operands; either may be empty.
type Merge = fn(&[Interval], &[Interval]) -> Vec<Interval>;

impl GtidSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { streams: Vec::new() }
    }

    /// Whether there is no transaction in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Number of transactions; `u64::MAX` when there are more.
    #[must_use]
    pub fn count(&self) -> u64 {
        let intervals = self.streams.iter().flat_map(|(_, list)| list);
        intervals.fold(0_u64, |sum, interval| sum.saturating_add(interval.len()))
    }

    /// Whether every transaction of `other` is in this set.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        other
            .streams
            .iter()
            .all(|(stream, list)| intervals::contains(self.intervals(stream), list))
    }

    /// Whether this transaction is in the set.
    #[must_use]
    pub fn contains_gtid(&self, gtid: &Gtid) -> bool {
        let stream = Stream {
            server: gtid.server,
            tag: gtid.tag.clone(),
        };
        Interval::new(gtid.number, gtid.number)
            .is_some_and(|interval| intervals::contains(self.intervals(&stream), &[interval]))
    }

    /// Transactions that are in this set or in `other`.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.merge(other, intervals::union)
    }

    /// Transactions of this set that are not in `other`.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        self.merge(other, intervals::subtract)
    }

    /// Transactions that are in both sets.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        self.merge(other, intervals::intersect)
    }

    /// Transactions that this server first committed, whatever their tag.
    ///
    /// A text that is not a UUID is the name of no server, and nothing is of it.
    #[must_use]
    pub fn of_source(&self, server_uuid: &str) -> Self {
        server_uuid
            .parse()
            .map_or_else(|_: ParseGtidError| Self::new(), |uuid| self.filter(|of| of == uuid))
    }

    /// Transactions that other servers than this one first committed.
    ///
    /// A text that is not a UUID is the name of no server, and nothing is left out.
    #[must_use]
    pub fn without_source(&self, server_uuid: &str) -> Self {
        server_uuid
            .parse()
            .map_or_else(|_: ParseGtidError| self.clone(), |uuid| self.filter(|of| of != uuid))
    }

    /// Transactions with this tag (empty for none), whoever committed them; none if the text cannot be a tag.
    #[must_use]
    pub fn with_tag(&self, tag: &str) -> Self {
        let tag = if tag.is_empty() {
            Some(Tag::default())
        } else {
            tag.parse().ok()
        };
        let streams = self
            .streams
            .iter()
            .filter(|(stream, _)| Some(&stream.tag) == tag.as_ref());
        Self {
            streams: streams.cloned().collect(),
        }
    }

    /// The set as ranges of numbers, the first and the last of each, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (ServerUuid, &Tag, u64, u64)> {
        self.streams.iter().flat_map(|(stream, list)| {
            list.iter()
                .map(|interval| (stream.server, &stream.tag, interval.first(), interval.last()))
        })
    }

    /// The set of these ranges, in any order; those that name no transactions are left out.
    #[must_use]
    pub fn from_ranges(ranges: impl IntoIterator<Item = (ServerUuid, Tag, u64, u64)>) -> Self {
        let part = |(server, tag, first, last)| Some((Stream { server, tag }, Interval::new(first, last)?));
        Self::collect(ranges.into_iter().filter_map(part).collect())
    }

    /// Servers that first committed a transaction of this set, in order.
    #[must_use]
    pub fn sources(&self) -> Vec<ServerUuid> {
        let mut sources: Vec<_> = self.streams.iter().map(|(stream, _)| stream.server).collect();
        sources.dedup();
        sources
    }

    /// The highest number of this server's transactions with this tag (empty for none); `None` when there is no such one,
    /// or the texts name no server or tag.
    #[must_use]
    pub fn last_number(&self, server_uuid: &str, tag: &str) -> Option<u64> {
        let tag = if tag.is_empty() {
            Tag::default()
        } else {
            tag.parse().ok()?
        };
        let stream = Stream {
            server: server_uuid.parse().ok()?,
            tag,
        };
        self.intervals(&stream).last().map(|interval| interval.last())
    }

    fn filter(&self, keep: impl Fn(ServerUuid) -> bool) -> Self {
        Self {
            streams: self
                .streams
                .iter()
                .filter(|(stream, _)| keep(stream.server))
                .cloned()
                .collect(),
        }
    }

    fn intervals(&self, stream: &Stream) -> &[Interval] {
        self.streams
            .binary_search_by(|(other, _)| other.cmp(stream))
            .ok()
            .and_then(|at| self.streams.get(at))
            .map_or(&[], |(_, list)| list.as_slice())
    }

    /// Walks both sorted lists of streams once and applies `operation` to each stream.
    fn merge(&self, other: &Self, operation: Merge) -> Self {
        let mut streams = Vec::with_capacity(self.streams.len().max(other.streams.len()));
        let (mut left, mut right) = (self.streams.iter().peekable(), other.streams.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some((a, _)), Some((b, _))) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { streams },
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            let list = operation(
                a.map_or(&[], |(_, list)| list.as_slice()),
                b.map_or(&[], |(_, list)| list.as_slice()),
            );
            if let (Some((stream, _)), false) = (a.or(b), list.is_empty()) {
                streams.push((stream.clone(), list));
            }
        }
    }

    /// The set of these intervals, in any order, with any overlap.
    fn collect(mut parts: Vec<(Stream, Interval)>) -> Self {
        parts.sort_unstable();
        let mut streams: Vec<(Stream, Vec<Interval>)> = Vec::new();
        for (origin, next) in parts {
            match streams.last_mut() {
                Some((same, list)) if *same == origin => intervals::push(list, next),
                _ => streams.push((origin, vec![next])),
            }
        }
        Self { streams }
    }
}

impl FromIterator<Gtid> for GtidSet {
    /// Numbers outside of 1 to [`MAX_NUMBER`] name no transaction and are left out.
    fn from_iter<I: IntoIterator<Item = Gtid>>(gtids: I) -> Self {
        let part = |gtid: Gtid| {
            let interval = Interval::new(gtid.number, gtid.number)?;
            Some((
                Stream {
                    server: gtid.server,
                    tag: gtid.tag,
                },
                interval,
            ))
        };
        Self::collect(gtids.into_iter().filter_map(part).collect())
    }
}

impl fmt::Debug for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GtidSet({self})")
    }
}

impl Serialize for GtidSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GtidSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
