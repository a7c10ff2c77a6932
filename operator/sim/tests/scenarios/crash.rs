//! A crash of the operator at every mutating request of an operation: before it took effect, and after. Another operator
//! takes over, ends what was begun, and makes the same objects as one that did not crash.

use std::collections::BTreeSet;

use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{DeleteOptions, Effect, Key, Resource, Rule};
use serde_json::{Value, json};

use crate::support::{
    NAME, NS, attended, healthy_within, intact, primary, secs, seed, serves, sleep, unattended, write_rows,
};

/// Something that the operator does in several steps.
struct Operation {
    /// Instances before it.
    replicas: i32,
    /// Seed of the world before it.
    seed: u64,
    /// What a user does, or fate.
    begin: fn(&Simulation),
    /// What ends the fault, once clients are served in spite of it.
    mend: Option<fn(&Simulation)>,
    /// Whether it came to its end.
    ended: fn(&Simulation) -> bool,
    /// Writes that it takes at least, so that the test does not come to test nothing.
    least: u64,
}

/// The row of an errant transaction.
const ERRANT: u64 = 13;

const FAILOVER: Operation = Operation {
    replicas: 3,
    seed: 3200,
    begin: |sim| {
        sim.world.change(|w| {
            let node = w.open(NS, NAME).map(|p| p.node.clone()).unwrap_or_default();
            w.power_off(&node);
        });
    },
    mend: Some(|sim| {
        sim.world.change(|w| {
            for node in ["node-1", "node-2", "node-3"] {
                w.power_on(node);
            }
        });
    }),
    ended: settled,
    least: 4,
};

/// The primary's pod is deleted: it asks to be relieved.
const SWITCHOVER: Operation = Operation {
    replicas: 3,
    seed: 3300,
    begin: |sim| {
        let pods = Resource::find("", "pods").unwrap();
        let key = Key::new(pods, NS, &primary(sim));
        sim.server.delete(&key, &DeleteOptions::default()).unwrap();
    },
    mend: None,
    ended: settled,
    least: 4,
};

/// Members are added, then k is raised.
const GROWTH: Operation = Operation {
    replicas: 3,
    seed: 3400,
    begin: |sim| change_spec(sim, &json!({"replicas": 5})),
    mend: None,
    ended: settled,
    least: 6,
};

/// k is lowered, then members are dropped; the primary is one of those that go.
const SHRINKING: Operation = Operation {
    replicas: 5,
    seed: 3500,
    begin: |sim| {
        let lowest = Key::new(Resource::find("", "pods").unwrap(), NS, "shop-0");
        // The lowest ordinal moves away, so that the primary is one of the others.
        if primary(sim) == "shop-0" {
            sim.server.delete(&lowest, &DeleteOptions::default()).unwrap();
        }
        change_spec(sim, &json!({"replicas": 3}));
    },
    mend: None,
    ended: settled,
    least: 6,
};

/// A replica has a row that nobody else has: it is dropped, cloned, and added again.
const REBUILD: Operation = Operation {
    replicas: 3,
    seed: 3600,
    begin: |sim| {
        let open = primary(sim);
        let replica = ["shop-0", "shop-1", "shop-2"].into_iter().find(|i| *i != open).unwrap();
        sim.world.change(|w| w.write_errant(NS, replica, ERRANT));
    },
    mend: None,
    ended: |sim| {
        let gone = sim.world.with(|w| {
            let mut data = w.volumes.values().map(|v| v.data.as_ref());
            data.all(|d| d.is_some_and(|d| !d.rows.contains(&ERRANT)))
        });
        gone && settled(sim)
    },
    least: 4,
};

/// Every pod is made anew, the primary's last.
const ROLL: Operation = Operation {
    replicas: 3,
    seed: 3700,
    begin: |sim| change_spec(sim, &json!({"resources": {"limits": {"memory": "2Gi"}}})),
    mend: None,
    ended: settled,
    least: 8,
};

fn change_spec(sim: &Simulation, spec: &Value) {
    let clusters = Resource::find(mainstay_api::GROUP, "mysqlclusters").unwrap();
    let key = Key::new(clusters, NS, NAME);
    sim.server.patch(&key, None, json!({"spec": spec})).unwrap();
}

/// Everything is as declared, and nobody is on the way.
fn settled(sim: &Simulation) -> bool {
    let leaving = sim.world.with(|w| w.processes.values().any(|p| p.leaving));
    !leaving && serves(sim) && sim.healthy(NS, NAME) && !sim.condition(NS, NAME, "Progressing")
}

/// Names of everything that exists in the end.
fn objects(sim: &Simulation) -> BTreeSet<String> {
    let ignored = ["Event", "Lease", "Node", "Namespace"];
    sim.server.with(|s| {
        let all = s.store.all().filter(|(k, _)| !ignored.contains(&k.resource.kind));
        all.map(|(k, _)| format!("{}/{}/{}", k.resource.kind, k.namespace, k.name))
            .collect()
    })
}

