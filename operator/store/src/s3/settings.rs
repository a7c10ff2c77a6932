//! How the S3 client is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    AppName, BehaviorVersion, Builder, Credentials, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    SharedCredentialsProvider, SharedHttpClient,
};
use aws_smithy_http_client::tls::{self, TlsContext, TrustStore};
use mainstay_core::backup::Folder;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret as _, SecretString};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the first byte of an answer may take.
const FIRST_BYTE: Duration = Duration::from_secs(30);
/// How long one attempt may take, up to the head of the answer.
const ATTEMPT: Duration = Duration::from_mins(1);
/// How long a request may take with all its attempts.
const OPERATION: Duration = Duration::from_mins(3);
/// The least that an upload is granted, in bytes a second: 256 KiB.
const SLOWEST: u64 = 256 * 1024;

/// Attempts of a request that somebody waits for: two seconds of outage are survived.
const ATTEMPTS: u32 = 4;
/// Attempts of a request whose failure would throw away hours of work: half a minute of outage is survived.
const PATIENT_ATTEMPTS: u32 = 10;

/// Access key and secret.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Access key; no secret.
    pub access_key: String,
    /// Secret key.
    pub secret_key: SecretString,
    /// Session token of temporary credentials.
    pub session_token: Option<SecretString>,
}

/// How a store is told who asks.
#[derive(Clone, Debug)]
pub enum Identity {
    /// With keys from a Secret.
    Keys(Keys),
    /// With what the pod's surroundings offer: environment, web identity (IRSA), EKS Pod Identity, machine role. They are
    /// asked only when this is chosen.
    Pod,
}

/// Which store, and how it is reached.
#[derive(Clone, Debug)]
pub struct Settings {
    /// URL of the store; AWS if absent.
    pub endpoint: Option<String>,
    /// Region; many stores other than AWS take any.
    pub region: String,
    /// Bucket.
    pub bucket: String,
    /// What every key begins with; may be empty.
    pub prefix: String,
    /// The bucket is part of the path, not of the host name: what most stores other than AWS need.
    pub path_style: bool,
    /// CA certificates in PEM, of which one has to have signed the store's certificate; those of the system if absent.
    pub ca: Option<String>,
    /// Who asks.
    pub identity: Identity,
}

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A text is not what it should be.
    #[error("failed to use the object store: {what} {value:?}: {reason}")]
    Invalid {
        /// Which setting.
        what: &'static str,
        /// Its value.
        value: String,
        /// What is wrong.
        reason: String,
    },
    /// The CA is not usable.
    #[error("failed to use the object store: the CA: {reason}; give one or more certificates in PEM")]
    Ca {
        /// What is wrong.
        reason: String,
    },
}

/// A client, and what its errors say of it.
pub(super) struct Connected {
    pub(super) client: Client,
    pub(super) endpoint: Arc<str>,
    pub(super) bucket: Arc<str>,
    pub(super) prefix: Folder,
}

pub(super) async fn connect(settings: Settings) -> Result<Connected, SettingsError> {
    let invalid = |what, value: &str, reason: &dyn fmt::Display| SettingsError::Invalid {
        what,
        value: value.to_owned(),
        reason: reason.to_string(),
    };
    let bucket = &settings.bucket;
    if bucket.is_empty() || bucket.contains('/') {
        return Err(invalid(
            "bucket",
            bucket,
            &"give a name without '/'; folders belong into the prefix",
        ));
    }
    let prefix = Folder::parse(settings.prefix.trim_matches('/'))
        .map_err(|error| invalid("prefix", &settings.prefix, &error))?;
    if let Some(endpoint) = &settings.endpoint {
        let url = endpoint
            .strip_prefix("https://")
            .or_else(|| endpoint.strip_prefix("http://"));
        if url.is_none_or(|rest| rest.is_empty() || rest.contains(['@', '?', '#', ' '])) {
            return Err(invalid(
                "endpoint",
                endpoint,
                &"give http:// or https://, a host and a port if need be",
            ));
        }
    }
    let http = http_client(settings.ca.as_deref())?;
    let region = Region::new(settings.region.clone());
    let app = AppName::new(concat!("mainstay-", env!("CARGO_PKG_VERSION")))
        .map_err(|error| invalid("user agent", env!("CARGO_PKG_VERSION"), &error))?;
    let mut config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http)
        .app_name(app)
        .force_path_style(settings.path_style)
        // What is sent carries a checksum that was computed before; what is read is verified when it is asked for.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .timeout_config(timeouts(0))
        .retry_config(retries(ATTEMPTS));
    config.set_credentials_provider(credentials(settings.identity, region.clone()).await?);
    config.set_region(Some(region));
    config.set_endpoint_url(settings.endpoint.clone());
    let endpoint = settings.endpoint.unwrap_or_else(|| format!("AWS {}", settings.region));
    Ok(Connected {
        client: Client::from_conf(config.build()),
        endpoint: endpoint.into(),
        bucket: settings.bucket.into(),
        prefix,
    })
}

