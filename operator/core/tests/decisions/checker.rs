//! Tests of the tests: the invariant checker finds what it is there for, in plans that no planner made.

use crate::states::{Instance, State, ago, electing, fresh, healthy, id, name, now, set};
use mainstay_core::action::{Action, Endpoint, InstanceCommand, Record, Recorded, Verb};
use mainstay_core::build::{PodAddress, endpoint_slices};
use mainstay_core::check::check;
use mainstay_core::observed::{ArchiveReport, Mysqld, ObjectKey, ObjectKind};
use mainstay_core::plan::Plan;
use mainstay_core::rules::{
    DataLoss, Donor, Healing, Memory, OperatorId, Phase, PrimaryRef, Rebuild, Request, RequestState, Rules, Trouble,
};
use rstest::rstest;

/// Invariants that a plan with these actions breaks.
fn broken(state: &State, actions: Vec<Action>) -> Vec<u8> {
    let plan = Plan {
        actions,
        ..Plan::default()
    };
    let violations = check(&state.subject(), &state.observation(), &plan, now());
    let mut numbers: Vec<_> = violations.into_iter().map(|violation| violation.invariant).collect();
    numbers.dedup();
    numbers
}

fn command(ordinal: usize, epoch: u64, verb: Verb) -> Action {
    Action::Command(vec![InstanceCommand {
        to: id(ordinal),
        epoch,
        deadline: std::time::Duration::from_secs(1),
        verb,
        why: String::new(),
    }])
}

fn attach(ordinal: usize, source: usize, epoch: u64) -> Action {
    let source = Endpoint {
        id: id(source),
        host: format!("shop-{source}.shop-instances.prod.svc"),
        port: 33062,
    };
    command(ordinal, epoch, Verb::Attach { source })
}

fn record(rules: Rules) -> Action {
    Action::Record(Box::new(Record {
        rules,
        reason: "Test",
        message: String::new(),
    }))
}

/// shop-1 is recorded, with these followers.
fn promoted(state: &State, members: &[usize], change: impl FnOnce(&mut Rules)) -> Action {
    let mut rules = state.rules.clone().unwrap();
    rules.phase = Phase::Open;
    rules.primary = Some(PrimaryRef {
        id: id(1),
        server_uuid: crate::states::uuid(1),
        epoch: rules.epoch,
        since: now(),
    });
    rules.members = members.iter().copied().map(id).collect();
    rules.baseline = set("a:1-100");
    change(&mut rules);
    record(rules)
}

#[test]
fn a_promotion_by_the_rules_breaks_nothing() {
    let state = electing(3).with(2, |i| i.follows(1));
    assert_eq!(broken(&state, vec![promoted(&state, &[2], |_| {})]), [] as [u8; 0]);
}

type Change = fn(&mut Rules);

#[rstest]
#[case::too_few_followers(&[], |_: &mut Rules| {}, 4)]
#[case::fewer_acknowledgements(&[2], |rules: &mut Rules| rules.acks_required = 0, 6)]
#[case::more_acknowledgements(&[2], |rules: &mut Rules| rules.acks_required = 2, 6)]
#[case::a_smaller_baseline(&[2], |rules: &mut Rules| rules.baseline = set("a:1-90"), 4)]
#[case::a_loss_that_nobody_accepted(&[2], |rules: &mut Rules| rules.data_loss = Some(loss("")), 15)]
#[case::another_epoch(&[2], |rules: &mut Rules| rules.epoch = 7, 4)]
fn a_promotion_against_the_rules_is_found(#[case] members: &[usize], #[case] change: Change, #[case] invariant: u8) {
    let state = electing(3).with(2, |i| i.follows(1));
    let found = broken(&state, vec![promoted(&state, members, change)]);
    assert!(found.contains(&invariant), "{found:?}");
}

fn loss(missing: &str) -> DataLoss {
    DataLoss {
        at: now(),
        epoch: 6,
        instance: name(1),
        server_uuid: None,
        missing: set(missing),
        unheard: [name(0), name(2)].into(),
    }
}

