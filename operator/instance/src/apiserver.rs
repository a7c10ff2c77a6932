//! The API server as a witness: does it answer?
//!
//! Nothing is asked of it but an answer, so no token is mounted, none is sent, and "forbidden" is as good as "ok". Its
//! certificate is not verified either, as its CA is not mounted: whoever can answer in its place can make an isolated
//! primary believe that it is not, which costs reads that are too old and never an acknowledged write.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::config::ApiServer;

/// The name that is asked for; the certificate of every API server holds it.
const NAME: &str = "kubernetes.default.svc";

/// Whether it answers within the limit; otherwise why not.
pub(crate) async fn answers(server: &ApiServer, limit: Duration) -> Result<(), String> {
    match timeout(limit, ask(server)).await {
        Ok(result) => result,
        Err(_elapsed) => Err(format!("no answer within {limit:?}")),
    }
}

async fn ask(server: &ApiServer) -> Result<(), String> {
    let text = |error: &dyn std::error::Error| crate::mysqld::chain(error);
    let stream = TcpStream::connect((server.host.as_str(), server.port))
        .await
        .map_err(|error| text(&error))?;
    let name = ServerName::try_from(NAME).map_err(|error| text(&error))?;
    let stream = TlsConnector::from(Arc::new(tls()?))
        .connect(name, stream)
        .await
        .map_err(|error| text(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| text(&error))?;
    let request = hyper::Request::get("/livez")
        .header("host", NAME)
        .header("user-agent", concat!("mainstay-instance/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|error| text(&error))?;
    let answer = sender.send_request(request);
    tokio::pin!(answer);
    // The connection has to be driven, and may end with the answer or without.
    let response = tokio::select! {
        response = &mut answer => response,
        _ended = connection => answer.await,
    };
    response.map(|_any| ()).map_err(|error| text(&error))
}

fn tls() -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Anybody(Arc::clone(&provider));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Takes every certificate; see the module.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// An API server that answers every request like this; with nothing: it never does.
    async fn server(answer: Option<&'static str>) -> ApiServer {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![NAME.to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut request = [0; 1024];
                let length = stream.read(&mut request).await.unwrap();
                assert!(request.get(..length).unwrap().starts_with(b"GET /livez HTTP/1.1\r\n"));
                match answer {
                    Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                    None => std::future::pending().await,
                }
            }
        });
        ApiServer {
            host: "127.0.0.1".to_owned(),
            port,
        }
    }

    #[tokio::test]
    async fn any_answer_counts_without_token_and_ca() {
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
        ] {
            answers(&server(Some(answer)).await, LIMIT).await.unwrap();
        }
    }

    #[tokio::test]
    async fn silence_and_nonsense_count_for_nothing() {
        let silent = server(None).await;
        let error = answers(&silent, Duration::from_millis(300)).await.unwrap_err();
        assert!(error.contains("no answer within"), "{error}");
        answers(&server(Some("220 mail.example\r\n")).await, LIMIT)
            .await
            .unwrap_err();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = ApiServer {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
        };
        drop(listener);
        answers(&nobody, LIMIT).await.unwrap_err();
    }
}
