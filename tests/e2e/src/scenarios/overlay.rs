//! Cases F24 and F04: the overlay reaches every pod, and names resolve in poor surroundings.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::cluster::{CREATE, Cluster};
use crate::pods;
use crate::runner::Context;

/// A sidecar, annotations, tolerations, a priority and a DNS setting reach every pod; replication works with `ndots:1`,
/// and no object speaks of a full domain.
pub(super) async fn reaches_pods(context: Arc<Context>) -> Result<()> {
    let namespace = context.namespace().await?;
    let manifest = context
        .manifest("dressed", 3)
        .with_app()
        .with("podTemplate", overlay(&context.env.mysql_image));
    let cluster = Cluster::create(&context.env, &namespace, &manifest).await?;
    cluster.serves(CREATE).await?;
    for ordinal in 0..3 {
        let name = cluster.instance(ordinal);
        let pod = cluster.pods().get(&name).await.context("failed to get the pod")?;
        dressed(&pod).with_context(|| name.clone())?;
        let host = format!("dressed-primary.{namespace}.svc");
        pods::exec(&cluster.pods(), &name, pods::MYSQL, &["getent", "hosts", &host])
            .await
            .context("the primary Service's name does not resolve with ndots:1")?;
    }
    no_full_domain(&cluster).await
}

fn overlay(image: &str) -> Value {
    json!({
        "metadata": {"annotations": {"example.org/team": "payments"}, "labels": {"example.org/tier": "data"}},
        "spec": {
            "tolerations": [{"key": "example.org/databases", "operator": "Exists"}],
            "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
            "containers": [
                {"name": "mysql", "env": [{"name": "EXAMPLE", "value": "yes"}]},
                {
                    "name": "sidecar",
                    "image": image,
                    "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"],
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "capabilities": {"drop": ["ALL"]},
                        "runAsNonRoot": true,
                        "runAsUser": 999,
                        "seccompProfile": {"type": "RuntimeDefault"}
                    }
                }
            ]
        }
    })
}

fn dressed(pod: &Pod) -> Result<()> {
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    ensure!(
        annotations.get("example.org/team").map(String::as_str) == Some("payments"),
        "the annotation is missing"
    );
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    ensure!(
        labels.get("example.org/tier").map(String::as_str) == Some("data"),
        "the label is missing"
    );
    let spec = pod.spec.as_ref().context("the pod has no spec")?;
    let tolerated = spec
        .tolerations
        .iter()
        .flatten()
        .any(|t| t.key.as_deref() == Some("example.org/databases"));
    ensure!(tolerated, "the toleration is missing");
    ensure!(
        spec.containers.iter().any(|c| c.name == "sidecar"),
        "the sidecar is missing"
    );
    let mysql = spec
        .containers
        .iter()
        .find(|c| c.name == "mysql")
        .context("there is no container mysql")?;
    ensure!(
        mysql.env.iter().flatten().any(|e| e.name == "EXAMPLE"),
        "the variable is missing"
    );
    ensure!(
        mysql.env.iter().flatten().any(|e| e.name == "MAINSTAY_CLUSTER"),
        "the overlay replaced our variables"
    );
    Ok(())
}

async fn no_full_domain(cluster: &Cluster) -> Result<()> {
    let kinds = "myc,statefulsets,services,endpointslices,configmaps,pdb";
    let objects = cluster
        .env
        .kubectl(&[
            "-n",
            &cluster.namespace,
            "get",
            kinds,
            "-l",
            &cluster.selector(),
            "-o",
            "yaml",
        ])
        .await?;
    let full: Vec<&str> = objects.lines().filter(|l| l.contains("cluster.local")).collect();
    ensure!(full.is_empty(), "a full domain is written in: {full:?}");
    Ok(())
}