/// Everybody but shop-1 is lost, and a person accepts what that costs.
fn accepted(state: State) -> State {
    state.rules(|rules| {
        rules.request = Some(Request {
            id: "r1".to_owned(),
            verb: "promote".to_owned(),
            instance: Some(name(1)),
            accept_data_loss: true,
            state: RequestState::Running,
            message: String::new(),
            at: now(),
            deadline: None,
        });
    })
}

#[test]
fn a_loss_needs_the_word_of_a_person_for_this_instance() {
    let lost = || electing(3).with(0, |i| i.silent(60)).with(2, |i| i.silent(60));
    let alone = |state: &State| vec![promoted(state, &[], |rules| rules.acks_required = 0)];
    let state = accepted(lost());
    assert_eq!(broken(&state, alone(&state)), [] as [u8; 0]);
    // Nobody asked; it was carried out before; it is about another one; nothing was accepted.
    let changes: [Change; 4] = [
        |rules| rules.request = None,
        |rules| rules.request.as_mut().unwrap().state = RequestState::Done,
        |rules| rules.request.as_mut().unwrap().instance = Some(name(2)),
        |rules| rules.request.as_mut().unwrap().accept_data_loss = false,
    ];
    for change in changes {
        let state = accepted(lost()).rules(change);
        let found = broken(&state, alone(&state));
        assert!(found.contains(&4) && found.contains(&6), "{found:?}");
    }
    // What is known to be missing is written down.
    let state = accepted(lost().with(1, |i| i.set("a:1-40")));
    let hides = promoted(&state, &[], |rules| {
        rules.acks_required = 0;
        rules.baseline = set("a:1-40");
    });
    assert!(broken(&state, vec![hides]).contains(&15));
    let tells = promoted(&state, &[], |rules| {
        rules.acks_required = 0;
        rules.baseline = set("a:1-40");
        rules.data_loss = Some(loss("a:41-50"));
    });
    assert_eq!(broken(&state, vec![tells]), [] as [u8; 0]);
}

#[test]
fn who_is_kept_out_is_only_fenced() {
    let kept_out = |state: State, ordinal| {
        state.rules(|rules| {
            rules.fences.insert(name(ordinal), now());
        })
    };
    let state = kept_out(healthy(3), 2);
    assert_eq!(broken(&state, vec![command(2, 5, Verb::Fence)]), [] as [u8; 0]);
    assert!(broken(&state, vec![attach(2, 0, 5)]).contains(&14));
    assert!(!broken(&healthy(3), vec![attach(2, 0, 5)]).contains(&14));
    let state = kept_out(electing(3).with(2, |i| i.follows(1)), 1);
    assert!(broken(&state, vec![promoted(&state, &[2], |_| {})]).contains(&14));
}

/// What each plan that breaks one invariant is found to break.
#[track_caller]
fn finds(invariant: u8, state: &State, actions: Vec<Action>) {
    let found = broken(state, actions);
    assert!(found.contains(&invariant), "{found:?} instead of {invariant}");
}

/// A record that changes the memory of this state.
fn changed(state: &State, change: impl FnOnce(&mut Rules)) -> Action {
    let mut rules = state.rules.clone().unwrap();
    change(&mut rules);
    record(rules)
}

fn delete(ordinal: usize) -> Action {
    Action::DeletePod {
        instance: name(ordinal),
        uid: format!("pod-{ordinal}"),
        at_once: false,
        reason: String::new(),
    }
}

fn allow(ordinal: usize, members: &[usize], acks_required: u32) -> Action {
    let members = members.iter().copied().map(id).collect();
    command(ordinal, 5, Verb::Allow { members, acks_required })
}

fn clone_over(ordinal: usize) -> Action {
    let donor = Endpoint {
        id: id(1),
        host: "shop-1.shop-instances.prod.svc".to_owned(),
        port: 33062,
    };
    command(
        ordinal,
        5,
        Verb::Clone {
            donor,
            keep_former: false,
        },
    )
}

