//! From where a cluster's first data are recovered: the declared source, and what it names, as the documents with which the
//! first instance recovers them. Values of Secrets live in here for the length of one call.

use mainstay_api::backup::{BackupPhase, MySQLBackup};
use mainstay_api::recovery::Recovery;
use mainstay_api::store::{SecretEntry, Store};
use mainstay_api::{MySQLCluster, MySQLClusterSpec};
use mainstay_core::backup::ClusterIdentity;
use mainstay_core::validate::RecoveryWish;
use mainstay_store::archive::PrivateKey;
use mainstay_store::{Access, RecoveryOrder, RecoverySource};

use crate::store_access::{AccessError, Reader, refused as refused_at};

/// Where the source is declared.
const FIELD: &str = "spec.bootstrap.recovery";
/// What stands in the access for a uid that is not declared: the first instance finds it out.
const ANY: &str = "any";

fn refused(field: &str, message: impl Into<String>) -> AccessError {
    refused_at(format!("{FIELD}.{field}"), message)
}

/// Looks the source of a recovery up.
pub(crate) struct Lookup<'a> {
    pub(crate) reader: Reader<'a>,
}

/// What the source says.
struct Found {
    store: Store,
    /// Where the store is declared.
    field: &'static str,
    source: RecoverySource,
    /// The keys of the source, unless others are declared.
    keys: Option<SecretEntry>,
}

impl Lookup<'_> {
    /// Both documents: the access, with private keys, and what is to be recovered.
    pub(crate) async fn documents(&self, wish: &RecoveryWish) -> Result<(Access, RecoveryOrder), AccessError> {
        let declared = &wish.declared;
        let found = self.source(declared).await?;
        let uid = found.source.uid.as_deref().unwrap_or(ANY);
        let cluster = ClusterIdentity::new(&found.source.namespace, &found.source.name, uid)
            .map_err(|error| refused("source.cluster", error.to_string()))?;
        let private_keys = match (&declared.key_secret, &found.keys) {
            (Some(entry), _) => self.private_keys(entry, Some("keySecret")).await?,
            (None, Some(entry)) => self.private_keys(entry, None).await?,
            (None, None) => Vec::new(),
        };
        let access = Access {
            store: self
                .reader
                .settings(&found.store, &format!("{FIELD}.{}", found.field))
                .await?,
            cluster,
            archive: false,
            recipient: None,
            private_keys,
        };
        let order = RecoveryOrder {
            request: wish.request.clone(),
            source: found.source,
            target: wish.target.clone(),
        };
        Ok((access, order))
    }

    async fn source(&self, declared: &Recovery) -> Result<Found, AccessError> {
        let source = &declared.source;
        match (&source.backup, &source.store, &source.cluster) {
            (Some(backup), _, _) => self.of_backup(backup).await,
            (None, Some(store), Some(cluster)) => Ok(Found {
                store: store.clone(),
                field: "source.store",
                source: RecoverySource {
                    namespace: cluster.namespace.clone(),
                    name: cluster.name.clone(),
                    uid: cluster.uid.clone(),
                },
                keys: None,
            }),
            // What CEL refuses.
            _ => Err(refused(
                "source",
                "set backup (the name of a MySQLBackup), or store and cluster",
            )),
        }
    }

    /// A `MySQLBackup` says where it is; with which rights, it or its cluster.
    async fn of_backup(&self, name: &str) -> Result<Found, AccessError> {
        const FIELD: &str = "source.backup";
        let namespace = self.reader.namespace;
        let Some(backup) = self.get::<MySQLBackup>(name).await? else {
            let message = format!(
                "there is no MySQLBackup {name} in namespace {namespace}; name another one, or source.store and source.cluster"
            );
            return Err(refused(FIELD, message));
        };
        let status = backup.status.unwrap_or_default();
        let location = status.location.filter(|_| status.phase == Some(BackupPhase::Succeeded));
        let Some(location) = location else {
            let message = format!("MySQLBackup {name} has not succeeded; name another one");
            return Err(refused(FIELD, message));
        };
        let cluster = self.get::<MySQLCluster>(&backup.spec.cluster).await?;
        let settings = cluster.and_then(|cluster| {
            let MySQLClusterSpec { backup, .. } = cluster.spec;
            backup
        });
        let keys = settings.as_ref().and_then(|settings| settings.encryption.clone());
        let store = backup.spec.store.or_else(|| settings.map(|settings| settings.store));
        let Some(store) = store else {
            let message = format!(
                "the cluster {} of MySQLBackup {name} has no spec.backup.store any more; name source.store and \
                 source.cluster instead of it",
                backup.spec.cluster
            );
            return Err(refused(FIELD, message));
        };
        let Some(source) = cluster_at(&location, &store) else {
            let message = format!(
                "MySQLBackup {name} is at {location}, which is not in the bucket {} of its store; name source.store and \
                 source.cluster instead of it",
                store.bucket
            );
            return Err(refused(FIELD, message));
        };
        Ok(Found {
            store,
            field: FIELD,
            source,
            keys: keys.map(|encryption| encryption.key_secret),
        })
    }

    /// The key in an entry, and all others of that Secret. An entry that is named for a recovery has to be a private key; what a
    /// cluster encrypts with may be the public one.
    async fn private_keys(&self, entry: &SecretEntry, field: Option<&str>) -> Result<Vec<PrivateKey>, AccessError> {
        let field = match field {
            Some(field) => {
                let field = format!("{FIELD}.{field}");
                self.reader.private_key(entry, &field).await?;
                field
            }
            None => format!("{FIELD}.source.backup"),
        };
        self.reader.private_keys(&entry.name, &field).await
    }

    async fn get<K>(&self, name: &str) -> Result<Option<K>, AccessError>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let Reader {
            requests, namespace, ..
        } = &self.reader;
        let found = requests.typed::<K>(namespace).get(name).await;
        found.map_err(|error| AccessError::Kube(Box::new(error)))
    }
}

