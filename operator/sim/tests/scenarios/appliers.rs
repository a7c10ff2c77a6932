//! Instances that receive and acknowledge, and cannot apply what they received.

use std::time::Duration;

use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{Key, Resource};
use serde_json::{Value, json};

use crate::support::{NAME, NS, healthy, intact, primary, running, secs, seed, serves, sleep, write_rows};

fn replicas(sim: &Simulation) -> Vec<String> {
    let open = primary(sim);
    let all = ["shop-0", "shop-1", "shop-2"].map(ToOwned::to_owned);
    all.into_iter().filter(|instance| *instance != open).collect()
}

fn incarnation(sim: &Simulation, instance: &str) -> String {
    sim.world.with(|w| {
        let volume = w.process(NS, instance).and_then(|process| w.volume(process));
        volume.map(|volume| volume.incarnation.clone()).unwrap_or_default()
    })
}

fn status(sim: &Simulation, pointer: &str) -> Value {
    let cluster = sim.cluster(NS, NAME).unwrap();
    cluster
        .pointer(&format!("/status{pointer}"))
        .cloned()
        .unwrap_or_default()
}

fn degraded(sim: &Simulation) -> String {
    let conditions = status(sim, "/conditions");
    let found = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Degraded");
    found
        .map(|c| format!("{} {}", c["reason"], c["message"]))
        .unwrap_or_default()
}

/// It stays a member while its applier may get over it, says what is wrong, and is then cloned; nobody waits for it.
#[tokio::test(start_paused = true)]
async fn one_that_cannot_apply_is_told_and_rebuilt_while_writes_go_on() {
    let (sim, _operator) = running(seed(81), 3).await;
    write_rows(&sim, 10).await;
    let broken = replicas(&sim)[1].clone();
    let before = incarnation(&sim, &broken);
    let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
    sim.world.change(|w| w.break_applier(NS, &broken));
    sleep(secs(20)).await;
    assert_eq!(incarnation(&sim, &broken), before, "its applier may get over it");
    assert_eq!(status(&sim, "/members").as_array().unwrap().len(), 2);
    let told = degraded(&sim);
    assert!(told.contains("ApplierBroken"), "{told}");
    assert!(
        told.contains("MySQL error 1396") && told.contains("kubectl mainstay rebuild"),
        "{told}"
    );
    sim.world.with(|w| w.history.of(NS, NAME).longest_gap = Duration::ZERO);
    let rebuilt = sim.wait(secs(60), |s| incarnation(s, &broken) != before).await;
    assert!(rebuilt, "{}", sim.picture(NS, NAME));
    healthy(&sim).await;
    writer.abort();
    let gap = sim.world.with(|w| w.history.of(NS, NAME).longest_gap);
    assert!(gap < secs(1), "{gap:?} without an acknowledged write");
    write_rows(&sim, 3).await;
    intact(&sim);
}

/// The primary dies while a follower is broken: the other two are enough.
#[tokio::test(start_paused = true)]
async fn an_election_does_not_wait_for_one_that_cannot_apply() {
    for (case, which) in [0, 1].into_iter().enumerate() {
        let (sim, _operator) = running(seed(82 + case as u64), 3).await;
        let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
        sleep(secs(15)).await;
        let (open, broken) = (primary(&sim), replicas(&sim)[which].clone());
        sim.world.change(|w| w.break_applier(NS, &broken));
        sleep(secs(3)).await;
        sim.world.with(|w| w.history.of(NS, NAME).longest_gap = Duration::ZERO);
        sim.world.change(|w| w.kill_mysqld(NS, &open));
        sleep(secs(20)).await;
        let gap = sim.world.with(|w| w.history.of(NS, NAME).longest_gap);
        println!("{broken} is broken: {gap:?} without an acknowledged write");
        assert!(gap < secs(4), "{gap:?}\n{}", sim.picture(NS, NAME));
        assert_ne!(primary(&sim), broken);
        healthy(&sim).await;
        writer.abort();
        write_rows(&sim, 3).await;
        intact(&sim);
    }
}

