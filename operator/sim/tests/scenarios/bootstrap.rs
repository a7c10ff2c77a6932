//! From nothing to an open primary.

use std::time::Duration;

use mainstay_sim::Simulation;
use mainstay_sim::world::data::DataDir;

use crate::support::{NAME, NS, healthy, intact, running, secs, seed, sleep, write_rows};

#[tokio::test(start_paused = true)]
async fn one_instance_becomes_available() {
    let (sim, _operator) = running(seed(11), 1).await;
    assert!(sim.condition(NS, NAME, "Available"), "{}", sim.picture(NS, NAME));
    write_rows(&sim, 20).await;
    intact(&sim);
}

#[tokio::test(start_paused = true)]
async fn three_instances_become_available_and_rows_are_acknowledged_by_k() {
    let (sim, _operator) = running(seed(12), 3).await;
    assert!(sim.condition(NS, NAME, "Available"), "{}", sim.picture(NS, NAME));
    for _ in 0..50 {
        write_rows(&sim, 1).await;
        // At the moment of the acknowledgement the row is durable on the primary and on k = 1 replica.
        sim.world.with(|w| {
            let acknowledged = w.history.of(NS, NAME).acknowledged.clone();
            let everywhere: Vec<_> = w
                .volumes
                .values()
                .filter_map(|v| v.data.as_ref())
                .map(DataDir::everything)
                .collect();
            for row in acknowledged {
                let copies = everywhere.iter().filter(|rows| rows.contains(&row)).count();
                assert!(copies >= 2, "row {row} exists {copies} times");
            }
        });
    }
    intact(&sim);
}

#[tokio::test(start_paused = true)]
async fn no_write_is_acknowledged_without_a_replica() {
    let (sim, _operator) = running(seed(13), 3).await;
    let primary = crate::support::primary(&sim);
    sim.world.change(|w| {
        let node = w.process(NS, &primary).unwrap().node.clone();
        for other in ["node-1", "node-2", "node-3"] {
            if other != node {
                w.network.cut(&node, other);
            }
        }
    });
    let before = sim.world.acknowledged(NS, NAME);
    for _ in 0..3 {
        sim.world.write(NS, NAME).await;
    }
    let written_there = sim
        .world
        .with(|w| w.process(NS, &primary).is_some_and(|p| !p.waiting.is_empty()));
    assert!(
        !written_there || sim.world.acknowledged(NS, NAME) == before,
        "acknowledged by nobody"
    );
    sim.world.change(|w| w.network.heal_all());
    healthy(&sim).await;
    write_rows(&sim, 5).await;
    intact(&sim);
}

/// 1 → 3 → 5, with a writer: all instances join by the rules for members.
#[tokio::test(start_paused = true)]
async fn the_cluster_grows_under_writes() {
    let (sim, _operator) = running(seed(14), 1).await;
    let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(20));
    for replicas in [3, 5] {
        let patch = kube::api::Patch::Merge(serde_json::json!({"spec": {"replicas": replicas}}));
        sim.clusters(NS)
            .patch(NAME, &kube::api::PatchParams::default(), &patch)
            .await
            .unwrap();
        healthy(&sim).await;
        sleep(secs(5)).await;
    }
    writer.abort();
    intact(&sim);
    let k = sim
        .world
        .with(|w| w.processes.values().find(|p| p.writable).and_then(|p| p.semi_sync));
    assert_eq!(k, Some(2), "{}", sim.picture(NS, NAME));
    let _ = Simulation::manifest(NAME, 1);
}
