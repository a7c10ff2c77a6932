//! F33: volumes that are lost, full, or answer with errors, and data directories on which no mysqld starts. Each is replaced by
//! itself, with the operator alive or killed at every request of its own, and no acknowledged row is missing.

use std::time::Duration;

use mainstay_core::rules::Trouble;
use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{DeleteOptions, Effect, Key, Resource, Rule};
use serde_json::{Value, json};

use crate::support::{
    NAME, NS, attended, healthy, intact, primary, running, secs, seed, sleep, unattended, write_rows,
};

const TROUBLES: [Trouble; 4] = [Trouble::Data, Trouble::Lost, Trouble::Unreadable, Trouble::Full];

/// uid of the claim and identity of the data of an instance.
fn life(sim: &Simulation, instance: &str) -> (String, String) {
    sim.world.with(|w| {
        let process = w.process(NS, instance);
        let volume = process.and_then(|process| w.volume(process));
        (
            process.map(|process| process.claim.clone()).unwrap_or_default(),
            volume.map(|volume| volume.incarnation.clone()).unwrap_or_default(),
        )
    })
}

fn strike(sim: &Simulation, instance: &str, trouble: Trouble) {
    if trouble != Trouble::Lost {
        sim.world.change(|w| w.trouble_volume(NS, instance, trouble));
        return;
    }
    sim.world
        .change(|w| w.lose_persistent_volume(NS, &format!("data-{instance}")));
    let pods = Resource::find("", "pods").unwrap();
    let options = DeleteOptions {
        grace: Some(0),
        ..DeleteOptions::default()
    };
    sim.server.delete(&Key::new(pods, NS, instance), &options).unwrap();
}

fn victim(sim: &Simulation, of_the_primary: bool) -> String {
    let open = primary(sim);
    if of_the_primary {
        return open;
    }
    ["shop-0", "shop-1", "shop-2"]
        .map(ToOwned::to_owned)
        .into_iter()
        .find(|name| *name != open)
        .unwrap()
}

/// It has what it was healed with: other data, and another volume where that was the trouble.
fn healed(sim: &Simulation, instance: &str, before: &(String, String), trouble: Trouble) -> bool {
    let after = life(sim, instance);
    let volume = (after.0 != before.0) == (trouble != Trouble::Data);
    after.1 != before.1 && !after.1.is_empty() && volume && sim.healthy(NS, NAME)
}

#[tokio::test(start_paused = true)]
async fn f33_every_trouble_of_a_replica_and_of_the_primary_heals_under_writes() {
    for (case, trouble) in TROUBLES.into_iter().enumerate() {
        for of_the_primary in [false, true] {
            let (sim, _operator) = running(seed(7300 + 2 * case as u64 + u64::from(of_the_primary)), 3).await;
            let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
            sleep(secs(15)).await;
            let name = victim(&sim, of_the_primary);
            let before = life(&sim, &name);
            sim.world.with(|w| w.history.of(NS, NAME).longest_gap = Duration::ZERO);
            strike(&sim, &name, trouble);
            let began = tokio::time::Instant::now();
            let told = sim.wait(secs(20), |s| !s.healthy(NS, NAME)).await;
            assert!(told, "{trouble:?}\n{}", sim.picture(NS, NAME));
            let done = sim.wait(secs(90), |s| healed(s, &name, &before, trouble)).await;
            assert!(
                done,
                "{trouble:?} of {name}, the primary: {of_the_primary}\n{}",
                sim.picture(NS, NAME)
            );
            let (took, gap) = (began.elapsed(), sim.world.with(|w| w.history.of(NS, NAME).longest_gap));
            println!(
                "{trouble:?} of the {}: {took:?}, {gap:?} without an acknowledged write",
                if of_the_primary { "primary" } else { "replica" }
            );
            assert!(took < secs(30), "{took:?}");
            assert!(gap < secs(if of_the_primary { 10 } else { 1 }), "{gap:?}");
            writer.abort();
            write_rows(&sim, 3).await;
            intact(&sim);
        }
    }
}

/// The operator dies at its n-th write of a healing: before it took effect, or after.
async fn killed(base: &Simulation, trouble: Trouble, of_the_primary: bool, effect: Effect, n: u64) -> bool {
    let what = format!("{trouble:?}, primary {of_the_primary}, {effect:?} at write {n}");
    let sim = base.fork(7400 + n);
    let first = sim.start_operator("operator-1");
    attended(&sim).await;
    let rule = Rule::when(effect, |r| r.client == "operator-1" && r.is_work()).nth(n);
    let point = sim.server.inject(rule);
    let name = victim(&sim, of_the_primary);
    let before = life(&sim, &name);
    strike(&sim, &name, trouble);
    let reached = sim
        .wait(secs(120), |s| point.count() > 0 || healed(s, &name, &before, trouble))
        .await;
    assert!(reached, "{what}\n{}", sim.picture(NS, NAME));
    if point.count() == 0 {
        let _ = sim.wait(secs(10), |_| point.count() > 0).await;
    }
    first.crash().await;
    let _second = sim.start_operator("operator-2");
    let done = sim.wait(secs(180), |s| healed(s, &name, &before, trouble)).await;
    assert!(done, "{what}\n{}", sim.picture(NS, NAME));
    write_rows(&sim, 3).await;
    intact(&sim);
    point.count() > 0
}

