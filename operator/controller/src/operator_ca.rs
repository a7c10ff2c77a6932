//! The operator's own CA, in the operator's namespace, and the certificate by which managers know the operator.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use mainstay_core::layout::OPERATOR_URI;
use secrecy::SecretString;

use crate::ca_secret;
use crate::class::is_conflict;
use crate::pki::{self, PkiError, Subject};
use crate::requests::Requests;
use crate::secret_data::{self, CA_CRT, TLS_CRT, TLS_KEY};

/// Name of the Secret.
pub(crate) const SECRET: &str = "mainstay-operator-ca";
/// How long the client certificate lives; it is made anew at each start and at two thirds of this.
const CERTIFICATE_LIFETIME: Duration = Duration::from_hours(90 * 24);

/// Why the operator has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum OperatorCaError {
    /// The Secret cannot be read.
    #[error("failed to read the Secret {SECRET}")]
    Read(#[source] Box<kube::Error>),
    /// The Secret cannot be written.
    #[error("failed to write the Secret {SECRET}")]
    Write(#[source] Box<kube::Error>),
    /// What it holds is no CA.
    #[error("failed to use the Secret {SECRET}: {0} is missing")]
    Incomplete(&'static str),
    /// A certificate cannot be made of it.
    #[error("failed to use the Secret {SECRET}")]
    Pki(#[source] PkiError),
}

/// Who the operator is to the managers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Identity {
    current: Arc<RwLock<Arc<Credentials>>>,
}

/// A client certificate, its key, and the CAs by which it is known.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Certificate, PEM.
    pub certificate: String,
    /// Its key, PEM.
    pub key: SecretString,
    /// CAs of the operator, old and new, PEM: part of every cluster's bundle of client CAs.
    pub ca_bundle: String,
    /// When it has to be made anew.
    renew_at: Timestamp,
}

impl Identity {
    /// The credentials to use now.
    #[must_use]
    pub fn current(&self) -> Arc<Credentials> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the CA, or makes it when there is none, and signs the operator's certificate.
    pub(crate) async fn establish(
        requests: &Requests,
        namespace: &str,
        now: Timestamp,
    ) -> Result<Self, OperatorCaError> {
        let credentials = credentials(requests, namespace, now).await?;
        Ok(Self {
            current: Arc::new(RwLock::new(Arc::new(credentials))),
        })
    }

    /// An identity that nobody checks.
    #[cfg(test)]
    pub(crate) fn for_tests(now: Timestamp) -> Self {
        let ca = pki::create_ca("operator", now).unwrap();
        let subject = Subject {
            common_name: "operator",
            dns_names: &[],
            uri: OPERATOR_URI,
            server: false,
        };
        let pair = pki::issue(&ca, &subject, now, CERTIFICATE_LIFETIME).unwrap();
        let credentials = Credentials {
            certificate: pair.certificate,
            key: pair.key,
            ca_bundle: ca.certificate,
            renew_at: now,
        };
        Self {
            current: Arc::new(RwLock::new(Arc::new(credentials))),
        }
    }

    /// Whether the certificate, or the CA behind it, has to be looked at.
    pub(crate) fn due(&self, now: Timestamp) -> bool {
        now >= self.current().renew_at
    }

    /// Reads the CA anew and signs a new certificate.
    pub(crate) async fn renew(
        &self,
        requests: &Requests,
        namespace: &str,
        now: Timestamp,
    ) -> Result<(), OperatorCaError> {
        let credentials = credentials(requests, namespace, now).await?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(credentials);
        Ok(())
    }
}

async fn credentials(requests: &Requests, namespace: &str, now: Timestamp) -> Result<Credentials, OperatorCaError> {
    let secret = current_secret(requests, namespace, now).await?;
    let ca_bundle = secret_data::text(&secret, CA_CRT).ok_or(OperatorCaError::Incomplete(CA_CRT))?;
    let ca = ca_secret::signer(&secret, now).map_err(OperatorCaError::Pki)?;
    let ca = ca.ok_or(OperatorCaError::Incomplete(TLS_KEY))?;
    let subject = Subject {
        common_name: "mainstay operator",
        dns_names: &[],
        uri: OPERATOR_URI,
        server: false,
    };
    let pair = pki::issue(&ca, &subject, now, CERTIFICATE_LIFETIME).map_err(OperatorCaError::Pki)?;
    let renew_at = now.checked_add(CERTIFICATE_LIFETIME / 3 * 2).unwrap_or(now);
    Ok(Credentials {
        certificate: pair.certificate,
        key: pair.key,
        ca_bundle,
        renew_at,
    })
}

/// The Secret, made or renewed where it has to be. Another operator may do the same: then its result counts.
async fn current_secret(requests: &Requests, namespace: &str, now: Timestamp) -> Result<Secret, OperatorCaError> {
    let secrets = requests.typed::<Secret>(namespace);
    let read = || async {
        secrets
            .get(SECRET)
            .await
            .map_err(|e| OperatorCaError::Read(Box::new(e)))
    };
    let existing = read().await?;
    let state = ca_secret::state(existing.as_ref(), now);
    if let (Some(secret), ca_secret::State::Good) = (&existing, &state) {
        return Ok(secret.clone());
    }
    tracing::info!(namespace, ?state, "making a CA for the operator");
    let ca = pki::create_ca("mainstay operator CA", now).map_err(OperatorCaError::Pki)?;
    let mut secret = existing
        .clone()
        .unwrap_or_else(|| secret_data::named(namespace, SECRET));
    ca_secret::put(&mut secret, &ca, now);
    let written = match &existing {
        Some(_) => secrets.replace(SECRET, &secret).await,
        None => secrets.create(&secret).await,
    };
    match written {
        Ok(secret) => Ok(secret),
        Err(error) if is_conflict(&error) => read().await?.ok_or(OperatorCaError::Incomplete(TLS_CRT)),
        Err(error) => Err(OperatorCaError::Write(Box::new(error))),
    }
}
