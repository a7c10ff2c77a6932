//! Something that answers as an API server does to whoever has no token.

use std::net::Ipv4Addr;
use std::sync::Arc;

use mainstay_instance::config::ApiServer;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const FORBIDDEN: &[u8] = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";

/// It answers as long as this lives.
pub(crate) struct Answering {
    pub(crate) at: ApiServer,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn start() -> Answering {
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["kubernetes.default.svc".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = ApiServer {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
    };
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut request = [0; 1024];
            if stream.read(&mut request).await.is_ok() {
                drop(stream.write_all(FORBIDDEN).await);
            }
        }
    });
    Answering { at, task }
}