async fn every_write(trouble: Trouble, of_the_primary: bool) {
    let base = unattended(seed(7500), 3).await;
    for effect in [Effect::HangBefore, Effect::HangAfter] {
        let mut n = 1;
        while killed(&base, trouble, of_the_primary, effect, n).await {
            n += 1;
        }
        println!("{trouble:?}: {} crash points, {effect:?}", n - 1);
        assert!(n > 4, "only {n} writes were made");
    }
}

macro_rules! crash_points {
    ($($name:ident: $trouble:ident, $of_the_primary:expr;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            every_write(Trouble::$trouble, $of_the_primary).await;
        }
    )*};
}

crash_points! {
    the_operator_dies_while_a_lost_volume_is_replaced: Lost, false;
    the_operator_dies_while_the_lost_volume_of_the_primary_is_replaced: Lost, true;
    the_operator_dies_while_a_full_volume_is_replaced: Full, false;
    the_operator_dies_while_the_full_volume_of_the_primary_is_replaced: Full, true;
    the_operator_dies_while_an_unreadable_volume_is_replaced: Unreadable, false;
    the_operator_dies_while_broken_data_is_replaced: Data, false;
}

fn change_spec(sim: &Simulation, spec: &Value) {
    let clusters = Resource::find(mainstay_api::GROUP, "mysqlclusters").unwrap();
    sim.server
        .patch(&Key::new(clusters, NS, NAME), None, json!({"spec": spec}))
        .unwrap();
}

fn problems(sim: &Simulation) -> String {
    let cluster = sim.cluster(NS, NAME).unwrap();
    cluster
        .pointer("/status/problems")
        .map(ToString::to_string)
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn f33_a_person_who_keeps_volumes_replaces_them() {
    let (sim, _operator) = running(seed(7310), 3).await;
    change_spec(&sim, &json!({"healing": {"volumes": "Keep"}}));
    sleep(secs(5)).await;
    let name = victim(&sim, false);
    let before = life(&sim, &name);
    strike(&sim, &name, Trouble::Full);
    sleep(secs(60)).await;
    assert_eq!(life(&sim, &name), before, "nothing is deleted");
    assert!(problems(&sim).contains("VolumeFull"), "{}", problems(&sim));
    let claims = Resource::find("", "persistentvolumeclaims").unwrap();
    let pods = Resource::find("", "pods").unwrap();
    let claim = Key::new(claims, NS, &format!("data-{name}"));
    sim.server.delete(&claim, &DeleteOptions::default()).unwrap();
    sim.server
        .delete(&Key::new(pods, NS, &name), &DeleteOptions::default())
        .unwrap();
    let done = sim.wait(secs(90), |s| healed(s, &name, &before, Trouble::Full)).await;
    assert!(done, "{}", sim.picture(NS, NAME));
    intact(&sim);
}

/// Two of three volumes are lost: nothing is deleted by itself, because nobody else acknowledges; what the problem names helps.
#[tokio::test(start_paused = true)]
async fn two_lost_volumes_wait_for_a_person_and_lose_nothing() {
    let (sim, _operator) = running(seed(7311), 3).await;
    write_rows(&sim, 10).await;
    let open = primary(&sim);
    let others: Vec<String> = (0..3)
        .map(|n| format!("shop-{n}"))
        .filter(|name| *name != open)
        .collect();
    let lives: Vec<_> = others.iter().map(|name| life(&sim, name)).collect();
    for name in &others {
        strike(&sim, name, Trouble::Lost);
    }
    sleep(secs(60)).await;
    assert!(problems(&sim).contains("WritesBlocked"), "{}", problems(&sim));
    let claims = Resource::find("", "persistentvolumeclaims").unwrap();
    let pods = Resource::find("", "pods").unwrap();
    let uid = |name: &str| {
        let claim = sim.server.get(&Key::new(claims, NS, &format!("data-{name}"))).unwrap();
        claim
            .pointer("/metadata/uid")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    for (name, (claim, _)) in others.iter().zip(&lives) {
        assert_eq!(&uid(name), claim, "the claim of {name} is still there");
    }
    let first = &others[0];
    let claim = Key::new(claims, NS, &format!("data-{first}"));
    sim.server.delete(&claim, &DeleteOptions::default()).unwrap();
    // It is not on a node, and may be gone by now.
    let _ = sim.server.delete(&Key::new(pods, NS, first), &DeleteOptions::default());
    healthy(&sim).await;
    write_rows(&sim, 3).await;
    intact(&sim);
}

#[tokio::test(start_paused = true)]
async fn f10_claims_grow_when_the_size_is_raised_and_a_new_one_follows() {
    let (sim, _operator) = running(seed(7312), 3).await;
    change_spec(&sim, &json!({"storage": {"size": "3Gi"}}));
    let claims = Resource::find("", "persistentvolumeclaims").unwrap();
    let large = |s: &Simulation, instance: &str| {
        let claim = s.server.get(&Key::new(claims, NS, &format!("data-{instance}")));
        claim.is_some_and(|claim| claim.pointer("/status/capacity/storage") == Some(&json!("3Gi")))
    };
    let all = |s: &Simulation| ["shop-0", "shop-1", "shop-2"].iter().all(|name| large(s, name));
    assert!(sim.wait(secs(120), all).await, "{}", sim.picture(NS, NAME));
    healthy(&sim).await;
    let name = victim(&sim, false);
    let before = life(&sim, &name);
    strike(&sim, &name, Trouble::Lost);
    let done = sim
        .wait(secs(90), |s| healed(s, &name, &before, Trouble::Lost) && all(s))
        .await;
    assert!(done, "{}", sim.picture(NS, NAME));
    intact(&sim);
}
