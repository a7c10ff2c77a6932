//! What a pod needs to use the store of its cluster: one JSON document, an entry of a Secret that the operator writes.
//!
//! One document and not one file a value: the kubelet swaps the files of a Secret together, but who reads several of them
//! one after the other can meet the old half of one pair and the new half of another.

use std::fmt;
use std::io;
use std::path::Path;

use mainstay_core::backup::{ClusterIdentity, InvalidKey};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::archive::{ArchiveError, PrivateKey, Recipient};
use crate::s3::{Identity, Keys, Settings};

/// Entry of the Secret, and file below its mount point.
pub const ACCESS_FILE: &str = "store.json";

/// Which store, whose folder in it, and with which keys.
#[derive(Clone, Debug)]
pub struct Access {
    /// The store.
    pub store: Settings,
    /// The cluster whose folder is read and written.
    pub cluster: ClusterIdentity,
    /// The primary archives its binlogs.
    pub archive: bool,
    /// To whom content is encrypted before it is stored; it is not if absent.
    pub recipient: Option<Recipient>,
    /// What decrypts content; only where something is restored.
    pub private_keys: Vec<PrivateKey>,
}

/// Why the document cannot be used. No error holds a value of it.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The file cannot be read.
    #[error("failed to read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It is no such document.
    #[error("failed to read the access to the store: {reason}")]
    Malformed {
        /// What is wrong, and where.
        reason: String,
    },
    /// The name of the cluster cannot be part of a key.
    #[error("failed to read the access to the store: {0}")]
    Cluster(#[from] InvalidKey),
    /// A key for encryption or decryption cannot be used.
    #[error("failed to read the access to the store: {0}")]
    Key(#[from] ArchiveError),
}

impl Access {
    /// Reads the document of a mounted Secret; `None` when there is none: the cluster has no store, or the kubelet has not
    /// brought it yet.
    pub fn read(directory: &Path) -> Result<Option<Self>, AccessError> {
        let path = directory.join(ACCESS_FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::from_json(&SecretString::from(text)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(AccessError::Read {
                path: path.display().to_string(),
                source,
            }),
        }
    }

    /// Reads what [`Access::to_json`] wrote.
    pub fn from_json(json: &SecretString) -> Result<Self, AccessError> {
        let document: Document =
            serde_json::from_str(json.expose_secret()).map_err(|error| AccessError::Malformed {
                // The error's own text may quote a value.
                reason: format!("line {}, column {}", error.line(), error.column()),
            })?;
        let private_keys = document.private_keys.into_iter().map(SecretString::from);
        Ok(Self {
            store: Settings {
                endpoint: document.endpoint,
                region: document.region,
                bucket: document.bucket,
                prefix: document.prefix,
                path_style: document.path_style,
                ca: document.ca,
                identity: document.keys.map_or(Identity::Pod, |keys| {
                    Identity::Keys(Keys {
                        access_key: keys.access_key,
                        secret_key: keys.secret_key.into(),
                        session_token: keys.session_token.map(SecretString::from),
                    })
                }),
            },
            cluster: ClusterIdentity::new(&document.namespace, &document.cluster, &document.uid)?,
            archive: document.archive,
            recipient: document.recipient.as_deref().map(str::parse).transpose()?,
            private_keys: private_keys
                .map(|key| PrivateKey::parse(&key))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The document; equal access gives equal text.
    #[must_use]
    pub fn to_json(&self) -> SecretString {
        let text = |secret: &SecretString| secret.expose_secret().to_owned();
        let document = Document {
            endpoint: self.store.endpoint.clone(),
            region: self.store.region.clone(),
            bucket: self.store.bucket.clone(),
            prefix: self.store.prefix.clone(),
            path_style: self.store.path_style,
            ca: self.store.ca.clone(),
            keys: match &self.store.identity {
                Identity::Pod => None,
                Identity::Keys(keys) => Some(DocumentKeys {
                    access_key: keys.access_key.clone(),
                    secret_key: text(&keys.secret_key),
                    session_token: keys.session_token.as_ref().map(text),
                }),
            },
            namespace: self.cluster.namespace().to_owned(),
            cluster: self.cluster.name().to_owned(),
            uid: self.cluster.uid().to_owned(),
            archive: self.archive,
            recipient: self.recipient.as_ref().map(Recipient::key_id),
            private_keys: self.private_keys.iter().map(|key| text(&key.to_text())).collect(),
        };
        // A document of texts and flags can always be written.
        SecretString::from(serde_json::to_string(&document).unwrap_or_default())
    }
}

/// The document. Unknown fields are ignored: a newer operator writes for instance managers of the former version, too.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    region: String,
    bucket: String,
    prefix: String,
    path_style: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<DocumentKeys>,
    namespace: String,
    cluster: String,
    uid: String,
    archive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    recipient: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    private_keys: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DocumentKeys {
    access_key: String,
    secret_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_token: Option<String>,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.cluster.folder();
        write!(f, "{}/{}/{}", self.store.bucket, self.store.prefix, folder.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        let key = PrivateKey::generate();
        Access {
            store: Settings {
                endpoint: Some("https://s3.example".to_owned()),
                region: "us-east-1".to_owned(),
                bucket: "backups".to_owned(),
                prefix: "mysql".to_owned(),
                path_style: true,
                ca: None,
                identity: Identity::Keys(Keys {
                    access_key: "AKIA".to_owned(),
                    secret_key: SecretString::from("hidden-key"),
                    session_token: Some(SecretString::from("hidden-token")),
                }),
            },
            cluster: ClusterIdentity::new("prod", "shop", "6f1c2a9e").unwrap(),
            archive: true,
            recipient: Some(key.recipient()),
            private_keys: vec![key],
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let written = access().to_json();
        let read = Access::from_json(&written).unwrap();
        assert_eq!(read.to_json().expose_secret(), written.expose_secret());
        assert!(read.archive);
        assert_eq!(read.private_keys.len(), 1);
    }

    #[test]
    fn nothing_secret_is_in_its_text_or_its_errors() {
        let access = access();
        let debug = format!("{access:?} {access}");
        assert!(!debug.contains("hidden") && !debug.contains("SECRET-KEY-1"), "{debug}");
        let broken = access
            .to_json()
            .expose_secret()
            .replace("\"archive\":true", "\"archive\":\"hidden-key\"");
        let error = Access::from_json(&SecretString::from(broken)).unwrap_err().to_string();
        assert!(!error.contains("hidden"), "{error}");
    }

    #[test]
    fn a_cluster_without_a_store_has_no_document() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Access::read(directory.path()).unwrap().is_none());
        std::fs::write(directory.path().join(ACCESS_FILE), access().to_json().expose_secret()).unwrap();
        assert!(Access::read(directory.path()).unwrap().is_some());
    }
}
