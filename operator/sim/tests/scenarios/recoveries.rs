//! Clusters that begin with recovered data: nothing begins without them, whatever crashes or is lost meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay_sim::kubernetes::{DeleteOptions, Effect, Key, Resource, Rule};
use mainstay_sim::{Operator, Random, Simulation};
use serde_json::{Value, json};

use crate::support::{NAME, NS, healthy_within, intact, secs, seed, sleep, write_rows};

/// Name of the Secret with the access key.
const KEYS: &str = "s3";

fn manifest(replicas: i32) -> Value {
    let mut manifest = Simulation::manifest(NAME, replicas);
    manifest["spec"]["bootstrap"] = json!({"recovery": {
        "source": {
            "store": {"bucket": "backups", "endpoint": "https://s3.example", "credentialsSecret": {"name": KEYS}},
            "cluster": {"namespace": "prod", "name": "old"},
        },
        "target": {"time": "2026-11-29T12:00:00Z"},
    }});
    manifest
}

fn create_keys(sim: &Simulation) {
    let secrets = Resource::find("", "secrets").unwrap();
    let keys = json!({"metadata": {"name": KEYS}, "stringData": {"accessKeyId": "AKIA", "secretAccessKey": "hidden"}});
    sim.server.create(secrets, NS, with_data(keys)).unwrap();
}

/// What the API server makes of `stringData`.
fn with_data(mut secret: Value) -> Value {
    let texts = secret["stringData"].take();
    for (key, text) in texts.as_object().unwrap() {
        let bytes = k8s_openapi::ByteString(text.as_str().unwrap().as_bytes().to_vec());
        secret["data"][key] = serde_json::to_value(bytes).unwrap();
    }
    secret.as_object_mut().unwrap().remove("stringData");
    secret
}

async fn begin(seed: u64, replicas: i32) -> (Simulation, Operator) {
    let sim = Simulation::new(seed);
    create_keys(&sim);
    let operator = sim.start_operator("operator-1");
    sim.create(NS, manifest(replicas)).await.unwrap();
    (sim, operator)
}

fn recovery_secret(sim: &Simulation) -> bool {
    let secrets = Resource::find("", "secrets").unwrap();
    sim.server.get(&Key::new(secrets, NS, "shop-recovery")).is_some()
}

/// The open primary has every recovered row.
fn has_recovered_rows(sim: &Simulation) -> bool {
    sim.world.with(|w| {
        let open = w.open(NS, NAME);
        let data = open.and_then(|p| w.volume(p)).and_then(|v| v.data.as_ref());
        data.is_some_and(|data| data.rows.is_superset(&w.stored.rows))
    })
}

