//! F05, F13, F17: what happens to instances while nobody looks, and all at once.

use std::time::Duration;

use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{DeleteOptions, Key, Resource};

use crate::support::{NAME, NS, healthy, intact, primary, running, secs, seed, sleep, write_rows};

const ALL: [&str; 3] = ["shop-0", "shop-1", "shop-2"];

fn node_of(sim: &Simulation, instance: &str) -> String {
    sim.world
        .with(|w| w.process(NS, instance).map(|p| p.node.clone()).unwrap_or_default())
}

fn force_delete(sim: &Simulation, instance: &str) {
    let pods = Resource::find("", "pods").unwrap();
    let options = DeleteOptions {
        grace: Some(0),
        ..DeleteOptions::default()
    };
    sim.server.delete(&Key::new(pods, NS, instance), &options).unwrap();
}

fn others(instance: &str) -> Vec<&'static str> {
    ALL.into_iter().filter(|i| *i != instance).collect()
}

#[tokio::test(start_paused = true)]
async fn f05_what_broke_while_the_operator_was_away_heals_without_a_further_event() {
    let (sim, operator) = running(seed(41), 3).await;
    write_rows(&sim, 20).await;
    operator.stop().await;
    let open = primary(&sim);
    sim.world.change(|w| {
        for instance in ALL {
            w.kill_mysqld(NS, instance);
        }
    });
    let services = Resource::find("", "services").unwrap();
    sim.server
        .delete(&Key::new(services, NS, "shop-primary"), &DeleteOptions::default())
        .unwrap();
    sleep(secs(60)).await;
    assert_eq!(primary(&sim), "", "a restarted primary does not open itself");
    let _second = sim.start_operator("operator-2");
    healthy(&sim).await;
    write_rows(&sim, 5).await;
    intact(&sim);

    let replica = others(&open)[0];
    sim.world.change(|w| {
        if let Some(process) = w.process_mut(NS, replica) {
            process.channel = None;
        }
    });
    sleep(secs(1)).await;
    healthy(&sim).await;
    let open = primary(&sim);
    sim.world.change(|w| {
        if let Some(process) = w.process_mut(NS, &open) {
            process.writable = false;
        }
    });
    sleep(secs(1)).await;
    healthy(&sim).await;
    write_rows(&sim, 5).await;
    intact(&sim);
}

#[tokio::test(start_paused = true)]
async fn f13_received_and_not_applied_survives_the_primary_and_its_volume() {
    let (sim, _operator) = running(seed(42), 3).await;
    let open = primary(&sim);
    for replica in others(&open) {
        sim.world
            .change(|w| w.process_mut(NS, replica).map(|p| p.applier_stuck = true));
    }
    write_rows(&sim, 100).await;
    sim.world.change(|w| w.lose_volume(NS, &format!("data-{open}")));
    sleep(secs(5)).await;
    for replica in others(&open) {
        sim.world
            .change(|w| w.process_mut(NS, replica).map(|p| p.applier_stuck = false));
    }
    healthy(&sim).await;
    write_rows(&sim, 5).await;
    intact(&sim);
    assert!(sim.world.acknowledged(NS, NAME) >= 105);
}

#[tokio::test(start_paused = true)]
async fn binlogs_and_gtids_of_any_instance_are_reset_under_writes() {
    for victim in 0..3 {
        let (sim, _operator) = running(seed(70 + victim), 3).await;
        let name = format!("shop-{victim}");
        let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
        sleep(secs(3)).await;
        sim.world.change(|w| w.reset_history(NS, &name));
        sleep(secs(5)).await;
        healthy(&sim).await;
        sleep(secs(2)).await;
        writer.abort();
        intact(&sim);
        let reset = sim.world.with(|w| {
            let process = w.process(NS, &name)?;
            Some(w.volume(process)?.history_reset)
        });
        assert_eq!(reset, Some(false), "it was cloned");
    }
}

#[tokio::test(start_paused = true)]
async fn f17_all_pods_are_force_deleted() {
    let (sim, _operator) = running(seed(43), 3).await;
    let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
    sleep(secs(3)).await;
    for instance in ALL {
        force_delete(&sim, instance);
    }
    sleep(secs(1)).await;
    healthy(&sim).await;
    sleep(secs(2)).await;
    writer.abort();
    intact(&sim);
}

