//! On which node the primary is, and the leading operator.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::cluster::Cluster;
use crate::env::{Env, OPERATOR_NAMESPACE};
use crate::{operator, promote};

/// The leader's lease.
const LEASE: &str = "mainstay-operator";

/// The node of the leading operator.
pub async fn leaders_node(env: &Env) -> Result<String> {
    operator::ready(env).await?;
    let leases: Api<Lease> = Api::namespaced(env.client.clone(), OPERATOR_NAMESPACE);
    let lease = leases.get(LEASE).await.context("failed to get the leader's lease")?;
    let holder = lease
        .spec
        .and_then(|spec| spec.holder_identity)
        .context("nobody leads")?;
    let pods = operator::pods_of(env).list(&kube::api::ListParams::default()).await?;
    let leader = pods.items.iter().find(|pod| {
        pod.metadata
            .name
            .as_ref()
            .is_some_and(|name| holder.contains(name.as_str()))
    });
    let node = leader.and_then(|pod| pod.spec.as_ref()?.node_name.clone());
    node.with_context(|| format!("the leader {holder} is no pod"))
}

/// Moves the primary to this node, or away from it, and waits until all is in place again; how long each of the two may take.
pub async fn place(cluster: &Cluster, node: &str, there: bool, (away, whole): (Duration, Duration)) -> Result<()> {
    let primary = cluster.primary().await?;
    if (cluster.node_of(&primary).await? == node) == there {
        return Ok(());
    }
    for ordinal in 0..cluster.get().await?.spec.replicas {
        let instance = cluster.instance(ordinal);
        if (cluster.node_of(&instance).await? == node) == there {
            promote::eventually(cluster, &instance, away).await?;
            return cluster.serves(whole).await;
        }
    }
    anyhow::bail!("no instance is where the fault needs it: {node} is the operator's node")
}
