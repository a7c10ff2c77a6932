//! Backups: made by hand and by schedule, with an operator that dies after each of its writes, and told to people.

use std::sync::Arc;

use mainstay_api::GROUP;
use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{DeleteOptions, Effect, Key, Resource, Rule};
use mainstay_store::{Depth, Entry, Listing, Store as _};
use serde_json::{Value, json};

use crate::support::{NAME, NS, attended, healthy, intact, operators_end, secs, seed, sleep};

/// What the operator wrote, besides the lease.
fn writes(sim: &Simulation) -> usize {
    sim.server
        .requests(|r| r.client.starts_with("operator") && r.is_work())
        .len()
}

fn secrets() -> &'static Resource {
    Resource::find("", "secrets").unwrap()
}

pub(crate) fn jobs() -> &'static Resource {
    Resource::find("batch", "jobs").unwrap()
}

pub(crate) fn backups() -> &'static Resource {
    Resource::find(GROUP, "mysqlbackups").unwrap()
}

/// The keys of the store, as the user's Secret.
pub(crate) fn create_credentials(sim: &Simulation) {
    create_credentials_in(sim, NS);
}

pub(crate) fn create_credentials_in(sim: &Simulation, namespace: &str) {
    let secret = json!({"metadata": {"name": "shop-s3"},
        "stringData": {"accessKeyId": "AKIA", "secretAccessKey": "hidden-in-the-store"}});
    sim.server.create(secrets(), namespace, secret).unwrap();
}

pub(crate) fn with_backups(schedules: &Value) -> Value {
    named(NAME, 3, schedules)
}

pub(crate) fn named(name: &str, replicas: i32, schedules: &Value) -> Value {
    let mut manifest = Simulation::manifest(name, replicas);
    manifest["spec"]["backup"] = json!({
        "store": {"bucket": "backups", "endpoint": "http://s3.example", "credentialsSecret": {"name": "shop-s3"}},
        "schedules": schedules,
    });
    manifest
}

/// A healthy cluster with a store, and nobody who looks after it.
pub(crate) async fn settled(seed: u64, schedules: &Value) -> Simulation {
    let sim = Simulation::new(seed);
    create_credentials(&sim);
    let operator = sim.start_operator("operator-1");
    sim.create(NS, with_backups(schedules)).await.unwrap();
    healthy(&sim).await;
    operators_end(&sim, operator).await;
    sim
}

pub(crate) fn ask(sim: &Simulation, name: &str) {
    let backup = json!({"metadata": {"name": name}, "spec": {"cluster": NAME}});
    sim.server.create(backups(), NS, backup).unwrap();
}

pub(crate) fn backup(sim: &Simulation, name: &str) -> Option<Arc<Value>> {
    sim.server.get(&Key::new(backups(), NS, name))
}

pub(crate) fn phase(sim: &Simulation, name: &str) -> String {
    let backup = backup(sim, name);
    let phase = backup
        .as_ref()
        .and_then(|backup| backup.pointer("/status/phase")?.as_str());
    phase.unwrap_or_default().to_owned()
}

pub(crate) fn conditions(sim: &Simulation) -> Vec<Value> {
    let cluster = sim.cluster(NS, NAME).unwrap();
    cluster
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}

pub(crate) fn backup_healthy(sim: &Simulation) -> Option<Value> {
    conditions(sim)
        .into_iter()
        .find(|condition| condition["type"] == "BackupHealthy")
}

pub(crate) async fn stored(sim: &Simulation) -> Vec<String> {
    let everything = Listing {
        folder: mainstay_store::backup::Folder::root(),
        depth: Depth::Deep,
        after: None,
    };
    let entries = sim.world.stores().0.list_all(everything).await.unwrap();
    let keys = entries.into_iter().filter_map(|entry| match entry {
        Entry::Object(object) => Some(object.key.to_string()),
        Entry::Folder(_) => None,
    });
    keys.collect()
}

