//! Case F05: everything is broken while the operator is away.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::api::DeleteParams;

use crate::cluster::{Cluster, HEAL};
use crate::runner::Context;
use crate::wait::eventually;
use crate::writer::Writer;
use crate::{operator, pods};

/// Operator at zero; every mysqld killed, the primary Service deleted, a replica's source dropped, `read_only` set by hand;
/// operator back: all of it heals with no further event.
pub(super) async fn at_start(context: Arc<Context>) -> Result<()> {
    let cluster = context.shared().await?;
    let mut writer = Writer::start(cluster.app().await?, "f05").await?;
    writer.progress(100, HEAL).await?;
    operator::away(&context.env, async || break_it(&cluster).await).await?;
    cluster.serves(HEAL).await?;
    let history = writer.finish().await?;
    cluster.check(&history, "f05").await?;
    let primary = cluster.primary().await?;
    let root = cluster.root().await?;
    for ordinal in 0..3 {
        let pod = cluster.instance(ordinal);
        let mut client = root.at(cluster.pod_address(&pod).await?).connect().await?;
        let read_only = client.variable("super_read_only").await?;
        ensure!(
            (read_only == "0") == (pod == primary),
            "super_read_only of {pod} is {read_only}; {primary} is primary"
        );
    }
    Ok(())
}

async fn break_it(cluster: &Cluster) -> Result<()> {
    let primary = cluster.primary().await?;
    let replicas = cluster.replicas().await?;
    let [first, second] = replicas.as_slice() else {
        anyhow::bail!("the replicas are {replicas:?}")
    };
    for pod in [&primary, first, second] {
        pods::kill_mysqld(&cluster.pods(), pod).await?;
    }
    let service = format!("{}-primary", cluster.name);
    let root = &cluster.root().await?;
    cluster
        .of::<Service>()
        .delete(&service, &DeleteParams::default())
        .await
        .context("failed to delete the Service")?;
    for (pod, statements) in [
        (first, &["STOP REPLICA", "RESET REPLICA ALL"][..]),
        (
            second,
            &["SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF"][..],
        ),
        (&primary, &["SET GLOBAL read_only = ON"][..]),
    ] {
        let address = cluster.pod_address(pod).await?;
        eventually(&format!("breaking {pod}"), HEAL, || async move {
            let mut client = root.at(address).connect().await?;
            for statement in statements {
                client.execute(statement).await?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}
