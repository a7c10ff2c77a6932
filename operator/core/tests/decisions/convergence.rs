//! Scenarios in the small world, from declaration to a settled cluster.

use std::time::Duration;

use crate::world::World;
use mainstay_api::status::RequestResult;
use mainstay_core::rules::Phase;

const MINUTE: Duration = Duration::from_mins(1);

fn settled(seed: u64, replicas: i32) -> World {
    let mut world = World::new(seed, replicas);
    world.settle(MINUTE);
    world
}

#[test]
fn a_new_cluster_of_each_size_elects_its_first_primary() {
    for replicas in [1, 3, 5, 7] {
        let world = settled(1, replicas);
        let rules = world.rules().unwrap();
        assert_eq!(rules.phase, Phase::Open);
        assert_eq!(rules.members.len(), usize::try_from(replicas).unwrap() - 1);
        assert_eq!(rules.epoch, 1, "one election is enough");
        assert_eq!(rules.primary.unwrap().id.instance.0, "shop-0");
    }
}

#[test]
fn a_cluster_of_each_size_begins_with_recovered_data() {
    for replicas in [1, 3, 5, 7] {
        let mut world = World::recovering(1, replicas);
        world.settle(MINUTE);
        let rules = world.rules().unwrap();
        assert_eq!(rules.primary.unwrap().id.instance.0, "shop-0");
        assert_eq!(rules.members.len(), usize::try_from(replicas).unwrap() - 1);
        assert!(!world.kubernetes.has_secret("shop-recovery"), "keys do not lie around");
        let status = world.kubernetes.status.recovery.as_ref().unwrap();
        assert_eq!(status.phase, mainstay_api::status::RecoveryPhase::Done);
        world.run(Duration::from_secs(15));
        complete(&world);
    }
}

/// Whatever dies or is lost before the first primary is open: the data come from the store again, or from a clone.
#[test]
fn a_recovery_is_begun_again_whatever_is_lost_meanwhile() {
    for seed in 0..40 {
        let mut world = World::recovering(seed, 3);
        let at = Duration::from_millis(100 * world.random.below(160));
        world.run(at);
        let ordinal = usize::try_from(world.random.below(3)).unwrap();
        match world.random.below(4) {
            _ if world.nodes.len() <= ordinal => {}
            0 => world.lose_volume(ordinal),
            1 => world.crash(ordinal, Duration::from_secs(8)),
            2 => world.kill_mysqld(ordinal),
            _ => world.lose_volume(0),
        }
        if world.random.chance(50) {
            world.restart_operator(0);
        }
        world.settle(Duration::from_mins(4));
        world.run(Duration::from_secs(15));
        complete(&world);
    }
}

/// A client kept writing all the time; nothing that was acknowledged is missing.
fn complete(world: &World) {
    let primary = world.open_primary().unwrap();
    let has = world.node(primary).volume.as_ref().unwrap().offers();
    assert!(has.contains(&world.acked));
    assert!(world.acked.count() > 10, "the client did commit");
}

#[test]
fn an_idle_cluster_is_not_written_to() {
    let mut world = settled(2, 3);
    world.run(Duration::from_secs(5));
    let (writes, epoch) = (world.kubernetes.writes, world.rules().unwrap().epoch);
    world.run(MINUTE);
    assert_eq!(world.kubernetes.writes, writes);
    // A new operator process finds nothing to do, and writes nothing, not even the epoch.
    world.restart_operator(0);
    world.run(MINUTE);
    assert_eq!(world.kubernetes.writes, writes);
    assert_eq!(world.rules().unwrap().epoch, epoch);
}

#[test]
fn the_primary_is_replaced_when_its_node_dies() {
    for seed in 0..10 {
        let mut world = settled(seed, 3);
        world.run(Duration::from_secs(15));
        world.crash(0, Duration::from_secs(40));
        let began = world.now;
        world.until("another primary", Duration::from_secs(10), |w| {
            w.open_primary().is_some_and(|p| p != 0)
        });
        let took = world.now.duration_since(began);
        assert!(took.as_millis() < 5000, "{took:?}");
        world.settle(Duration::from_mins(2));
        complete(&world);
    }
}

#[test]
fn the_primary_is_replaced_when_its_mysqld_dies() {
    for seed in 0..10 {
        let mut world = settled(seed, 3);
        world.run(Duration::from_secs(15));
        world.kill_mysqld(0);
        let began = world.now;
        world.until("another primary", Duration::from_secs(10), |w| {
            w.open_primary().is_some()
        });
        let took = world.now.duration_since(began);
        assert!(took.as_millis() < 1500, "{took:?}");
        world.settle(Duration::from_mins(2));
        complete(&world);
    }
}