#[test]
fn invariant_1_the_order_of_a_plan() {
    let state = healthy(3);
    let same = || changed(&state, |_| {});
    finds(1, &state, vec![same(), same()]);
    finds(1, &state, vec![attach(2, 0, 5), same()]);
    finds(1, &state, vec![attach(2, 0, 5), attach(1, 0, 5)]);
    let (Action::Command(mut twice), Action::Command(other)) = (attach(2, 0, 5), command(2, 5, Verb::Fence)) else {
        unreachable!()
    };
    twice.extend(other);
    finds(1, &state, vec![Action::Command(twice)]);
}

#[test]
fn invariant_2_commands_of_the_own_epoch_to_who_is_heard() {
    let state = healthy(3);
    finds(2, &state, vec![attach(2, 0, 4)]);
    let foreign = state
        .clone()
        .rules(|rules| rules.owner = OperatorId("other".to_owned()));
    finds(2, &foreign, vec![attach(2, 0, 5)]);
    finds(2, &state.clone().with(2, Instance::reborn), vec![attach(2, 0, 5)]);
    finds(2, &fresh(3), vec![command(0, 1, Verb::Fence)]);
}

#[test]
fn invariant_3_what_begins_an_epoch() {
    let state = healthy(3);
    let electing = Phase::Electing { preferred: None };
    let other = OperatorId("other".to_owned());
    finds(3, &state, vec![changed(&state, |rules| rules.epoch = 4)]);
    finds(3, &state, vec![changed(&state, |rules| rules.owner = other.clone())]);
    finds(3, &state, vec![changed(&state, |rules| rules.phase = electing.clone())]);
    finds(
        3,
        &state,
        vec![changed(&state, |rules| drop(rules.members.pop_first()))],
    );
    let foreign = state.clone().rules(|rules| rules.owner = other);
    let me = OperatorId("me".to_owned());
    finds(3, &foreign, vec![changed(&foreign, |rules| rules.owner = me)]);
    // An election is not the time for other changes.
    let changes: [Change; 3] = [
        |rules| drop(rules.members.pop_first()),
        |rules| rules.acks_required = 0,
        |rules| rules.baseline = set(""),
    ];
    for change in changes {
        let begins = changed(&state, |rules| {
            rules.epoch = 6;
            rules.phase = electing.clone();
            change(rules);
        });
        finds(3, &state, vec![begins]);
    }
}

#[test]
fn invariant_3_what_begins_without_a_memory() {
    let first = |state: &State, epoch: u64, phase: Phase| {
        let mut rules = healthy(3).rules.unwrap();
        rules.epoch = epoch;
        rules.phase = phase;
        rules.primary = None;
        rules.baseline = set("");
        (state.clone(), record(rules))
    };
    let electing = || Phase::Electing { preferred: None };
    let (state, action) = first(&fresh(3), 1, electing());
    assert_eq!(broken(&state, vec![action]), [] as [u8; 0]);
    for (state, action) in [
        first(&fresh(3), 1, Phase::Open),
        first(&fresh(3).with(2, |i| i.silent(60)), 1, electing()),
        first(&fresh(3).with(2, |i| i.epoch(7)), 7, electing()),
        first(&fresh(3).with(2, |i| i.set("a:1")), 8, electing()),
        first(&fresh(3).with(2, |i| i.epoch(7).told(&[id(1)], 1)), 8, electing()),
    ] {
        finds(3, &state, vec![action]);
    }
    // A resumption needs everybody's data.
    let lost = healthy(3).without_memory().with(1, Instance::pristine);
    let mut rules = healthy(3).rules.unwrap();
    rules.epoch = 6;
    rules.phase = electing();
    finds(3, &lost, vec![record(rules)]);
}

type Disturbance = fn(State) -> State;