async fn credentials(identity: Identity, region: Region) -> Result<Option<SharedCredentialsProvider>, SettingsError> {
    Ok(match identity {
        Identity::Keys(keys) => Some(SharedCredentialsProvider::new(Credentials::new(
            keys.access_key,
            keys.secret_key.expose_secret(),
            keys.session_token.map(|token| token.expose_secret().to_owned()),
            None,
            "Secret",
        ))),
        Identity::Pod => aws_config::defaults(BehaviorVersion::latest())
            .http_client(http_client(None)?)
            .region(region)
            .timeout_config(timeouts(0))
            .load()
            .await
            .credentials_provider(),
    })
}

/// The client below, with the TLS provider of the whole program. A CA that is given is the only one that is trusted.
fn http_client(ca: Option<&str>) -> Result<SharedHttpClient, SettingsError> {
    let refused = |reason: &dyn fmt::Display| SettingsError::Ca {
        reason: reason.to_string(),
    };
    let mut trust = TrustStore::empty();
    match ca {
        None => trust = trust.with_native_roots(true),
        Some(pem) => {
            check_ca(pem).map_err(|reason| refused(&reason))?;
            trust.add_pem_certificate(pem.as_bytes());
        }
    }
    let context = TlsContext::builder()
        .with_trust_store(trust)
        .build()
        .map_err(|error| refused(&error))?;
    Ok(aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc))
        .tls_context(context)
        .build_https())
}

/// The client panics at its first use if it cannot read them.
fn check_ca(pem: &str) -> Result<(), String> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    Ok(())
}

fn retries(attempts: u32) -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(attempts)
        .with_initial_backoff(Duration::from_millis(300))
        .with_max_backoff(Duration::from_secs(10))
}

/// Deadlines of a request that sends so many bytes.
fn timeouts(bytes: u64) -> TimeoutConfig {
    let transfer = Duration::from_secs(bytes / SLOWEST);
    TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        // Counted from the beginning of the request: sending is part of it.
        .read_timeout(FIRST_BYTE + transfer)
        .operation_attempt_timeout(ATTEMPT + transfer)
        .operation_timeout(OPERATION + 3 * transfer)
        .build()
}

/// What replaces the client's settings for a request that sends so many bytes.
pub(super) fn transfer(bytes: u64) -> Builder {
    Builder::new().timeout_config(timeouts(bytes))
}

/// The same for a request whose failure would throw away much work.
pub(super) fn patient_transfer(bytes: u64) -> Builder {
    transfer(bytes).retry_config(retries(PATIENT_ATTEMPTS))
}

/// The same for a request that takes the store long.
pub(super) fn slow_answer(limit: Duration) -> Builder {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .read_timeout(limit)
        .operation_attempt_timeout(limit)
        .operation_timeout(2 * limit)
        .build();
    Builder::new()
        .timeout_config(timeouts)
        .retry_config(retries(PATIENT_ATTEMPTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            endpoint: Some("http://127.0.0.1:1".to_owned()),
            region: "us-east-1".to_owned(),
            bucket: "backups".to_owned(),
            prefix: "/prod/".to_owned(),
            path_style: true,
            ca: None,
            identity: Identity::Keys(Keys {
                access_key: "key".to_owned(),
                secret_key: "very secret".into(),
                session_token: Some("token of a session".into()),
            }),
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", settings());
        assert!(
            !shown.contains("very secret") && !shown.contains("token of a session"),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn prefixes_are_folders() {
        assert_eq!(connect(settings()).await.ok().unwrap().prefix.as_str(), "prod/");
        let bare = Settings {
            prefix: "/".to_owned(),
            ..settings()
        };
        assert_eq!(connect(bare).await.ok().unwrap().prefix.as_str(), "");
    }

    #[tokio::test]
    async fn what_cannot_work_is_refused_with_its_reason() {
        let refused = |settings: Settings| async { connect(settings).await.err().unwrap().to_string() };
        for bucket in ["", "backups/prod"] {
            let error = refused(Settings {
                bucket: bucket.to_owned(),
                ..settings()
            })
            .await;
            assert!(error.contains("bucket"), "{error}");
        }
        for endpoint in ["minio:9000", "https://", "http://user:password@minio"] {
            let error = refused(Settings {
                endpoint: Some(endpoint.to_owned()),
                ..settings()
            })
            .await;
            assert!(error.contains("endpoint"), "{error}");
        }
        for ca in [
            "",
            "no PEM",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let error = refused(Settings {
                ca: Some(ca.to_owned()),
                ..settings()
            })
            .await;
            assert!(error.contains("CA"), "{error}");
        }
        let error = refused(Settings {
            prefix: "a/../b".to_owned(),
            ..settings()
        })
        .await;
        assert!(error.contains("prefix"), "{error}");
    }
}
