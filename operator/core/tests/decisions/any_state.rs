//! Any observation, however contradictory, gives a plan that keeps every invariant.

use crate::states::{Instance, State, electing, fresh, healthy, id, name, now, set};
use crate::world::random::Random;
use jiff::SignedDuration;
use mainstay_core::GtidSet;
use mainstay_core::action::VerbKind;
use mainstay_core::observed::{ArchiveReport, Mysqld, Reach};
use mainstay_core::rules::{
    Donor, Healing, Incarnation, InstanceName, MemberId, OperatorId, Phase, Rebuild, Request, RequestState, Trouble,
};
use proptest::prelude::*;

const SETS: [&str; 9] = [
    "",
    "a:1-50",
    "a:1-90",
    "a:1-100",
    "a:1-101",
    "a:1-100 x:1",
    "a:1-50 b:1-3",
    "a:1-100 b:1-3",
    "a:1-98 a:100",
];

fn any_set(random: &mut Random) -> GtidSet {
    set(random.pick(&SETS).unwrap())
}

fn any_id(random: &mut Random, replicas: u64) -> MemberId {
    let of = id(usize::try_from(random.below(replicas)).unwrap());
    if random.chance(10) {
        MemberId {
            incarnation: Incarnation("another-life".to_owned()),
            ..of
        }
    } else {
        of
    }
}

fn any_instance(random: &mut Random, replicas: u64, mut instance: Instance) -> Instance {
    if random.chance(10) {
        return instance.silent(random.below(5));
    }
    if random.chance(5) {
        return instance.gone();
    }
    for _ in 0..random.below(5) {
        instance = changed(random, replicas, instance);
    }
    instance
}

/// One thing about it is another one.
fn changed(random: &mut Random, replicas: u64, instance: Instance) -> Instance {
    let states = [
        Mysqld::Running,
        Mysqld::Running,
        Mysqld::Running,
        Mysqld::Starting,
        Mysqld::Down,
        Mysqld::Initialising,
        Mysqld::Cloning,
        Mysqld::Failed,
    ];
    let verbs = [
        VerbKind::Fence,
        VerbKind::Attach,
        VerbKind::Open,
        VerbKind::Allow,
        VerbKind::Mark,
        VerbKind::Clone,
    ];
    match random.below(25) {
        0 => instance.mysqld(*random.pick(&states).unwrap()),
        1 => instance.writable(),
        2 => instance.fenced(),
        3 => instance.follows(usize::try_from(random.below(replicas)).unwrap()),
        4 => instance.deaf(),
        5 => instance.epoch(4 + random.below(4)),
        6 => instance.unsettled(),
        7 => instance.busy(*random.pick(&verbs).unwrap(), 4 + random.below(3)),
        8 => instance.answered(*random.pick(&verbs).unwrap(), 4 + random.below(3), Some("no")),
        9 => instance.reborn(),
        10 => instance.leaving(),
        11 => instance.pristine(),
        12 => {
            let members: Vec<_> = (0..random.below(4)).map(|_| any_id(random, replicas)).collect();
            let acks = u32::try_from(random.below(3)).unwrap();
            instance.told(&members, acks)
        }
        13 => {
            let marker = any_set(random);
            instance.report(|report| report.marker = Some(marker))
        }
        14 => {
            let received = any_set(random);
            instance.report(|report| report.received = received)
        }
        15 => {
            let purged = any_set(random);
            instance.report(|report| report.purged = purged)
        }
        16 => instance.report(|report| report.history_reset = true),
        17 => instance.pod(|pod| pod.template = Some("t0".to_owned())),
        20..25 => troubled(random, instance),
        18 => {
            let (received, seconds) = (*random.pick(&SETS).unwrap(), random.below(60));
            instance.stuck(received, seconds)
        }
        _ => {
            let executed = any_set(random);
            instance.report(|report| report.executed = executed)
        }
    }
}

