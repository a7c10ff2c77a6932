//! A3: a thousand forced disconnects leave no watch, no task, no connection and no memory behind.
//!
//! A test binary of its own: memory is that of the process. What is allocated is counted, not what is resident, which says
//! more of the allocator than of the program.

use std::time::Duration;

use mainstay_sim::{Simulation, allocated};

/// What may differ between two moments of rest, in bytes: caches that are filled to another degree.
const SLACK: usize = 256 * 1024;

async fn disconnect(sim: &Simulation, times: u32) {
    for round in 0..times {
        if round % 3 == 0 {
            sim.server.compact();
        }
        sim.server.disconnect("operator-1");
        tokio::time::sleep(Duration::from_millis(500)).await;
        sim.server.clear_requests();
    }
    tokio::time::sleep(Duration::from_mins(2)).await;
    sim.server.forget();
}

#[tokio::test(start_paused = true)]
async fn a_thousand_disconnects_leak_nothing() {
    let sim = Simulation::new(7);
    let _operator = sim.start_operator("operator-1");
    sim.create("shop", Simulation::manifest("shop", 3)).await.unwrap();
    assert!(
        sim.wait(Duration::from_mins(3), |s| s.healthy("shop", "shop")).await,
        "{}",
        sim.picture("shop", "shop")
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let counted = || (sim.server.open_watches("operator-1"), tasks(), sim.world.streams());
    let before = counted();
    assert!(before.0 > 5 && before.2 == 3, "{before:?}");
    disconnect(&sim, 200).await;
    let early = allocated();
    disconnect(&sim, 800).await;
    let (after, late) = (counted(), allocated());
    println!("watches, tasks, streams: {before:?}, then {after:?}; allocated {early}, then {late} bytes");
    assert_eq!(before, after);
    assert!(
        late < early + SLACK,
        "{early} bytes after 200 disconnects, {late} after 1000"
    );
}