#[rstest]
#[case::not_fenced(|state: State| state.with(1, |i| i.epoch(5)))]
#[case::a_command_is_under_way(|state: State| state.with(1, Instance::unsettled))]
#[case::writable(|state: State| state.with(1, Instance::writable))]
#[case::a_relay_log_to_apply(|state: State| state.with(1, |i| i.set("a:1-90").received("a:91-100")))]
#[case::it_follows_somebody(|state: State| state.with(1, |i| i.follows(2)))]
#[case::another_server_uuid(|state: State| state.with(1, |i| i.report(|report| report.server_uuid = crate::states::uuid(7))))]
#[case::errant(|state: State| state.with(1, |i| i.set("a:1-100 x:1")))]
#[case::a_follower_that_is_not_fenced(|state: State| state.with(2, |i| i.epoch(5)))]
#[case::a_follower_of_another_one(|state: State| state.with(2, |i| i.follows(0)))]
#[case::a_follower_that_is_not_connected(|state: State| state.with(2, Instance::connecting))]
#[case::a_follower_that_lacks_something(|state: State| state.with(2, |i| i.set("a:1-99")))]
#[case::one_that_has_more(|state: State| state.with(2, |i| i.set("a:1-101")))]
fn invariant_4_a_promotion_that_the_state_forbids(#[case] disturb: Disturbance) {
    let state = electing(3).with(0, |i| i.silent(60)).with(2, |i| i.follows(1));
    assert_eq!(broken(&state, vec![promoted(&state, &[2], |_| {})]), [] as [u8; 0]);
    let state = disturb(state);
    let baseline = state.instance(1).0.report().unwrap().set();
    let wins = promoted(&state, &[2], |rules| rules.baseline = baseline);
    finds(4, &state, vec![wins]);
}

#[test]
fn invariant_4_who_may_win_and_when() {
    // Two of four members are not fenced, and the old primary is not heard: with k = 2 one of them may be the only holder.
    let following = || {
        let state = electing(5).with(2, |i| i.follows(1)).with(4, |i| i.silent(60));
        state.with(3, |i| i.follows(1))
    };
    let state = following().with(0, |i| i.silent(60));
    assert_eq!(broken(&state, vec![promoted(&state, &[2, 3], |_| {})]), [] as [u8; 0]);
    let state = state.with(3, |i| i.silent(60)).rules(|rules| rules.acks_required = 1);
    finds(4, &state, vec![promoted(&state, &[2], |_| {})]);
    // With the old primary fenced it is the authority: whoever lacks something of it does not win.
    let held = following().with(0, |i| i.follows(1)).with(3, |i| i.silent(60));
    assert_eq!(broken(&held, vec![promoted(&held, &[0, 2], |_| {})]), [] as [u8; 0]);
    let more = held.with(0, |i| i.set("a:1-101"));
    finds(4, &more, vec![promoted(&more, &[2], |_| {})]);
    // Neither a member nor the old primary.
    let outsider = electing(3).with(2, |i| i.follows(1)).rules(|rules| {
        rules.members.remove(&id(1));
    });
    finds(4, &outsider, vec![promoted(&outsider, &[2], |_| {})]);
    // Nobody is a member of himself, and somebody is opened.
    let state = electing(3).with(2, |i| i.follows(1));
    finds(4, &state, vec![promoted(&state, &[1, 2], |_| {})]);
    finds(4, &state, vec![promoted(&state, &[2], |rules| rules.primary = None)]);
    // A reign does not change without an election.
    let state = healthy(3);
    finds(
        4,
        &state,
        vec![changed(&state, |rules| rules.baseline = set("a:1-100"))],
    );
}

/// shop-2 is no member, fenced, and may become one.
fn outside() -> State {
    healthy(3)
        .rules(|rules| {
            rules.members.remove(&id(2));
        })
        .with(0, |i| i.told(&[id(1)], 1))
        .with(2, Instance::fenced)
}

fn joined(state: &State) -> Action {
    changed(state, |rules| {
        rules.epoch = 6;
        rules.members.insert(id(2));
    })
}

