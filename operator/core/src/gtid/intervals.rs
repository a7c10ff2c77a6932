//! Lists of intervals of transaction numbers.
//!
//! A list is *normal* when its intervals are sorted and between two of them at least one number is missing. Every
//! function takes and gives normal lists and reads each operand once.

use super::MAX_NUMBER;

/// Numbers from `first` to `last`, both included; `1 <= first <= last <= MAX_NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Interval {
    first: u64,
    last: u64,
}

impl Interval {
    /// The interval, or nothing when it is empty or leaves the range of transaction numbers.
    pub(super) const fn new(first: u64, last: u64) -> Option<Self> {
        if first >= 1 && first <= last && last <= MAX_NUMBER {
            Some(Self { first, last })
        } else {
            None
        }
    }

    pub(super) const fn first(self) -> u64 {
        self.first
    }

    pub(super) const fn last(self) -> u64 {
        self.last
    }

    pub(super) const fn len(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Adds an interval that does not begin before the last one of the list.
pub(super) fn push(list: &mut Vec<Interval>, next: Interval) {
    match list.last_mut() {
        Some(end) if next.first <= end.last + 1 => end.last = end.last.max(next.last),
        _ => list.push(next),
    }
}

pub(super) fn union(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut list = Vec::with_capacity(a.len().max(b.len()));
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x.first <= y.first => a.next(),
            (_, Some(_)) => b.next(),
            (_, None) => a.next(),
        };
        match next {
            Some(interval) => push(&mut list, *interval),
            None => return list,
        }
    }
}

pub(super) fn subtract(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut list = Vec::with_capacity(a.len());
    let mut holes = b.iter().peekable();
    for interval in a {
        let mut rest = Some(*interval);
        while let (Some(part), Some(hole)) = (rest, holes.peek().copied()) {
            if hole.first > part.last {
                break;
            }
            if hole.last >= part.first {
                list.extend(Interval::new(part.first, hole.first - 1));
                rest = Interval::new(part.first.max(hole.last + 1), part.last);
            }
            // A hole that reaches beyond this interval may reach into the next one.
            if hole.last > interval.last {
                break;
            }
            holes.next();
        }
        list.extend(rest);
    }
    list
}

pub(super) fn intersect(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut list = Vec::new();
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(x), Some(y)) = (left.peek(), right.peek()) {
        list.extend(Interval::new(x.first.max(y.first), x.last.min(y.last)));
        if x.last <= y.last {
            left.next();
        } else {
            right.next();
        }
    }
    list
}

/// Whether every number of `b` is in `a`.
pub(super) fn contains(a: &[Interval], b: &[Interval]) -> bool {
    let mut outer = a.iter().peekable();
    b.iter().all(|inner| {
        while outer.next_if(|interval| interval.last < inner.first).is_some() {}
        outer
            .peek()
            .is_some_and(|interval| interval.first <= inner.first && inner.last <= interval.last)
    })
}