#[tokio::test(start_paused = true)]
async fn f17_all_pods_are_force_deleted_and_one_volume_is_gone() {
    for victim in 0..3 {
        let (sim, _operator) = running(seed(44 + victim), 3).await;
        let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
        sleep(secs(3)).await;
        writer.abort();
        // Whoever acknowledged last may be the only replica that has a row: both are waited for.
        sleep(secs(2)).await;
        for instance in ALL {
            force_delete(&sim, instance);
        }
        sim.world.change(|w| w.lose_volume(NS, &format!("data-shop-{victim}")));
        sleep(secs(1)).await;
        healthy(&sim).await;
        write_rows(&sim, 3).await;
        intact(&sim);
    }
}

#[tokio::test(start_paused = true)]
async fn f17_all_pods_are_force_deleted_and_one_node_stays_down() {
    for away in 0..3 {
        let (sim, _operator) = running(seed(50 + away), 3).await;
        let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
        sleep(secs(3)).await;
        let node = node_of(&sim, &format!("shop-{away}"));
        sim.world.change(|w| w.power_off(&node));
        for instance in ALL {
            force_delete(&sim, instance);
        }
        let available = sim
            .wait(secs(180), |s| {
                s.condition(NS, NAME, "Available") && !primary(s).is_empty()
            })
            .await;
        assert!(available, "without {node}\n{}", sim.picture(NS, NAME));
        sleep(secs(5)).await;
        writer.abort();
        intact(&sim);
        sim.world.change(|w| w.power_on(&node));
        healthy(&sim).await;
        write_rows(&sim, 3).await;
        intact(&sim);
    }
}

/// Ordinal 0 fell behind before everything went: it must not win by its number.
#[tokio::test(start_paused = true)]
async fn f17_the_most_advanced_comes_first() {
    let (sim, operator) = running(seed(53), 3).await;
    write_rows(&sim, 5).await;
    operator.stop().await;
    let open = primary(&sim);
    let laggard = others(&open)[0];
    let (from, to) = (node_of(&sim, laggard), node_of(&sim, &open));
    sim.world.change(|w| w.network.cut(&from, &to));
    sleep(secs(3)).await;
    write_rows(&sim, 20).await;
    for instance in ALL {
        force_delete(&sim, instance);
    }
    sim.world.change(|w| {
        w.network.heal_all();
        w.lose_volume(NS, &format!("data-{open}"));
    });
    let _second = sim.start_operator("operator-2");
    healthy(&sim).await;
    assert_ne!(primary(&sim), laggard);
    write_rows(&sim, 3).await;
    intact(&sim);
}

#[tokio::test(start_paused = true)]
async fn failover_when_mysqld_the_pod_or_the_node_of_the_primary_dies() {
    for (case, fault) in ["mysqld", "pod", "node", "cut"].into_iter().enumerate() {
        let (sim, _operator) = running(seed(60 + case as u64), 3).await;
        let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(25));
        sleep(secs(20)).await;
        let open = primary(&sim);
        let node = node_of(&sim, &open);
        let pods = Resource::find("", "pods").unwrap();
        sim.world.with(|w| w.history.of(NS, NAME).longest_gap = Duration::ZERO);
        match fault {
            "mysqld" => sim.world.change(|w| w.kill_mysqld(NS, &open)),
            "pod" => drop(
                sim.server
                    .delete(&Key::new(pods, NS, &open), &DeleteOptions::default())
                    .unwrap(),
            ),
            "node" => sim.world.change(|w| w.power_off(&node)),
            _ => sim.world.change(|w| {
                for other in ["node-1", "node-2", "node-3", "operator-1", "api"] {
                    w.network.cut(&node, other);
                }
            }),
        }
        sleep(secs(30)).await;
        let gap = sim.world.with(|w| w.history.of(NS, NAME).longest_gap);
        println!("{fault}: {gap:?} without an acknowledged write");
        assert!(gap < secs(8), "{fault}: {gap:?}\n{}", sim.picture(NS, NAME));
        sim.world.change(|w| {
            w.network.heal_all();
            w.power_on(&node);
        });
        healthy(&sim).await;
        sleep(secs(2)).await;
        writer.abort();
        intact(&sim);
    }
}