#[rstest]
#[case::not_fenced(|state: State| state.with(2, |i| i.epoch(4)))]
#[case::writable(|state: State| state.with(2, Instance::writable))]
#[case::attached(|state: State| state.with(2, |i| i.follows(0)))]
#[case::a_relay_log_to_apply(|state: State| state.with(2, |i| i.set("a:1-90").received("a:91-95")))]
#[case::errant(|state: State| state.with(2, |i| i.set("a:1-90 x:1")))]
#[case::another_life(|state: State| state.with(2, Instance::reborn))]
#[case::a_primary_that_is_not_confirmed(|state: State| state.with(0, Instance::unsettled))]
#[case::a_primary_that_is_not_open(|state: State| state.with(0, Instance::fenced))]
fn invariant_5_who_joins_is_seen(#[case] disturb: Disturbance) {
    let state = outside();
    assert_eq!(broken(&state, vec![joined(&state)]), [] as [u8; 0]);
    let state = disturb(state);
    finds(5, &state, vec![joined(&state)]);
}

#[rstest]
#[case::the_list_is_not_in_force(|state: State| state.with(0, |i| i.told(&[id(1), id(2)], 1).marker("a:1-101")))]
#[case::the_list_is_uncertain(|state: State| state.with(0, |i| i.report(|report| report.list_uncertain = true)))]
#[case::fewer_acknowledgements(|state: State| state.with(0, |i| i.told(&[id(2)], 0).marker("a:1-101")))]
#[case::told_in_an_older_epoch(|state: State| state.with(0, Instance::unsettled))]
#[case::no_marker(|state: State| state.with(0, |i| i.report(|report| report.marker = None)))]
#[case::nobody_contains_it(|state: State| state.with(2, |i| i.set("a:1-100")))]
#[case::who_contains_it_is_not_confirmed(|state: State| state.with(2, |i| i.epoch(4)))]
#[case::who_contains_it_does_not_run(|state: State| state.with(2, |i| i.report(|report| report.mysqld = Mysqld::Starting)))]
fn invariant_5_a_member_leaves_when_the_others_have_everything(#[case] disturb: Disturbance) {
    let state = healthy(3)
        .with(0, |i| i.told(&[id(2)], 1).marker("a:1-101"))
        .with(1, Instance::reborn)
        .with(2, |i| i.set("a:1-101"));
    let drops = |state: &State| {
        changed(state, |rules| {
            rules.epoch = 6;
            rules.members.remove(&id(1));
        })
    };
    assert_eq!(broken(&state, vec![drops(&state)]), [] as [u8; 0]);
    let state = disturb(state);
    finds(5, &state, vec![drops(&state)]);
}

#[test]
fn invariants_5_and_6_what_the_primary_is_told_of_the_list() {
    let state = healthy(5);
    assert_eq!(broken(&state, vec![allow(0, &[1, 2, 3], 2)]), [] as [u8; 0]);
    finds(5, &state, vec![allow(0, &[1, 2, 3, 4, 5], 2)]);
    finds(5, &state, vec![allow(0, &[1, 2], 2)]);
    finds(6, &state, vec![allow(0, &[1, 2, 3, 4], 1)]);
    finds(8, &state, vec![allow(1, &[2, 3, 4], 2)]);
}

#[rstest]
#[case::no_marker(|state: State| state.with(0, |i| i.report(|report| report.marker = None)))]
#[case::not_in_force(|state: State| state.with(0, |i| i.told(&[id(1), id(2)], 0).marker("a:1-101")))]
#[case::uncertain(|state: State| state.with(0, |i| i.report(|report| report.list_uncertain = true)))]
#[case::not_confirmed(|state: State| state.with(0, Instance::unsettled))]
fn invariant_6_k_is_raised_when_it_is_in_force(#[case] disturb: Disturbance) {
    let state = healthy(3)
        .rules(|rules| rules.acks_required = 0)
        .with(0, |i| i.told(&[id(1), id(2)], 1).marker("a:1-101"));
    let raises = |state: &State| {
        changed(state, |rules| {
            rules.epoch = 6;
            rules.acks_required = 1;
        })
    };
    assert_eq!(broken(&state, vec![raises(&state)]), [] as [u8; 0]);
    let state = disturb(state);
    finds(6, &state, vec![raises(&state)]);
}

