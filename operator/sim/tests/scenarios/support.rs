//! What the scenarios share.

use std::time::Duration;

use mainstay_sim::{Operator, Simulation};

/// Namespace of the cluster under test.
pub(crate) const NS: &str = "shop";
/// Its name.
pub(crate) const NAME: &str = "shop";

/// The seed of a test: its own, or the one of the environment.
pub(crate) fn seed(own: u64) -> u64 {
    let seed = std::env::var("SIM_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(own);
    println!("seed {seed}");
    seed
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Waits until a cluster is as declared.
pub(crate) async fn healthy_within(sim: &Simulation, namespace: &str, name: &str, limit: Duration) {
    let healthy = sim.wait(limit, |s| s.healthy(namespace, name)).await;
    assert!(
        healthy,
        "{namespace}/{name} is not healthy after {limit:?}\n{}",
        sim.picture(namespace, name)
    );
}

pub(crate) async fn healthy(sim: &Simulation) {
    healthy_within(sim, NS, NAME, secs(180)).await;
}

/// A simulation with a healthy cluster of `replicas` instances and one operator.
pub(crate) async fn running(seed: u64, replicas: i32) -> (Simulation, Operator) {
    let sim = Simulation::new(seed);
    let operator = sim.start_operator("operator-1");
    sim.create(NS, Simulation::manifest(NAME, replicas)).await.unwrap();
    healthy(&sim).await;
    (sim, operator)
}

/// Lets an operator end as SIGTERM does, so that what is forked from here begins without one.
pub(crate) async fn operators_end(sim: &Simulation, operator: Operator) {
    // What it has told last has arrived everywhere.
    sleep(secs(20)).await;
    operator.stop().await;
    assert!(sim.healthy(NS, NAME), "{}", sim.picture(NS, NAME));
}

/// A healthy cluster that has rows and no operator: what scenarios with many variants begin from.
pub(crate) async fn unattended(seed: u64, replicas: i32) -> Simulation {
    let (sim, operator) = running(seed, replicas).await;
    write_rows(&sim, 10).await;
    operators_end(&sim, operator).await;
    sim
}

/// Waits until an operator hears every instance.
pub(crate) async fn attended(sim: &Simulation) {
    let heard = sim
        .wait(secs(30), |s| s.world.streams() >= s.world.with(|w| w.processes.len()))
        .await;
    assert!(heard, "{}", sim.picture(NS, NAME));
    sleep(secs(1)).await;
}

/// Nothing acknowledged is missing, and exactly one primary is open.
pub(crate) fn intact(sim: &Simulation) {
    let wrong = sim.world.judge(NS, NAME);
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", sim.picture(NS, NAME));
}

/// Writes some rows, all of which must be acknowledged.
pub(crate) async fn write_rows(sim: &Simulation, rows: usize) {
    let before = sim.world.acknowledged(NS, NAME);
    for _ in 0..rows * 3 {
        sim.world.write(NS, NAME).await;
        if sim.world.acknowledged(NS, NAME) >= before + rows {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("writes are not acknowledged\n{}", sim.picture(NS, NAME));
}

/// Writes of operators, other than the renewal of their lease.
pub(crate) fn work(sim: &Simulation) -> Vec<String> {
    let requests = sim.server.requests(|r| r.is_work() && r.client.starts_with("operator"));
    requests.iter().map(ToString::to_string).collect()
}

/// Name of the open instance to which the primary Service leads.
pub(crate) fn routed(sim: &Simulation) -> Option<String> {
    let address = sim.world.primary_address(NS, NAME)?;
    sim.world.with(|w| {
        let process = w.processes.values().find(|p| p.ip == address && p.writable);
        process.map(|p| p.instance.clone())
    })
}

/// Whether clients reach an open primary.
pub(crate) fn serves(sim: &Simulation) -> bool {
    routed(sim).is_some()
}

/// Name of the instance that is open; empty when there is none.
pub(crate) fn primary(sim: &Simulation) -> String {
    sim.world
        .with(|w| w.open(NS, NAME).map(|p| p.instance.clone()).unwrap_or_default())
}