/// Something is wrong with its volume or its data, or its archive is behind.
fn troubled(random: &mut Random, instance: Instance) -> Instance {
    match random.below(5) {
        0 => instance.report(|report| {
            report.disk.used = report.disk.size;
            report.disk.full_for = Some(std::time::Duration::from_secs(5));
        }),
        1 => instance.report(|report| report.unreadable = true),
        2 => instance.mysqld(Mysqld::Down).report(|report| report.refusals = 3),
        3 => {
            let instance = instance.claim(|claim| "Lost".clone_into(&mut claim.phase));
            if random.chance(50) {
                instance.silent(5)
            } else {
                instance
            }
        }
        _ => {
            let behind = any_set(random);
            instance.report(|report| {
                report.archive = Some(ArchiveReport {
                    behind,
                    ..ArchiveReport::default()
                });
            })
        }
    }
}

fn any_state(seed: u64) -> State {
    let mut random = Random::new(seed);
    let replicas = if random.chance(70) { 3 } else { 5 };
    let mut state = match random.below(5) {
        0 => fresh(replicas),
        1 | 2 => electing(replicas),
        _ => healthy(replicas),
    };
    let count = u64::try_from(replicas).unwrap();
    for ordinal in 0..replicas {
        state = state.with(ordinal, |instance| any_instance(&mut random, count, instance));
    }
    if state.rules.is_some() {
        state = state.rules(|rules| {
            for _ in 0..random.below(3) {
                match random.below(8) {
                    0 => rules.owner = OperatorId("other".to_owned()),
                    1 => rules.epoch = 4 + random.below(4),
                    2 => rules.acks_required = u32::try_from(random.below(3)).unwrap(),
                    3 => drop(rules.members.pop_first()),
                    4 => rules.baseline = any_set(&mut random),
                    5 => {
                        rules.phase = Phase::Electing {
                            preferred: Some(any_id(&mut random, count)),
                        }
                    }
                    6 => rules.phase_since = now(),
                    _ => {
                        let member = any_id(&mut random, count);
                        if rules.primary.as_ref().is_none_or(|primary| primary.id != member) {
                            rules.members.insert(member);
                        }
                    }
                }
            }
        });
    }
    if random.chance(50) {
        state = if random.chance(50) {
            state.accepted()
        } else {
            state.archiving()
        };
    }
    if state.rules.is_some() && random.chance(30) {
        state = any_healing(&mut random, count, state);
    }
    if random.chance(20) {
        state = any_recovery(&mut random, replicas, state);
    }
    if random.chance(10) {
        state = state.declared(usize::try_from(random.below(6)).unwrap());
    }
    if random.chance(10) {
        state = state.template("t2");
    }
    any_request(&mut random, count, state)
}

/// An instance was healed, or its volume was given up.
fn any_healing(random: &mut Random, replicas: u64, state: State) -> State {
    let ordinal = usize::try_from(random.below(replicas)).unwrap();
    let claims = [
        Some(format!("claim-{ordinal}")),
        Some("an-older-claim".to_owned()),
        None,
    ];
    let claim = random.pick(&claims).unwrap().clone();
    let trouble = *random
        .pick(&[Trouble::Data, Trouble::Lost, Trouble::Unreadable, Trouble::Full])
        .unwrap();
    let age = SignedDuration::from_secs(i64::try_from(random.below(200)).unwrap());
    let rebuild = Rebuild {
        incarnation: any_id(random, replicas).incarnation,
        donor: Donor::Instance(any_id(random, replicas)),
        failures: 0,
        at: now() - age,
        reason: String::new(),
        ended: random.chance(50).then(now),
        healing: Some(Healing {
            trouble,
            claim,
            times: 1,
        }),
    };
    let goes = random.chance(30);
    let state = state.rules(|rules| {
        rules.rebuilds.insert(name(ordinal), rebuild);
        // Whose volume was given up is no member: nobody lets it join.
        rules.members.retain(|member| member.instance != name(ordinal));
    });
    state.with(ordinal, |i| i.claim(|claim| claim.deleting = goes))
}

