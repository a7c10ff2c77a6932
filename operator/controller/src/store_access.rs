//! The access to a store, from what is declared and the user's Secrets that it names. Values live in here for the length of
//! one call.

use k8s_openapi::api::core::v1::Secret;
use mainstay_api::store::{SecretEntry, Store};
use mainstay_core::backup::ClusterIdentity;
use mainstay_core::validate::Destination;
use mainstay_store::archive::{PrivateKey, Recipient};
use mainstay_store::{Access, Identity, Keys, Settings};
use secrecy::{ExposeSecret as _, SecretString};

use crate::requests::Requests;
use crate::secret_data;
use crate::stores::Stores;

/// Region that most stores other than AWS take.
const REGION: &str = "us-east-1";

/// Why there is no access.
#[derive(Debug)]
pub(crate) enum AccessError {
    /// What is declared cannot be used.
    Refused(Refusal),
    /// The API server did not answer.
    Kube(Box<kube::Error>),
}

/// What is wrong with a field, and what to do; never a value of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The field, for example `spec.backup.store.credentialsSecret`.
    pub(crate) field: String,
    /// The sentence.
    pub(crate) message: String,
}

pub(crate) fn refused(field: impl Into<String>, message: impl Into<String>) -> AccessError {
    AccessError::Refused(Refusal {
        field: field.into(),
        message: message.into(),
    })
}

/// Reads the Secrets of one namespace that a spec names.
pub(crate) struct Reader<'a> {
    pub(crate) requests: &'a Requests,
    pub(crate) namespace: &'a str,
    pub(crate) stores: &'a dyn Stores,
}

impl Reader<'_> {
    /// What the instances and Jobs of a cluster are given: without a private key.
    pub(crate) async fn access(
        &self,
        destination: &Destination,
        cluster: ClusterIdentity,
    ) -> Result<Access, AccessError> {
        let store = self.settings(&destination.store, "spec.backup.store").await?;
        let recipient = match &destination.key {
            None => None,
            Some(entry) => Some(self.recipient(entry, "spec.backup.encryption.keySecret").await?),
        };
        Ok(Access {
            store,
            cluster,
            archive: destination.archive,
            recipient,
            private_keys: Vec::new(),
        })
    }

    /// A declared store with its keys and its CA; `field` is where it is declared.
    pub(crate) async fn settings(&self, store: &Store, field: &str) -> Result<Settings, AccessError> {
        let identity = match &store.credentials_secret {
            // CEL has seen to it that one of the two is set.
            None => Identity::Pod,
            Some(named) => {
                let field = format!("{field}.credentialsSecret");
                let secret = self.secret(&named.name, &field).await?;
                let entry = |name: Option<&str>, default: &str| {
                    let key = name.unwrap_or(default);
                    value(&secret, &named.name, key, &field)
                };
                let token = named.session_token.as_deref();
                Identity::Keys(Keys {
                    access_key: entry(named.access_key_id.as_deref(), "accessKeyId")?
                        .expose_secret()
                        .to_owned(),
                    secret_key: entry(named.secret_access_key.as_deref(), "secretAccessKey")?,
                    session_token: token.map(|name| entry(Some(name), name)).transpose()?,
                })
            }
        };
        let ca = match (&store.ca_secret, &store.ca_bundle) {
            (Some(entry), _) => {
                let pem = self.entry(entry, &format!("{field}.caSecret")).await?;
                Some(pem.expose_secret().to_owned())
            }
            (None, bundle) => bundle.clone(),
        };
        let settings = Settings {
            endpoint: store.endpoint.clone(),
            region: store.region.clone().unwrap_or_else(|| REGION.to_owned()),
            bucket: store.bucket.clone(),
            prefix: store.prefix.clone().unwrap_or_default(),
            path_style: store.path_style.unwrap_or(store.endpoint.is_some()),
            ca,
            identity,
        };
        // What no client can be made of is told now and not by each pod.
        let opened = self.stores.open(settings.clone()).await;
        opened.map_err(|reason| refused(field, reason))?;
        Ok(settings)
    }

    /// For whom content is encrypted: the public key in an entry, or that of the private key in it.
    pub(crate) async fn recipient(&self, entry: &SecretEntry, field: &str) -> Result<Recipient, AccessError> {
        let text = self.entry(entry, field).await?;
        let is_public = text.expose_secret().trim_start().starts_with("age1");
        let key = if is_public {
            text.expose_secret().parse()
        } else {
            PrivateKey::parse(&text).map(|key| key.recipient())
        };
        key.map_err(|error| unusable(entry, field, &error.to_string()))
    }

    /// One entry.
    pub(crate) async fn entry(&self, entry: &SecretEntry, field: &str) -> Result<SecretString, AccessError> {
        let secret = self.secret(&entry.name, field).await?;
        value(&secret, &entry.name, &entry.key, field)
    }

    /// Every private key in a Secret: what was stored before a rotation needs the key of then. What else is in it is passed over.
    pub(crate) async fn private_keys(&self, name: &str, field: &str) -> Result<Vec<PrivateKey>, AccessError> {
        let secret = self.secret(name, field).await?;
        let names = secret.data.iter().flatten().map(|(name, _)| name);
        let texts = names.filter_map(|name| secret_data::secret(&secret, name));
        Ok(texts.filter_map(|text| PrivateKey::parse(&text).ok()).collect())
    }

    /// The private key in an entry, which has to be one.
    pub(crate) async fn private_key(&self, entry: &SecretEntry, field: &str) -> Result<PrivateKey, AccessError> {
        let text = self.entry(entry, field).await?;
        PrivateKey::parse(&text).map_err(|error| unusable(entry, field, &error.to_string()))
    }

    async fn secret(&self, name: &str, field: &str) -> Result<Secret, AccessError> {
        let secrets = self.requests.typed::<Secret>(self.namespace);
        let found = secrets
            .get(name)
            .await
            .map_err(|error| AccessError::Kube(Box::new(error)))?;
        let namespace = self.namespace;
        found.ok_or_else(|| {
            let message = format!("there is no Secret {name} in namespace {namespace}; create it, or name another one");
            refused(field, message)
        })
    }
}

