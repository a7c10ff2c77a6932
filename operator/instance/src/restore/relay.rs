//! A relay log put together from segments of the archive.
//!
//! A segment is a binlog of its own, so one file of the relay log could be one segment. But the archive has a segment for
//! every moment, and a server looks into each file of its relay log when it is given one: many small segments become one file.
//! Events go into it as they are. Left out are those that say where a file ends and what came before it.

use std::io;
use std::path::Path;

use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, BufWriter};

/// The first bytes of a binlog.
const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// The first bytes of one that the server encrypted.
const ENCRYPTED: [u8; 4] = [0xfd, b'b', b'i', b'n'];
/// Bytes of the head of an event.
const HEAD: usize = 19;
/// Bytes that are copied at once.
const BUFFER: usize = 256 * 1024;
/// A format description is a few hundred bytes.
const LARGEST_DESCRIPTION: usize = 64 * 1024;

const STOP: u8 = 3;
const ROTATE: u8 = 4;
const FORMAT_DESCRIPTION: u8 = 15;
const GTID: u8 = 33;
const PREVIOUS_GTIDS: u8 = 35;
const GTID_TAGGED: u8 = 42;

/// Place of the flags in an event's head.
const FLAGS: usize = 17;
/// The file was not closed when it was copied. The checksum of the event does not count it.
const IN_USE: u8 = 1;
/// The checksum algorithm in a format description, counted from its end: a byte before the checksum.
const ALGORITHM_FROM_END: usize = 5;

/// "Nothing came before": without it a server does not take a relay log. With the checksum that it has where events have one.
const NOTHING_BEFORE: [u8; 31] = [
    0,
    0,
    0,
    0,
    PREVIOUS_GTIDS,
    1,
    0,
    0,
    0,
    31,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0x80,
    0, // head
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0, // no set
    CRC[0],
    CRC[1],
    CRC[2],
    CRC[3],
];
const CRC: [u8; 4] = [0xa7, 0xf2, 0x8b, 0x47];

/// A relay log in the making.
pub(super) struct RelayLog {
    file: BufWriter<File>,
    begun: bool,
}

impl RelayLog {
    pub(super) async fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create_new(true).open(path).await?;
        Ok(Self {
            file: BufWriter::with_capacity(BUFFER, file),
            begun: false,
        })
    }

    /// Appends the events of a segment, and gives the number of transactions in it. Only the end of the segment proves that it
    /// is what was stored: after an error nothing of the file may be used.
    pub(super) async fn append(&mut self, segment: impl AsyncRead + Unpin) -> io::Result<u64> {
        let mut segment = BufReader::with_capacity(BUFFER, segment);
        let mut magic = [0; MAGIC.len()];
        segment.read_exact(&mut magic).await?;
        if magic == ENCRYPTED {
            return Err(damaged(
                "it is a binlog that the server encrypted with a key of its own",
            ));
        }
        if magic != MAGIC {
            return Err(damaged("it is no binlog"));
        }
        let (mut transactions, mut described) = (0, false);
        while let Some(head) = next_head(&mut segment).await? {
            let (kind, length) = (
                head[4],
                usize::try_from(u32::from_le_bytes([head[9], head[10], head[11], head[12]])),
            );
            let body = length.ok().and_then(|length| length.checked_sub(HEAD));
            let body = body.ok_or_else(|| damaged("an event has no length"))?;
            if !described && kind != FORMAT_DESCRIPTION {
                return Err(damaged("it does not begin with a format description"));
            }
            match kind {
                FORMAT_DESCRIPTION => {
                    self.describe(head, body, &mut segment).await?;
                    described = true;
                }
                STOP | ROTATE | PREVIOUS_GTIDS => skip(&mut segment, body).await?,
                _ => {
                    transactions += u64::from(kind == GTID || kind == GTID_TAGGED);
                    self.file.write_all(&head).await?;
                    let copied = tokio::io::copy(&mut (&mut segment).take(body as u64), &mut self.file).await?;
                    if copied != body as u64 {
                        return Err(cut());
                    }
                }
            }
        }
        Ok(transactions)
    }

    /// A format description holds for the events behind it, so each segment brings its own.
    async fn describe(
        &mut self,
        mut head: [u8; HEAD],
        length: usize,
        segment: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<()> {
        if length > LARGEST_DESCRIPTION {
            return Err(damaged("its format description is too long"));
        }
        let mut body = vec![0; length];
        segment.read_exact(&mut body).await?;
        let algorithm = length.checked_sub(ALGORITHM_FROM_END).and_then(|at| body.get(at));
        let checksum = match algorithm {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(damaged("its format description names an unknown checksum")),
        };
        head[FLAGS] &= !IN_USE;
        if !self.begun {
            self.file.write_all(&MAGIC).await?;
        }
        self.file.write_all(&head).await?;
        self.file.write_all(&body).await?;
        if !self.begun {
            self.file.write_all(&nothing_before(checksum)).await?;
            self.begun = true;
        }
        Ok(())
    }

    /// The file is complete.
    pub(super) async fn finish(mut self) -> io::Result<()> {
        self.file.flush().await
    }
}

