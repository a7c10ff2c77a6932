//! F30: an idle operator writes nothing but its lease, whatever admission adds and however its watches fare.

use mainstay_sim::Simulation;
use serde_json::{Value, json};

use crate::support::{NAME, NS, healthy, intact, running, secs, seed, sleep, work, write_rows};

/// Webhooks as they are found in clusters: pull secrets, a sidecar, annotations and labels, a changed limit.
fn meddle(sim: &Simulation) {
    sim.server.add_admission(|resource, _, object| {
        let template = match resource.kind {
            "StatefulSet" => "/spec/template/spec",
            "Pod" => "/spec",
            _ => "",
        };
        if let Some(spec) = object.pointer_mut(template).filter(|_| !template.is_empty()) {
            spec["imagePullSecrets"] = json!([{"name": "registry"}]);
            spec["priority"] = json!(0);
            let containers = spec["containers"].as_array_mut();
            if let Some(containers) = containers.filter(|c| c.iter().all(|c| c["name"] != "proxy")) {
                containers.push(json!({"name": "proxy", "image": "proxy:1"}));
            }
        }
        if matches!(
            resource.kind,
            "StatefulSet" | "Service" | "ConfigMap" | "Secret" | "EndpointSlice" | "PodDisruptionBudget"
        ) {
            object["metadata"]["annotations"]["policy.example/checked"] = json!("yes");
            object["metadata"]["labels"]["team"] = json!("data");
        }
        if resource.kind == "Service" && object["spec"]["clusterIP"] != json!("None") {
            object["spec"]["externalTrafficPolicy"] = json!("Cluster");
        }
        Ok(())
    });
}

async fn quiet(sim: &Simulation, seconds: u64) {
    sim.server.clear_requests();
    sleep(secs(seconds)).await;
    let writes = work(sim);
    assert!(
        writes.is_empty(),
        "writes while idle: {writes:#?}\n{}",
        sim.picture(NS, NAME)
    );
    assert!(
        !sim.server
            .requests(|r| r.resource == "leases" && r.mutates())
            .is_empty(),
        "the lease is renewed"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_operator_writes_nothing() {
    let (sim, _operator) = running(seed(21), 3).await;
    sleep(secs(30)).await;
    quiet(&sim, 300).await;
    quiet(&sim, 3600).await;
    intact(&sim);
}

#[tokio::test(start_paused = true)]
async fn f30_admission_that_adds_things_causes_no_hot_loop() {
    let sim = Simulation::new(seed(22));
    meddle(&sim);
    let _operator = sim.start_operator("operator-1");
    sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
    healthy(&sim).await;
    sleep(secs(30)).await;
    quiet(&sim, 300).await;
    write_rows(&sim, 3).await;
    intact(&sim);
}

/// A webhook that takes a field back that Mainstay owns is not fought for ever.
#[tokio::test(start_paused = true)]
async fn f30_a_contested_field_causes_no_hot_loop() {
    let (sim, _operator) = running(seed(23), 3).await;
    sim.server.add_admission(|resource, _, object| {
        if resource.kind == "Service" && object.pointer("/metadata/name") == Some(&json!("shop-primary")) {
            object["spec"]["ports"][0]["name"] = json!("renamed");
        }
        Ok(())
    });
    let services = mainstay_sim::kubernetes::Resource::find("", "services").unwrap();
    let key = mainstay_sim::kubernetes::Key::new(services, NS, "shop-primary");
    sim.server
        .patch(&key, None, json!({"metadata": {"annotations": {"touched": "1"}}}))
        .unwrap();
    let applies = |s: &Simulation| {
        let writes = work(s);
        assert!(writes.len() < 12, "fought over: {writes:#?}");
        writes.iter().filter(|w| w.contains("apply services")).count()
    };
    sim.server.clear_requests();
    sleep(secs(60)).await;
    assert_eq!(applies(&sim), 3, "three rounds, then a truce");
    let said = sim.cluster(NS, NAME).unwrap()["status"]["conditions"].to_string();
    assert!(said.contains("changed back by another writer"), "{said}");
    for _ in 0..3 {
        sim.server.clear_requests();
        sleep(secs(3600)).await;
        assert!(applies(&sim) <= 2, "at most after ten, twenty, forty and sixty minutes");
    }
}

/// Lists that are empty for a while, after every watch expired: nothing is deleted or made because a cache is empty.
#[tokio::test(start_paused = true)]
async fn f30_an_empty_cache_deletes_nothing() {
    let sim = Simulation::new(seed(24));
    let before_anything = sim.server.version();
    let _operator = sim.start_operator("operator-1");
    sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
    healthy(&sim).await;
    write_rows(&sim, 10).await;
    sleep(secs(30)).await;
    let uids = |sim: &Simulation| -> Vec<Value> {
        let kinds = [
            ("apps", "statefulsets"),
            ("", "pods"),
            ("", "persistentvolumeclaims"),
            ("", "secrets"),
            ("", "services"),
        ];
        kinds
            .iter()
            .filter_map(|(group, plural)| mainstay_sim::kubernetes::Resource::find(group, plural))
            .flat_map(|r| sim.server.list(r, NS))
            .map(|o| o["metadata"]["uid"].clone())
            .collect()
    };
    let before = uids(&sim);
    sim.server.clear_requests();
    for _ in 0..3 {
        sim.server.serve_stale_lists("operator", before_anything, 40);
        sim.server.compact();
        sim.server.disconnect("operator-1");
        sleep(secs(20)).await;
        sim.server.clear_faults();
        sim.server.disconnect("operator-1");
        sleep(secs(120)).await;
    }
    assert_eq!(uids(&sim), before, "{}", sim.picture(NS, NAME));
    let deleted = sim
        .server
        .requests(|r| r.client.starts_with("operator") && r.verb == "delete");
    assert!(deleted.is_empty(), "{deleted:?}");
    healthy(&sim).await;
    write_rows(&sim, 3).await;
    intact(&sim);
}
