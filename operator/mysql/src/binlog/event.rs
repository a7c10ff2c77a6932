//! Single events.

use mainstay_core::GtidSet;
use mainstay_core::gtid::{Gtid, ServerUuid, Tag};
use mysql_async::binlog::events::{Event, FormatDescriptionEvent, GtidEvent, RotateEvent};
use mysql_async::binlog::{BinlogChecksumAlg, BinlogVersion};

use super::Crc;
use super::sets::decode;

/// Bytes of the header of every event.
pub(super) const HEADER: usize = 19;
/// Bytes of a checksum.
pub(super) const CHECKSUM: usize = 4;
/// Where the flags of an event are.
const FLAGS: usize = 17;
/// The file is being written: set in the file, and not counted by the checksum.
const IN_USE: u8 = 1;
/// Position of the time of creation in a format description: behind the header, a version and a name of 50 bytes.
const CREATED: usize = HEADER + 2 + 50;

/// The types of events that stand around transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Format,
    Previous,
    Gtid,
    Anonymous,
    Rotate,
    Stop,
    Other(u8),
}

impl Kind {
    fn of(number: u8) -> Self {
        match number {
            3 => Self::Stop,
            4 => Self::Rotate,
            15 => Self::Format,
            33 | 42 => Self::Gtid,
            34 => Self::Anonymous,
            35 => Self::Previous,
            other => Self::Other(other),
        }
    }

    /// It is read as a whole.
    pub(super) const fn is_read(self) -> bool {
        match self {
            Self::Format | Self::Previous | Self::Gtid | Self::Anonymous | Self::Rotate | Self::Stop => true,
            Self::Other(_) => false,
        }
    }
}

/// The header of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Bytes of the event, the header included.
    pub(super) size: u32,
    /// Who does not know it may pass it by.
    pub(super) ignorable: bool,
}

impl Header {
    pub(super) fn read(bytes: &[u8; HEADER]) -> Self {
        let [_, _, _, _, kind, _, _, _, _, a, b, c, d, _, _, _, _, flags, _] = *bytes;
        Self {
            kind: Kind::of(kind),
            size: u32::from_le_bytes([a, b, c, d]),
            ignorable: flags & 0x80 != 0,
        }
    }
}

/// How events are written in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The event that says so, of a file that is not being written any more.
    pub(super) event: Vec<u8>,
    pub(super) parsed: FormatDescriptionEvent<'static>,
}

impl Format {
    /// With what the first event of a file is read, which is always one that says how.
    pub(super) fn initial() -> FormatDescriptionEvent<'static> {
        FormatDescriptionEvent::new(BinlogVersion::Version4)
    }

    /// Each event ends with a CRC-32.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.parsed.footer().get_checksum_alg() == Ok(Some(BinlogChecksumAlg::BINLOG_CHECKSUM_ALG_CRC32))
    }

    /// Reads the event, whose checksum is always there, and is that of a file that is closed.
    pub(super) fn read(event: &[u8]) -> Result<Self, String> {
        let mut event = event.to_vec();
        if let Some(flags) = event.get_mut(FLAGS) {
            *flags &= !IN_USE;
        }
        check(&event)?;
        let read = read(&Self::initial(), &event)?;
        let body: FormatDescriptionEvent<'_> = read.read_event().map_err(|error| error.to_string())?;
        let parsed = body.with_footer(read.footer()).into_owned();
        match parsed.footer().get_checksum_alg() {
            Ok(Some(BinlogChecksumAlg::BINLOG_CHECKSUM_ALG_CRC32 | BinlogChecksumAlg::BINLOG_CHECKSUM_ALG_OFF)) => {
                Ok(Self { event, parsed })
            }
            other => Err(format!("its checksums are of an unknown kind ({other:?})")),
        }
    }

    /// The same event for a file that does not begin with a start of the server: replicas drop temporary tables at one.
    pub(super) fn continued(&self) -> Vec<u8> {
        let mut event = self.event.clone();
        if let Some(created) = event.get_mut(CREATED..CREATED + 4) {
            created.fill(0);
        }
        seal(&mut event);
        event
    }
}

/// Compares the checksum at the end of an event.
pub(super) fn check(event: &[u8]) -> Result<(), String> {
    let Some((content, sum)) = event.split_last_chunk::<CHECKSUM>() else {
        return Err("it has no room for a checksum".to_owned());
    };
    compare(Crc::of(content), u32::from_le_bytes(*sum))
}

pub(super) fn compare(found: u32, written: u32) -> Result<(), String> {
    if found == written {
        Ok(())
    } else {
        Err(format!(
            "its checksum is {found:08x} instead of {written:08x}: the file is damaged"
        ))
    }
}

/// Writes the checksum into the last bytes of an event.
pub(super) fn seal(event: &mut [u8]) {
    if let Some((content, sum)) = event.split_last_chunk_mut::<CHECKSUM>() {
        *sum = Crc::of(content).to_le_bytes();
    }
}

fn read(format: &FormatDescriptionEvent<'_>, event: &[u8]) -> Result<Event, String> {
    Event::read(format, event).map_err(|error| error.to_string())
}

/// A transaction that begins.
pub(super) struct Begin {
    pub(super) gtid: Gtid,
    pub(super) at: i64,
    /// Bytes of the transaction, this event included.
    pub(super) length: u64,
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the type is of a crate that is not named here"
)]
pub(super) fn gtid(format: &Format, event: &[u8]) -> Result<Begin, String> {
    let event = read(&format.parsed, event)?;
    let gtid: GtidEvent = event.read_event().map_err(|error| error.to_string())?;
    if gtid.tx_length() == 0 {
        return Err("it does not say how long its transaction is: servers before 8.0.2 wrote so".to_owned());
    }
    let at = match gtid.original_commit_timestamp() {
        0 => gtid.immediate_commit_timestamp(),
        at => at,
    };
    Ok(Begin {
        gtid: Gtid {
            server: ServerUuid::from_bytes(gtid.sid()),
            tag: tag(gtid.tag().map(|tag| tag.as_str()))?,
            number: gtid.gno(),
        },
        at: i64::try_from(at).map_err(|_large| "its time is no time".to_owned())?,
        length: gtid.tx_length(),
    })
}

fn tag(text: Option<&str>) -> Result<Tag, String> {
    let parse = |text: &str| text.parse().map_err(|error| format!("{error}"));
    text.map_or_else(|| Ok(Tag::default()), parse)
}

pub(super) fn previous(format: &Format, event: &[u8]) -> Result<GtidSet, String> {
    let sum = if format.has_checksums() { CHECKSUM } else { 0 };
    decode(event.get(HEADER..event.len() - sum).unwrap_or_default())
}

pub(super) fn rotate(format: &Format, event: &[u8]) -> Result<String, String> {
    let event = read(&format.parsed, event)?;
    let rotate: RotateEvent<'_> = event.read_event().map_err(|error| error.to_string())?;
    Ok(rotate.name().into_owned())
}