/// Both replicas are broken, by one statement that only the primary could carry out: they acknowledge for each other.
#[tokio::test(start_paused = true)]
async fn both_replicas_that_cannot_apply_are_rebuilt_one_after_the_other() {
    let (sim, _operator) = running(seed(84), 3).await;
    let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
    sleep(secs(12)).await;
    let broken = replicas(&sim);
    let before: Vec<_> = broken.iter().map(|i| incarnation(&sim, i)).collect();
    sim.world.change(|w| broken.iter().for_each(|i| w.break_applier(NS, i)));
    sleep(secs(25)).await;
    sim.world.with(|w| w.history.of(NS, NAME).longest_gap = Duration::ZERO);
    healthy(&sim).await;
    let after: Vec<_> = broken.iter().map(|i| incarnation(&sim, i)).collect();
    assert!(before.iter().zip(&after).all(|(before, after)| before != after));
    let gap = sim.world.with(|w| w.history.of(NS, NAME).longest_gap);
    assert!(gap < secs(1), "{gap:?} without an acknowledged write");
    writer.abort();
    write_rows(&sim, 3).await;
    intact(&sim);
}

/// The primary is lost for good, and the one replica that has everything cannot apply it: a person is told, and decides.
#[tokio::test(start_paused = true)]
async fn one_that_alone_has_everything_and_cannot_apply_it_is_named_and_can_be_given_up() {
    let (sim, _operator) = running(seed(85), 3).await;
    write_rows(&sim, 10).await;
    let (open, replicas) = (primary(&sim), replicas(&sim));
    let (broken, other) = (replicas[0].clone(), replicas[1].clone());
    let node = |i: &str| {
        sim.world
            .with(|w| w.process(NS, i).map(|p| p.node.clone()).unwrap_or_default())
    };
    let (from, to) = (node(&open), node(&other));
    sim.world.change(|w| {
        w.break_applier(NS, &broken);
        w.network.cut(&from, &to);
    });
    sleep(secs(3)).await;
    write_rows(&sim, 5).await;
    sim.world.change(|w| {
        w.network.heal_all();
        w.lose_volume(NS, &format!("data-{open}"));
    });
    sleep(secs(60)).await;
    assert_eq!(
        primary(&sim),
        "",
        "nobody opens without the rows that only {broken} has"
    );
    let waits = status(&sim, "/conditions").to_string();
    for words in [
        format!("{broken} to apply what it received, because nobody else who is fenced has everything"),
        "MySQL error 1396".to_owned(),
        format!("kubectl mainstay promote {NAME} INSTANCE -n {NS} --accept-data-loss"),
    ] {
        assert!(waits.contains(&words), "{words}\n{waits}");
    }
    let request = json!({"id": "1", "verb": "promote", "instance": other, "acceptDataLoss": true}).to_string();
    annotate(&sim, &request);
    assert!(sim.wait(secs(60), serves).await, "{}", sim.picture(NS, NAME));
    assert_eq!(primary(&sim), other);
    assert_ne!(
        status(&sim, "/dataLoss/missing"),
        json!(""),
        "what {broken} alone had is written down"
    );
    healthy(&sim).await;
}

/// A person has a replica rebuilt that nothing is wrong with.
#[tokio::test(start_paused = true)]
async fn a_replica_is_rebuilt_on_request() {
    let (sim, _operator) = running(seed(86), 3).await;
    write_rows(&sim, 10).await;
    let (open, replica) = (primary(&sim), replicas(&sim)[0].clone());
    let before = incarnation(&sim, &replica);
    annotate(
        &sim,
        &json!({"id": "1", "verb": "rebuild", "instance": open}).to_string(),
    );
    let refused = sim.wait(secs(10), |s| status(s, "/request/result") == "refused").await;
    assert!(refused, "{}", sim.picture(NS, NAME));
    annotate(
        &sim,
        &json!({"id": "2", "verb": "rebuild", "instance": replica}).to_string(),
    );
    let done = sim.wait(secs(60), |s| status(s, "/request/result") == "done").await;
    assert!(done, "{}", sim.picture(NS, NAME));
    assert_ne!(incarnation(&sim, &replica), before);
    healthy(&sim).await;
    write_rows(&sim, 3).await;
    intact(&sim);
}

fn annotate(sim: &Simulation, request: &str) {
    let clusters = Resource::find(mainstay_api::GROUP, "mysqlclusters").unwrap();
    let patch = json!({"metadata": {"annotations": {mainstay_api::REQUEST_ANNOTATION: request}}});
    sim.server.patch(&Key::new(clusters, NS, NAME), None, patch).unwrap();
}