#[test]
fn a_leaving_primary_is_relieved_by_a_switchover() {
    for seed in 0..10 {
        let mut world = settled(seed, 3);
        world.run(Duration::from_secs(5));
        world.delete_pod(0, Duration::from_secs(20));
        let began = world.now;
        world.until("another primary", Duration::from_secs(10), |w| {
            w.open_primary().is_some_and(|p| p != 0)
        });
        let took = world.now.duration_since(began);
        assert!(took.as_millis() < 1500, "{took:?}");
        world.settle(Duration::from_mins(2));
        complete(&world);
        if !world.rules().unwrap().rebuilds.is_empty() {
            world.fail("the old primary joins as it is");
        }
    }
}

#[test]
fn a_lost_volume_is_cloned_anew() {
    for ordinal in 0..3 {
        let mut world = settled(7, 3);
        world.run(Duration::from_secs(12));
        world.lose_volume(ordinal);
        world.settle(Duration::from_mins(3));
        complete(&world);
        assert!(world.rules().unwrap().rebuilds.contains_key(&world.node(ordinal).name));
    }
}

#[test]
fn f05_everything_heals_that_broke_while_no_operator_was_there() {
    for seed in 0..10 {
        let mut world = settled(seed, 3);
        world.run(Duration::from_secs(12));
        world.operators[0].blind = true;
        for ordinal in 0..3 {
            world.kill_mysqld(ordinal);
        }
        let slices: Vec<_> = world
            .kubernetes
            .objects
            .keys()
            .filter(|k| k.name.contains("primary"))
            .cloned()
            .collect();
        for key in slices {
            world.kubernetes.objects.remove(&key);
        }
        world.run(Duration::from_secs(10));
        world.operators[0].blind = false;
        world.restart_operator(0);
        world.settle(MINUTE);
        complete(&world);
        assert_eq!(world.kubernetes.routed("shop-primary").len(), 1);
    }
}

#[test]
fn f17_everything_dies_at_once() {
    for seed in 0..12 {
        let mut world = settled(seed, 3);
        world.settings.pace = 40;
        world.run(Duration::from_secs(12));
        let alive_late = usize::try_from(seed % 4).unwrap();
        for ordinal in 0..3 {
            let time = if ordinal == alive_late { 40 } else { 2 };
            world.crash(ordinal, Duration::from_secs(time));
        }
        // One node kept down does not matter, whichever it is.
        world.until("an open primary", Duration::from_mins(1), |w| {
            w.open_primary().is_some()
        });
        world.settings.pace = 100;
        world.settle(Duration::from_mins(10));
        complete(&world);
    }
}

#[test]
fn f17_everything_dies_and_one_volume_is_gone() {
    for seed in 0..9 {
        let mut world = settled(seed, 3);
        world.run(Duration::from_secs(12));
        for ordinal in 0..3 {
            world.crash(ordinal, Duration::from_secs(2));
        }
        world.lose_volume(usize::try_from(seed % 3).unwrap());
        world.settle(Duration::from_mins(3));
        complete(&world);
    }
}

#[test]
fn growing_and_shrinking_under_writes() {
    let mut world = settled(3, 1);
    for replicas in [3, 5, 3, 1] {
        world.change_spec(|cluster| cluster.spec.replicas = replicas);
        world.settle(Duration::from_mins(5));
        let rules = world.rules().unwrap();
        assert_eq!(rules.acks_required, u32::try_from(replicas / 2).unwrap());
        assert_eq!(world.kubernetes.set_replicas(), u32::try_from(replicas).unwrap());
        complete(&world);
    }
}

#[test]
fn an_instance_that_is_not_wanted_hands_over_before_it_goes() {
    let mut world = settled(4, 3);
    world.run(Duration::from_secs(12));
    world.crash(0, Duration::from_secs(20));
    world.settle(Duration::from_mins(2));
    assert_ne!(world.open_primary(), Some(0));
    world.change_spec(|cluster| cluster.spec.replicas = 1);
    world.settle(Duration::from_mins(2));
    assert_eq!(world.open_primary(), Some(0));
    complete(&world);
}

