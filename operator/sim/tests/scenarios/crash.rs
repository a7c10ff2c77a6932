//! A crash of the operator at every mutating request: before it took effect, and after.

use std::collections::BTreeSet;

use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{Effect, Rule};

use crate::support::{
    NAME, NS, healthy, healthy_within, intact, primary, running, secs, seed, serves, sleep, work, write_rows,
};

/// Names of everything that exists in the end.
fn objects(sim: &Simulation) -> BTreeSet<String> {
    let ignored = ["Event", "Lease", "Node", "Namespace"];
    sim.server.with(|s| {
        let all = s.store.all().filter(|(k, _)| !ignored.contains(&k.resource.kind));
        // ConfigMaps carry the hash of their content, EndpointSlices may carry a suffix.
        all.map(|(k, _)| format!("{}/{}/{}", k.resource.kind, k.namespace, k.name))
            .collect()
    })
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_every_request_of_a_bootstrap_heals_to_the_same_end() {
    let seed = seed(31);
    let (reference, _operator) = running(seed, 3).await;
    sleep(secs(30)).await;
    let want = objects(&reference);
    let requests = work(&reference).len();
    drop(reference);
    assert!(requests > 10, "a bootstrap takes {requests} writes");

    let mut crashes = 0;
    for effect in [Effect::HangBefore, Effect::HangAfter] {
        for n in 1.. {
            let sim = Simulation::new(seed + n);
            let mut point = sim
                .server
                .inject(Rule::when(effect, |r| r.client == "operator-1" && r.is_work()).nth(n));
            let first = sim.start_operator("operator-1");
            sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
            let reached = tokio::time::timeout(secs(120), point.wait()).await.is_ok();
            first.crash().await;
            if !reached {
                assert!(n > 10, "only {n} writes were made");
                break;
            }
            crashes += 1;
            let _second = sim.start_operator("operator-2");
            let what = format!("{effect:?} at write {n}");
            println!("{what}");
            healthy_within(&sim, NS, NAME, secs(180)).await;
            write_rows(&sim, 3).await;
            sleep(secs(30)).await;
            intact(&sim);
            assert_eq!(objects(&sim), want, "{what}");
        }
    }
    println!("{crashes} crash points");
}

/// The same for a failover: the primary's node is off, and the operator crashes at each of its writes.
#[tokio::test(start_paused = true)]
async fn a_crash_after_every_request_of_a_failover_heals() {
    let seed = seed(32);
    let mut crashes = 0;
    for effect in [Effect::HangBefore, Effect::HangAfter] {
        for n in 1..60 {
            let (sim, first) = running(seed + n, 3).await;
            write_rows(&sim, 10).await;
            sleep(secs(5)).await;
            let mut point = sim
                .server
                .inject(Rule::when(effect, |r| r.client == "operator-1" && r.is_work()).nth(n));
            let old = primary(&sim);
            let node = sim
                .world
                .with(|w| w.process(NS, &old).map(|p| p.node.clone()).unwrap_or_default());
            sim.world.change(|w| w.power_off(&node));
            let reached = tokio::time::timeout(secs(60), point.wait()).await.is_ok();
            first.crash().await;
            let _second = sim.start_operator("operator-2");
            let opened = sim.wait(secs(120), |s| serves(s) && primary(s) != old).await;
            assert!(opened, "{effect:?} at write {n}\n{}", sim.picture(NS, NAME));
            write_rows(&sim, 5).await;
            sim.world.change(|w| w.power_on(&node));
            healthy(&sim).await;
            write_rows(&sim, 3).await;
            intact(&sim);
            if !reached {
                break;
            }
            crashes += 1;
        }
    }
    println!("{crashes} crash points");
    assert!(crashes > 4);
}