#[test]
fn invariant_7_an_opening_is_what_was_recorded_and_is_not_alone() {
    let state = healthy(3).with(0, Instance::fenced);
    let recorded = Recorded {
        epoch: 5,
        since: ago(1000),
    };
    let open_as = |recorded, ordinal, members: &[usize], acks_required, baseline: &str| {
        command(
            ordinal,
            5,
            Verb::Open {
                members: members.iter().copied().map(id).collect(),
                acks_required,
                baseline: set(baseline),
                recorded,
                application: None,
            },
        )
    };
    let open = |ordinal, members: &[usize], acks_required, baseline: &str| {
        open_as(recorded, ordinal, members, acks_required, baseline)
    };
    assert_eq!(broken(&state, vec![open(0, &[1, 2], 1, "a:1-50")]), [] as [u8; 0]);
    let other = Recorded { epoch: 4, ..recorded };
    finds(7, &state, vec![open_as(other, 0, &[1, 2], 1, "a:1-50")]);
    finds(7, &state, vec![open(0, &[1], 1, "a:1-50")]);
    finds(7, &state, vec![open(0, &[1, 2], 0, "a:1-50")]);
    finds(7, &state, vec![open(0, &[1, 2], 1, "")]);
    finds(7, &state, vec![open(1, &[2], 1, "a:1-50")]);
    let alone = state.clone().with(0, |i| i.set("a:1-101"));
    finds(7, &alone, vec![open(0, &[1, 2], 1, "a:1-50")]);
    let unseen = state.clone().with(0, |i| i.epoch(4));
    finds(7, &unseen, vec![open(0, &[1, 2], 1, "a:1-50")]);
    let unconfirmed = state.with(1, |i| i.epoch(4)).with(2, Instance::unsettled);
    finds(7, &unconfirmed, vec![open(0, &[1, 2], 1, "a:1-50")]);
}

#[test]
fn invariant_8_who_is_attached_to_whom() {
    finds(8, &healthy(3), vec![attach(2, 1, 5)]);
    finds(8, &outside(), vec![attach(2, 0, 5)]);
    let state = electing(3);
    assert_eq!(broken(&state, vec![attach(2, 1, 6)]), [] as [u8; 0]);
    finds(8, &state.clone().with(2, |i| i.epoch(5)), vec![attach(2, 1, 6)]);
    finds(8, &state.clone().with(1, |i| i.epoch(5)), vec![attach(2, 1, 6)]);
    finds(8, &state.with(2, |i| i.set("a:1-101")), vec![attach(2, 1, 6)]);
    finds(8, &healthy(3), vec![command(1, 5, Verb::Mark)]);
}

#[test]
fn invariant_9_no_data_directory_that_counts_is_given_up() {
    let intended = |state: &State, ordinal: usize| {
        changed(state, |rules| {
            let rebuild = Rebuild {
                incarnation: id(ordinal).incarnation,
                donor: Donor::Instance(id(1)),
                failures: 0,
                at: now(),
                reason: String::new(),
                ended: None,
                healing: None,
            };
            rules.rebuilds.insert(name(ordinal), rebuild);
        })
    };
    let state = outside();
    assert_eq!(broken(&state, vec![intended(&state, 2), clone_over(2)]), [] as [u8; 0]);
    finds(9, &state, vec![clone_over(2)]);
    let member = healthy(3);
    finds(9, &member, vec![intended(&member, 2), clone_over(2)]);
    finds(9, &member, vec![intended(&member, 0), clone_over(0)]);
    let unseen = outside().with(2, |i| i.epoch(4));
    finds(9, &unseen, vec![intended(&unseen, 2), clone_over(2)]);
    // A data directory that came since is another one.
    let reborn = outside().with(2, Instance::reborn);
    finds(9, &reborn, vec![intended(&reborn, 2), clone_over(2)]);
    for (kind, harmless) in [
        (ObjectKind::ConfigMap, true),
        (ObjectKind::EndpointSlice, true),
        (ObjectKind::StatefulSet, false),
        (ObjectKind::Secret, false),
        (ObjectKind::Service, false),
    ] {
        let deletes = Action::DeleteObject {
            key: ObjectKey {
                kind,
                name: "shop".to_owned(),
            },
            uid: String::new(),
            resource_version: String::new(),
        };
        let found = broken(&healthy(3), vec![deletes]);
        assert_eq!(found.contains(&9), !harmless, "{kind:?}");
    }
}