/// The cluster whose backup has its manifest there: `s3://bucket/[prefix/]namespace/name/uid/backups/id/manifest.json`.
fn cluster_at(location: &str, store: &Store) -> Option<RecoverySource> {
    let key = location
        .strip_prefix("s3://")?
        .strip_prefix(&store.bucket)?
        .strip_prefix('/')?;
    let prefix = store.prefix.as_deref().unwrap_or_default().trim_matches('/');
    let key = match prefix {
        "" => key,
        prefix => key.strip_prefix(prefix)?.strip_prefix('/')?,
    };
    let mut parts = key.split('/');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let source = RecoverySource {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: Some(uid.to_owned()),
    };
    (parts.next() == Some("backups")).then_some(source)
}

#[cfg(test)]
mod tests {
    use mainstay_core::backup::restore::Target;
    use rstest::rstest;
    use secrecy::ExposeSecret as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::secret_data;
    use crate::stores::S3Stores;
    use crate::testing::{Fake, requests};

    /// Looks a source up among these objects, by the last part of their path; Secrets are given by their texts.
    async fn look_up(recovery: Value, objects: Value) -> Result<(Access, RecoveryOrder), AccessError> {
        let fake = Fake::new(move |_, path, _| {
            let name = path.rsplit('/').next().unwrap_or_default();
            let Some(object) = objects.get(name) else {
                return Fake::failure(404);
            };
            if !path.contains("/secrets/") {
                return (200, object.clone());
            }
            let mut secret = secret_data::named("db", name);
            for (key, text) in object.as_object().into_iter().flatten() {
                secret_data::set_text(&mut secret, key, text.as_str().unwrap_or_default());
            }
            (200, serde_json::to_value(secret).unwrap_or_default())
        });
        let wish = RecoveryWish {
            declared: serde_json::from_value(recovery).unwrap(),
            target: Target::Latest,
            request: "wish".to_owned(),
        };
        let requests = requests(&fake);
        let lookup = Lookup {
            reader: Reader {
                requests: &requests,
                namespace: "db",
                stores: &S3Stores,
            },
        };
        lookup.documents(&wish).await
    }

    fn store() -> Value {
        json!({"bucket": "backups", "prefix": "mysql", "endpoint": "http://s3.example", "credentialsSecret": {"name": "s3"}})
    }

    fn keys() -> Value {
        json!({"accessKeyId": "AKIA\n", "secretAccessKey": "hidden-key\n"})
    }

    fn from_store() -> Value {
        json!({"source": {"store": store(), "cluster": {"namespace": "prod", "name": "shop"}}})
    }

    fn from_backup() -> Value {
        json!({"source": {"backup": "nightly"}})
    }