pub(crate) async fn succeeded(sim: &Simulation, name: &str) {
    let done = sim.wait(secs(600), |s| phase(s, name) == "Succeeded").await;
    assert!(done, "{:#?}\n{}", backup(sim, name), sim.picture(NS, NAME));
}

/// Nothing is left of a Job.
pub(crate) async fn cleaned_up(sim: &Simulation) {
    let pods = Resource::find("", "pods").unwrap();
    let of_backups = |s: &Simulation| {
        let pods = s.server.list(pods, NS);
        let is_backup = |pod: &Arc<Value>| pod.pointer("/metadata/labels/mysql.mainstay.dev~1backup").is_some();
        let mut left = s.server.list(jobs(), NS);
        left.extend(pods.into_iter().filter(is_backup));
        left
    };
    let clean = sim.wait(secs(120), |s| of_backups(s).is_empty()).await;
    assert!(clean, "{:#?}\n{}", of_backups(sim), sim.picture(NS, NAME));
}

#[tokio::test(start_paused = true)]
async fn a_backup_by_hand_is_made_told_and_cleaned_up() {
    let sim = settled(seed(101), &json!([])).await;
    let _operator = sim.start_operator("operator-1");
    ask(&sim, "now");
    let running = sim.wait(secs(60), |s| {
        backup(s, "now").is_some_and(|backup| backup.pointer("/status/progress").is_some())
    });
    assert!(running.await, "{}", sim.picture(NS, NAME));
    succeeded(&sim, "now").await;
    cleaned_up(&sim).await;
    let done = backup(&sim, "now").unwrap();
    assert_eq!(done["status"]["message"], "5.0 GB, stored in 2.5 GB");
    assert!(
        done["status"]["gtidExecuted"]
            .as_str()
            .is_some_and(|set| !set.is_empty())
    );
    assert!(done["status"].get("progress").is_none());
    let objects = stored(&sim).await;
    let location = done["status"]["location"].as_str().unwrap();
    assert!(
        objects.iter().any(|key| location.ends_with(key.as_str())),
        "{location} {objects:?}"
    );
    let told = sim
        .wait(secs(30), |s| {
            let cluster = s.cluster(NS, NAME).unwrap();
            cluster.pointer("/status/backup/lastSuccessful/name") == Some(&json!("now"))
        })
        .await;
    assert!(told, "{}", sim.picture(NS, NAME));
    assert_eq!(backup_healthy(&sim).unwrap()["status"], "True");
    // And then nothing is written any more.
    sleep(secs(30)).await;
    let before = writes(&sim);
    sleep(secs(3600)).await;
    assert_eq!(writes(&sim), before, "{}", sim.picture(NS, NAME));
}

/// The operator dies at its `n`-th write of a backup; whether there was one. The next operator finds out where everything stands:
/// one backup is stored, and nothing is left.
async fn crash(base: &Simulation, effect: Effect, n: u64) -> bool {
    let what = format!("{effect:?} at write {n}");
    let sim = base.fork(base.seed + n);
    let first = sim.start_operator("operator-1");
    attended(&sim).await;
    // Its store is listed; that is no write.
    sleep(secs(5)).await;
    let rule = Rule::when(effect, |r| {
        r.client == "operator-1" && r.is_work() && r.resource != "events"
    })
    .nth(n);
    let point = sim.server.inject(rule);
    ask(&sim, "now");
    let stopped = sim
        .wait(secs(300), |s| point.count() > 0 || phase(s, "now") == "Succeeded")
        .await;
    assert!(stopped, "without a crash: {what}\n{}", sim.picture(NS, NAME));
    if point.count() == 0 {
        // What is left to be written after the end.
        let _ = sim.wait(secs(30), |_| point.count() > 0).await;
    }
    first.crash().await;
    let _second = sim.start_operator("operator-2");
    succeeded(&sim, "now").await;
    cleaned_up(&sim).await;
    let told = sim.wait(secs(30), |s| {
        let cluster = s.cluster(NS, NAME).unwrap();
        cluster.pointer("/status/backup/lastSuccessful/name") == Some(&json!("now"))
    });
    assert!(told.await, "{what}\n{}", sim.picture(NS, NAME));
    let manifests: Vec<_> = stored(&sim)
        .await
        .into_iter()
        .filter(|key| key.ends_with("manifest.json"))
        .collect();
    assert_eq!(manifests.len(), 1, "{what}: {manifests:?}");
    let created = sim
        .server
        .requests(|r| r.verb == "create" && r.resource == "jobs" && r.code == 201);
    assert!(created.len() <= 1, "{what}: {created:#?}");
    intact(&sim);
    point.count() > 0
}