/// The cluster was to begin with recovered data, which are there or not.
fn any_recovery(random: &mut Random, replicas: usize, mut state: State) -> State {
    if matches!(replicas, 1 | 3 | 5 | 7) {
        state = state.recovering();
    }
    for ordinal in 0..replicas {
        if random.chance(if ordinal == 0 { 70 } else { 10 }) {
            let reached = *random.pick(&SETS).unwrap();
            let changes = random.chance(20);
            let reborn = random.chance(30);
            state = state.with(ordinal, |instance| {
                let instance = instance.recovered(reached);
                let instance = if changes { instance.set("a:1-90 x:1") } else { instance };
                if reborn { instance.reborn() } else { instance }
            });
        }
    }
    if random.chance(30) {
        state = state.with_recovery_secret();
    }
    if state.rules.is_some() && random.chance(50) {
        let preferred = any_id(random, u64::try_from(replicas).unwrap());
        let baseline = any_set(random);
        state = state.rules(|rules| {
            rules.primary = None;
            rules.members = [preferred.clone()].into();
            rules.phase = Phase::Electing {
                preferred: Some(preferred),
            };
            rules.baseline = baseline;
        });
    }
    state
}

/// A person asked for something, or keeps somebody out, or accepted a loss.
fn any_request(random: &mut Random, replicas: u64, mut state: State) -> State {
    let ordinal = |random: &mut Random| usize::try_from(random.below(replicas)).unwrap();
    let forced = random.chance(50);
    if state.rules.is_some() && random.chance(20) {
        let kept_out = name(ordinal(random));
        state = state.rules(|rules| {
            rules.fences.insert(kept_out, now());
        });
    }
    if state.rules.is_some() && random.chance(20) {
        let instance = Some(name(ordinal(random)));
        let verb = if random.chance(50) { "promote" } else { "rebuild" };
        let age = SignedDuration::from_secs(i64::try_from(random.below(20)).unwrap());
        state = state.rules(|rules| {
            rules.request = Some(Request {
                id: "r1".to_owned(),
                verb: verb.to_owned(),
                instance,
                accept_data_loss: forced && verb == "promote",
                state: RequestState::Running,
                message: String::new(),
                at: now() - age,
                deadline: None,
            });
            rules.phase_since -= age;
        });
    }
    if random.chance(20) {
        let verb = random
            .pick(&["promote", "fence", "unfence", "rebuild", "pause", "nonsense"])
            .unwrap();
        let instance = ordinal(random);
        let text = format!(r#"{{"id":"r2","verb":"{verb}","instance":"shop-{instance}","acceptDataLoss":{forced}}}"#);
        state = state.asks(&text);
    }
    state
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_keeps_every_invariant(seed in any::<u64>()) {
        // `plan` runs the checker.
        let state = any_state(seed);
        let plan = state.plan();
        // Whoever does nothing says why, unless everything is as it should be.
        let heard = state.observed.instances.iter().all(|i| matches!(i.reach, Reach::Heard(_)));
        prop_assert!(heard || !plan.actions.is_empty() || !plan.waiting.is_empty() || plan.look_again.is_some());
    }

    #[test]
    fn a_plan_is_a_function(seed in any::<u64>()) {
        prop_assert_eq!(any_state(seed).plan(), any_state(seed).plan());
    }

    #[test]
    fn an_analysis_names_only_instances_that_exist(seed in any::<u64>()) {
        let state = any_state(seed);
        let names: Vec<InstanceName> = state.observed.instances.iter().map(|i| i.name.clone()).collect();
        for problem in state.analysis().problems {
            prop_assert!(problem.instance.is_none_or(|name| names.contains(&name)));
            prop_assert!(!problem.message.is_empty());
        }
    }
}