/// An entry that is there and is text; line breaks around it are not part of a key.
fn value(secret: &Secret, name: &str, key: &str, field: &str) -> Result<SecretString, AccessError> {
    let found = secret_data::secret(secret, key);
    let value = found.map(|value| SecretString::from(value.expose_secret().trim().to_owned()));
    value.filter(|value| !value.expose_secret().is_empty()).ok_or_else(|| {
        let message =
            format!("Secret {name} has no entry {key}, or it is empty or no text; add it, or name another entry");
        refused(field, message)
    })
}

fn unusable(entry: &SecretEntry, field: &str, why: &str) -> AccessError {
    let SecretEntry { name, key } = entry;
    let message =
        format!("the entry {key} of Secret {name} cannot be used: {why}; write a key as age-keygen prints it");
    refused(field, message)
}

#[cfg(test)]
mod tests {
    use mainstay_api::backup_settings::BackupSettings;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::stores::S3Stores;
    use crate::testing::{Fake, requests};

    /// Resolves `spec.backup` against Secrets with these texts.
    async fn resolve(backup: Value, secrets: Value) -> Result<Access, AccessError> {
        let fake = Fake::new(move |_, path, _| {
            let name = path.rsplit('/').next().unwrap_or_default();
            let Some(texts) = secrets.get(name).and_then(Value::as_object) else {
                return Fake::failure(404);
            };
            let mut secret = secret_data::named("db", name);
            for (key, text) in texts {
                secret_data::set_text(&mut secret, key, text.as_str().unwrap_or_default());
            }
            (200, serde_json::to_value(secret).unwrap_or_default())
        });
        let backup: BackupSettings = serde_json::from_value(backup).unwrap();
        let reader = Reader {
            requests: &requests(&fake),
            namespace: "db",
            stores: &S3Stores,
        };
        let cluster = ClusterIdentity::new("db", "shop", "u1").unwrap();
        reader.access(&Destination::of(&backup), cluster).await
    }

