//! What a test does to pods.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, DeleteParams};
use tokio::io::AsyncReadExt as _;

/// Name of the container in which the instance manager and mysqld run.
pub const MYSQL: &str = "mysql";

/// Shell script that sends a signal to every process of a name: minimal images have neither pkill nor pidof.
const KILL: &str =
    "for p in /proc/[0-9]*; do read -r n <$p/comm && [ \"$n\" = NAME ] && kill -SIGNAL ${p#/proc/}; done; true";

/// Runs a command in a container; its standard output.
pub async fn exec(api: &Api<Pod>, pod: &str, container: &str, command: &[&str]) -> Result<String> {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, exec_unbounded(api, pod, container, command))
        .await
        .with_context(|| format!("{} in {pod} did not end within {limit:?}", command.join(" ")))?
}

async fn exec_unbounded(api: &Api<Pod>, pod: &str, container: &str, command: &[&str]) -> Result<String> {
    let shown = command.join(" ");
    let parameters = AttachParams::default().container(container).stdout(true).stderr(true);
    let mut process = api
        .exec(pod, command.iter().copied(), &parameters)
        .await
        .with_context(|| format!("failed to run {shown} in {pod}"))?;
    let status = process.take_status().context("the exec session has no status")?;
    let mut stdout = process.stdout().context("the exec session has no standard output")?;
    let mut stderr = process.stderr().context("the exec session has no standard error")?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (read_out, read_err) = tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err));
    read_out.with_context(|| format!("failed to read the output of {shown} in {pod}"))?;
    read_err.with_context(|| format!("failed to read the errors of {shown} in {pod}"))?;
    let ended = status
        .await
        .with_context(|| format!("{shown} in {pod} ended without a status"))?;
    if ended.status.as_deref() != Some("Success") {
        bail!(
            "{shown} in {pod}: {} {}",
            ended.message.unwrap_or_default(),
            String::from_utf8_lossy(&err)
        );
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Kills mysqld in a pod.
pub async fn kill_mysqld(api: &Api<Pod>, pod: &str) -> Result<()> {
    signal_mysqld(api, pod, "KILL").await
}

/// Sends a signal to mysqld in a pod, by the signal's name without SIG.
pub async fn signal_mysqld(api: &Api<Pod>, pod: &str, signal: &str) -> Result<()> {
    let script = KILL.replace("NAME", "mysqld").replace("SIGNAL", signal);
    exec(api, pod, MYSQL, &["sh", "-c", &script]).await.map(drop)
}

/// Deletes a pod as `kubectl delete pod` does; with `force` as `--force --grace-period=0` does.
pub async fn delete(api: &Api<Pod>, pod: &str, force: bool) -> Result<()> {
    let parameters = if force {
        DeleteParams::default().grace_period(0)
    } else {
        DeleteParams::default()
    };
    match api.delete(pod, &parameters).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("failed to delete pod {pod}")),
    }
}

/// Whether the kubelet says that it is ready.
#[must_use]
pub fn ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && condition(pod, "Ready")
}

/// Whether a condition of the pod is true.
#[must_use]
pub fn condition(pod: &Pod, type_: &str) -> bool {
    pod.status
        .as_ref()
        .and_then(|s| s.conditions.as_ref())
        .is_some_and(|all| all.iter().any(|c| c.type_ == type_ && c.status == "True"))
}
