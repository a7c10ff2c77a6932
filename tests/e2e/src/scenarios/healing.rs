//! Instances heal by themselves: full disks, and volumes that are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::cluster::Cluster;
use crate::runner::Context;
use crate::writer::Writer;
use crate::{volumes, wait};

/// How long a fault may stay; the figure to beat is the bench's.
const HEAL: Duration = Duration::from_mins(2);

/// The disk of a replica is filled, then that of the primary; the volume of a replica is lost, then that of the primary. Each time
/// the instance gets another volume, and everything that was acknowledged is there.
pub(super) async fn full_and_lost(context: Arc<Context>) -> Result<()> {
    let namespace = context.namespace().await?;
    let cluster = Cluster::create(&context.env, &namespace, &context.manifest("shop", 3).with_app()).await?;
    // The application's account is made when the first primary is open.
    cluster.serves(HEAL).await?;
    let mut writer = Writer::start(cluster.app().await?, "orders").await?;
    writer.progress(50, HEAL).await?;
    for (what, of_primary) in [
        ("disk of a replica filled", false),
        ("disk of the primary filled", true),
        ("volume of a replica lost", false),
        ("volume of the primary lost", true),
    ] {
        let victim = if of_primary {
            cluster.primary().await?
        } else {
            let replicas = cluster.replicas().await?;
            replicas.first().cloned().context("there is no replica")?
        };
        let before = claim(&cluster, &victim).await?;
        let began = Instant::now();
        if what.starts_with("disk") {
            volumes::fill(&cluster, &victim).await?;
        } else {
            volumes::lose(&cluster, &victim).await?;
        }
        let other = async || {
            let now = claim(&cluster, &victim).await?;
            ensure!(now != before, "{victim} has the volume of before");
            Ok(())
        };
        wait::eventually("waiting for another volume", HEAL, other)
            .await
            .with_context(|| what.to_owned())?;
        cluster.serves(HEAL).await.with_context(|| what.to_owned())?;
        context.note(format!("{what}: {:.1} s", began.elapsed().as_secs_f64()));
        if of_primary {
            ensure!(
                cluster.primary().await? != victim,
                "{what}: {victim} is still the primary"
            );
        }
        writer
            .progress(50, HEAL)
            .await
            .with_context(|| format!("after {what}"))?;
    }
    let history = writer.finish().await?;
    cluster.check(&history, "orders").await
}

/// uid of the claim of an instance.
async fn claim(cluster: &Cluster, instance: &str) -> Result<Option<String>> {
    let claim = cluster
        .of::<PersistentVolumeClaim>()
        .get(&format!("data-{instance}"))
        .await;
    Ok(claim.context("failed to get the claim")?.metadata.uid)
}
