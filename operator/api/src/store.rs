//! The object store: where backups and the archive of binlogs are, and with which rights.

#![expect(
    unreachable_pub,
    reason = "KubeSchema copies each struct into a function, with its visibility"
)]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A bucket of S3, or of what speaks its language.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.credentialsSecret) != has(self.identity)")
    .message("set exactly one of credentialsSecret and identity: without rights nothing can be stored"))]
#[x_kube(validation = Rule::new("!(has(self.caSecret) && has(self.caBundle))")
    .message("set at most one of caSecret and caBundle"))]
#[x_kube(validation = Rule::new("!(has(self.caSecret) || has(self.caBundle)) || (has(self.endpoint) && self.endpoint.startsWith('https://'))")
    .field_path(".endpoint")
    .message("a CA is for an endpoint that begins with https://; set endpoint, or take caSecret and caBundle away"))]
#[serde(rename_all = "camelCase")]
pub struct Store {
    /// Name of the bucket. It must exist.
    #[schemars(length(min = 3, max = 63), regex(pattern = r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$"))]
    pub bucket: String,

    /// Folder in the bucket, without a slash at either end. Clusters may share it: keys hold namespace, name and uid of
    /// the cluster.
    #[schemars(
        length(min = 1, max = 256),
        regex(pattern = r"^[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*$")
    )]
    #[x_kube(validation = Rule::new("!self.split('/').exists(part, part == '.' || part == '..')")
        .message("'.' and '..' cannot be folders"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,

    /// URL of the store, for example `https://s3.eu-central-1.example`; unset: AWS in `region`.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getQuery().size() == 0")
        .message("write a URL that begins with https:// or http://, without a query, for example https://s3.eu-central-1.example"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,

    /// Region that requests are signed for; unset: `us-east-1`, which most stores other than AWS take.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9-]+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,

    /// Whether the bucket stands in the path of URLs and not in the host name. Default: true with an `endpoint`, else false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_style: Option<bool>,

    /// Entry of a Secret with the CA certificates (PEM) that sign the endpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<SecretEntry>,

    /// The CA certificates (PEM) themselves.
    #[schemars(length(min = 1, max = 32768))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,

    /// Secret of the same namespace with the access key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret: Option<CredentialsSecret>,

    /// `pod`: the rights that the platform gives to the pod (web identity, instance profile), without a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// Whose rights are used without a Secret. `pod`: those that the platform gives to the pod (web identity, instance profile).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Identity {
    /// Those that the platform gives to the pod.
    Pod,
}

/// Secret with an access key, and how its entries are named.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsSecret {
    /// Name of the Secret, in the namespace of the object that refers to it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Entry with the access key's id; default `accessKeyId`.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key_id: Option<String>,
    /// Entry with the secret access key; default `secretAccessKey`.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_access_key: Option<String>,
    /// Entry with the session token of temporary keys; unset: there is none.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<String>,
}

/// One entry of a Secret of the same namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretEntry {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The entry's key.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// Client-side encryption of everything that is stored, in the age format.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// Entry with an age key, as `age-keygen` writes it: the private key (`AGE-SECRET-KEY-1…`), or, for a cluster that shall not
    /// be able to read its own backups, the public key (`age1…`). What is stored from now on is encrypted for the public key,
    /// which each manifest names. To rotate, add an entry and name it here; keep the private key as long as a backup needs it.
    pub key_secret: SecretEntry,
}
