//! The testbed's command line: a real Kubernetes of several nodes on this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::process;

/// How long a node may take to be switched off or on.
const NODE: Duration = Duration::from_mins(1);
/// How long an image may take to be packed or loaded.
const IMAGE: Duration = Duration::from_mins(3);

/// The testbed's S3 server.
#[derive(Clone, Debug, Deserialize)]
pub struct S3Server {
    /// URL.
    #[serde(rename = "AWS_ENDPOINT_URL")]
    pub endpoint: String,
    /// Region that requests are signed for.
    #[serde(rename = "AWS_REGION")]
    pub region: String,
    /// Access key.
    #[serde(rename = "AWS_ACCESS_KEY_ID")]
    pub access_key: String,
    /// Secret key.
    #[serde(rename = "AWS_SECRET_ACCESS_KEY")]
    pub secret_key: String,
    /// A bucket that exists.
    #[serde(rename = "S3_BUCKET")]
    pub bucket: String,
}

/// The testbed of this checkout.
#[derive(Clone, Debug)]
pub struct Testbed {
    program: PathBuf,
    name: Option<String>,
}

impl Testbed {
    /// The testbed of the checkout at `root`, by its name when it is not the default one.
    #[must_use]
    pub fn new(root: &Path, name: Option<String>) -> Self {
        Self {
            program: root.join("tests/testbed/testbed"),
            name,
        }
    }

    /// Starts it when it does not run; a second call changes nothing.
    pub async fn up(&self) -> Result<()> {
        self.call(&["up"], Duration::from_mins(40)).await.map(drop)
    }

    /// Path of the administrator's kubeconfig.
    pub async fn kubeconfig(&self) -> Result<PathBuf> {
        let printed = self.call(&["kubeconfig"], NODE).await?;
        let path = printed
            .lines()
            .last()
            .context("failed to read the testbed's kubeconfig path: nothing was printed")?;
        Ok(PathBuf::from(path.trim()))
    }

    /// Lines of the API server's audit log: one a write of the accounts in the operator's namespace.
    pub async fn audit_log(&self) -> Result<String> {
        self.call(&["logs", "audit"], NODE).await
    }

    /// Packs a binary as the operator's image, loads it into all nodes; its name.
    pub async fn operator_image(&self, binary: &Path) -> Result<String> {
        let binary = binary.to_str().context("the path of the binary is not UTF-8")?;
        let sum = process::run(Path::new("sha256sum"), &[binary], &[], NODE).await?;
        let name = format!("mainstay.dev/mainstay:e2e-{}", sum.get(..12).unwrap_or_default());
        let packed = self
            .call(&["images", "operator", "--binary", binary, "--tag", &name], IMAGE)
            .await?;
        let archive = packed
            .lines()
            .last()
            .context("failed to pack the operator's image: no path was printed")?;
        self.call(&["load", archive.trim()], IMAGE).await?;
        Ok(name)
    }

    /// Runs kubectl or helm with the testbed's kubeconfig; the standard output.
    pub async fn tool(&self, name: &str, args: &[&str], limit: Duration) -> Result<String> {
        self.call(&[&[name], args].concat(), limit).await
    }

    /// The S3 server: how it is reached, and with which keys.
    pub async fn s3(&self) -> Result<S3Server> {
        let printed = self.call(&["s3", "--json"], NODE).await?;
        serde_json::from_str(&printed).context("failed to read what the testbed says of its S3 server")
    }

    /// Cuts the power of a node: everything on it ends at once.
    pub async fn power_off(&self, node: &str) -> Result<()> {
        self.call(&["power-off", node], NODE).await.map(drop)
    }

    /// Starts a node again.
    pub async fn power_on(&self, node: &str) -> Result<()> {
        self.call(&["power-on", node], NODE).await.map(drop)
    }

    /// Does something to a node: `cut`, `cut-api`, `heal`, `freeze`, `thaw`.
    pub async fn on_node(&self, what: &str, node: &str) -> Result<()> {
        self.call(&[what, node], NODE).await.map(drop)
    }

    /// Does something to a volume, named by its claim: `disk-error`, `disk-repair`.
    pub async fn on_volume(&self, what: &str, node: &str, claim: &str) -> Result<()> {
        self.call(&[what, node, claim], NODE).await.map(drop)
    }

    async fn call(&self, args: &[&str], limit: Duration) -> Result<String> {
        let mut all = Vec::new();
        if let Some(name) = &self.name {
            all.extend(["--name", name]);
        }
        all.extend(args);
        process::run(&self.program, &all, &[], limit).await
    }
}
