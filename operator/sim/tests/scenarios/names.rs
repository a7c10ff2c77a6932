//! F28: equal names in two namespaces, and foreign objects with derived names.

use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{Key, Resource};
use serde_json::json;

use crate::support::{NAME, NS, healthy_within, secs, seed, sleep, work};

#[tokio::test(start_paused = true)]
async fn f28_equal_names_in_two_namespaces_do_not_mix() {
    let sim = Simulation::new(seed(81));
    sim.server.create_namespace("other");
    let _operator = sim.start_operator("operator-1");
    for namespace in [NS, "other"] {
        sim.create(namespace, Simulation::manifest("db", 3)).await.unwrap();
    }
    // `a-b` + `c` against `a` + `b-c`.
    sim.server.create_namespace("a-b");
    sim.server.create_namespace("a");
    sim.create("a-b", Simulation::manifest("c", 1)).await.unwrap();
    sim.create("a", Simulation::manifest("b-c", 1)).await.unwrap();
    for (namespace, name) in [(NS, "db"), ("other", "db"), ("a-b", "c"), ("a", "b-c")] {
        healthy_within(&sim, namespace, name, secs(180)).await;
        for _ in 0..10 {
            sim.world.write(namespace, name).await;
        }
    }
    sim.delete("other", "db").await.unwrap();
    sleep(secs(60)).await;
    for (namespace, name) in [(NS, "db"), ("a-b", "c"), ("a", "b-c")] {
        healthy_within(&sim, namespace, name, secs(60)).await;
        let wrong = sim.world.judge(namespace, name);
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(sim.world.acknowledged(namespace, name) >= 9, "{namespace}/{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn f28_a_foreign_object_with_a_derived_name_is_reported_and_left_alone() {
    let table = [
        (
            "",
            "services",
            "shop-primary",
            json!({"spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}}),
        ),
        ("", "secrets", "shop-root", json!({"data": {"password": "c2VjcmV0"}})),
        ("", "secrets", "shop-server-tls", json!({"data": {"tls.crt": "eA=="}})),
        ("", "configmaps", "shop-instance", json!({"data": {"a": "b"}})),
        ("", "serviceaccounts", "shop-instance", json!({})),
    ];
    for (group, plural, name, mut object) in table {
        let sim = Simulation::new(seed(82));
        let resource = Resource::find(group, plural).unwrap();
        object["metadata"] = json!({"name": name});
        let before = sim.server.create(resource, NS, object).unwrap();
        let _operator = sim.start_operator("operator-1");
        sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
        sleep(secs(90)).await;
        let after = sim.server.get(&Key::new(resource, NS, name)).unwrap();
        assert_eq!(before, after, "{plural}/{name} was touched");
        if plural != "configmaps" {
            let status = sim
                .cluster(NS, NAME)
                .map(|c| c["status"].to_string())
                .unwrap_or_default();
            assert!(status.contains(name), "{plural}/{name} is not reported: {status}");
        }
        sim.server.clear_requests();
        sleep(secs(120)).await;
        let writes = work(&sim);
        assert!(writes.len() < 10, "a hot loop over {plural}/{name}: {writes:#?}");
    }
}
