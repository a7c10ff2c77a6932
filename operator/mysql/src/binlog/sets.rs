//! Sets of transactions as servers write them into events.
//!
//! The number of streams, and for each its server, its tag (only since 8.3, and only if one of them has one) and its ranges, the
//! end of which is not in them. Read here and not by `mysql_common`, which reserves memory for numbers that it did not
//! check: a file without checksums may say anything.

use mainstay_core::GtidSet;
use mainstay_core::gtid::{ServerUuid, Tag};

/// A set as servers write it: with tags, since 8.3, only if there is one.
#[expect(clippy::type_complexity, reason = "a name for it would be used once")]
pub(super) fn encode(set: &GtidSet) -> Vec<u8> {
    let tagged = set.ranges().any(|(_, tag, _, _)| !tag.as_str().is_empty());
    let mut streams: Vec<((ServerUuid, &Tag), Vec<(u64, u64)>)> = Vec::new();
    for (server, tag, first, last) in set.ranges() {
        match streams.last_mut() {
            Some((stream, ranges)) if *stream == (server, tag) => ranges.push((first, last)),
            _ => streams.push(((server, tag), vec![(first, last)])),
        }
    }
    let count = streams.len() as u64;
    let mut body = Vec::new();
    let kind = if tagged { 1 << 56 | count << 8 | 1 } else { count };
    body.extend_from_slice(&kind.to_le_bytes());
    for ((server, tag), ranges) in streams {
        body.extend_from_slice(&server.to_bytes());
        if tagged {
            // At most 32 bytes: a number of one byte, whose lowest bit says that there is no other one.
            body.push(u8::try_from(tag.as_str().len()).unwrap_or_default() << 1);
            body.extend_from_slice(tag.as_str().as_bytes());
        }
        body.extend_from_slice(&(ranges.len() as u64).to_le_bytes());
        for (first, last) in ranges {
            body.extend_from_slice(&first.to_le_bytes());
            body.extend_from_slice(&(last + 1).to_le_bytes());
        }
    }
    body
}

/// Reads what [`encode`] writes.
pub(super) fn decode(mut body: &[u8]) -> Result<GtidSet, String> {
    let kind = number(&mut body)?;
    let (tagged, count) = if kind >> 56 == 0 {
        (false, kind)
    } else {
        (true, (kind >> 8) & ((1 << 48) - 1))
    };
    let mut ranges = Vec::new();
    for _ in 0..count {
        let server = ServerUuid::from_bytes(*take(&mut body)?);
        let tag = if tagged { tag(&mut body)? } else { Tag::default() };
        for _ in 0..number(&mut body)? {
            let (first, end) = (number(&mut body)?, number(&mut body)?);
            ranges.push((server, tag.clone(), first, end.saturating_sub(1)));
        }
    }
    if body.is_empty() {
        Ok(GtidSet::from_ranges(ranges))
    } else {
        Err(format!("{} bytes follow its set", body.len()))
    }
}

fn take<'a, const N: usize>(body: &mut &'a [u8]) -> Result<&'a [u8; N], String> {
    let (taken, rest) = body.split_first_chunk().ok_or("its set is cut short")?;
    *body = rest;
    Ok(taken)
}

fn number(body: &mut &[u8]) -> Result<u64, String> {
    Ok(u64::from_le_bytes(*take(body)?))
}

fn tag(body: &mut &[u8]) -> Result<Tag, String> {
    let [length] = *take::<1>(body)?;
    let (text, rest) = body
        .split_at_checked(usize::from(length >> 1))
        .ok_or("its set is cut short")?;
    *body = rest;
    if text.is_empty() {
        return Ok(Tag::default());
    }
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    text.parse().map_err(|error| format!("{error}"))
}