#[test]
fn invariants_10_and_11_one_risk_at_a_time() {
    let state = healthy(3);
    assert_eq!(broken(&state, vec![delete(2)]), [] as [u8; 0]);
    finds(10, &state, vec![delete(1), delete(2)]);
    let outside = outside();
    finds(10, &outside, vec![joined(&outside), delete(1)]);
    finds(11, &state, vec![delete(0)]);
    finds(11, &state, vec![delete(7)]);
    finds(11, &state.clone().with(1, |i| i.silent(10)), vec![delete(2)]);
    finds(
        11,
        &state.clone().with(1, |i| i.mysqld(Mysqld::Starting)),
        vec![delete(2)],
    );
    // What does not run is missed by nobody.
    let stuck = state.with(1, |i| i.silent(10)).with(2, |i| i.mysqld(Mysqld::Failed));
    assert_eq!(broken(&stuck, vec![delete(2)]), [] as [u8; 0]);
}

#[test]
fn invariant_12_the_primarys_slice_holds_who_is_open() {
    let routed = |state: &State, ordinals: &[u8]| {
        let address = |ordinal: &u8| PodAddress {
            instance: name(usize::from(*ordinal)),
            address: std::net::Ipv4Addr::new(10, 0, 0, ordinal + 1).into(),
            uid: format!("pod-{ordinal}"),
            node: None,
            zone: None,
        };
        let pods: Vec<_> = ordinals.iter().map(address).collect();
        let [slice, _] = endpoint_slices(&state.subject(), "shop-primary", &pods);
        Action::Apply(Box::new(slice))
    };
    let state = healthy(3);
    assert_eq!(broken(&state, vec![routed(&state, &[0])]), [] as [u8; 0]);
    assert_eq!(broken(&state, vec![routed(&state, &[])]), [] as [u8; 0]);
    finds(12, &state, vec![routed(&state, &[1])]);
    finds(12, &state, vec![routed(&state, &[0, 1])]);
    let closed = state.with(0, Instance::fenced);
    finds(12, &closed, vec![routed(&closed, &[0])]);
}

#[test]
fn invariant_13_nothing_is_done_with_a_memory_that_cannot_be_read() {
    let mut observed = healthy(3).observation();
    observed.memory = Memory::Unreadable {
        reason: "no baseline".to_owned(),
    };
    let plan = Plan {
        actions: vec![delete(2)],
        ..Plan::default()
    };
    let found = check(&healthy(3).subject(), &observed, &plan, now());
    assert!(found.iter().any(|violation| violation.invariant == 13), "{found:?}");
}

#[test]
fn invariant_15_the_word_of_a_person_is_about_one_that_takes_part() {
    let state = accepted(electing(3).with(0, |i| i.silent(60)).with(2, |i| i.follows(1))).rules(|rules| {
        rules.members.remove(&id(1));
    });
    finds(15, &state, vec![promoted(&state, &[2], |_| {})]);
}

/// shop-2 is no member, and status names the claim that is given up.
fn given_up() -> State {
    outside().rules(|rules| {
        let rebuild = Rebuild {
            incarnation: id(2).incarnation,
            donor: Donor::Instance(id(0)),
            failures: 0,
            at: now(),
            reason: String::new(),
            ended: None,
            healing: Some(Healing {
                trouble: Trouble::Lost,
                claim: Some("claim-2".to_owned()),
                times: 1,
            }),
        };
        rules.rebuilds.insert(name(2), rebuild);
    })
}

fn delete_claim(ordinal: usize) -> Action {
    Action::DeleteClaim {
        instance: name(ordinal),
        uid: format!("claim-{ordinal}"),
        resource_version: "1".to_owned(),
        reason: String::new(),
    }
}

