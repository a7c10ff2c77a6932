//! The cluster's CA, its server certificate, and the bundle of CAs whose clients the managers accept.

use std::time::Duration;

use mainstay_core::layout;

use super::{ExecuteError, Executor};
use crate::ca_secret;
use crate::pki::{self, Pair, PkiError, Subject};
use crate::secret_data::{self, CA_CRT, TLS_CRT, TLS_KEY};

impl Executor<'_> {
    /// Makes the CA if there is none, or a new one beside it when two thirds of its life are over.
    pub(super) async fn create_ca(&self, owned: bool) -> Result<(), ExecuteError> {
        let name = self.names().ca_secret();
        let attempt = format!("make the CA in Secret {name}");
        let now = self.context.platform.now();
        let existing = self.own_secret(&name, &attempt).await?;
        if ca_secret::state(existing.as_ref(), now) == ca_secret::State::Good {
            return Ok(());
        }
        let ca = pki::create_ca(&format!("{} CA", self.cluster), now).map_err(|e| pki_error(&attempt, e))?;
        let mut secret = existing.clone().unwrap_or_else(|| self.new_secret(&name, owned));
        ca_secret::put(&mut secret, &ca, now);
        self.write_secret(existing.as_ref(), secret, &attempt).await
    }

    /// Signs a server certificate that all instances share (decision B11).
    pub(super) async fn issue_server_certificate(
        &self,
        dns_names: &[String],
        lifetime: Duration,
    ) -> Result<(), ExecuteError> {
        let name = self.names().server_tls_secret();
        let attempt = format!("sign the certificate in Secret {name}");
        let (ca, bundle) = self.cluster_ca(&attempt).await?;
        let uri = layout::instance_uri(&self.cluster.namespace, &self.cluster.name);
        let subject = Subject {
            common_name: &self.cluster.name,
            dns_names,
            uri: &uri,
            server: true,
        };
        let now = self.context.platform.now();
        let pair = pki::issue(&ca, &subject, now, lifetime).map_err(|e| pki_error(&attempt, e))?;
        let existing = self.own_secret(&name, &attempt).await?;
        let mut secret = existing.clone().unwrap_or_else(|| self.new_secret(&name, true));
        secret.type_ = Some(secret_data::TLS_TYPE.to_owned());
        secret_data::set_pair(&mut secret, &pair);
        secret_data::set_text(&mut secret, CA_CRT, &bundle);
        self.write_secret(existing.as_ref(), secret, &attempt).await
    }

    /// Writes the CAs whose clients the managers accept: the operator's and the cluster's, old and new.
    pub(super) async fn write_client_ca(&self) -> Result<(), ExecuteError> {
        let name = self.names().client_ca_secret();
        let attempt = format!("write the CAs in Secret {name}");
        let (_, cluster_bundle) = self.cluster_ca(&attempt).await?;
        let operator = self.context.identity.current();
        let bundle = pki::bundle(
            [operator.ca_bundle.as_str(), &cluster_bundle],
            self.context.platform.now(),
        );
        let existing = self.own_secret(&name, &attempt).await?;
        let mut secret = existing.clone().unwrap_or_else(|| self.new_secret(&name, true));
        secret_data::set_text(&mut secret, CA_CRT, &bundle);
        self.write_secret(existing.as_ref(), secret, &attempt).await
    }

    /// The cluster's CA, read from the API server, and its bundle.
    async fn cluster_ca(&self, attempt: &str) -> Result<(Pair, String), ExecuteError> {
        let name = self.names().ca_secret();
        let missing = |key: &str| ExecuteError::Missing {
            attempt: attempt.to_owned(),
            missing: format!("{key} of Secret {name}"),
        };
        let secret = self.own_secret(&name, attempt).await?.ok_or_else(|| missing(TLS_CRT))?;
        let signer = ca_secret::signer(&secret, self.context.platform.now()).map_err(|e| pki_error(attempt, e))?;
        let bundle = secret_data::text(&secret, CA_CRT).ok_or_else(|| missing(CA_CRT))?;
        Ok((signer.ok_or_else(|| missing(TLS_KEY))?, bundle))
    }
}

fn pki_error(attempt: &str, source: PkiError) -> ExecuteError {
    ExecuteError::Pki {
        attempt: attempt.to_owned(),
        source,
    }
}
