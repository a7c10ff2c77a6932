//! A3: watches that break, lag, lie and leave out.

use std::time::Duration;

use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::WatchFault;

use crate::support::{NAME, NS, healthy, intact, primary, running, secs, seed, sleep, work, write_rows};

#[tokio::test(start_paused = true)]
async fn a_restart_with_stale_lists_heals() {
    for share in 1..5_u64 {
        let sim = Simulation::new(seed(90 + share));
        let start = sim.server.version();
        let first = sim.start_operator("operator-1");
        sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
        healthy(&sim).await;
        write_rows(&sim, 10).await;
        sleep(secs(20)).await;
        first.crash().await;
        // The lists of the new process show a moment of the past; its watches then bring the rest, slowly.
        let past = start + (sim.server.version() - start) * share / 5;
        sim.server.serve_stale_lists("operator-2", past, 30);
        sim.server.inject_watch(WatchFault {
            hold: secs(3),
            ..WatchFault::of("operator-2")
        });
        let _second = sim.start_operator("operator-2");
        sleep(secs(40)).await;
        sim.server.clear_faults();
        healthy(&sim).await;
        write_rows(&sim, 5).await;
        intact(&sim);
    }
}

#[tokio::test(start_paused = true)]
async fn late_merged_and_dropped_events_only_delay() {
    for round in 0..4_u64 {
        let sim = Simulation::new(seed(100 + round));
        let fault = WatchFault {
            hold: Duration::from_millis(300 * round),
            merge: round % 2 == 0,
            drop_percent: 10 * round,
            ..WatchFault::of("operator")
        };
        sim.server.inject_watch(fault);
        let _operator = sim.start_operator("operator-1");
        sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
        for _ in 0..12 {
            sleep(secs(5)).await;
            // What was dropped is only seen by a new list.
            sim.server.compact();
            sim.server.disconnect("operator-1");
        }
        sim.server.clear_faults();
        sim.server.compact();
        sim.server.disconnect("operator-1");
        healthy(&sim).await;
        write_rows(&sim, 5).await;
        intact(&sim);
    }
}

/// The API server is away for five minutes under load: nobody restarts, nobody turns read-only (F19).
#[tokio::test(start_paused = true)]
async fn f19_the_api_server_is_away() {
    let (sim, _operator) = running(seed(110), 3).await;
    let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(50));
    sleep(secs(5)).await;
    let open = primary(&sim);
    let processes = |s: &Simulation| s.world.with(|w| w.processes.keys().copied().collect::<Vec<_>>());
    let before = processes(&sim);
    sim.server.set_down(true);
    sleep(secs(300)).await;
    assert_eq!((primary(&sim), processes(&sim)), (open.clone(), before));
    sim.server.set_down(false);
    sleep(secs(60)).await;
    assert_eq!(primary(&sim), open, "{}", sim.picture(NS, NAME));
    healthy(&sim).await;
    writer.abort();
    let gap = sim.world.with(|w| w.history.of(NS, NAME).longest_gap);
    assert!(gap < secs(1), "{gap:?}");
    intact(&sim);
}

/// Two operator processes, one of them cut off from the API server while it holds the lease.
#[tokio::test(start_paused = true)]
async fn the_lease_passes_on_when_its_holder_is_gone() {
    let (sim, first) = running(seed(111), 3).await;
    let second = sim.start_operator("operator-2");
    sleep(secs(10)).await;
    sim.server.clear_requests();
    first.crash().await;
    let old = primary(&sim);
    sim.world.change(|w| w.kill_mysqld(NS, &old));
    let taken = sim.wait(secs(20), |_| !work(&sim).is_empty()).await;
    assert!(taken, "{}", sim.picture(NS, NAME));
    healthy(&sim).await;
    write_rows(&sim, 5).await;
    intact(&sim);
    assert!(!second.ended());
}