async fn crash_points(effect: Effect) {
    let base = settled(seed(3800), &json!([])).await;
    for n in 1.. {
        if !crash(&base, effect, n).await {
            println!("{} crash points", n - 1);
            assert!(n > 6, "only {n} writes were made");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f23_before_every_write_of_a_backup() {
    crash_points(Effect::HangBefore).await;
}

#[tokio::test(start_paused = true)]
async fn f23_after_every_write_of_a_backup() {
    crash_points(Effect::HangAfter).await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_makes_backups_and_retention_keeps_the_newest() {
    let schedules = json!([{"name": "often", "schedule": "*/10 * * * *", "retention": {"count": 2}}]);
    let sim = settled(seed(103), &schedules).await;
    let _operator = sim.start_operator("operator-1");
    sleep(secs(3600)).await;
    let ended = |s: &Simulation| {
        let all = s.server.list(backups(), NS);
        all.iter()
            .filter(|b| b.pointer("/status/phase") == Some(&json!("Succeeded")))
            .count()
    };
    let kept = sim.wait(secs(300), |s| ended(s) == 2).await;
    assert!(kept, "{} of them\n{}", ended(&sim), sim.picture(NS, NAME));
    let created = sim
        .server
        .requests(|r| r.verb == "create" && r.resource == "mysqlbackups")
        .len();
    assert!((5..=7).contains(&created), "{created}");
    let manifests = stored(&sim)
        .await
        .into_iter()
        .filter(|key| key.ends_with("manifest.json"))
        .count();
    assert_eq!(manifests, 2, "what expired is gone from the store");
    cleaned_up(&sim).await;
}

/// A Secret that is not there is told with the field, and noticed as soon as it is; what is in it is seen nowhere else.
#[tokio::test(start_paused = true)]
async fn a_store_without_its_keys_is_told_and_goes_on_when_they_come() {
    let sim = Simulation::new(seed(104));
    let _operator = sim.start_operator("operator-1");
    sim.create(NS, with_backups(&json!([]))).await.unwrap();
    healthy(&sim).await;
    ask(&sim, "now");
    let told = sim.wait(secs(30), |s| {
        backup_healthy(s).is_some_and(|c| c["status"] == "False" && c["reason"] == "StoreRefused")
    });
    assert!(told.await, "{}", sim.picture(NS, NAME));
    let message = backup_healthy(&sim).unwrap()["message"].to_string();
    assert!(
        message.contains("spec.backup.store.credentialsSecret: there is no Secret shop-s3 in namespace shop"),
        "{message}"
    );
    let waits = sim.wait(secs(30), |s| {
        backup(s, "now").is_some_and(|b| b["status"]["message"].to_string().contains("credentialsSecret"))
    });
    assert!(waits.await, "{}", sim.picture(NS, NAME));
    sleep(secs(60)).await;
    let before = writes(&sim);
    sleep(secs(3600)).await;
    assert_eq!(
        writes(&sim),
        before,
        "nobody asks again and again: {}",
        sim.picture(NS, NAME)
    );

    create_credentials(&sim);
    succeeded(&sim, "now").await;
    let healthy = sim
        .wait(secs(30), |s| backup_healthy(s).is_some_and(|c| c["status"] == "True"))
        .await;
    assert!(healthy, "{}", sim.picture(NS, NAME));
    let secret = sim.server.get(&Key::new(secrets(), NS, "shop-store")).unwrap();
    let document = document(&secret);
    assert_eq!(document["keys"]["secretKey"], "hidden-in-the-store");
    // Rotation is followed.
    let key = Key::new(secrets(), NS, "shop-s3");
    sim.server
        .patch(
            &key,
            None,
            json!({"stringData": {"secretAccessKey": "rotated-in-the-store"}}),
        )
        .unwrap();
    let rotated = sim.wait(secs(10), |s| {
        let secret = s.server.get(&Key::new(secrets(), NS, "shop-store")).unwrap();
        self::document(&secret)["keys"]["secretKey"] == "rotated-in-the-store"
    });
    assert!(rotated.await, "{}", sim.picture(NS, NAME));
    // Nothing of it is anywhere but in Secrets (case F31).
    for resource in [backups(), jobs(), Resource::find(GROUP, "mysqlclusters").unwrap()] {
        for object in sim.server.list(resource, NS) {
            assert!(!object.to_string().contains("in-the-store"), "{object}");
        }
    }
    // A store that is not declared any more leaves nothing behind.
    let cluster = Key::new(Resource::find(GROUP, "mysqlclusters").unwrap(), NS, NAME);
    sim.server
        .patch(&cluster, None, json!({"spec": {"backup": null}}))
        .unwrap();
    let emptied = sim.wait(secs(10), |s| {
        let secret = s.server.get(&Key::new(secrets(), NS, "shop-store")).unwrap();
        secret
            .get("data")
            .is_none_or(|data| data.as_object().is_none_or(serde_json::Map::is_empty))
    });
    assert!(emptied.await, "{}", sim.picture(NS, NAME));
    let gone = sim.wait(secs(10), |s| backup_healthy(s).is_none()).await;
    assert!(gone, "{}", sim.picture(NS, NAME));
}

fn document(secret: &Value) -> Value {
    let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret.clone()).unwrap();
    let data = secret.data.unwrap_or_default();
    data.get("store.json")
        .map_or(Value::Null, |bytes| serde_json::from_slice(&bytes.0).unwrap())
}

#[tokio::test(start_paused = true)]
async fn f23_a_job_that_is_deleted_fails_its_backup_and_blocks_nothing() {
    let sim = settled(seed(105), &json!([])).await;
    let _operator = sim.start_operator("operator-1");
    ask(&sim, "now");
    let running = sim.wait(secs(60), |s| phase(s, "now") == "Running").await;
    assert!(running, "{}", sim.picture(NS, NAME));
    let job = Key::new(jobs(), NS, "now-backup");
    sim.server.delete(&job, &DeleteOptions::default()).unwrap();
    let failed = sim.wait(secs(60), |s| phase(s, "now") == "Failed").await;
    assert!(failed, "{}", sim.picture(NS, NAME));
    let told = sim
        .wait(secs(10), |s| {
            backup_healthy(s).is_some_and(|c| c["reason"] == "BackupFailed")
        })
        .await;
    assert!(told, "{}", sim.picture(NS, NAME));
    ask(&sim, "again");
    succeeded(&sim, "again").await;
    let healthy = sim
        .wait(secs(10), |s| backup_healthy(s).is_some_and(|c| c["status"] == "True"))
        .await;
    assert!(healthy, "{}", sim.picture(NS, NAME));
    cleaned_up(&sim).await;
}

/// Somebody else's Job under the name of a backup's is left alone, and told.
#[tokio::test(start_paused = true)]
async fn f28_a_foreign_job_is_left_alone() {
    let sim = settled(seed(106), &json!([])).await;
    let _operator = sim.start_operator("operator-1");
    let foreign = json!({"metadata": {"name": "now-backup"}, "spec": {"template": {}}, "status": {"active": 1}});
    sim.server.create(jobs(), NS, foreign).unwrap();
    ask(&sim, "now");
    let failed = sim.wait(secs(60), |s| phase(s, "now") == "Failed").await;
    assert!(failed, "{}", sim.picture(NS, NAME));
    let message = backup(&sim, "now").unwrap()["status"]["message"].to_string();
    assert!(message.contains("not Mainstay's"), "{message}");
    assert!(sim.server.get(&Key::new(jobs(), NS, "now-backup")).is_some());
}
