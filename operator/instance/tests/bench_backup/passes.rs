//! The passes that are compared: read the data, upload what is stored of them, and do both at a time, as a backup does. One after
//! the other in each round, so that they meet the same disk.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use mainstay_core::backup::{BackupId, Key};
use mainstay_store::{Existing, StreamOptions};
use rustix::fs::Advice;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};

use crate::program::Child;
use crate::support::pod::Pod;
use crate::support::store::Stored;

const BLOCK: usize = 1 << 20;

/// Seconds of each pass in each round, and bytes of the last one.
#[derive(Default)]
pub(crate) struct Passes {
    read: Vec<f64>,
    upload: Vec<f64>,
    backup: Vec<f64>,
    bytes: f64,
    stored: f64,
    rss: f64,
}

impl Passes {
    pub(crate) async fn add(&mut self, data: &Path, stored: &Stored, pod: &Pod) {
        forget(data);
        let began = Instant::now();
        let directory = data.to_owned();
        tokio::task::spawn_blocking(move || read(&directory)).await.unwrap();
        self.read.push(began.elapsed().as_secs_f64());

        forget(data);
        let key = key(stored, "pass");
        let mut child = Child::pass(pod, data, &key);
        let result = loop {
            if let Some(result) = child.result() {
                break result;
            }
            tokio::time::sleep(crate::LOOK).await;
        };
        let number = |name: &str| result[name].as_f64().unwrap();
        self.backup.push(number("seconds"));
        (self.bytes, self.stored) = (number("bytes"), number("stored"));
        self.rss = self.rss.max(number("rss_mb"));
        stored.store.delete(&key).await.unwrap();

        let key = self::key(stored, "upload");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size in bytes")]
        let size = self.stored as u64;
        let body = Noise {
            left: size,
            block: noise(),
        };
        let options = StreamOptions {
            existing: Existing::Replace,
            expected: Some(size),
        };
        let began = Instant::now();
        stored.store.put_stream(&key, Box::pin(body), options).await.unwrap();
        self.upload.push(began.elapsed().as_secs_f64());
        stored.store.delete(&key).await.unwrap();
        println!(
            "read {:.1} s, upload {:.1} s, streaming pass {:.1} s",
            self.read.last().unwrap(),
            self.upload.last().unwrap(),
            self.backup.last().unwrap()
        );
    }

    pub(crate) fn figures(&self) -> Value {
        let (read, upload, backup) = (median(&self.read), median(&self.upload), median(&self.backup));
        json!({
            "backup_mb_s": rate(self.bytes, backup),
            "read_mb_s": rate(self.bytes, read),
            "upload_mb_s": rate(self.stored, upload),
            "of_the_slower": rounded(read.max(upload) / backup),
            "pass_rss_mb": self.rss,
        })
    }
}

fn key(stored: &Stored, name: &str) -> Key {
    stored.cluster.backup_data(&BackupId::parse(name).unwrap(), false)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Megabytes a second.
pub(crate) fn rate(bytes: f64, seconds: f64) -> f64 {
    (bytes / seconds / 1e6).round()
}

/// To two decimals.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(files(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

/// Nothing of these files is in the page cache any more.
fn forget(directory: &Path) {
    for file in files(directory) {
        let file = std::fs::File::open(file).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

fn read(directory: &Path) {
    let mut block = vec![0; BLOCK];
    for path in files(directory) {
        let mut file = std::fs::File::open(path).unwrap();
        while std::io::Read::read(&mut file, &mut block).unwrap() > 0 {}
    }
}

/// What cannot be compressed.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(BLOCK);
    while block.len() < BLOCK {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend(state.to_le_bytes());
    }
    block
}

/// As many bytes as are wanted, from memory.
struct Noise {
    left: u64,
    block: Vec<u8>,
}

impl AsyncRead for Noise {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let noise = self.get_mut();
        let left = usize::try_from(noise.left).unwrap();
        let length = buffer.remaining().min(noise.block.len()).min(left);
        buffer.put_slice(&noise.block[..length]);
        noise.left -= length as u64;
        Poll::Ready(Ok(()))
    }
}
