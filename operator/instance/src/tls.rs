//! Mutual TLS for gRPC. The files are read again when they change, without a restart; who a client is stands in its
//! certificate.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use mainstay_core::layout;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::hearing::Hearing;

/// How long a client may take to be known.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections that were accepted and not yet taken over.
const BACKLOG: usize = 32;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// A file could not be read.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds no certificate or key.
    #[error("failed to understand {path}: {reason}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Key and certificate do not fit, or TLS cannot be set up with them.
    #[error("failed to set up TLS: {0}")]
    Setup(String),
}

/// The files.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    /// Certificate chain of the server.
    pub(crate) certificate: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
    /// CAs of the clients.
    pub(crate) client_ca: PathBuf,
}

impl TlsFiles {
    /// The files in the directories of a pod.
    #[must_use]
    pub(crate) fn in_directories(server_tls: &Path, client_ca: &Path) -> Self {
        Self {
            certificate: server_tls.join("tls.crt"),
            key: server_tls.join("tls.key"),
            client_ca: client_ca.join("ca.crt"),
        }
    }

    /// Changes when the files do; `None` while one of them cannot be read.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> Option<[u8; 32]> {
        let mut hash = Sha256::new();
        for path in [&self.certificate, &self.key, &self.client_ca] {
            let bytes = std::fs::read(path).ok()?;
            hash.update(bytes.len().to_le_bytes());
            hash.update(&bytes);
        }
        Some(hash.finalize().into())
    }

    fn load(&self) -> Result<ServerConfig, TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(|error| TlsError::Pem {
            path: self.key.clone(),
            reason: error.to_string(),
        })?;
        let mut roots = RootCertStore::empty();
        for ca in certificates(&self.client_ca)? {
            roots.add(ca).map_err(|error| TlsError::Pem {
                path: self.client_ca.clone(),
                reason: error.to_string(),
            })?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| TlsError::Setup(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Setup(error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| TlsError::Setup(error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |reason: String| TlsError::Pem {
        path: path.to_owned(),
        reason,
    };
    let list = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem(error.to_string()))?;
    if list.is_empty() {
        Err(pem("there is no certificate in it".to_owned()))
    } else {
        Ok(list)
    }
}

/// The TLS configuration for new connections.
#[derive(Clone)]
pub(crate) struct Reloadable {
    files: TlsFiles,
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Reloadable {
    /// Reads the files.
    pub(crate) fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let current = Arc::new(RwLock::new(Arc::new(files.load()?)));
        Ok(Self { files, current })
    }

    /// The files.
    #[must_use]
    pub(crate) const fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Reads the files again. After an error the former ones stay in use.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let config = Arc::new(self.files.load()?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Who a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The operator, which may command.
    Operator,
    /// An instance of the same cluster, which may ask.
    Instance,
}

/// The role that a certificate gives; `None` for a stranger, however valid the certificate.
#[must_use]
pub(crate) fn role(certificate: &[u8], instance_uri: &str) -> Option<Role> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let mut role = None;
    for name in &names.value.general_names {
        match name {
            x509_parser::extensions::GeneralName::URI(uri) if *uri == layout::OPERATOR_URI => {
                return Some(Role::Operator);
            }
            x509_parser::extensions::GeneralName::URI(uri) if *uri == instance_uri => role = Some(Role::Instance),
            _ => {}
        }
    }
    role
}

/// A connection with a client whose role is known.
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    role: Role,
    hearing: Arc<Hearing>,
}

impl Connected for Connection {
    type ConnectInfo = Role;

    fn connect_info(&self) -> Role {
        self.role
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        // What arrives was written by the client: TLS lets nobody else.
        if self.role == Role::Operator && buf.filled().len() > before {
            self.hearing.operator();
        }
        result
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Accepts connections of known clients until nobody takes them any more.
pub(crate) fn accept(
    listener: TcpListener,
    tls: Reloadable,
    instance_uri: String,
    hearing: Arc<Hearing>,
) -> ReceiverStream<Result<Connection, io::Error>> {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = sender.closed() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (sender, acceptor, uri) = (sender.clone(), tls.acceptor(), instance_uri.clone());
                    let hearing = Arc::clone(&hearing);
                    tokio::spawn(async move {
                        match timeout(HANDSHAKE, handshake(acceptor, stream, &uri)).await {
                            Ok(Ok((stream, role))) => {
                                let connection = Connection { stream, role, hearing };
                                drop(sender.send(Ok(connection)).await);
                            }
                            Ok(Err(reason)) => tracing::info!(%peer, reason, "refused a connection"),
                            Err(_elapsed) => tracing::info!(%peer, "a connection was not made in time"),
                        }
                    });
                }
                Err(error) => {
                    // Out of file descriptors, for example: they come back.
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    ReceiverStream::new(receiver)
}

async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    instance_uri: &str,
) -> Result<(TlsStream<TcpStream>, Role), String> {
    // Statuses are small and wanted at once. It only delays them when it does not work.
    drop(stream.set_nodelay(true));
    let stream = acceptor.accept(stream).await.map_err(|error| error.to_string())?;
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let role = certificate.and_then(|certificate| role(certificate, instance_uri));
    match role {
        Some(role) => Ok((stream, role)),
        None => Err("its certificate names neither the operator nor an instance of this cluster".to_owned()),
    }
}

/// Binds a listener. IPv4 and IPv6 by one socket where the address is unspecified; IPv4 alone where there is no IPv6.
pub(crate) async fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(addr).await {
        Err(_no_ipv6) if addr.is_ipv6() && addr.ip().is_unspecified() => {
            TcpListener::bind(SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), addr.port())).await
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(uris: &[&str]) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params
            .subject_alt_names
            .extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())));
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_role_is_the_uri_and_nothing_else() {
        let uri = layout::instance_uri("prod", "shop");
        let of = |uris: &[&str]| role(&certificate(uris), &uri);
        assert_eq!(of(&[layout::OPERATOR_URI]), Some(Role::Operator));
        assert_eq!(of(&[&uri]), Some(Role::Instance));
        assert_eq!(of(&[&uri, layout::OPERATOR_URI]), Some(Role::Operator));
        assert_eq!(of(&["mainstay://prod/shop2/instance"]), None);
        assert_eq!(of(&["mainstay://test/shop/instance"]), None);
        assert_eq!(of(&["mainstay://operator/"]), None);
        assert_eq!(of(&[]), None);
        assert_eq!(role(b"nonsense", &uri), None);
    }
}
