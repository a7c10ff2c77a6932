//! Memory and CPU of the operator at 1 and at 10 clusters, as the kubelet counts them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cluster::{CREATE, Cluster};
use crate::env::{Env, OPERATOR_NAMESPACE};
use crate::operator;
use crate::runner::{Context, say};
use crate::wait;

/// How long an idle operator's CPU is counted.
const SPAN: Duration = Duration::from_mins(1);
/// How long a restarted kubelet's figures may lag.
const FRESH: Duration = Duration::from_secs(30);

/// Measures with one cluster of three instances, then with ten clusters, nine of them of one instance.
pub(super) async fn run(env: &Env) -> Result<()> {
    operator::restart(env).await?;
    let namespace = env.namespace("footprint").await?;
    let result = measure(env, &namespace).await;
    env.delete_namespace(&namespace).await?;
    let (one, ten) = result?;
    for (what, usage) in [("1 cluster", &one), ("10 clusters", &ten)] {
        let (mib, millicores) = (usage.mebibytes, usage.millicores);
        say(&format!(
            "operator at {what}: {mib:.1} MiB working set, {millicores:.1} millicores while idle"
        ));
    }
    let shown = |u: &Usage| json!({"mib": tenth(u.mebibytes), "millicores": tenth(u.millicores)});
    say(&json!({"bench": "footprint", "clusters_1": shown(&one), "clusters_10": shown(&ten)}).to_string());
    Ok(())
}

fn tenth(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

async fn measure(env: &Env, namespace: &str) -> Result<(Usage, Usage)> {
    let context = Context::new(env.clone(), "footprint", Arc::default());
    Cluster::create(env, namespace, &context.manifest("c0", 3)).await?;
    let one = usage(env).await?;
    for number in 1..10 {
        let name = format!("c{number}");
        Cluster::create(env, namespace, &context.manifest(&name, 1))
            .await
            .with_context(|| name.clone())?;
    }
    let ten = usage(env).await?;
    env.end_namespace(namespace, CREATE).await?;
    Ok((one, ten))
}

struct Usage {
    mebibytes: f64,
    millicores: f64,
}

/// CPU over a minute, and the memory at its end.
async fn usage(env: &Env) -> Result<Usage> {
    let before = sample(env).await?;
    let before_ref = &before;
    let after = wait::eventually(
        "waiting for a later sample of the kubelet",
        SPAN + FRESH,
        || async move {
            let now = sample(env).await?;
            anyhow::ensure!(now.at - before_ref.at >= SPAN.as_secs_f64(), "not a minute later yet");
            Ok(now)
        },
    )
    .await?;
    let cores = (after.cpu_seconds - before.cpu_seconds) / (after.at - before.at);
    Ok(Usage {
        mebibytes: after.working_set / 1_048_576.0,
        millicores: cores * 1000.0,
    })
}

struct Sample {
    at: f64,
    cpu_seconds: f64,
    working_set: f64,
}

/// The kubelet's newest figures of the operator's container.
async fn sample(env: &Env) -> Result<Sample> {
    let parameters = ListParams::default().labels(operator::SELECTOR);
    let pods = operator::pods_of(env)
        .list(&parameters)
        .await
        .context("failed to list the operator's pods")?;
    let pod = pods.items.into_iter().next().context("there is no operator")?;
    let name = pod.metadata.name.context("the operator's pod has no name")?;
    let node = pod
        .spec
        .and_then(|s| s.node_name)
        .context("the operator's pod has no node")?;
    let path = format!("/api/v1/nodes/{node}/proxy/stats/summary");
    let summary: Value = serde_json::from_str(&env.kubectl(&["get", "--raw", &path]).await?)?;
    let pods = summary
        .get("pods")
        .and_then(Value::as_array)
        .context("the kubelet reports no pods")?;
    let of = |p: &&Value| {
        p.pointer("/podRef/name") == Some(&json!(name))
            && p.pointer("/podRef/namespace") == Some(&json!(OPERATOR_NAMESPACE))
    };
    let container = pods
        .iter()
        .find(of)
        .and_then(|p| p.pointer("/containers/0"))
        .context("the operator is missing")?;
    let number = |path: &str| {
        container
            .pointer(path)
            .and_then(Value::as_f64)
            .with_context(|| format!("no {path}"))
    };
    let time = container
        .pointer("/cpu/time")
        .and_then(Value::as_str)
        .context("the sample has no time")?;
    let at: jiff::Timestamp = time.parse().context("failed to parse the sample's time")?;
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit into 53 bits")]
    let at = at.as_millisecond() as f64 / 1000.0;
    Ok(Sample {
        at,
        cpu_seconds: number("/cpu/usageCoreNanoSeconds")? / 1e9,
        working_set: number("/memory/workingSetBytes")?,
    })
}
