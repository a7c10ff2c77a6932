//! Field cases of backups: a bucket that clusters share (F22), and backups that are interrupted (F23).

use std::sync::Arc;

use mainstay_sim::Simulation;
use serde_json::{Value, json};

use crate::backups::{backup_healthy, backups, create_credentials_in, jobs, named, settled, stored};
use crate::support::{NAME, NS, healthy_within, intact, secs, seed, sleep};

#[tokio::test(start_paused = true)]
async fn f23_a_schedule_of_every_minute_with_backups_of_five() {
    let schedules = json!([{"name": "often", "schedule": "* * * * *", "retention": {"count": 3}}]);
    let sim = settled(seed(108), &schedules).await;
    sim.world.change(|w| w.let_backups_take(secs(300)));
    sim.server.clear_requests();
    let _operator = sim.start_operator("operator-1");
    let mut most = 0;
    for _ in 0..720 {
        sleep(secs(10)).await;
        let active = |job: &Arc<Value>| job.pointer("/status/active").is_some_and(|active| !active.is_null());
        most = most.max(sim.server.list(jobs(), NS).iter().filter(|job| active(job)).count());
    }
    assert_eq!(most, 1, "one at a time");
    let created = sim
        .server
        .requests(|r| r.verb == "create" && r.resource == "mysqlbackups" && r.code == 201);
    // Two hours: each takes five minutes and a little, the next one is due at once, and the last one may still run.
    assert!((20..=25).contains(&created.len()), "{} of them", created.len());
    let failed = sim.server.list(backups(), NS);
    let failed = failed
        .iter()
        .filter(|b| b.pointer("/status/phase") == Some(&json!("Failed")));
    assert_eq!(failed.count(), 0, "{}", sim.picture(NS, NAME));
    assert_eq!(backup_healthy(&sim).unwrap()["status"], "True");
    intact(&sim);
}

/// What one cluster has in the store.
async fn folder(sim: &Simulation, cluster: &str) -> Vec<String> {
    let mut keys = stored(sim).await;
    keys.retain(|key| key.starts_with(cluster));
    keys
}

/// Clusters that are called alike share a bucket: `shop`, `shop-2` beside it, `shop` in another namespace, and one that is
/// created again under its old name.
#[tokio::test(start_paused = true)]
async fn f22_clusters_that_share_a_bucket_touch_nothing_of_each_other() {
    let sim = Simulation::new(seed(109));
    sim.server.create_namespace("other");
    let _operator = sim.start_operator("operator-1");
    let often = json!([{"name": "often", "schedule": "*/10 * * * *", "retention": {"count": 1}}]);
    let clusters = [
        (NS, NAME, &often),
        (NS, "shop-2", &json!([])),
        ("other", NAME, &json!([])),
    ];
    for namespace in [NS, "other"] {
        create_credentials_in(&sim, namespace);
    }
    for (namespace, name, schedules) in clusters {
        sim.create(namespace, named(name, 1, schedules)).await.unwrap();
    }
    for (namespace, name, _) in clusters {
        healthy_within(&sim, namespace, name, secs(180)).await;
    }
    for (namespace, name, _) in &clusters[1..] {
        let by_hand = json!({"metadata": {"name": format!("{name}-by-hand")}, "spec": {"cluster": name}});
        sim.server.create(backups(), namespace, by_hand).unwrap();
    }
    let others = ["shop/shop-2/", "other/shop/"];
    let mut made = false;
    for _ in 0..60 {
        sleep(secs(10)).await;
        made = true;
        for other in others {
            made &= folder(&sim, other)
                .await
                .iter()
                .any(|key| key.ends_with("manifest.json"));
        }
        if made {
            break;
        }
    }
    assert!(made, "{:#?}", stored(&sim).await);
    let before = [folder(&sim, others[0]).await, folder(&sim, others[1]).await];
    // An hour of retention in the first one.
    sleep(secs(3600)).await;
    let own = folder(&sim, "shop/shop/").await;
    assert_eq!(
        own.iter().filter(|key| key.ends_with("manifest.json")).count(),
        1,
        "{own:#?}"
    );
    assert_eq!([folder(&sim, others[0]).await, folder(&sim, others[1]).await], before);

    // Created again under its old name: a folder of its own, and the old one is left as it was.
    let former = uid(&sim);
    sim.delete(NS, NAME).await.unwrap();
    let gone = sim.wait(secs(120), |s| {
        s.cluster(NS, NAME).is_none() && s.world.with(|w| w.open(NS, NAME).is_none())
    });
    assert!(gone.await, "{}", sim.picture(NS, NAME));
    sleep(secs(60)).await;
    let deleted = folder(&sim, &format!("shop/shop/{former}/")).await;
    assert!(!deleted.is_empty());
    sim.create(NS, named(NAME, 1, &often)).await.unwrap();
    healthy_within(&sim, NS, NAME, secs(180)).await;
    assert_ne!(uid(&sim), former);
    sleep(secs(3600)).await;
    let own = folder(&sim, &format!("shop/shop/{}/", uid(&sim))).await;
    assert_eq!(
        own.iter().filter(|key| key.ends_with("manifest.json")).count(),
        1,
        "{own:#?}"
    );
    assert_eq!(folder(&sim, &format!("shop/shop/{former}/")).await, deleted);
    assert_eq!([folder(&sim, others[0]).await, folder(&sim, others[1]).await], before);
}

fn uid(sim: &Simulation) -> String {
    let cluster = sim.cluster(NS, NAME).unwrap();
    cluster["metadata"]["uid"].as_str().unwrap().to_owned()
}