    fn store() -> Value {
        json!({"bucket": "backups", "endpoint": "http://s3.example", "credentialsSecret": {"name": "shop-s3"}})
    }

    fn keys() -> Value {
        json!({"accessKeyId": "AKIA\n", "secretAccessKey": "hidden-key\n"})
    }

    #[tokio::test]
    async fn what_is_declared_becomes_the_access() {
        let access = resolve(json!({"store": store()}), json!({"shop-s3": keys()}))
            .await
            .unwrap();
        let text = access.to_json();
        let document: Value = serde_json::from_str(text.expose_secret()).unwrap();
        assert_eq!(
            document,
            json!({"endpoint": "http://s3.example", "region": "us-east-1", "bucket": "backups", "prefix": "",
                "pathStyle": true, "keys": {"accessKey": "AKIA", "secretKey": "hidden-key"}, "namespace": "db",
                "cluster": "shop", "uid": "u1", "archive": true})
        );
    }

    /// The key itself stays where the user put it.
    #[tokio::test]
    async fn of_a_private_key_the_public_half_is_passed_on() {
        let key = PrivateKey::generate();
        let public = key.recipient().key_id();
        let file = format!(
            "# created: 2026\n# public key: {public}\n{}\n",
            key.to_text().expose_secret()
        );
        for text in [file, format!("{public}\n")] {
            let backup = json!({"store": store(), "encryption": {"keySecret": {"name": "keys", "key": "k1"}}});
            let secrets = json!({"shop-s3": keys(), "keys": {"k1": text}});
            let access = resolve(backup, secrets).await.unwrap();
            assert_eq!(access.recipient.as_ref().map(Recipient::key_id), Some(public.clone()));
            assert!(!access.to_json().expose_secret().contains("AGE-SECRET"));
        }
    }

    #[rstest]
    #[case::no_secret(json!({}), "spec.backup.store.credentialsSecret", "there is no Secret shop-s3 in namespace db")]
    #[case::no_entry(json!({"shop-s3": {"accessKeyId": "hidden-key"}}), "spec.backup.store.credentialsSecret",
        "Secret shop-s3 has no entry secretAccessKey")]
    #[case::no_ca(json!({"shop-s3": keys()}), "spec.backup.store.caSecret", "there is no Secret s3-ca")]
    #[case::bad_ca(json!({"shop-s3": keys(), "s3-ca": {"ca.crt": "hidden-ca"}}), "spec.backup.store", "the CA")]
    #[tokio::test]
    async fn what_is_missing_is_named_with_its_field(#[case] secrets: Value, #[case] field: &str, #[case] words: &str) {
        let mut store = store();
        store["caSecret"] = json!({"name": "s3-ca", "key": "ca.crt"});
        let Err(AccessError::Refused(refusal)) = resolve(json!({"store": store}), secrets).await else {
            panic!("not refused");
        };
        assert_eq!(refusal.field, field);
        assert!(refusal.message.contains(words), "{}", refusal.message);
        assert!(!refusal.message.contains("hidden"), "{}", refusal.message);
    }

    #[tokio::test]
    async fn a_key_that_is_none_is_not_quoted() {
        let backup = json!({"store": store(), "encryption": {"keySecret": {"name": "keys", "key": "k1"}}});
        for key in ["AGE-SECRET-KEY-1HIDDEN", "age1hidden", "0123"] {
            let secrets = json!({"shop-s3": keys(), "keys": {"k1": key}});
            let Err(AccessError::Refused(refusal)) = resolve(backup.clone(), secrets).await else {
                panic!("not refused");
            };
            assert_eq!(refusal.field, "spec.backup.encryption.keySecret");
            assert!(
                !refusal.message.to_lowercase().contains("hidden"),
                "{}",
                refusal.message
            );
        }
    }
}
