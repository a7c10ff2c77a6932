//! Networks that can be cut: what is sent into a cut is lost in silence, and nobody is told.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::watch;

/// What gets through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passage {
    Both,
    /// What the server sends gets to the client, and nothing the other way.
    ToClient,
    Nothing,
}

/// A TCP connection to a server, as seen by one of its clients.
pub(crate) struct Wire {
    /// Where the client connects.
    pub(crate) address: SocketAddr,
    passage: watch::Sender<Passage>,
    /// Bytes a second in each direction; 0: as many as there are.
    rate: Arc<AtomicU64>,
    /// Lost with all connections that were made while it was there.
    line: Arc<Mutex<watch::Sender<()>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wire {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let passage = watch::Sender::new(Passage::Both);
        let line = Arc::new(Mutex::new(watch::Sender::new(())));
        let rate = Arc::new(AtomicU64::new(0));
        let (open, lines, limit) = (passage.subscribe(), Arc::clone(&line), Arc::clone(&rate));
        let task = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    return;
                };
                let line = lines.lock().unwrap().subscribe();
                tokio::spawn(carry(client, server, open.clone(), line, Arc::clone(&limit)));
            }
        });
        Self {
            address,
            passage,
            rate,
            line,
            task,
        }
    }

    /// Nothing gets through any more.
    pub(crate) fn cut(&self) {
        self.passage.send_replace(Passage::Nothing);
    }

    /// Nothing gets to the server any more.
    pub(crate) fn cut_to_server(&self) {
        self.passage.send_replace(Passage::ToClient);
    }

    /// No more than this many bytes a second get through.
    pub(crate) fn throttle(&self, rate: u64) {
        self.rate.store(rate, Ordering::SeqCst);
    }

    /// Connections that were made before, and what was sent on them, are lost; new ones get through.
    pub(crate) async fn replace(&self) {
        let old = std::mem::replace(&mut *self.line.lock().unwrap(), watch::Sender::new(()));
        old.send_replace(());
        // Those that are made meanwhile belong to the new line, and wait.
        tokio::time::timeout(super::PATIENCE, old.closed())
            .await
            .expect("all connections are lost");
        self.passage.send_replace(Passage::Both);
    }

    /// What was sent meanwhile arrives.
    pub(crate) fn join(&self) {
        self.passage.send_replace(Passage::Both);
    }
}

async fn carry(
    client: TcpStream,
    server: SocketAddr,
    mut open: watch::Receiver<Passage>,
    mut line: watch::Receiver<()>,
    rate: Arc<AtomicU64>,
) {
    let work = async {
        open.wait_for(|passage| *passage == Passage::Both).await.ok()?;
        let server = TcpStream::connect(server).await.ok()?;
        drop((client.set_nodelay(true), server.set_nodelay(true)));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            () = pump(from_client, to_server, open.clone(), Passage::Both, &rate) => {}
            () = pump(from_server, to_client, open.clone(), Passage::ToClient, &rate) => {}
        }
        Some(())
    };
    tokio::select! {
        _ = work => {}
        _ = line.changed() => {}
    }
}

/// `least`: the passage with which this direction is still open.
async fn pump(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    mut open: watch::Receiver<Passage>,
    least: Passage,
    rate: &AtomicU64,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // Slow, and not in bursts.
        let most = match rate.load(Ordering::SeqCst) {
            0 => buffer.len(),
            rate => usize::try_from(rate / 20).unwrap_or(usize::MAX).clamp(1, buffer.len()),
        };
        let Ok(size @ 1..) = from.read(&mut buffer[..most]).await else {
            return;
        };
        let opened = open
            .wait_for(|passage| *passage == Passage::Both || *passage == least)
            .await
            .is_ok();
        if !opened || to.write_all(&buffer[..size]).await.is_err() {
            return;
        }
        let rate = rate.load(Ordering::SeqCst);
        if let Some(time) = (size as u64 * 1_000_000).checked_div(rate) {
            tokio::time::sleep(Duration::from_micros(time)).await;
        }
    }
}
