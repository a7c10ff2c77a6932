//! How long writes are away when the primary is moved on purpose, under load.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::Gaps;
use crate::cluster::Cluster;
use crate::env::Env;
use crate::promote;
use crate::runner::{Context, say};
use crate::writer::Writer;

/// How long a switchover may take before the run has failed.
const LIMIT: Duration = Duration::from_mins(1);
/// Writers that load the cluster beside the one that is measured.
const LOAD: usize = 4;
/// Time between two commits of one of them. With k = 1 of 2 replicas the faster one sets the pace of a primary without rest,
/// and the other one falls behind without end; what it lacks when it is to take over is time without writes.
const LOAD_PERIOD: Duration = Duration::from_millis(40);
/// How many writes must succeed before and after each switchover.
const SOME: u64 = 50;

/// Moves the primary `runs` times.
pub(super) async fn run(env: &Env, runs: usize) -> Result<()> {
    let namespace = env.namespace("bench-switchover").await?;
    let result = all(env, &namespace, runs).await;
    env.delete_namespace(&namespace).await?;
    let gaps = result?;
    say(&gaps.line());
    let mut line = json!({"bench": "switchover"});
    if let (Some(line), serde_json::Value::Object(figures)) = (line.as_object_mut(), gaps.json()) {
        line.extend(figures);
    }
    say(&line.to_string());
    Ok(())
}

async fn all(env: &Env, namespace: &str, runs: usize) -> Result<Gaps> {
    let context = Context::new(env.clone(), "bench-switchover", std::sync::Arc::default());
    let cluster = Cluster::create(env, namespace, &context.manifest("shop", 3).with_app()).await?;
    let login = cluster.app().await?;
    let mut load = Vec::new();
    for number in 0..LOAD {
        let table = format!("load{number}");
        load.push(Writer::start_every(LOAD_PERIOD, login.clone(), &table).await?);
    }
    let mut gaps = Gaps::default();
    for number in 1..=runs {
        once(&cluster, number, &mut gaps)
            .await
            .with_context(|| format!("switchover {number}"))?;
    }
    for writer in load {
        let table = writer.table.clone();
        let history = writer.finish().await?;
        cluster.check(&history, &table).await?;
    }
    Ok(gaps)
}

async fn once(cluster: &Cluster, number: usize, gaps: &mut Gaps) -> Result<()> {
    cluster.healthy(LIMIT).await?;
    let from = cluster.primary().await?;
    let replicas = cluster.replicas().await?;
    let to = replicas
        .get(number % replicas.len().max(1))
        .context("there is no replica")?;
    let table = format!("s{number}");
    let mut writer = Writer::start(cluster.app().await?, &table).await?;
    writer.progress(SOME, LIMIT).await.context("before")?;
    promote::eventually(cluster, to, LIMIT).await?;
    writer.progress(SOME, LIMIT).await.context("after")?;
    let history = writer.finish().await?;
    // The old primary lets clients in when it follows.
    cluster.serves(LIMIT).await?;
    cluster.check(&history, &table).await?;
    gaps.add(&history);
    let phases = super::phases(cluster).await?.unwrap_or_default();
    say(&format!(
        "{number:>3}: {from} -> {to}: gap {} ms, {} errors, {phases}",
        history.gap_ms(),
        history.error_count
    ));
    Ok(())
}
