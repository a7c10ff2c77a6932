//! Cases F01 and F28: long names, equal names.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use serde_json::json;

use crate::cluster::{CREATE, Cluster};
use crate::runner::Context;

/// A name of 40 characters works with every object that is derived from it; longer and unusable ones are refused with the
/// limit in the message.
pub(super) async fn lengths(context: Arc<Context>) -> Result<()> {
    let namespace = context.namespace().await?;
    for (name, reason) in [
        ("x".repeat(41), "at most 40 characters"),
        ("x".repeat(52), "at most 40 characters"),
        ("x".repeat(53), "at most 40 characters"),
        ("x".repeat(63), "at most 40 characters"),
        ("with.dot".to_owned(), "without dots"),
        ("9lives".to_owned(), "beginning with a letter"),
        ("ends-".to_owned(), "metadata.name"),
    ] {
        let Err(error) = Cluster::apply(&context.env, &namespace, &context.manifest(&name, 1)).await else {
            anyhow::bail!("the name {name} was accepted");
        };
        ensure!(
            format!("{error:#}").contains(reason),
            "the name {name} was refused with {error:#}"
        );
    }
    let longest = format!("{}-z", "a".repeat(38));
    let cluster = Cluster::create(&context.env, &namespace, &context.manifest(&longest, 1).with_app()).await?;
    cluster.serves(CREATE).await
}

/// Two clusters of one name in two namespaces do not mix; a foreign object with a derived name is reported and left alone.
pub(super) async fn equal(context: Arc<Context>) -> Result<()> {
    let env = &context.env;
    let manifest = context.manifest("db", 1).with_app();
    let (one, two) = (
        context.namespace_for("f28-one").await?,
        context.namespace_for("f28-two").await?,
    );
    let third = context.namespace_for("f28-foreign").await?;
    foreign_service(&context, &third).await?;
    let (first, second) = futures::future::try_join(
        Box::pin(Cluster::create(env, &one, &manifest)),
        Box::pin(Cluster::create(env, &two, &manifest)),
    )
    .await?;
    first
        .app()
        .await?
        .connect()
        .await?
        .execute("CREATE TABLE only_here (id INT)")
        .await?;
    let mut other = second.app().await?.connect().await?;
    ensure!(
        other.rows::<u32>("SELECT id FROM only_here").await.is_err(),
        "both clusters have one database"
    );
    let elsewhere = first.app().await?.at(second.service("primary").await?);
    ensure!(
        elsewhere.connect().await.is_err(),
        "a password of one cluster opens the other"
    );
    Ok(())
}

async fn foreign_service(context: &Context, namespace: &str) -> Result<()> {
    let foreign: Service = serde_json::from_value(json!({
        "metadata": {"name": "db-primary"},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "something-else"}}
    }))?;
    let cluster = Cluster::at(&context.env, namespace, "db");
    let services = cluster.of::<Service>();
    let before = services
        .create(&PostParams::default(), &foreign)
        .await
        .context("failed to create the Service")?;
    Cluster::apply(&context.env, namespace, &context.manifest("db", 1)).await?;
    let limit = Duration::from_secs(15);
    let message = cluster
        .wait("waiting for a condition about the foreign Service", limit, |c| {
            let conditions = &c.status.as_ref()?.conditions;
            conditions
                .iter()
                .find(|c| c.message.contains("db-primary"))
                .map(|c| c.message.clone())
        })
        .await?;
    context.note(format!("foreign Service: {message}"));
    let after = services.get("db-primary").await.context("failed to get the Service")?;
    ensure!(
        after.metadata.resource_version == before.metadata.resource_version,
        "the foreign Service was changed"
    );
    Ok(())
}
