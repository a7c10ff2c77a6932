//! Case F30 and feature A11: an idle cluster costs nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;

use crate::audit;
use crate::cluster::{Cluster, HEAL};
use crate::runner::Context;
use crate::wait;

/// How long nothing may be written.
const IDLE: Duration = Duration::from_mins(5);
/// How long a fresh cluster may take to come to rest.
const REST: Duration = Duration::from_secs(20);

/// Mainstay writes nothing about a healthy cluster for five minutes, and no pod of it changes.
pub(super) async fn no_writes(context: Arc<Context>) -> Result<()> {
    let testbed = context.env.testbed()?;
    let namespace = context.namespace().await?;
    let cluster = Cluster::create(&context.env, &namespace, &context.manifest("idle", 3).with_app()).await?;
    cluster.serves(HEAL).await?;
    let begin = audit::position(testbed).await?;
    let seen = audit::writes_since(testbed, 0, &namespace).await?;
    ensure!(
        !seen.is_empty(),
        "the audit log has no line of Mainstay about {namespace}: it cannot show idleness"
    );
    context.note(format!("{} writes to make the cluster", seen.values().sum::<usize>()));
    still(&cluster, REST).await?;
    let begin = if audit::writes_since(testbed, begin, &namespace).await?.is_empty() {
        begin
    } else {
        audit::position(testbed).await?
    };
    still(&cluster, IDLE).await?;
    let writes = audit::writes_since(testbed, begin, &namespace).await?;
    ensure!(writes.is_empty(), "Mainstay wrote while idle: {writes:?}");
    Ok(())
}

/// Watches that every pod stays as ready as it is.
async fn still(cluster: &Cluster, span: Duration) -> Result<()> {
    wait::throughout::<Pod>(&cluster.pods(), &cluster.selector(), span, |pods| {
        ensure!(
            pods.len() == 3 && pods.values().all(crate::pods::ready),
            "a pod is not ready"
        );
        Ok(())
    })
    .await
}
