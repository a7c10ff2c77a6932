//! The beginning of a binlog file.

use mainstay_core::GtidSet;

use super::Format;
use super::event::{CHECKSUM, HEADER, seal};
use super::scanner::MAGIC;
use super::sets::encode;

/// The beginning of a file that continues another one with transactions of it: what every binlog file begins with, the format
/// in which the transactions were written, and what was logged before them. `first`: nothing was written between the
/// beginning of that file and these transactions.
#[must_use]
pub fn head(format: &Format, previous: &GtidSet, first: bool) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    if first {
        file.extend_from_slice(&format.event);
    } else {
        file.extend_from_slice(&format.continued());
    }
    let event = previous_gtids(format, previous, file.len());
    file.extend_from_slice(&event);
    file
}

/// An event that says what was logged before.
fn previous_gtids(format: &Format, previous: &GtidSet, position: usize) -> Vec<u8> {
    const KIND: u8 = 35;
    const IGNORABLE: u16 = 0x80;
    let body = encode(previous);
    let size = HEADER + body.len() + if format.has_checksums() { CHECKSUM } else { 0 };
    let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes();
    let mut event = Vec::with_capacity(size);
    // Time and server are those of the format description.
    event.extend_from_slice(format.event.get(..4).unwrap_or_default());
    event.push(KIND);
    event.extend_from_slice(format.event.get(5..9).unwrap_or_default());
    event.extend_from_slice(&number(size));
    event.extend_from_slice(&number(position + size));
    event.extend_from_slice(&IGNORABLE.to_le_bytes());
    event.extend_from_slice(&body);
    if format.has_checksums() {
        event.extend_from_slice(&[0; CHECKSUM]);
        seal(&mut event);
    }
    event
}
