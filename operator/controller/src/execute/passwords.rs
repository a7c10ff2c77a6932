//! `GeneratePasswords`: made once, completed, never replaced. Only the URI is composed anew.

use k8s_openapi::api::core::v1::Secret;
use mainstay_core::observed::{ObjectKey, ObjectKind};
use secrecy::{ExposeSecret as _, SecretString};

use super::{ExecuteError, Executor};
use crate::observe::{is_ours, secret_view};
use crate::platform::Entropy;
use crate::secret_data::{self, PASSWORD, URI, escape};

/// Characters of a password: safe in a URI, in a shell and between quotes of any kind. 62 letters and digits, and two
/// others for those who demand them; 64, so that a byte gives one without bias.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.";
/// Characters: 6 bits each.
const LENGTH: usize = 32;

/// A random password with a capital, a small letter, a digit and another character, which begins and ends with a letter
/// or digit.
pub(crate) fn password(entropy: &dyn Entropy) -> SecretString {
    loop {
        let mut bytes = [0_u8; LENGTH];
        entropy.fill(&mut bytes);
        let text: String = bytes
            .iter()
            .filter_map(|byte| ALPHABET.get(usize::from(byte & 63)))
            .map(|c| char::from(*c))
            .collect();
        let plain = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let classes: [fn(char) -> bool; 4] = [
            |c| c.is_ascii_uppercase(),
            |c| c.is_ascii_lowercase(),
            |c| c.is_ascii_digit(),
            |c| !c.is_ascii_alphanumeric(),
        ];
        let ends = plain(text.chars().next()) && plain(text.chars().next_back());
        if ends && classes.iter().all(|class| text.chars().any(class)) {
            return text.into();
        }
    }
}

impl Executor<'_> {
    pub(super) async fn generate_passwords(
        &self,
        name: &str,
        keys: &[String],
        fixed: &[(String, String)],
        owned: bool,
    ) -> Result<(), ExecuteError> {
        let attempt = || format!("write the passwords of Secret {name}");
        let existing = self.own_secret(name, &attempt()).await?;
        let mut secret = existing.clone().unwrap_or_else(|| self.new_secret(name, owned));
        for key in keys.iter().filter(|key| *key != URI) {
            if secret_data::text(&secret, key).is_none() {
                secret_data::set_secret(&mut secret, key, &password(self.context.platform.entropy.as_ref()));
            }
        }
        for (key, value) in fixed {
            secret_data::set_text(&mut secret, key, value);
        }
        if keys.iter().any(|key| key == URI)
            && let Some(uri) = uri(&secret)
        {
            secret_data::set_secret(&mut secret, URI, &uri);
        }
        self.write_secret(existing.as_ref(), secret, &attempt()).await
    }

    /// A Secret of this cluster as the API server has it now. One of that name that is not ours is an error.
    pub(super) async fn own_secret(&self, name: &str, attempt: &str) -> Result<Option<Secret>, ExecuteError> {
        let secrets = self.context.requests.typed::<Secret>(&self.cluster.namespace);
        let found = secrets
            .get(name)
            .await
            .map_err(|error| ExecuteError::kube(attempt, error))?;
        match found {
            Some(secret) if !is_ours(&secret.metadata, self.cluster, &self.uid) => {
                if self.is_left_behind(&secret.metadata) {
                    self.keep_secret(secret);
                } else {
                    let key = ObjectKey {
                        kind: ObjectKind::Secret,
                        name: name.to_owned(),
                    };
                    let view = secret_view(&secret_data::redact(secret), false, false);
                    self.context.memories.foreign(self.cluster, &key, view);
                }
                Err(ExecuteError::Foreign {
                    attempt: attempt.to_owned(),
                })
            }
            found => Ok(found),
        }
    }

    /// Lets an existing Secret be deleted with the cluster, or outlive it.
    pub(super) async fn own(&self, name: &str, owned: bool) -> Result<(), ExecuteError> {
        let attempt = format!("change who owns Secret {name}");
        let Some(existing) = self.own_secret(name, &attempt).await? else {
            return Ok(());
        };
        let mut secret = existing.clone();
        let owners = secret.metadata.owner_references.get_or_insert_default();
        owners.retain(|owner| owner.controller != Some(true));
        owners.extend(owned.then(|| self.owner_reference()).flatten());
        self.write_secret(Some(&existing), secret, &attempt).await
    }

    /// A new Secret of this cluster. One that is not owned outlives the cluster, as its claims do.
    pub(super) fn new_secret(&self, name: &str, owned: bool) -> Secret {
        let mut secret = secret_data::named(&self.cluster.namespace, name);
        secret.metadata.labels = Some(self.names().labels());
        secret.metadata.owner_references = if owned {
            self.owner_reference().map(|owner| vec![owner])
        } else {
            None
        };
        secret
    }

    /// Creates the Secret, or replaces it if it is still as it was read.
    pub(super) async fn write_secret(
        &self,
        existing: Option<&Secret>,
        secret: Secret,
        attempt: &str,
    ) -> Result<(), ExecuteError> {
        let secrets = self.context.requests.typed::<Secret>(&self.cluster.namespace);
        let written = match existing {
            Some(existing) if *existing == secret => return Ok(()),
            Some(_) => {
                let name = secret.metadata.name.clone().unwrap_or_default();
                secrets.replace(&name, &secret).await
            }
            None => secrets.create(&secret).await,
        };
        self.keep_secret(written.map_err(|error| ExecuteError::kube(attempt, error))?);
        Ok(())
    }
}

/// Connection URI of what the Secret holds. Only the password is secret, and it needs no escapes.
fn uri(secret: &Secret) -> Option<SecretString> {
    let value = |key| secret_data::text(secret, key);
    let (account, server, port) = (value("username")?, value("host")?, value("port")?);
    let password = secret_data::secret(secret, PASSWORD)?;
    let database = value("database").unwrap_or_default();
    let (account, database) = (escape(&account), escape(&database));
    Some(
        format!(
            "mysql://{account}:{}@{server}:{port}/{database}",
            escape(password.expose_secret())
        )
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemEntropy;

    #[test]
    fn passwords_need_no_quoting_anywhere() {
        for _ in 0..1000 {
            let password = password(&SystemEntropy);
            let text = password.expose_secret();
            assert_eq!(text.len(), 32);
            assert!(
                text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.'),
                "{text}"
            );
            assert_eq!(escape(text), text);
        }
    }

    #[test]
    fn a_uri_escapes_what_a_person_chose() {
        let mut secret = secret_data::named("db", "shop-app");
        for (key, value) in [
            ("username", "app"),
            ("host", "shop-primary.db.svc"),
            ("port", "3306"),
            ("database", "app"),
        ] {
            secret_data::set_text(&mut secret, key, value);
        }
        assert!(uri(&secret).is_none(), "no password yet");
        secret_data::set_text(&mut secret, "password", "a@b:/?%");
        let uri = uri(&secret).unwrap();
        assert_eq!(
            uri.expose_secret(),
            "mysql://app:a%40b%3A%2F%3F%25@shop-primary.db.svc:3306/app"
        );
    }
}
