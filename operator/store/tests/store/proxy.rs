//! A proxy that breaks connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Cuts connections after so many bytes of answers, as long as there are cuts left.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    cuts: Arc<AtomicU32>,
    after: Arc<AtomicU64>,
}

impl Proxy {
    pub(crate) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            cuts: Arc::default(),
            after: Arc::default(),
        };
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(client, target));
            }
        });
        proxy
    }

    /// Breaks the next answers that are longer than `after` bytes.
    pub(crate) fn cut(&self, times: u32, after: u64) {
        self.after.store(after, Ordering::SeqCst);
        self.cuts.store(times, Ordering::SeqCst);
    }

    pub(crate) fn cuts_left(&self) -> u32 {
        self.cuts.load(Ordering::SeqCst)
    }

    async fn serve(self, mut client: TcpStream, target: u16) {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await else {
            return;
        };
        let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
        let mut answered = 0;
        loop {
            tokio::select! {
                read = client.read(&mut up) => match read {
                    Ok(bytes) if bytes > 0 => {
                        answered = 0;
                        if server.write_all(&up[..bytes]).await.is_err() {
                            return;
                        }
                    }
                    _ => return,
                },
                read = server.read(&mut down) => match read {
                    Ok(bytes) if bytes > 0 => {
                        answered += bytes as u64;
                        if answered > self.after.load(Ordering::SeqCst) && self.take_cut() {
                            return;
                        }
                        if client.write_all(&down[..bytes]).await.is_err() {
                            return;
                        }
                    }
                    _ => return,
                },
            }
        }
    }

    fn take_cut(&self) -> bool {
        self.cuts
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok()
    }
}