/// Everything is in place, with the recovered data, and nothing of the recovery is left.
async fn recovered(sim: &Simulation, what: &str) {
    healthy_within(sim, NS, NAME, secs(240)).await;
    assert!(
        has_recovered_rows(sim),
        "{what}: rows are missing\n{}",
        sim.picture(NS, NAME)
    );
    let gone = sim.wait(secs(10), |s| !recovery_secret(s)).await;
    assert!(gone, "{what}: private keys lie around");
    write_rows(sim, 3).await;
    intact(sim);
    let status = sim.cluster(NS, NAME).unwrap();
    assert_eq!(status["status"]["recovery"]["phase"], "Done", "{what}");
    let reached = status["status"]["recovery"]["reachedGtid"].as_str().unwrap();
    assert!(reached.ends_with(":1-40"), "{what}: {reached}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_each_size_begins_with_recovered_data() {
    for replicas in [1, 3, 5] {
        let (sim, _operator) = begin(seed(81), replicas).await;
        recovered(&sim, &format!("{replicas} instances")).await;
        let events = sim.server.list(Resource::find("events.k8s.io", "events").unwrap(), NS);
        let told = events.iter().filter(|event| event["reason"] == "Recovered").count();
        assert_eq!(told, 1, "{replicas} instances");
        // Nothing is left to do.
        sleep(secs(30)).await;
        sim.server.clear_requests();
        sleep(secs(300)).await;
        assert!(
            crate::support::work(&sim).is_empty(),
            "{:#?}",
            crate::support::work(&sim)
        );
    }
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

/// A crash of the operator at each of its writes, from the declaration to the open cluster.
async fn crashes(effect: Effect) {
    let seed = seed(8200);
    let mut ends = BTreeSet::new();
    for n in 1.. {
        let what = format!("{effect:?} at write {n}");
        let sim = Simulation::new(seed + n);
        create_keys(&sim);
        let rule = Rule::when(effect, |r| r.client == "operator-1" && r.is_work()).nth(n);
        let point = sim.server.inject(rule);
        let first = sim.start_operator("operator-1");
        sim.create(NS, manifest(3)).await.unwrap();
        let settled = |s: &Simulation| s.healthy(NS, NAME) && !recovery_secret(s);
        let reached = sim.wait(secs(90), |s| point.count() > 0 || settled(s)).await;
        assert!(reached, "{what}\n{}", sim.picture(NS, NAME));
        if point.count() == 0 {
            sleep(secs(10)).await;
        }
        first.crash().await;
        let _second = sim.start_operator("operator-2");
        recovered(&sim, &what).await;
        sleep(secs(8)).await;
        ends.insert(objects(&sim));
        assert_eq!(ends.len(), 1, "{what} made other objects: {ends:#?}");
        if point.count() == 0 {
            println!("{} crash points", n - 1);
            assert!(n > 22, "only {n} writes were made");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn before_every_request_of_a_recovery() {
    crashes(Effect::HangBefore).await;
}

#[tokio::test(start_paused = true)]
async fn after_every_request_of_a_recovery() {
    crashes(Effect::HangAfter).await;
}

/// Instances die, volumes are lost, operators are replaced, at any moment of the beginning.
#[tokio::test(start_paused = true)]
async fn whatever_dies_meanwhile_the_data_are_there_in_the_end() {
    let first = seed(8500);
    for seed in first..first + 40 {
        let (sim, operator) = begin(seed, 3).await;
        let mut random = Random::new(seed);
        let mut operator = Some(operator);
        let mut log = Vec::new();
        for _ in 0..=random.below(3) {
            let pause = Duration::from_millis(random.below(9000));
            sleep(pause).await;
            let instance = format!("shop-{}", random.below(3));
            let what = random.below(6);
            log.push(format!("{pause:?}: {what} {instance}"));
            match what {
                0 => sim.world.change(|w| w.kill_mysqld(NS, &instance)),
                1 => sim.world.change(|w| w.processes.retain(|_, p| p.instance != instance)),
                2 => sim.world.change(|w| w.lose_volume(NS, &format!("data-{instance}"))),
                3 => sim.world.change(|w| w.lose_volume(NS, "data-shop-0")),
                4 => {
                    let pods = Resource::find("", "pods").unwrap();
                    // It may not be there yet.
                    let _ = sim
                        .server
                        .delete(&Key::new(pods, NS, &instance), &DeleteOptions::default());
                }
                _ => {
                    if let Some(operator) = operator.take() {
                        operator.crash().await;
                    }
                    operator = Some(sim.start_operator("operator-2"));
                }
            }
        }
        // Two lost volumes after the opening are more than k = 1 can spare: then a person is asked, and nothing begins empty.
        let well = sim.wait(secs(240), |s| s.healthy(NS, NAME)).await;
        let open = sim.world.with(|w| w.open(NS, NAME).is_some());
        assert!(
            !open || has_recovered_rows(&sim),
            "seed {seed}: {log:#?}\n{}",
            sim.picture(NS, NAME)
        );
        let lost = log
            .iter()
            .filter(|what| what.contains(": 2 ") || what.contains(": 3 "))
            .count();
        assert!(well || lost > 1, "seed {seed}: {log:#?}\n{}", sim.picture(NS, NAME));
    }
}

/// The access key comes late: it is said what is missing, nothing is made, and all goes on by itself.
#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_had_is_told_and_looked_up_again() {
    let sim = Simulation::new(seed(83));
    let _operator = sim.start_operator("operator-1");
    sim.create(NS, manifest(3)).await.unwrap();
    let told = |s: &Simulation| {
        let cluster = s.cluster(NS, NAME).unwrap_or_default();
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|c| c["type"] == "Available" && c["reason"] == "RecoveryFailed")
    };
    assert!(sim.wait(secs(5), told).await, "{}", sim.picture(NS, NAME));
    let cluster = sim.cluster(NS, NAME).unwrap();
    let text = cluster["status"]["recovery"]["message"].as_str().unwrap();
    assert!(text.contains("there is no Secret s3 in namespace shop"), "{text}");
    assert_eq!(cluster["status"]["recovery"]["phase"], "Failed");
    sleep(secs(60)).await;
    let pods = sim.server.list(Resource::find("", "pods").unwrap(), NS);
    assert!(
        pods.is_empty(),
        "instances are made before there is something to recover with"
    );
    create_keys(&sim);
    recovered(&sim, "after the keys came").await;
}

/// The Secret is deleted while the first instance needs it: it is written again.
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_deleted_meanwhile_is_written_again() {
    let (sim, _operator) = begin(seed(84), 3).await;
    assert!(sim.wait(secs(5), recovery_secret).await);
    let secrets = Resource::find("", "secrets").unwrap();
    let key = Key::new(secrets, NS, "shop-recovery");
    sim.server.delete(&key, &DeleteOptions::default()).unwrap();
    recovered(&sim, "after its Secret was deleted").await;
}

/// The volume of the first instance is lost when nobody recovers any more: it is cloned, and never empty.
#[tokio::test(start_paused = true)]
async fn a_lost_volume_of_the_first_instance_is_cloned_later() {
    let (sim, _operator) = begin(seed(85), 3).await;
    recovered(&sim, "at first").await;
    sleep(secs(20)).await;
    sim.world.change(|w| w.lose_volume(NS, "data-shop-0"));
    sleep(secs(2)).await;
    healthy_within(&sim, NS, NAME, secs(180)).await;
    assert!(
        has_recovered_rows(&sim) && !recovery_secret(&sim),
        "{}",
        sim.picture(NS, NAME)
    );
    write_rows(&sim, 3).await;
    intact(&sim);
}

/// F27: over kept volumes nothing is recovered, neither in the middle of it nor afterwards.
#[tokio::test(start_paused = true)]
async fn f27_nothing_is_recovered_over_volumes_that_were_kept() {
    for after in [0, 1500, 3000, 5000, 7000, 9000, 11_000, 13_000, 60_000] {
        let (sim, _operator) = begin(seed(86) + after, 3).await;
        sleep(Duration::from_millis(after)).await;
        if after == 60_000 {
            recovered(&sim, "at first").await;
        }
        sim.delete(NS, NAME).await.unwrap();
        sleep(secs(60)).await;
        // What another recovery would find.
        sim.world.change(|w| w.stored.rows.extend(2_000_000..2_000_010));
        sim.create(NS, manifest(3)).await.unwrap();
        healthy_within(&sim, NS, NAME, secs(240)).await;
        let rows = sim.world.with(|w| {
            let open = w.open(NS, NAME).unwrap();
            w.volume(open).unwrap().data.as_ref().unwrap().rows.clone()
        });
        assert!(
            rows.is_superset(&(1_000_001..1_000_041).collect()),
            "deleted after {after} ms"
        );
        if after == 60_000 {
            assert!(!rows.contains(&2_000_000), "recovered over what was there");
        }
        write_rows(&sim, 3).await;
        intact(&sim);
    }
}
