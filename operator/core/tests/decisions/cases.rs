//! Field cases that decisions answer, each named by its number: as a table where one pass shows it, in the small world where
//! it takes a course of events.

use std::time::Duration;

use crate::states::{Instance, State, does, electing, healthy, id};
use crate::world::World;
use mainstay_core::analyse::ProblemCode;
use mainstay_core::observed::Mysqld;
use mainstay_core::rules::Phase;
use rstest::rstest;

fn settled(seed: u64, replicas: i32) -> World {
    let mut world = World::new(seed, replicas);
    world.settle(Duration::from_mins(1));
    world
}

/// A client kept writing; nothing that was acknowledged to it is missing.
fn complete(world: &World) {
    let primary = world.open_primary().unwrap();
    let has = world.node(primary).volume.as_ref().unwrap().offers();
    assert!(has.contains(&world.acked));
}

/// The longest time without an acknowledgement until everything has settled.
fn longest_gap(world: &mut World, limit: Duration) -> jiff::SignedDuration {
    let end = world.now + limit;
    let (mut count, mut since, mut longest) = (world.acked.count(), world.now, jiff::SignedDuration::ZERO);
    loop {
        world.tick();
        if world.acked.count() > count {
            (count, since) = (world.acked.count(), world.now);
        }
        longest = longest.max(world.now.duration_since(since));
        if world.settled() {
            return longest;
        }
        if world.now >= end {
            world.fail("it does not settle");
        }
    }
}

#[test]
fn f02_growth_and_shrinking_never_wait_for_whom_nobody_can_ask() {
    let mut world = settled(3, 1);
    world.settings.writes = 100;
    for replicas in [3, 5, 3, 1] {
        world.change_spec(|cluster| cluster.spec.replicas = replicas);
        let gap = longest_gap(&mut world, Duration::from_mins(5));
        assert!(gap.as_millis() <= 1000, "{gap:?} on the way to {replicas}");
        assert_eq!(
            world.rules().unwrap().acks_required,
            u32::try_from(replicas / 2).unwrap()
        );
        complete(&world);
    }
}

/// The primary's node is lost, and with it every figure about lag; nothing is ready in the eyes of the kubelet.
#[test]
fn f03_who_may_be_promoted_is_not_who_is_ready_or_knows_its_lag() {
    let unknown = |i: Instance| {
        i.deaf()
            .pod(|pod| pod.ready = false)
            .report(|report| report.replication.lag = None)
    };
    let state = healthy(3).with(0, |i| i.silent(10)).with(1, unknown).with(2, unknown);
    assert!(
        state.does()[0].starts_with("record epoch 6: electing"),
        "{:?}",
        state.does()
    );
    let fenced = |i: Instance| {
        i.pod(|pod| pod.ready = false)
            .report(|report| report.replication.lag = None)
    };
    let state = electing(3).with(0, |i| i.silent(10)).with(1, fenced).with(2, fenced);
    assert_eq!(state.does(), ["attach shop-2 to shop-1"]);
    let state = state.with(2, |i| i.follows(1).report(|report| report.replication.lag = None));
    assert_eq!(state.does()[0], "record epoch 6: open shop-1, members shop-2, k 1");
}

#[test]
fn f03_the_operator_is_away_for_three_minutes_when_the_primary_is_lost() {
    let mut world = settled(4, 3);
    world.run(Duration::from_secs(12));
    world.operators[0].blind = true;
    world.crash(0, Duration::from_mins(30));
    world.run(Duration::from_mins(3));
    assert_eq!(world.open_primary(), None);
    world.operators[0].blind = false;
    world.restart_operator(0);
    world.until("another primary", Duration::from_secs(10), |w| {
        w.open_primary().is_some()
    });
    complete(&world);
}