#[test]
fn a_changed_configuration_rolls_replicas_first() {
    let mut world = settled(5, 3);
    world.run(Duration::from_secs(12));
    let before: Vec<_> = (0..3)
        .map(|n| world.node(n).pod.as_ref().unwrap().uid.clone())
        .collect();
    world.change_spec(|cluster| {
        let spec = serde_json::to_value(&cluster.spec).unwrap();
        let mut spec = spec;
        spec["config"] = serde_json::json!({"max_connections": 222});
        cluster.spec = serde_json::from_value(spec).unwrap();
    });
    world.tick();
    world.settle(Duration::from_mins(5));
    let after: Vec<_> = (0..3)
        .map(|n| world.node(n).pod.as_ref().unwrap().uid.clone())
        .collect();
    if before.iter().zip(&after).any(|(before, after)| before == after) {
        world.fail("every pod is a new one");
    }
    assert_ne!(
        world.open_primary(),
        Some(0),
        "the primary moved before its pod was replaced"
    );
    complete(&world);
    let configs = world
        .kubernetes
        .objects
        .keys()
        .filter(|key| key.name.contains("-config-"))
        .count();
    assert_eq!(
        configs, 1,
        "the former configuration is deleted once nobody refers to it"
    );
}

#[test]
fn a_person_moves_the_primary() {
    for seed in 0..10 {
        let mut world = settled(seed, 3);
        world.run(Duration::from_secs(12));
        let id = world.ask("promote", 2, false);
        let began = world.now;
        world.until("answered", Duration::from_secs(10), |w| w.answered(&id).is_some());
        let took = world.now.duration_since(began);
        assert!(took.as_millis() < 1000, "{took:?}");
        let answer = world.answered(&id).unwrap();
        assert_eq!(answer.result, RequestResult::Done, "{}", answer.message);
        assert_eq!(world.open_primary(), Some(2));
        world.settle(MINUTE);
        complete(&world);
        assert!(
            world.rules().unwrap().rebuilds.is_empty(),
            "the old primary joins as it is"
        );
    }
}

#[test]
fn f25_a_promotion_is_continued_by_the_next_operator() {
    // The operator is killed at any moment of it.
    for delay in 0..20 {
        let mut world = settled(delay, 3);
        world.run(Duration::from_secs(12));
        let id = world.ask("promote", 1, false);
        world.run(Duration::from_millis(50 * delay));
        world.restart_operator(0);
        world.until("answered", Duration::from_secs(30), |w| w.answered(&id).is_some());
        world.settle(MINUTE);
        complete(&world);
    }
}

#[test]
fn a_person_keeps_a_replica_out_and_lets_it_in() {
    let mut world = settled(9, 3);
    world.run(Duration::from_secs(12));
    let id = world.ask("fence", 2, false);
    world.until("fenced", Duration::from_secs(10), |w| w.answered(&id).is_some());
    world.run(MINUTE);
    assert_eq!(world.rules().unwrap().members.len(), 1, "it left the members");
    assert!(world.node(2).process.as_ref().is_some_and(|process| !process.receiver));
    // Even when it is restarted, and by another operator.
    world.kill_mysqld(2);
    world.restart_operator(0);
    world.run(MINUTE);
    assert!(world.node(2).process.as_ref().is_some_and(|process| !process.receiver));
    let before = world.acked.count();
    world.run(Duration::from_secs(5));
    assert!(world.acked.count() > before, "writes go on");
    world.ask("unfence", 2, false);
    world.run(Duration::from_secs(1));
    world.settle(MINUTE);
    complete(&world);
    assert!(world.rules().unwrap().rebuilds.is_empty(), "it joins as it is");
}

#[test]
fn a_person_closes_the_cluster_and_opens_it_again() {
    let mut world = settled(10, 3);
    world.run(Duration::from_secs(12));
    let id = world.ask("fence", 0, false);
    world.until("fenced", Duration::from_secs(10), |w| w.answered(&id).is_some());
    world.run(Duration::from_secs(1));
    let before = world.acked.clone();
    world.restart_operator(0);
    world.run(MINUTE);
    assert_eq!(world.acked, before, "nothing is acknowledged");
    assert_eq!(world.open_primary(), None);
    world.ask("unfence", 0, false);
    world.until("open again", Duration::from_secs(10), |w| w.open_primary() == Some(0));
    world.settle(MINUTE);
    complete(&world);
}

