//! Tests of the tests: each scenario holds with honest instances, and fails when they break the rule that it is about.

use std::time::Duration;

use mainstay_core::action::{Endpoint, InstanceCommand, Verb};
use mainstay_core::rules::{Incarnation, InstanceName, MemberId};
use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{DeleteOptions, Key, Resource};
use mainstay_sim::world::Flaw;
use mainstay_sim::world::network::API;
use mainstay_sim::world::process::Channel;

use crate::support::{NAME, NS, attended, primary, routed, secs, seed, sleep, unattended, write_rows};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Plays a scenario with honest instances, then with flawed ones; only the latter may lose something.
async fn judge(flaw: Flaw, own: u64, play: impl AsyncFn(&Simulation)) {
    let base = unattended(seed(own), 3).await;
    for (n, flaw) in [(1, None), (2, Some(flaw))] {
        let sim = base.fork(own + n);
        sim.world.with(|w| w.flaw = flaw);
        play(&sim).await;
        let wrong = sim.world.judge(NS, NAME);
        println!("{flaw:?}: {wrong:?}");
        let lost = wrong.iter().any(|w| w.contains("acknowledged rows"));
        assert_eq!(lost, flaw.is_some(), "{flaw:?}: {wrong:#?}\n{}", sim.picture(NS, NAME));
    }
}

/// The replicas of the open primary, and the nodes of all three: the primary's first.
fn cast(sim: &Simulation) -> (String, [String; 2], [String; 3]) {
    let open = primary(sim);
    let all = ["shop-0", "shop-1", "shop-2"].map(ToOwned::to_owned);
    let mut replicas = all.into_iter().filter(|i| *i != open);
    let replicas = [replicas.next().unwrap(), replicas.next().unwrap()];
    let node = |i: &String| sim.world.with(|w| w.process(NS, i).map(|p| p.node.clone()).unwrap());
    let nodes = [node(&open), node(&replicas[0]), node(&replicas[1])];
    (open, replicas, nodes)
}

/// The open primary, and its node.
fn cast_of(sim: &Simulation, former: &str) -> (String, String) {
    let open = primary(sim);
    assert_ne!(open, former);
    let node = sim
        .world
        .with(|w| w.process(NS, &open).map(|p| p.node.clone()).unwrap_or_default());
    (open, node)
}

async fn served_by_another(sim: &Simulation, old: &str) {
    let served = sim.wait(secs(60), |s| routed(s).is_some_and(|i| i != old)).await;
    assert!(served, "{}", sim.picture(NS, NAME));
    sleep(secs(5)).await;
}

/// Writes for a while what may or may not be acknowledged.
async fn try_to_write(sim: &Simulation, rows: usize) {
    for _ in 0..rows {
        sim.world.write(NS, NAME).await;
    }
}

