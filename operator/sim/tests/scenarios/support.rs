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

/// Whether clients reach an open primary: one instance is open, and the primary Service leads to it.
pub(crate) fn serves(sim: &Simulation) -> bool {
    let address = sim.world.primary_address(NS, NAME);
    let open = sim.world.with(|w| w.open(NS, NAME).map(|p| p.ip));
    address.is_some() && address == open
}

/// Name of the instance that is open; empty when there is none.
pub(crate) fn primary(sim: &Simulation) -> String {
    sim.world
        .with(|w| w.open(NS, NAME).map(|p| p.instance.clone()).unwrap_or_default())
}
