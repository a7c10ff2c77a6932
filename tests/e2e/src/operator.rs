//! The operator under test: installed by the chart, or a process of this machine.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::env::{Env, OPERATOR_NAMESPACE};
use crate::{pods, process, wait};

/// Label of the operator's pods.
pub const SELECTOR: &str = "app.kubernetes.io/name=mainstay";
/// Name of the release and of the Deployment.
pub const RELEASE: &str = "mainstay";
/// How long the operator may take to become ready or to end.
const LIMIT: Duration = Duration::from_secs(90);

fn deployments(env: &Env) -> Api<Deployment> {
    Api::namespaced(env.client.clone(), OPERATOR_NAMESPACE)
}

/// The operator's pods.
#[must_use]
pub fn pods_of(env: &Env) -> Api<Pod> {
    Api::namespaced(env.client.clone(), OPERATOR_NAMESPACE)
}

/// Installs or upgrades the chart and waits until the operator is ready.
pub async fn install(env: &Env, values: &[String]) -> Result<()> {
    let chart = env.root.join("charts/mainstay");
    let chart = chart.to_str().context("the path of the chart is not UTF-8")?;
    let image = image(env).await?;
    let (repository, tag) = image
        .rsplit_once(':')
        .with_context(|| format!("the image {image} has no tag"))?;
    let (repository, tag) = (format!("image.repository={repository}"), format!("image.tag={tag}"));
    let mut args = vec![
        "upgrade",
        "--install",
        RELEASE,
        chart,
        "-n",
        OPERATOR_NAMESPACE,
        "--create-namespace",
    ];
    args.extend(["--set", &repository, "--set", &tag]);
    for value in values {
        args.extend(["--set", value]);
    }
    env.helm(&args).await?;
    ready(env).await
}

/// The operator's image: the one that was named, else one packed from the binary.
pub async fn image(env: &Env) -> Result<String> {
    match (&env.operator_image, &env.testbed) {
        (Some(image), _) => Ok(image.clone()),
        (None, Some(testbed)) => testbed.operator_image(&env.mainstay).await,
        (None, None) => anyhow::bail!("on another Kubernetes than the testbed, name the operator's image"),
    }
}

/// Waits until the operator's newest pods are ready and no older one is left, which could still lead.
pub async fn ready(env: &Env) -> Result<()> {
    let wanted = wait::object(&deployments(env), RELEASE, "waiting for the operator", LIMIT, |d| {
        let d = d?;
        let status = d.status.as_ref()?;
        let wanted = d.spec.as_ref()?.replicas?;
        let current = status.observed_generation == d.metadata.generation;
        (current && wanted > 0 && status.updated_replicas == Some(wanted) && status.available_replicas == Some(wanted))
            .then_some(wanted)
    })
    .await?;
    let wanted = usize::try_from(wanted)?;
    wait::objects(
        &pods_of(env),
        SELECTOR,
        "waiting for the end of older operators",
        LIMIT,
        |pods| (pods.len() == wanted && pods.values().all(pods::ready)).then_some(()),
    )
    .await
}

/// The operator, scaled to zero: what a scenario does while it is away.
pub async fn away<T>(env: &Env, doing: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
    let before = deployments(env)
        .get(RELEASE)
        .await
        .context("failed to get the operator's Deployment")?;
    let replicas = before.spec.and_then(|s| s.replicas).unwrap_or(1);
    scale(env, 0).await?;
    let done = doing().await;
    // Whatever happened: the other scenarios need it.
    scale(env, replicas).await?;
    done
}

async fn scale(env: &Env, replicas: i32) -> Result<()> {
    let patch = json!({"spec": {"replicas": replicas}});
    deployments(env)
        .patch(RELEASE, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .context("failed to scale the operator")?;
    if replicas > 0 {
        return ready(env).await;
    }
    wait::objects(
        &pods_of(env),
        SELECTOR,
        "waiting for the operator's end",
        LIMIT,
        |pods| pods.is_empty().then_some(()),
    )
    .await
}

/// Ends the operator's pods at once and waits for new ones.
pub async fn restart(env: &Env) -> Result<()> {
    let api = pods_of(env);
    let before = api
        .list(&ListParams::default().labels(SELECTOR))
        .await
        .context("failed to list the operator's pods")?;
    let uids: Vec<_> = before.items.iter().filter_map(|p| p.metadata.uid.clone()).collect();
    api.delete_collection(
        &DeleteParams::default().grace_period(0),
        &ListParams::default().labels(SELECTOR),
    )
    .await
    .context("failed to delete the operator's pods")?;
    wait::objects(&api, SELECTOR, "waiting for a new operator", LIMIT, |now| {
        let new = |p: &Pod| pods::ready(p) && p.metadata.uid.as_ref().is_some_and(|uid| !uids.contains(uid));
        now.values().any(new).then_some(())
    })
    .await
}

/// The operator as a process of this machine.
#[derive(Debug)]
pub struct Outside {
    child: Child,
}

impl Outside {
    /// Starts `mainstay operator --kubeconfig …`; its log goes to the evidence folder.
    pub async fn start(env: &Env) -> Result<Self> {
        let image = image(env).await?;
        std::fs::create_dir_all(&env.evidence).context("failed to create the evidence folder")?;
        let log = std::fs::File::create(env.evidence.join("operator-outside.log"))
            .context("failed to create the operator's log")?;
        let child = Command::new(&env.mainstay)
            .arg("operator")
            .arg("--kubeconfig")
            .arg(&env.kubeconfig)
            .args(["--health-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"])
            .env("MAINSTAY_OPERATOR_NAMESPACE", OPERATOR_NAMESPACE)
            .env("MAINSTAY_OPERATOR_IMAGE", image)
            .stdin(Stdio::null())
            .stdout(Stdio::from(
                log.try_clone().context("failed to share the operator's log")?,
            ))
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("failed to start {}", env.mainstay.display()))?;
        Ok(Self { child })
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends it as a person does with Ctrl-C, and expects that it ends in order.
    pub async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().context("the operator ended by itself")?.to_string();
        process::run(Path::new("kill"), &["-TERM", &pid], &[], LIMIT).await?;
        let status = tokio::time::timeout(Duration::from_secs(20), self.child.wait())
            .await
            .context("the operator did not end within 20 s of SIGTERM")?
            .context("failed to wait for the operator")?;
        anyhow::ensure!(status.success(), "the operator ended with {status}");
        Ok(())
    }
}