    fn backup(location: &str) -> Value {
        json!({"apiVersion": "mysql.mainstay.dev/v1", "kind": "MySQLBackup", "metadata": {"name": "nightly"},
            "spec": {"cluster": "old"}, "status": {"phase": "Succeeded", "location": location}})
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is a literal")]
    fn cluster(settings: Value) -> Value {
        json!({"apiVersion": "mysql.mainstay.dev/v1", "kind": "MySQLCluster", "metadata": {"name": "old"},
            "spec": {"replicas": 1, "image": "mysql:9.7.4", "storage": {"size": "1Gi"}, "backup": settings}})
    }

    const THERE: &str = "s3://backups/mysql/db/old/u1/backups/20261130t073000z-x7k2p/manifest.json";

    #[tokio::test]
    async fn a_bucket_and_a_cluster_are_enough() {
        let (access, order) = look_up(from_store(), json!({"s3": keys()})).await.unwrap();
        assert_eq!(access.store.bucket, "backups");
        assert!(access.store.path_style && access.private_keys.is_empty());
        assert_eq!(order.request, "wish");
        let source = RecoverySource {
            namespace: "prod".to_owned(),
            name: "shop".to_owned(),
            uid: None,
        };
        assert_eq!(order.source, source);
        assert!(access.to_json().expose_secret().contains("hidden-key"));
    }

    #[tokio::test]
    async fn a_backup_says_where_it_is_and_its_cluster_with_which_rights() {
        let (old, new) = (PrivateKey::generate(), PrivateKey::generate());
        let text = |key: &PrivateKey| format!("# a comment\n{}\n", key.to_text().expose_secret());
        let settings = json!({"store": store(), "encryption": {"keySecret": {"name": "keys", "key": "k2"}}});
        let objects = json!({"nightly": backup(THERE), "old": cluster(settings), "s3": keys(),
            "keys": {"k1": text(&old), "k2": text(&new), "readme": "no key"}});
        let (access, order) = look_up(from_backup(), objects).await.unwrap();
        assert_eq!(order.source.uid.as_deref(), Some("u1"));
        assert_eq!(access.cluster.uid(), "u1");
        let ids: Vec<_> = access.private_keys.iter().map(|key| key.recipient().key_id()).collect();
        assert_eq!(ids, [old.recipient().key_id(), new.recipient().key_id()]);
    }

    #[rstest]
    #[case::no_secret(from_store(), json!({}), "source.store.credentialsSecret: there is no Secret s3 in namespace db")]
    #[case::no_entry(from_store(), json!({"s3": {"accessKeyId": "x"}}), "has no entry secretAccessKey")]
    #[case::no_backup(from_backup(), json!({}), "source.backup: there is no MySQLBackup nightly")]
    #[case::not_succeeded(from_backup(), json!({"nightly": {"apiVersion": "mysql.mainstay.dev/v1", "kind": "MySQLBackup",
        "metadata": {}, "spec": {"cluster": "old"}}}), "MySQLBackup nightly has not succeeded")]
    #[case::no_cluster(from_backup(), json!({"nightly": backup(THERE)}), "the cluster old of MySQLBackup nightly has no")]
    #[case::elsewhere(from_backup(), json!({"nightly": backup("s3://other/mysql/db/old/u1/backups/x/manifest.json"),
        "old": cluster(json!({"store": store()}))}), "not in the bucket backups")]
    #[tokio::test]
    async fn what_cannot_be_used_is_named_with_its_field(
        #[case] recovery: Value,
        #[case] objects: Value,
        #[case] words: &str,
    ) {
        let Err(AccessError::Refused(refusal)) = look_up(recovery, objects).await else {
            panic!("not refused");
        };
        let message = format!("{}: {}", refusal.field, refusal.message);
        assert!(
            message.contains(words) && message.starts_with("spec.bootstrap.recovery.source"),
            "{message}"
        );
    }

    #[tokio::test]
    async fn a_key_that_is_none_is_not_quoted() {
        let mut recovery = from_store();
        recovery["keySecret"] = json!({"name": "keys", "key": "k1"});
        for text in ["AGE-SECRET-KEY-1HIDDEN", "age1hidden", ""] {
            let objects = json!({"s3": keys(), "keys": {"k1": text}});
            let Err(AccessError::Refused(refusal)) = look_up(recovery.clone(), objects).await else {
                panic!("not refused");
            };
            let message = format!("{}: {}", refusal.field, refusal.message);
            assert!(message.starts_with("spec.bootstrap.recovery.keySecret"), "{message}");
            assert!(!message.to_lowercase().contains("hidden"), "{message}");
        }
    }
}
