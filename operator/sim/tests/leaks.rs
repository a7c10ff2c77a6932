//! A3: a thousand forced disconnects leave no watch, no task, no connection and no memory behind.
//!
//! A test binary of its own: memory is that of the process.

use std::time::Duration;

use mainstay_sim::Simulation;

/// Resident memory in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_disconnects_leak_nothing() {
    let sim = Simulation::new(7);
    let _operator = sim.start_operator("operator-1");
    sim.create("shop", Simulation::manifest("shop", 3)).await.unwrap();
    assert!(
        sim.wait(Duration::from_secs(180), |s| s.healthy("shop", "shop")).await,
        "{}",
        sim.picture("shop", "shop")
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = (sim.server.open_watches("operator-1"), tasks(), sim.world.streams());
    assert!(before.0 > 5 && before.2 == 3, "{before:?}");
    let mut memory = 0;
    for round in 0..1000_u32 {
        if round % 3 == 0 {
            sim.server.compact();
        }
        sim.server.disconnect("operator-1");
        tokio::time::sleep(Duration::from_millis(500)).await;
        sim.server.clear_requests();
        if round == 300 {
            memory = resident();
        }
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    let after = (sim.server.open_watches("operator-1"), tasks(), sim.world.streams());
    println!(
        "watches, tasks, streams: {before:?} before, {after:?} after; memory {memory} KiB, then {} KiB",
        resident()
    );
    assert_eq!(before, after);
    assert!(
        resident() < memory + 4096,
        "{memory} KiB after 300 disconnects, {} KiB after 1000",
        resident()
    );
}
