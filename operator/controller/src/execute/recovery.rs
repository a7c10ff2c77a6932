//! `WriteRecovery`: the Secret `<cluster>-recovery`, with which the first instance recovers its data.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use mainstay_core::analyse::RECOVERY_SOURCE;
use mainstay_core::observed::{ObjectKey, ObjectKind};
use mainstay_core::validate::RecoveryWish;
use mainstay_store::{ACCESS_FILE, RECOVERY_FILE};

use super::{ExecuteError, Executor};
use crate::memory::{May, refusal};
use crate::recovery_source::Lookup;
use crate::secret_data;
use crate::store_access::{AccessError, Reader, Refusal};

impl Executor<'_> {
    pub(super) async fn write_recovery(&self, name: &str, wish: &RecoveryWish) -> Result<(), ExecuteError> {
        let attempt = || format!("write what data are recovered with to Secret {name}");
        let key = ObjectKey {
            kind: ObjectKind::Secret,
            name: name.to_owned(),
        };
        let mut hasher = DefaultHasher::new();
        wish.request.hash(&mut hasher);
        let hash = hasher.finish();
        // A source that cannot be used is looked up again after a while: nobody watches what it names.
        if self.context.memories.may_apply(self.cluster, &key, hash, false) == May::NotYet {
            return Ok(());
        }
        let lookup = Lookup {
            reader: Reader {
                requests: &self.context.requests,
                namespace: &self.cluster.namespace,
                stores: self.context.stores.as_ref(),
            },
        };
        let (access, order) = match lookup.documents(wish).await {
            Ok(documents) => documents,
            Err(AccessError::Kube(source)) => return Err(ExecuteError::kube(attempt(), *source)),
            Err(AccessError::Refused(Refusal { field, message })) => {
                let message = format!("{field}: {message}");
                let now = self.context.platform.now();
                let warning = refusal(&key, RECOVERY_SOURCE, message.clone(), now);
                self.context.memories.refused(self.cluster, &key, hash, warning);
                return Err(ExecuteError::Declared {
                    attempt: attempt(),
                    reason: message,
                });
            }
        };
        let existing = self.own_secret(name, &attempt()).await?;
        let mut secret = existing.clone().unwrap_or_else(|| self.new_secret(name, true));
        secret.data = None;
        secret_data::set_secret(&mut secret, ACCESS_FILE, &access.to_json());
        secret_data::set_text(&mut secret, RECOVERY_FILE, &order.to_json());
        self.write_secret(existing.as_ref(), secret, &attempt()).await?;
        self.context.memories.accepted(self.cluster, &key);
        Ok(())
    }
}
