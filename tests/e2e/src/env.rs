//! What one run works with: a Kubernetes, its images, folders.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use mainstay_api::MySQLCluster;
use serde_json::json;

use crate::process;
use crate::testbed::Testbed;
use crate::wait;

/// Namespace of the operator that the chart installs.
pub const OPERATOR_NAMESPACE: &str = "mainstay-system";
/// Label of every namespace that a run makes.
pub const RUN_LABEL: &str = "e2e.mainstay.dev/run";

/// Settings of a run, from the command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// kubeconfig of another Kubernetes than the testbed.
    pub kubeconfig: Option<PathBuf>,
    /// Name of the testbed when it is not the default one.
    pub testbed: Option<String>,
    /// Image of the MySQL server.
    pub mysql_image: String,
    /// The `mainstay` binary, for the plugin, the operator's image and the operator outside of the cluster.
    pub mainstay: PathBuf,
    /// Image of the operator (`name:tag`), on all nodes already; default: one packed from the binary.
    pub operator_image: Option<String>,
}

/// What one run works with.
#[derive(Clone)]
pub struct Env {
    /// Client with the administrator's rights.
    pub client: Client,
    /// Path of the administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The testbed, unless another Kubernetes was given.
    pub testbed: Option<Testbed>,
    /// Image of the MySQL server.
    pub mysql_image: String,
    /// The `mainstay` binary.
    pub mainstay: PathBuf,
    /// Image of the operator, `name:tag`.
    pub operator_image: Option<String>,
    /// Root of the checkout.
    pub root: PathBuf,
    /// Folder of this run's evidence.
    pub evidence: PathBuf,
    /// Name of this run: part of its namespaces' names.
    pub run: String,
}

impl Env {
    /// Finds or starts the Kubernetes and connects to it.
    pub async fn connect(settings: Settings) -> Result<Self> {
        // Two providers are compiled in through dependencies: say which one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let root = root()?;
        let testbed = Testbed::new(&root, settings.testbed);
        let (kubeconfig, testbed) = match settings.kubeconfig {
            // The testbed's own kubeconfig in the environment means the testbed.
            Some(path) if testbed.kubeconfig().await.is_ok_and(|own| own == path) => (path, Some(testbed)),
            Some(path) => (path, None),
            None => {
                testbed.up().await?;
                (testbed.kubeconfig().await?, Some(testbed))
            }
        };
        let run = run_name();
        Ok(Self {
            client: client(&kubeconfig).await?,
            kubeconfig,
            testbed,
            mysql_image: settings.mysql_image,
            mainstay: settings.mainstay,
            operator_image: settings.operator_image,
            evidence: cache()?.join("evidence").join(&run),
            root,
            run,
        })
    }

    /// The testbed, for scenarios that switch nodes off.
    pub fn testbed(&self) -> Result<&Testbed> {
        self.testbed
            .as_ref()
            .context("this scenario needs the testbed: it switches nodes off")
    }

    /// Runs kubectl; its standard output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.tool("kubectl", args).await
    }

    /// Runs helm; its standard output.
    pub async fn helm(&self, args: &[&str]) -> Result<String> {
        self.tool("helm", args).await
    }

    /// The testbed brings its tools along; for another Kubernetes the user's are taken.
    async fn tool(&self, name: &str, args: &[&str]) -> Result<String> {
        let limit = Duration::from_mins(2);
        if let Some(testbed) = &self.testbed {
            return testbed.tool(name, args, limit).await;
        }
        process::run(Path::new(name), args, &[("KUBECONFIG", &self.kubeconfig)], limit).await
    }

    /// Runs the `mainstay` binary as a plugin of kubectl does.
    pub async fn mainstay(&self, args: &[&str]) -> Result<String> {
        let envs = [("KUBECONFIG", self.kubeconfig.as_path())];
        process::run(&self.mainstay, args, &envs, Duration::from_secs(30)).await
    }

    /// Creates a namespace for a scenario.
    pub async fn namespace(&self, scenario: &str) -> Result<String> {
        let name = format!("e2e-{scenario}-{}", self.run);
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                // Every pod that Mainstay makes must satisfy it.
                "labels": {RUN_LABEL: self.run, "pod-security.kubernetes.io/enforce": "restricted"},
            }
        }))?;
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("failed to create {name}"))?;
        Ok(name)
    }

    /// Asks for a namespace's deletion.
    pub async fn delete_namespace(&self, name: &str) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        match api.delete(name, &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).with_context(|| format!("failed to delete namespace {name}")),
        }
    }

    /// Deletes the clusters of a namespace, then the namespace, and waits until it is gone. In this order, because Kubernetes
    /// looks at a namespace whose pods take longer than five seconds to end again only after half of their grace period.
    pub async fn end_namespace(&self, name: &str, limit: Duration) -> Result<()> {
        let clusters: Api<MySQLCluster> = Api::namespaced(self.client.clone(), name);
        clusters
            .delete_collection(&DeleteParams::background(), &ListParams::default())
            .await
            .with_context(|| format!("failed to delete the clusters in {name}"))?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), name);
        wait::objects(&pods, "", "waiting for the end of all pods", limit, |pods| {
            pods.is_empty().then_some(())
        })
        .await
        .with_context(|| format!("namespace {name}"))?;
        self.delete_namespace(name).await?;
        self.namespace_gone(name, limit).await
    }

    /// Waits until a namespace is gone.
    pub async fn namespace_gone(&self, name: &str, limit: Duration) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        wait::object(&api, name, "waiting for its end", limit, |n| n.is_none().then_some(())).await
    }
}

/// A client for a kubeconfig file.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let shown = kubeconfig.display();
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("failed to read {shown}"))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("failed to use {shown}"))?;
    Client::try_from(config).with_context(|| format!("failed to make a client for {shown}"))
}

/// Root of the checkout: the nearest folder upwards with the testbed in it.
fn root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("failed to read the current folder")?;
    here.ancestors()
        .find(|folder| folder.join("tests/testbed").is_dir())
        .map(Path::to_path_buf)
        .context("failed to find tests/testbed: run this inside of a checkout")
}

/// Folder for what is kept between runs.
fn cache() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("MAINSTAY_CACHE") {
        return Ok(PathBuf::from(folder));
    }
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    Ok(PathBuf::from(home).join(".cache/mainstay"))
}

/// Six characters that two runs on one machine do not share.
fn run_name() -> String {
    const SPAN: u64 = 36 * 36 * 36 * 36 * 36 * 36;
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default();
    let mut rest = now % SPAN;
    let mut name = Vec::new();
    for _ in 0..6 {
        name.push(std::char::from_digit(u32::try_from(rest % 36).unwrap_or_default(), 36).unwrap_or('0'));
        rest /= 36;
    }
    name.iter().rev().collect()
}
