//! F27: deletion in every phase, over kept volumes, and of what is foreign.

use std::time::Duration;

use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{DeleteOptions, Effect, Key, Resource, Rule, WatchFault};
use serde_json::{Value, json};

use crate::support::{NAME, NS, healthy, healthy_within, intact, running, secs, seed, sleep, write_rows};

/// Kind and name of everything in the namespace but events.
fn leftovers(sim: &Simulation) -> Vec<String> {
    sim.server.with(|s| {
        let inside = s
            .store
            .all()
            .filter(|(k, _)| k.namespace == NS && !["Event", "Lease"].contains(&k.resource.kind));
        inside.map(|(k, _)| format!("{}/{}", k.resource.kind, k.name)).collect()
    })
}

/// What may stay when the policy is to keep the data: claims, and the Secrets without which they are useless.
fn is_kept(object: &str) -> bool {
    object.starts_with("PersistentVolumeClaim/data-shop-")
        || [
            "Secret/shop-system",
            "Secret/shop-root",
            "Secret/shop-app",
            "Secret/shop-ca",
        ]
        .contains(&object)
}

#[tokio::test(start_paused = true)]
async fn f27_deletion_in_every_phase_keeps_the_data_and_nothing_else() {
    let seed = seed(71);
    for step in 0..28_u64 {
        let sim = Simulation::new(seed + step);
        let _operator = sim.start_operator("operator-1");
        sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
        let after = Duration::from_millis(step * 400);
        sleep(after).await;
        sim.delete(NS, NAME).await.unwrap();
        let gone = sim.wait(secs(90), |s| leftovers(s).iter().all(|o| is_kept(o))).await;
        assert!(gone, "deleted after {after:?}: {:#?}", leftovers(&sim));
        sleep(secs(30)).await;
        assert!(
            leftovers(&sim).iter().all(|o| is_kept(o)),
            "made again: {:#?}",
            leftovers(&sim)
        );

        sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
        healthy(&sim).await;
        write_rows(&sim, 3).await;
        intact(&sim);
    }
}

/// The same at every write of the operator during a bootstrap: the moments that a clock does not hit.
#[tokio::test(start_paused = true)]
async fn f27_deletion_at_every_write_of_a_bootstrap() {
    let seed = seed(78);
    for n in 1.. {
        let sim = Simulation::new(seed + n);
        let late = Effect::Delay(Duration::from_millis(40));
        let mut point = sim
            .server
            .inject(Rule::when(late, |r| r.client == "operator-1" && r.is_work()).nth(n));
        let _operator = sim.start_operator("operator-1");
        sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
        if tokio::time::timeout(secs(30), point.wait()).await.is_err() {
            assert!(n > 20, "only {n} writes were made");
            break;
        }
        sim.delete(NS, NAME).await.unwrap();
        let gone = sim.wait(secs(90), |s| leftovers(s).iter().all(|o| is_kept(o))).await;
        assert!(gone, "deleted at write {n}: {:#?}", leftovers(&sim));
        sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
        healthy(&sim).await;
        write_rows(&sim, 3).await;
        intact(&sim);
    }
}

/// Somebody else's finalizer keeps the cluster from going: what is deleted already is not made again, and nothing is
/// written.
#[tokio::test(start_paused = true)]
async fn f27_a_cluster_that_is_being_deleted_is_left_alone() {
    let (sim, _operator) = running(seed(79), 3).await;
    let clusters = Resource::find(mainstay_api::GROUP, "mysqlclusters").unwrap();
    let key = Key::new(clusters, NS, NAME);
    let finalizers = |names: Value| {
        let change = json!({"metadata": {"finalizers": names}});
        sim.server.patch(&key, None, change).unwrap();
    };
    finalizers(json!(["example.com/hold"]));
    sleep(secs(10)).await;
    sim.delete(NS, NAME).await.unwrap();
    sim.server.clear_requests();
    let services = Resource::find("", "services").unwrap();
    sim.server
        .delete(&Key::new(services, NS, "shop-replicas"), &DeleteOptions::default())
        .unwrap();
    sim.world.change(|w| w.kill_mysqld(NS, "shop-1"));
    sleep(secs(300)).await;
    let writes = crate::support::work(&sim);
    assert!(writes.is_empty(), "{writes:#?}");
    finalizers(Value::Null);
    let gone = sim.wait(secs(90), |s| leftovers(s).iter().all(|o| is_kept(o))).await;
    assert!(gone, "{:#?}", leftovers(&sim));
}

#[tokio::test(start_paused = true)]
async fn f27_a_cluster_that_is_created_again_over_kept_volumes_has_all_rows() {
    for replicas in [1, 3] {
        let (sim, operator) = running(seed(72), replicas).await;
        let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
        sleep(secs(5)).await;
        sim.delete(NS, NAME).await.unwrap();
        assert!(
            sim.wait(secs(90), |s| leftovers(s).iter().all(|o| is_kept(o))).await,
            "{:#?}",
            leftovers(&sim)
        );
        writer.abort();
        let rows = sim.world.acknowledged(NS, NAME);
        assert!(rows > 50);
        // Once with the operator that knew the cluster, once with one that never saw it.
        if replicas == 3 {
            operator.stop().await;
        }
        let _second = (replicas == 3).then(|| sim.start_operator("operator-2"));
        sim.create(NS, Simulation::manifest(NAME, replicas)).await.unwrap();
        healthy(&sim).await;
        intact(&sim);
        write_rows(&sim, 5).await;
        intact(&sim);
    }
}

