//! The testbed's S3 server, as a cluster declares it and as a test looks into it.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use mainstay_store::{Identity, Keys, S3, Settings};
use serde_json::{Value, json};

use crate::testbed::S3Server;

/// Name of the Secret with the access key.
pub const CREDENTIALS: &str = "e2e-s3";

impl S3Server {
    /// The store of a cluster: a folder in the bucket.
    #[must_use]
    pub fn declared(&self, prefix: &str) -> Value {
        json!({"bucket": self.bucket, "prefix": prefix, "endpoint": self.endpoint, "region": self.region,
            "credentialsSecret": {"name": CREDENTIALS}})
    }

    /// Creates the Secret with the access key.
    pub async fn create_secret(&self, secrets: &Api<Secret>) -> Result<()> {
        let secret = serde_json::from_value(json!({"metadata": {"name": CREDENTIALS},
            "stringData": {"accessKeyId": self.access_key, "secretAccessKey": self.secret_key}}))?;
        secrets
            .create(&PostParams::default(), &secret)
            .await
            .context("failed to create the Secret with the access key")?;
        Ok(())
    }

    /// The store below a prefix.
    pub async fn open(&self, prefix: &str) -> Result<S3> {
        let settings = Settings {
            endpoint: Some(self.endpoint.clone()),
            region: self.region.clone(),
            bucket: self.bucket.clone(),
            prefix: prefix.to_owned(),
            path_style: true,
            ca: None,
            identity: Identity::Keys(Keys {
                access_key: self.access_key.clone(),
                secret_key: self.secret_key.clone().into(),
                session_token: None,
            }),
        };
        Ok(S3::new(settings).await?)
    }
}
