//! `WriteStoreAccess`: the Secret `<cluster>-store`.

use mainstay_core::backup::ClusterIdentity;
use mainstay_core::observed::StoreSecret;
use mainstay_core::validate::Destination;
use mainstay_store::ACCESS_FILE;

use super::{ExecuteError, Executor};
use crate::observe::store_stamp;
use crate::secret_data;
use crate::store_access::{AccessError, Reader, Refusal};

impl Executor<'_> {
    /// Writes the access to the store if it is not what is there, and remembers for which versions of the user's Secrets that
    /// is so. What is refused leaves the Secret as it is.
    pub(super) async fn write_store_access(&self, destination: Option<&Destination>) -> Result<(), ExecuteError> {
        let name = self.names().store_secret();
        let attempt = format!("write the access to the store in Secret {name}");
        let Some(destination) = destination else {
            return self.empty_store_secret(&name, &attempt).await;
        };
        let missing = |missing: String| ExecuteError::Missing {
            attempt: attempt.clone(),
            missing,
        };
        let cluster = ClusterIdentity::new(&self.cluster.namespace, &self.cluster.name, &self.uid)
            .map_err(|error| missing(error.to_string()))?;
        // Before the Secrets are read: one that changes meanwhile is read once more.
        let before = store_stamp(self.context, self.cluster, destination);
        let reader = Reader {
            requests: &self.context.requests,
            namespace: &self.cluster.namespace,
            stores: self.context.stores.as_ref(),
        };
        let outcome = match reader.access(destination, cluster).await {
            Ok(access) => {
                let existing = self.own_secret(&name, &attempt).await?;
                let mut secret = existing.clone().unwrap_or_else(|| self.new_secret(&name, true));
                secret.data = None;
                secret_data::set_secret(&mut secret, ACCESS_FILE, &access.to_json());
                self.write_secret(existing.as_ref(), secret, &attempt).await?;
                StoreSecret::Current
            }
            Err(AccessError::Refused(Refusal { field, message })) => StoreSecret::Refused { field, message },
            Err(AccessError::Kube(source)) => return Err(ExecuteError::kube(attempt, *source)),
        };
        // Our own write is a newer version of the Secret, which is no reason to look again.
        let stamp = before.with_secret_of(self.context, self.cluster);
        self.context.memories.keep_store(self.cluster, stamp, outcome);
        self.context.triggers.poke(self.cluster);
        Ok(())
    }

    async fn empty_store_secret(&self, name: &str, attempt: &str) -> Result<(), ExecuteError> {
        let Some(existing) = self.own_secret(name, attempt).await? else {
            return Ok(());
        };
        let mut secret = existing.clone();
        secret.data = None;
        self.write_secret(Some(&existing), secret, attempt).await
    }
}