/// A primary is cut off with whoever still writes there, and comes back.
#[rstest]
#[case(10)]
#[case(40)]
#[case(400)]
fn f20_the_old_primary_returns(#[case] seconds: u64) {
    for seed in 0..5 {
        let mut world = settled(seed, 3);
        world.run(Duration::from_secs(12));
        world.cut_from_instances(0);
        world.cut_from_operators(0);
        let began = world.now;
        world.until("another primary", Duration::from_secs(10), |w| {
            w.open_primary().is_some_and(|primary| primary != 0)
        });
        let took = world.now.duration_since(began);
        assert!(took.as_millis() < 8000, "{took:?}");
        world.run(Duration::from_secs(seconds));
        world.heal_network();
        world.settle(Duration::from_mins(3));
        assert_ne!(world.open_primary(), Some(0), "it does not come back as the primary");
        complete(&world);
    }
}

/// The operator is with the primary on the smaller side: it can fence nobody there, so it promotes nobody.
#[rstest]
#[case(10)]
#[case(43)]
#[case(120)]
fn f21_an_operator_on_the_smaller_side_promotes_nobody(#[case] seconds: u64) {
    let mut world = settled(6, 3);
    world.run(Duration::from_secs(12));
    world.cut_from_instances(0);
    for ordinal in [1, 2] {
        world.cut_from_operators(ordinal);
    }
    let epoch = world.rules().unwrap().epoch;
    world.run(Duration::from_secs(seconds));
    let rules = world.rules().unwrap();
    assert_eq!((rules.epoch, rules.phase), (epoch, Phase::Open));
    world.heal_network();
    world.settle(Duration::from_mins(3));
    complete(&world);
}

#[rstest]
#[case::succeeded("Succeeded")]
#[case::failed("Failed")]
fn f32_a_pod_that_has_ended_is_lost_at_once(#[case] phase: &'static str) {
    // A graceful shutdown of the node, an eviction: the pod is there and nothing runs in it.
    let ended = |i: Instance| i.silent(0).pod(|pod| pod.phase = phase.to_owned());
    let state = healthy(3).with(0, ended);
    assert!(
        state.does()[0].starts_with("record epoch 6: electing"),
        "{:?}",
        state.does()
    );
    // As a member it counts as missing, and is not waited for where it is not needed.
    let state = electing(5).with(0, |i| i.silent(60)).with(4, ended);
    assert_eq!(state.does(), ["attach shop-2 to shop-1", "attach shop-3 to shop-1"]);
}

#[test]
fn f32_a_pod_that_takes_long_to_end_hands_over_and_is_not_chosen() {
    let terminating = |i: Instance| i.pod(|pod| pod.deleting = true);
    let state = healthy(3).with(0, terminating).with(1, terminating);
    assert!(
        state.does()[0].contains("electing, shop-2 preferred"),
        "{:?}",
        state.does()
    );
}

#[test]
fn f32_a_pod_without_a_node_is_told() {
    let unscheduled = |i: Instance| {
        i.silent(60).pod(|pod| {
            pod.node = None;
            pod.ip = None;
            pod.phase = "Pending".to_owned();
            pod.trouble =
                Some("Unschedulable: 0/3 nodes are available: 3 didn't match pod anti-affinity rules".to_owned());
        })
    };
    let analysis = healthy(3).with(2, unscheduled).analysis();
    let problem = analysis.of(ProblemCode::PodUnschedulable).next().unwrap();
    assert!(problem.text().contains("anti-affinity"), "{}", problem.text());
}

/// A clone that takes hours is begun once, keeps nobody from writing, and is begun anew when it ends without success.
#[test]
fn f34_a_long_clone_is_left_alone() {
    let cloning = |report: &mut mainstay_core::observed::InstanceReport| {
        report.mysqld = Mysqld::Cloning;
        report.message = "cloning from shop-1: 5 of 900000 MiB copied".to_owned();
    };
    let outside = |state: State| {
        state
            .rules(|rules| {
                rules.members.remove(&id(2));
            })
            .with(2, |i| i.reborn().mysqld(Mysqld::Cloning).report(cloning))
    };
    let state = outside(healthy(3)).with(0, |i| i.told(&[id(1)], 1));
    does(&state, &[]);
    // An election does not wait for it either, and does not touch it.
    let state = outside(electing(3)).with(0, |i| i.follows(1));
    does(
        &state,
        &[
            "record epoch 6: open shop-1, members shop-0, k 1",
            "open shop-1 [shop-0] k 1",
        ],
    );
}
