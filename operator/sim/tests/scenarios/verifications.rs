//! Verifications: by schedule, with an operator that dies after each of its writes, a Job that is killed, and a store that lost
//! the backup.

use mainstay_api::GROUP;
use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{DeleteOptions, Effect, Key, Resource, Rule};
use mainstay_store::Store as _;
use serde_json::{Value, json};

use crate::backups::{ask, cleaned_up, conditions, create_credentials, jobs, stored, succeeded, with_backups};
use crate::support::{NAME, NS, healthy, intact, operators_end, secs, seed, sleep};

/// A healthy cluster with one backup, whose verification is not due in a test, and nobody who looks after it.
async fn settled(seed: u64) -> Simulation {
    let sim = Simulation::new(seed);
    create_credentials(&sim);
    let operator = sim.start_operator("operator-1");
    let mut manifest = with_backups(&json!([]));
    manifest["spec"]["backup"]["verification"] = json!({"schedule": "0 0 29 2 *"});
    sim.create(NS, manifest).await.unwrap();
    healthy(&sim).await;
    ask(&sim, "now");
    succeeded(&sim, "now").await;
    cleaned_up(&sim).await;
    operators_end(&sim, operator).await;
    sim
}

fn cluster() -> Key {
    Key::new(Resource::find(GROUP, "mysqlclusters").unwrap(), NS, NAME)
}

/// From now on one is due every ten minutes.
fn verify_often(sim: &Simulation) {
    let spec = json!({"spec": {"backup": {"verification": {"schedule": "*/10 * * * *"}}}});
    sim.server.patch(&cluster(), None, spec).unwrap();
}

fn verification(sim: &Simulation) -> Value {
    let cluster = sim.cluster(NS, NAME).unwrap();
    cluster
        .pointer("/status/backup/verification")
        .cloned()
        .unwrap_or_default()
}

fn is(sim: &Simulation, result: &str) -> bool {
    verification(sim)["result"] == result
}

fn backup_verified(sim: &Simulation) -> Value {
    let all = conditions(sim);
    let found = all.into_iter().find(|condition| condition["type"] == "BackupVerified");
    found.unwrap_or_default()
}

async fn ends(sim: &Simulation, result: &str) {
    let ended = sim.wait(secs(1500), |s| is(s, result)).await;
    assert!(ended, "{:#}\n{}", verification(sim), sim.picture(NS, NAME));
}

fn created(sim: &Simulation) -> usize {
    sim.server
        .requests(|r| r.verb == "create" && r.resource == "jobs" && r.code == 201)
        .len()
}

/// The operator dies at its `n`-th write of a verification; whether there was one. The next operator finds out where everything
/// stands: the run is told once, and nothing is left.
async fn crash(base: &Simulation, effect: Effect, n: u64) -> bool {
    let what = format!("{effect:?} at write {n}");
    let sim = base.fork(base.seed + n);
    let before = created(&sim);
    verify_often(&sim);
    // One may be due at once.
    let rule = Rule::when(effect, |r| {
        r.client == "operator-1" && r.is_work() && r.resource != "events"
    })
    .nth(n);
    let point = sim.server.inject(rule);
    let first = sim.start_operator("operator-1");
    let stopped = sim.wait(secs(1000), |s| point.count() > 0 || is(s, "Verified")).await;
    assert!(stopped, "without a crash: {what}\n{}", sim.picture(NS, NAME));
    if point.count() == 0 {
        // What is left to be written after the end.
        let _ = sim.wait(secs(30), |_| point.count() > 0).await;
    }
    first.crash().await;
    let _second = sim.start_operator("operator-2");
    ends(&sim, "Verified").await;
    cleaned_up(&sim).await;
    assert!(created(&sim) <= before + 1, "{what}: more than one Job was made for it");
    let run = verification(&sim);
    assert_eq!((&run["backup"], &run["tables"]), (&json!("now"), &json!(40)), "{what}");
    let told = sim.cluster(NS, NAME).unwrap();
    assert_eq!(
        told.pointer("/status/backup/lastVerified/name"),
        Some(&json!("now")),
        "{what}"
    );
    assert_eq!(backup_verified(&sim)["status"], "True", "{what}");
    intact(&sim);
    point.count() > 0
}

async fn crash_points(effect: Effect) {
    let base = settled(seed(4100)).await;
    for n in 1.. {
        if !crash(&base, effect, n).await {
            println!("{} crash points", n - 1);
            assert!(n > 4, "only {n} writes were made");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f23_before_every_write_of_a_verification() {
    crash_points(Effect::HangBefore).await;
}

#[tokio::test(start_paused = true)]
async fn f23_after_every_write_of_a_verification() {
    crash_points(Effect::HangAfter).await;
}

#[tokio::test(start_paused = true)]
async fn f23_a_killed_verification_is_told_and_the_next_one_is_by_the_schedule() {
    let sim = settled(seed(4200)).await;
    verify_often(&sim);
    let _operator = sim.start_operator("operator-1");
    ends(&sim, "Running").await;
    let job = Key::new(jobs(), NS, "shop-verify");
    sim.server.delete(&job, &DeleteOptions::default()).unwrap();
    ends(&sim, "Failed").await;
    assert_eq!(verification(&sim)["reason"], "JobGone");
    let condition = backup_verified(&sim);
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("BackupsNotVerified"))
    );
    let failed = verification(&sim)["lastRun"].clone();
    ends(&sim, "Verified").await;
    assert_ne!(verification(&sim)["lastRun"], failed, "a due time is used once");
    assert_eq!(backup_verified(&sim)["status"], "True");
    cleaned_up(&sim).await;
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_is_lost_is_told() {
    let sim = settled(seed(4300)).await;
    for key in stored(&sim).await.iter().filter(|key| key.ends_with("manifest.json")) {
        let key = mainstay_store::backup::Key::parse(key).unwrap();
        sim.world.stores().0.delete(&key).await.unwrap();
    }
    verify_often(&sim);
    let _operator = sim.start_operator("operator-1");
    ends(&sim, "Failed").await;
    assert_eq!(verification(&sim)["reason"], "NotRecoverable");
    let message = backup_verified(&sim)["message"].to_string();
    assert!(message.contains("now was not verified"), "{message}");
    cleaned_up(&sim).await;
}

/// Verifications and backups of every ten minutes do not get in each other's way, and an idle cluster is not written to.
#[tokio::test(start_paused = true)]
async fn backups_come_first_and_are_what_is_verified() {
    let sim = settled(seed(4400)).await;
    verify_often(&sim);
    let schedules = json!({"spec": {"backup": {"schedules": [{"name": "often", "schedule": "*/10 * * * *"}]}}});
    sim.server.patch(&cluster(), None, schedules).unwrap();
    let _operator = sim.start_operator("operator-1");
    sleep(secs(3600)).await;
    let verified = sim
        .wait(secs(900), |s| {
            let cluster = s.cluster(NS, NAME).unwrap();
            let name = |path: &str| cluster.pointer(path).cloned();
            is(s, "Verified") && name("/status/backup/lastVerified/name") == name("/status/backup/lastSuccessful/name")
        })
        .await;
    assert!(verified, "{}", sim.picture(NS, NAME));
    let name = verification(&sim)["backup"].to_string();
    assert!(name.contains("shop-often"), "{name}");
}