#[test]
fn a_person_gives_up_what_only_the_lost_had() {
    for (seed, replicas) in [(0, 3), (1, 3), (2, 5), (3, 5)] {
        let mut world = settled(seed, replicas);
        world.run(Duration::from_secs(12));
        // The primary and k replicas lose their volumes: whatever only they had is gone.
        let acks = usize::try_from(replicas / 2).unwrap();
        for ordinal in 0..=acks {
            world.lose_volume(ordinal);
        }
        world.run(MINUTE);
        assert_eq!(world.open_primary(), None, "it waits");
        let survivor = acks + 1;
        let id = world.ask("promote", survivor, true);
        world.until("answered", MINUTE, |w| w.answered(&id).is_some());
        let answer = world.answered(&id).unwrap();
        assert_eq!(answer.result, RequestResult::Done, "{}", answer.message);
        let loss = world.kubernetes.status.data_loss.clone().unwrap();
        assert_eq!(loss.unheard.len(), acks + 1, "{loss:?}");
        // Everybody else is cloned, k is raised again.
        world.settle(Duration::from_mins(10));
        complete(&world);
    }
}

#[test]
fn l7_a_lost_status_is_resumed_and_never_bootstrapped() {
    for forget_all in [true, false] {
        let mut world = settled(6, 3);
        world.run(Duration::from_secs(12));
        let old = world.kubernetes.status.clone();
        world.crash(0, Duration::from_secs(5));
        world.settle(Duration::from_mins(2));
        let epoch = world.rules().unwrap().epoch;
        // The status is gone, or restored from before the failover.
        world.kubernetes.status = if forget_all {
            mainstay_api::MySQLClusterStatus::default()
        } else {
            old
        };
        world.kubernetes.version += 1;
        world.restart_operator(0);
        world.tick();
        world.settle(Duration::from_mins(2));
        complete(&world);
        assert!(world.rules().unwrap().epoch > epoch);
    }
}

#[test]
fn f18_an_errant_replica_is_isolated_and_rebuilt() {
    let mut world = settled(8, 3);
    world.run(Duration::from_secs(12));
    world.write_errant(2);
    let before = world.node(2).id();
    world.until("it is isolated", Duration::from_secs(30), |w| w.node(2).id() != before);
    world.settle(Duration::from_mins(3));
    assert_ne!(world.node(2).id(), before, "another data directory");
    complete(&world);
}

#[test]
fn an_instance_that_cannot_apply_is_rebuilt_while_writes_go_on() {
    for replicas in [3, 5] {
        let mut world = settled(11, replicas);
        world.run(Duration::from_secs(12));
        let before = world.node(2).id();
        world.break_applier(2);
        world.run(Duration::from_secs(25));
        assert_eq!(world.node(2).id(), before, "its applier may get over it");
        let acked = world.acked.count();
        world.until("another data directory", MINUTE, |w| w.node(2).id() != before);
        world.settle(Duration::from_mins(3));
        complete(&world);
        assert!(world.acked.count() > acked + 50, "writes went on");
        assert_eq!(
            world.rules().unwrap().primary.unwrap().id.instance.0,
            "shop-0",
            "no election"
        );
    }
}

#[test]
fn an_election_goes_on_without_one_that_cannot_apply() {
    for seed in 0..10 {
        let mut world = settled(seed, 3);
        world.run(Duration::from_secs(12));
        world.break_applier(1);
        world.run(Duration::from_secs(2));
        // It has what nobody else has, so the old primary has to come back; not for longer than that takes.
        world.kill_mysqld(0);
        let began = world.now;
        world.until("a primary", Duration::from_secs(20), |w| w.open_primary().is_some());
        let took = world.now.duration_since(began);
        assert!(took.as_millis() < 3500, "{took:?}");
        world.settle(Duration::from_mins(3));
        complete(&world);
    }
}

#[test]
fn a_person_has_an_instance_rebuilt() {
    let mut world = settled(12, 3);
    world.run(Duration::from_secs(12));
    let before = world.node(1).id();
    let id = world.ask("rebuild", 1, false);
    // Whatever happens to the operator meanwhile.
    world.run(Duration::from_millis(400));
    world.restart_operator(0);
    world.until("answered", MINUTE, |w| w.answered(&id).is_some());
    let answer = world.answered(&id).unwrap();
    assert_eq!(answer.result, RequestResult::Done, "{}", answer.message);
    let after = world.node(1).id();
    assert_ne!(after, before);
    world.settle(Duration::from_mins(2));
    complete(&world);
    world.run(Duration::from_mins(3));
    assert_eq!(world.node(1).id(), after, "once");
}