#[tokio::test(start_paused = true)]
async fn f27_the_policy_delete_deletes_the_data() {
    let sim = Simulation::new(seed(73));
    let _operator = sim.start_operator("operator-1");
    let mut manifest = Simulation::manifest(NAME, 3);
    manifest["spec"]["deletionPolicy"] = json!("Delete");
    sim.create(NS, manifest).await.unwrap();
    healthy(&sim).await;
    sim.delete(NS, NAME).await.unwrap();
    assert!(
        sim.wait(secs(90), |s| leftovers(s).is_empty()).await,
        "{:#?}",
        leftovers(&sim)
    );
    assert!(sim.world.with(|w| w.volumes.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn f27_a_deleted_stateful_set_is_made_again_over_its_volumes() {
    let (sim, _operator) = running(seed(74), 3).await;
    write_rows(&sim, 20).await;
    let sets = Resource::find("apps", "statefulsets").unwrap();
    for orphan in [false, true] {
        sim.server
            .delete(
                &Key::new(sets, NS, NAME),
                &DeleteOptions {
                    orphan,
                    ..DeleteOptions::default()
                },
            )
            .unwrap();
        sleep(secs(2)).await;
        healthy(&sim).await;
        write_rows(&sim, 5).await;
        intact(&sim);
    }
}

#[tokio::test(start_paused = true)]
async fn f27_the_namespace_with_the_cluster_goes() {
    let (sim, _operator) = running(seed(75), 3).await;
    let namespaces = Resource::find("", "namespaces").unwrap();
    sim.server
        .delete(&Key::new(namespaces, "", NS), &DeleteOptions::default())
        .unwrap();
    let gone = sim
        .wait(secs(120), |s| s.server.get(&Key::new(namespaces, "", NS)).is_none())
        .await;
    assert!(gone, "{:#?}", leftovers(&sim));
    sim.server.clear_requests();
    sleep(secs(300)).await;
    let writes = crate::support::work(&sim);
    assert!(writes.is_empty(), "{writes:#?}");
}

/// The cluster outlives what it owns, because of somebody's finalizer: a namespace may take hours to go.
#[tokio::test(start_paused = true)]
async fn f27_a_namespace_that_takes_long_to_go_is_not_written_to() {
    let (sim, _operator) = running(seed(80), 3).await;
    let clusters = Resource::find(mainstay_api::GROUP, "mysqlclusters").unwrap();
    let maps = Resource::find("", "configmaps").unwrap();
    let namespaces = Resource::find("", "namespaces").unwrap();
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    sim.server.create(maps, NS, held).unwrap();
    // The deletion of the cluster itself is not told to the operator: the worst order.
    sim.server.inject_watch(WatchFault {
        resource: Some("mysqlclusters".to_owned()),
        drop_percent: 100,
        ..WatchFault::of("operator")
    });
    sim.server
        .delete(&Key::new(namespaces, "", NS), &DeleteOptions::default())
        .unwrap();
    sleep(secs(60)).await;
    assert!(sim.server.get(&Key::new(clusters, NS, NAME)).is_none());
    sim.server.clear_requests();
    sleep(secs(600)).await;
    let tries = sim.server.requests(|r| r.mutates() && r.namespace == NS);
    assert!(tries.is_empty(), "{tries:#?}");
}

/// A StatefulSet of the derived name whose owner has another uid is not adopted, nor are its pods.
#[tokio::test(start_paused = true)]
async fn f27_what_another_owner_has_is_not_adopted() {
    let sim = Simulation::new(seed(76));
    let maps = Resource::find("", "configmaps").unwrap();
    let owner = sim
        .server
        .create(maps, NS, json!({"metadata": {"name": "owner"}}))
        .unwrap();
    let sets = Resource::find("apps", "statefulsets").unwrap();
    let labels = json!({"app.kubernetes.io/managed-by": "mainstay", "mysql.mainstay.dev/cluster": NAME});
    let foreign = json!({
        "metadata": {"name": NAME, "labels": labels, "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap",
            "name": "owner", "uid": owner["metadata"]["uid"], "controller": true}]},
        "spec": {"replicas": 0, "serviceName": "x", "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}},
    });
    let before = sim.server.create(sets, NS, foreign).unwrap();
    let _operator = sim.start_operator("operator-1");
    sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
    sleep(secs(60)).await;
    let after = sim.server.get(&Key::new(sets, NS, NAME)).unwrap();
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(
        after["metadata"]["ownerReferences"],
        before["metadata"]["ownerReferences"]
    );
    let said = sim
        .cluster(NS, NAME)
        .and_then(|c| c.pointer("/status/conditions").map(ToString::to_string))
        .unwrap_or_default();
    assert!(said.contains("StatefulSet"), "the conflict is reported: {said}");
    let writes = crate::support::work(&sim);
    assert!(writes.len() < 60, "{} writes in a minute", writes.len());
}

/// The cluster was deleted and created again under its name while the operator was away: what the old one owned is not
/// taken over, its data is.
#[tokio::test(start_paused = true)]
async fn f27_the_owner_uid_changed_while_the_operator_was_away() {
    let (sim, operator) = running(seed(77), 3).await;
    write_rows(&sim, 30).await;
    operator.crash().await;
    sim.delete(NS, NAME).await.unwrap();
    sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
    let uid = sim.cluster(NS, NAME).unwrap()["metadata"]["uid"].clone();
    let _second = sim.start_operator("operator-2");
    healthy_within(&sim, NS, NAME, secs(240)).await;
    write_rows(&sim, 3).await;
    intact(&sim);
    let sets = Resource::find("apps", "statefulsets").unwrap();
    let set = sim.server.get(&Key::new(sets, NS, NAME)).unwrap();
    let owners = set
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    assert!(owners.iter().all(|o| o["uid"] == uid), "{owners:?}");
}
