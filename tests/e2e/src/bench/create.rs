//! From the applied manifest to three available instances.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use mainstay_api::MySQLCluster;
use mainstay_api::status::ElectionPhase;
use serde_json::json;

use super::{median, worst};
use crate::cluster::{CREATE, Cluster, condition, is_healthy};
use crate::env::Env;
use crate::runner::{Context, say};
use crate::{pods, wait};

/// The stages of a creation, in order.
const STAGES: [&str; 6] = ["scheduled", "running", "initialised", "recorded", "open", "available"];

/// Creates a cluster `runs` times and prints each run's stages.
pub(super) async fn run(env: &Env, runs: usize) -> Result<()> {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for number in 1..=runs {
        let namespace = env.namespace(&format!("bench-{number}")).await?;
        let result = once(env, &namespace).await;
        env.end_namespace(&namespace, CREATE).await?;
        let stages = result.with_context(|| format!("run {number}"))?;
        let line: Vec<String> = STAGES.iter().map(|s| format!("{s} {:.1}", at(&stages, s))).collect();
        say(&format!("run {number:>2}: {}", line.join("  ")));
        for stage in STAGES {
            all.entry(stage).or_default().push(at(&stages, stage));
        }
    }
    for stage in STAGES {
        let values = all.get(stage).map(Vec::as_slice).unwrap_or_default();
        say(&format!(
            "{stage:<12} p50 {:5.1} s   max {:5.1} s",
            median(values),
            worst(values)
        ));
    }
    let available = all.get("available").map(Vec::as_slice).unwrap_or_default();
    let round = |x: f64| (x * 100.0).round() / 100.0;
    let seconds = json!({"p50": round(median(available)), "max": round(worst(available))});
    say(&json!({"bench": "create", "n": runs, "seconds": seconds}).to_string());
    Ok(())
}

fn at(stages: &BTreeMap<&'static str, f64>, stage: &str) -> f64 {
    stages.get(stage).copied().unwrap_or(f64::NAN)
}

/// One creation: seconds from the request until each stage was first seen.
async fn once(env: &Env, namespace: &str) -> Result<BTreeMap<&'static str, f64>> {
    let context = Context::new(env.clone(), "bench-create", Arc::default());
    let began = Instant::now();
    let cluster = Cluster::apply(env, namespace, &context.manifest("shop", 3)).await?;
    let (of_pods, of_cluster) =
        futures::future::try_join(pod_stages(&cluster, began), cluster_stages(&cluster, began)).await?;
    Ok(of_pods.into_iter().chain(of_cluster).collect())
}

async fn pod_stages(cluster: &Cluster, began: Instant) -> Result<BTreeMap<&'static str, f64>> {
    let mut stages = BTreeMap::new();
    wait::objects::<Pod, _>(
        &cluster.pods(),
        &cluster.selector(),
        "waiting for the pods",
        CREATE,
        |now| {
            let all = |check: fn(&Pod) -> bool| now.len() == 3 && now.values().all(check);
            note(
                &mut stages,
                "scheduled",
                all(|p| pods::condition(p, "PodScheduled")),
                began,
            );
            note(
                &mut stages,
                "running",
                all(|p| pods::condition(p, "Initialized") && running(p)),
                began,
            );
            (stages.len() == 2).then_some(())
        },
    )
    .await?;
    Ok(stages)
}

async fn cluster_stages(cluster: &Cluster, began: Instant) -> Result<BTreeMap<&'static str, f64>> {
    let mut stages = BTreeMap::new();
    cluster
        .wait("waiting for three available instances", CREATE, |c: &MySQLCluster| {
            let status = c.status.as_ref()?;
            let initialised = status.instances.iter().filter(|i| i.incarnation.is_some()).count() == 3;
            note(&mut stages, "initialised", initialised, began);
            note(&mut stages, "recorded", status.epoch.is_some(), began);
            let open = status.election.as_ref().is_some_and(|e| e.phase == ElectionPhase::Open);
            note(&mut stages, "open", open && status.primary.is_some(), began);
            let available = condition(c, "Available").is_some_and(|c| c.status == "True") && is_healthy(c);
            note(&mut stages, "available", available, began);
            available.then_some(())
        })
        .await?;
    Ok(stages)
}

/// Notes when a stage was first seen.
fn note(stages: &mut BTreeMap<&'static str, f64>, stage: &'static str, reached: bool, began: Instant) {
    if reached {
        stages.entry(stage).or_insert_with(|| began.elapsed().as_secs_f64());
    }
}

fn running(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref());
    statuses.is_some_and(|all| {
        all.iter()
            .all(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()))
    })
}