#[tokio::test(start_paused = true)]
async fn commits_that_wait_for_nobody_are_noticed() {
    judge(Flaw::NoWait, 9100, async |sim| {
        let (open, _, [node, one, two]) = cast(sim);
        sim.world.change(|w| {
            w.network.cut(&node, &one);
            w.network.cut(&node, &two);
        });
        try_to_write(sim, 3).await;
        sim.world.change(|w| w.lose_volume(NS, &format!("data-{open}")));
        let _operator = sim.start_operator("operator-1");
        served_by_another(sim, &open).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_that_are_not_durable_are_noticed() {
    judge(Flaw::VolatileRelayLog, 9200, async |sim| {
        let (open, replicas, _) = cast(sim);
        for replica in &replicas {
            sim.world
                .change(|w| w.process_mut(NS, replica).map(|p| p.applier_stuck = true));
        }
        write_rows(sim, 10).await;
        sim.world.change(|w| {
            for replica in &replicas {
                w.kill_mysqld(NS, replica);
            }
            w.lose_volume(NS, &format!("data-{open}"));
            for replica in &replicas {
                w.process_mut(NS, replica).unwrap().applier_stuck = false;
            }
        });
        let _operator = sim.start_operator("operator-1");
        served_by_another(sim, &open).await;
    })
    .await;
}

/// C14: somebody who is no member follows the primary as a semi-synchronous replica.
#[tokio::test(start_paused = true)]
async fn acknowledgements_of_one_who_is_no_member_are_noticed() {
    judge(Flaw::OpenDoors, 9300, async |sim| {
        // After a failover the former primary is no member.
        let (former, _, [outside, ..]) = cast(sim);
        let operator = sim.start_operator("operator-1");
        attended(sim).await;
        sim.world.change(|w| w.power_off(&outside));
        served_by_another(sim, &former).await;
        operator.crash().await;
        let (open, node) = cast_of(sim, &former);
        sim.world.change(|w| w.power_on(&outside));
        sleep(secs(5)).await;
        sim.world.change(|w| {
            let source = format!("{open}.shop-instances.shop.svc");
            w.process_mut(NS, &former).unwrap().channel = Some(Channel::new(&source));
            for other in NODES.iter().filter(|n| **n != outside) {
                w.network.cut(&node, other);
            }
        });
        sleep(secs(5)).await;
        try_to_write(sim, 3).await;
        // The member alone cannot be opened; the former primary is back before it is asked for.
        sim.world.change(|w| {
            w.power_off(&node);
            w.lose_volume(NS, &format!("data-{open}"));
            w.network.heal_all();
        });
        let _operator = sim.start_operator("operator-2");
        served_by_another(sim, &open).await;
    })
    .await;
}

/// C8: an attach of before the failover arrives after it.
#[tokio::test(start_paused = true)]
async fn late_commands_are_noticed() {
    judge(Flaw::OldCommands, 9400, async |sim| {
        let (open, _, [node, ..]) = cast(sim);
        let (old, epoch) = sim.world.with(|w| {
            let process = w.process(NS, &open).unwrap();
            (process.ip, w.volume(process).unwrap().state.epoch)
        });
        sim.world.change(|w| {
            for other in ["operator-1", API] {
                w.network.cut(&node, other);
            }
            for replica in ["shop-0", "shop-1", "shop-2"] {
                w.process_mut(NS, replica).unwrap().channel = None;
            }
        });
        // A client with an old connection: its commits wait for an acknowledgement.
        let client = {
            let world = sim.world.clone();
            tokio::spawn(async move {
                loop {
                    world.write_at(old, NS, NAME).await;
                    sleep(Duration::from_millis(10)).await;
                }
            })
        };
        let operator = sim.start_operator("operator-1");
        served_by_another(sim, &open).await;
        operator.crash().await;
        let replica = ["shop-0", "shop-1", "shop-2"]
            .into_iter()
            .find(|i| *i != open && Some(*i) != routed(sim).as_deref())
            .unwrap();
        late_attach(sim, replica, &open, epoch).await;
        sleep(secs(3)).await;
        client.abort();
        sim.world.change(|w| w.power_off(&node));
    })
    .await;
}

/// A command of an operator that ended long ago arrives.
async fn late_attach(sim: &Simulation, replica: &str, source: &str, epoch: u64) {
    let to = sim.world.with(|w| MemberId {
        instance: InstanceName(replica.to_owned()),
        incarnation: Incarnation(w.volume(w.process(NS, replica).unwrap()).unwrap().incarnation.clone()),
    });
    let source = Endpoint {
        id: to.clone(),
        host: format!("{source}.shop-instances.shop.svc"),
        port: 33062,
    };
    let attach = InstanceCommand {
        to,
        epoch,
        deadline: secs(5),
        verb: Verb::Attach { source },
        why: String::new(),
    };
    sim.world.deliver(NS, replica, &attach, 1).await;
}

/// Decision A1.
#[tokio::test(start_paused = true)]
async fn a_clean_stop_of_a_writable_primary_is_noticed() {
    judge(Flaw::CleanStop, 9500, async |sim| {
        let (open, _, [node, one, two]) = cast(sim);
        sim.world.change(|w| {
            w.network.cut(&node, &one);
            w.network.cut(&node, &two);
        });
        let pods = Resource::find("", "pods").unwrap();
        sim.server
            .delete(&Key::new(pods, NS, &open), &DeleteOptions::default())
            .unwrap();
        let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(50));
        sleep(secs(30)).await;
        writer.abort();
        sim.world.change(|w| {
            w.network.heal_all();
            w.lose_volume(NS, &format!("data-{open}"));
        });
        let _operator = sim.start_operator("operator-1");
        served_by_another(sim, &open).await;
    })
    .await;
}
