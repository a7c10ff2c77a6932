//! Case F16: clusters that cannot be reached hold nobody else up.

use std::time::Duration;

use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{Key, Resource};
use serde_json::{Value, json};

use crate::support::{NAME, NS, healthy, intact, secs, seed, sleep, write_rows};

const CLUSTERS: usize = 50;
/// So many of them lose their way to the operator, at least.
const BLACK_HOLED: usize = 10;

fn small(number: usize) -> String {
    format!("small-{number}")
}

/// The generation that status speaks of, of each small cluster.
fn observed(sim: &Simulation) -> Vec<Option<i64>> {
    let generation = |number| {
        let cluster = sim.cluster(NS, &small(number))?;
        cluster.pointer("/status/observedGeneration").and_then(Value::as_i64)
    };
    (0..CLUSTERS).map(generation).collect()
}

/// 50 clusters, more than 10 of them behind a node whose packets are dropped: another one fails over in the usual time, and
/// an operator that starts looks at all of them within 30 s.
#[tokio::test(start_paused = true)]
async fn f16_clusters_behind_a_black_hole_hold_nobody_up() {
    let sim = Simulation::new(seed(90));
    let operator = sim.start_operator("operator-1");
    sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
    healthy(&sim).await;
    for number in 0..CLUSTERS {
        sim.create(NS, Simulation::manifest(&small(number), 1)).await.unwrap();
    }
    let all = |s: &Simulation| (0..CLUSTERS).all(|number| s.healthy(NS, &small(number)));
    assert!(sim.wait(secs(300), all).await, "the small clusters are not healthy");

    let node = |w: &mainstay_sim::world::Inner, instance: &str| w.process(NS, instance).map(|p| p.node.clone());
    let open = sim.world.with(|w| w.open(NS, NAME).unwrap().instance.clone());
    let home = sim.world.with(|w| node(w, &open)).unwrap();
    let cut_off = ["node-1", "node-2", "node-3"].into_iter().find(|n| *n != home).unwrap();
    let lost = sim.world.with(|w| {
        let there = |number: &usize| node(w, &format!("{}-0", small(*number))).as_deref() == Some(cut_off);
        (0..CLUSTERS).filter(there).count()
    });
    assert!(lost >= BLACK_HOLED, "only {lost} clusters are behind {cut_off}");
    sim.world.change(|w| w.network.cut(cut_off, "operator-1"));
    sleep(secs(20)).await;

    let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
    sleep(secs(5)).await;
    sim.world.with(|w| w.history.of(NS, NAME).longest_gap = Duration::ZERO);
    sim.world.change(|w| w.kill_mysqld(NS, &open));
    sleep(secs(20)).await;
    let gap = sim.world.with(|w| w.history.of(NS, NAME).longest_gap);
    writer.abort();
    assert!(
        gap < secs(3),
        "{gap:?} without an acknowledged write\n{}",
        sim.picture(NS, NAME)
    );

    operator.stop().await;
    let clusters = Resource::find(mainstay_api::GROUP, "mysqlclusters").unwrap();
    for number in 0..CLUSTERS {
        let change = json!({"spec": {"resources": {"requests": {"cpu": "501m"}}}});
        sim.server
            .patch(&Key::new(clusters, NS, &small(number)), None, change)
            .unwrap();
    }
    let before = observed(&sim);
    sim.world.change(|w| w.network.cut(cut_off, "operator-2"));
    let _second = sim.start_operator("operator-2");
    let looked = |s: &Simulation| observed(s).iter().zip(&before).all(|(now, before)| now > before);
    assert!(
        sim.wait(secs(30), looked).await,
        "{:?}, before {before:?}",
        observed(&sim)
    );

    sim.world.change(|w| w.network.heal_all());
    healthy(&sim).await;
    assert!(
        sim.wait(secs(300), all).await,
        "the small clusters are not healthy again"
    );
    write_rows(&sim, 3).await;
    intact(&sim);
}