/// [`NOTHING_BEFORE`] as it is where events have a checksum, or none.
fn nothing_before(checksum: bool) -> Vec<u8> {
    let mut event = NOTHING_BEFORE.to_vec();
    if !checksum {
        event.truncate(NOTHING_BEFORE.len() - CRC.len());
        if let Some(length) = event.get_mut(9) {
            *length -= 4;
        }
    }
    event
}

/// The head of the next event; `None` where the segment ends.
async fn next_head(segment: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<[u8; HEAD]>> {
    let mut head = [0; HEAD];
    let mut read = 0;
    while let Some(rest) = head.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match segment.read(rest).await? {
            0 if read == 0 => return Ok(None),
            0 => return Err(cut()),
            more => read += more,
        }
    }
    Ok(Some(head))
}

async fn skip(segment: &mut (impl AsyncRead + Unpin), length: usize) -> io::Result<()> {
    let skipped = tokio::io::copy(&mut segment.take(length as u64), &mut tokio::io::sink()).await?;
    if skipped == length as u64 { Ok(()) } else { Err(cut()) }
}

fn damaged(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn cut() -> io::Error {
    damaged("it ends in the middle of an event")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        let mut event = vec![0; HEAD];
        event[4] = kind;
        event[9..13].copy_from_slice(&u32::try_from(HEAD + body.len()).unwrap().to_le_bytes());
        event[FLAGS] = flags;
        event.extend(body);
        event
    }

    fn description(checksum: u8) -> Vec<u8> {
        event(FORMAT_DESCRIPTION, IN_USE, &[9, 9, 9, checksum, 1, 2, 3, 4])
    }

    fn binlog(events: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(events.concat());
        bytes
    }

    async fn made(segments: &[Vec<u8>]) -> io::Result<(u64, Vec<u8>)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("relay.000001");
        let mut log = RelayLog::create(&path).await.unwrap();
        let mut transactions = 0;
        for segment in segments {
            transactions += log.append(segment.as_slice()).await?;
        }
        log.finish().await.unwrap();
        Ok((transactions, std::fs::read(&path).unwrap()))
    }

    #[tokio::test]
    async fn segments_become_one_binlog_that_says_that_nothing_came_before() {
        let (gtid, tagged, rows) = (
            event(GTID, 0, b"gtid"),
            event(GTID_TAGGED, 0, b"tagged"),
            event(40, 0, &vec![7; 300_000]),
        );
        let closed = event(FORMAT_DESCRIPTION, 0, &[9, 9, 9, 1, 1, 2, 3, 4]);
        let first = binlog(&[
            description(1),
            event(PREVIOUS_GTIDS, 0, b"x"),
            gtid.clone(),
            rows.clone(),
        ]);
        let second = binlog(&[description(1), tagged.clone(), rows.clone(), event(ROTATE, 0, b"next")]);
        let third = binlog(&[description(1), event(STOP, 0, b"")]);
        let (transactions, bytes) = made(&[first, second, third]).await.unwrap();
        assert_eq!(transactions, 2);
        let wanted = binlog(&[
            closed.clone(),
            NOTHING_BEFORE.to_vec(),
            gtid,
            rows.clone(),
            closed.clone(),
            tagged,
            rows,
            closed,
        ]);
        assert!(bytes == wanted, "{} bytes instead of {}", bytes.len(), wanted.len());
    }

    #[tokio::test]
    async fn events_without_a_checksum_stay_without() {
        let (_, bytes) = made(&[binlog(&[description(0)])]).await.unwrap();
        let event = &bytes[bytes.len() - 27..];
        assert_eq!((event[4], event[9]), (PREVIOUS_GTIDS, 27));
    }

    #[tokio::test]
    async fn what_is_no_whole_binlog_is_refused() {
        let whole = binlog(&[description(1), event(GTID, 0, b"gtid")]);
        let mut encrypted = whole.clone();
        encrypted[0] = 0xfd;
        let cases: [(Vec<u8>, &str); 7] = [
            (b"PK".to_vec(), "early eof"),
            (b"PK\x03\x04".to_vec(), "no binlog"),
            (encrypted, "key of its own"),
            (binlog(&[event(GTID, 0, b"gtid")]), "format description"),
            (binlog(&[description(7)]), "unknown checksum"),
            (whole[..whole.len() - 1].to_vec(), "middle of an event"),
            (whole[..MAGIC.len() + 5].to_vec(), "middle of an event"),
        ];
        for (segment, reason) in cases {
            let error = made(&[segment]).await.unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