/// The operator crashes at its `n`-th write of an operation; whether there was one.
async fn crash(base: &Simulation, operation: &Operation, effect: Effect, n: u64) -> (bool, BTreeSet<String>) {
    let what = format!("{effect:?} at write {n}");
    let sim = base.fork(operation.seed + n);
    let first = sim.start_operator("operator-1");
    attended(&sim).await;
    let rule = Rule::when(effect, |r| r.client == "operator-1" && r.is_work()).nth(n);
    let point = sim.server.inject(rule);
    (operation.begin)(&sim);
    let crashed = |_: &Simulation| point.count() > 0;
    let served = |s: &Simulation| operation.mend.is_some() && serves(s);
    let ended = |s: &Simulation| operation.mend.is_none() && (operation.ended)(s);
    let stopped = sim.wait(secs(180), |s| crashed(s) || served(s) || ended(s)).await;
    assert!(stopped, "without a crash: {what}\n{}", sim.picture(NS, NAME));
    if !crashed(&sim) {
        // What is left to be written after the end: routes, conditions.
        let _ = sim.wait(secs(10), crashed).await;
    }
    first.crash().await;
    let _second = sim.start_operator("operator-2");
    if let Some(mend) = operation.mend {
        let served = sim.wait(secs(120), serves).await;
        assert!(served, "{what}\n{}", sim.picture(NS, NAME));
        write_rows(&sim, 3).await;
        mend(&sim);
    }
    let ended = sim.wait(secs(180), operation.ended).await;
    assert!(ended, "{what}\n{}", sim.picture(NS, NAME));
    write_rows(&sim, 3).await;
    intact(&sim);
    // What is collected and told after the end.
    sleep(secs(8)).await;
    assert!(settled(&sim), "{what}\n{}", sim.picture(NS, NAME));
    (crashed(&sim), objects(&sim))
}

async fn points(operation: &Operation, effect: Effect) {
    let base = unattended(seed(operation.seed), operation.replicas).await;
    let mut ends = BTreeSet::new();
    for n in 1.. {
        let (crashed, objects) = crash(&base, operation, effect, n).await;
        ends.insert(objects);
        assert_eq!(ends.len(), 1, "{effect:?} at write {n} made other objects");
        if !crashed {
            println!("{} crash points", n - 1);
            assert!(n > operation.least, "only {n} writes were made");
            return;
        }
    }
}

macro_rules! crash_points {
    ($($name:ident: $operation:expr, $effect:expr;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            points(&$operation, $effect).await;
        }
    )*};
}

crash_points! {
    before_every_request_of_a_failover: FAILOVER, Effect::HangBefore;
    after_every_request_of_a_failover: FAILOVER, Effect::HangAfter;
    before_every_request_of_a_switchover: SWITCHOVER, Effect::HangBefore;
    after_every_request_of_a_switchover: SWITCHOVER, Effect::HangAfter;
    before_every_request_of_a_growth: GROWTH, Effect::HangBefore;
    after_every_request_of_a_growth: GROWTH, Effect::HangAfter;
    before_every_request_of_a_shrinking: SHRINKING, Effect::HangBefore;
    after_every_request_of_a_shrinking: SHRINKING, Effect::HangAfter;
    before_every_request_of_a_rebuild: REBUILD, Effect::HangBefore;
    after_every_request_of_a_rebuild: REBUILD, Effect::HangAfter;
    before_every_request_of_a_roll: ROLL, Effect::HangBefore;
    after_every_request_of_a_roll: ROLL, Effect::HangAfter;
}

/// A bootstrap begins from nothing.
async fn bootstraps(effect: Effect) {
    let seed = seed(3100);
    let mut ends = BTreeSet::new();
    for n in 1.. {
        let what = format!("{effect:?} at write {n}");
        let sim = Simulation::new(seed + n);
        let rule = Rule::when(effect, |r| r.client == "operator-1" && r.is_work()).nth(n);
        let point = sim.server.inject(rule);
        let first = sim.start_operator("operator-1");
        sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
        let reached = sim.wait(secs(60), |s| point.count() > 0 || settled(s)).await;
        assert!(reached, "{what}\n{}", sim.picture(NS, NAME));
        if point.count() == 0 {
            sleep(secs(10)).await;
        }
        first.crash().await;
        let _second = sim.start_operator("operator-2");
        healthy_within(&sim, NS, NAME, secs(180)).await;
        sleep(secs(8)).await;
        assert!(settled(&sim), "{what}\n{}", sim.picture(NS, NAME));
        write_rows(&sim, 3).await;
        intact(&sim);
        ends.insert(objects(&sim));
        assert_eq!(ends.len(), 1, "{what} made other objects: {ends:#?}");
        if point.count() == 0 {
            assert!(n > 20, "only {n} writes were made");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn before_every_request_of_a_bootstrap() {
    bootstraps(Effect::HangBefore).await;
}

#[tokio::test(start_paused = true)]
async fn after_every_request_of_a_bootstrap() {
    bootstraps(Effect::HangAfter).await;
}