#[test]
fn invariant_16_only_a_volume_that_nobody_counts_on_is_deleted() {
    let state = given_up();
    assert_eq!(broken(&state, vec![delete_claim(2)]), [] as [u8; 0]);
    // Nothing is recorded; another claim; another instance.
    finds(16, &outside(), vec![delete_claim(2)]);
    let other = state
        .clone()
        .with(2, |i| i.claim(|claim| "claim-new".clone_into(&mut claim.uid)));
    finds(16, &other, vec![delete_claim(2)]);
    finds(16, &state, vec![delete_claim(1)]);
    finds(16, &state, vec![delete_claim(0)]);
    // A member, in whatever life; no open primary; kept out.
    let member = state.clone().rules(|rules| {
        let mut former = id(2);
        former.incarnation = mainstay_core::rules::Incarnation("an-earlier-life".to_owned());
        rules.members.insert(former);
    });
    finds(16, &member, vec![delete_claim(2)]);
    let closed = state.clone().with(0, |i| i.silent(60));
    finds(16, &closed, vec![delete_claim(2)]);
    let kept = state.clone().rules(|rules| {
        rules.fences.insert(name(2), now());
    });
    finds(14, &kept, vec![delete_claim(2)]);
    // One risk at a time; and its pod may go, whoever else is impaired.
    finds(10, &state, vec![delete_claim(2), delete(2)]);
    let impaired = state.with(1, |i| i.mysqld(Mysqld::Down));
    assert_eq!(broken(&impaired, vec![delete(2)]), [] as [u8; 0]);
    finds(11, &outside().with(1, |i| i.mysqld(Mysqld::Down)), vec![delete(2)]);
}

#[test]
fn invariant_16_a_volume_that_is_given_up_stays_so() {
    let state = given_up();
    finds(16, &state, vec![changed(&state, |rules| rules.rebuilds.clear())]);
    let joins = |state: &State| {
        changed(state, |rules| {
            rules.epoch = 6;
            rules.members.insert(id(2));
        })
    };
    finds(16, &state, vec![joins(&state)]);
    assert!(!broken(&outside(), vec![joins(&outside())]).contains(&16));
    // On another claim it is another matter.
    let other = state.with(2, |i| i.claim(|claim| "claim-new".clone_into(&mut claim.uid)));
    assert!(!broken(&other, vec![joins(&other)]).contains(&16));
}

#[test]
fn invariants_17_and_18_claims_only_grow_and_binlogs_are_kept_that_somebody_needs() {
    let grow = |bytes| Action::GrowClaim {
        instance: name(1),
        uid: "claim-1".to_owned(),
        bytes,
        reason: String::new(),
    };
    let state = healthy(3).with(1, |i| i.claim(|claim| claim.requested = Some(10)));
    assert_eq!(broken(&state, vec![grow(11)]), [] as [u8; 0]);
    finds(17, &state, vec![grow(10)]);
    finds(17, &state, vec![grow(9)]);
    finds(17, &healthy(3), vec![grow(11)]);

    let purge = |text: &str| command(1, 5, Verb::Purge { stored: set(text) });
    let archived = healthy(3).with(0, |i| {
        i.report(|report| {
            report.archive = Some(ArchiveReport {
                behind: set("a:91-100"),
                missing: set("a:7"),
                ..ArchiveReport::default()
            });
        })
    });
    assert_eq!(broken(&archived, vec![purge("a:8-90")]), [] as [u8; 0]);
    finds(18, &archived, vec![purge("a:8-91")]);
    finds(18, &archived, vec![purge("a:1-90")]);
    finds(18, &healthy(3), vec![purge("a:8-90")]);
    let behind = archived.clone().with(2, |i| i.set("a:1-80").received("a:81-100"));
    finds(18, &behind, vec![purge("a:8-90")]);
    finds(18, &archived.with(2, |i| i.silent(60)), vec![purge("a:8-90")]);
}
