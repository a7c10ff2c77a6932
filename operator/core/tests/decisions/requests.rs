//! Requests of people (rule 10 of docs/failover.md): what each is answered, and what is done about it.

use std::time::Duration;

use crate::states::{Instance, State, electing, fresh, healthy, id, members_but, name, now, set, subject};
use jiff::SignedDuration;
use mainstay_api::MySQLClusterStatus;
use mainstay_api::status::{Health, Phase as Shown, RequestResult};
use mainstay_core::action::{Action, Record};
use mainstay_core::analyse::Analysis;
use mainstay_core::observed::{Mysqld, Reach};
use mainstay_core::plan::plan;
use mainstay_core::rules::{ChangeKind, Memory, OperatorId, Phase, Request, RequestState, Rules};
use mainstay_core::status::{News, news, status};
use rstest::rstest;

#[track_caller]
fn does(state: &State, expected: &[&str]) {
    assert_eq!(state.does(), expected, "waits: {}", state.waits());
}

#[track_caller]
fn waits(state: &State, words: &str) {
    does(state, &[]);
    let waits = state.waits();
    assert!(waits.contains(words), "{waits}");
}

fn asks(verb: &str, ordinal: usize) -> String {
    format!(r#"{{"id":"r1","verb":"{verb}","instance":"shop-{ordinal}"}}"#)
}

fn forces(ordinal: usize) -> String {
    format!(r#"{{"id":"r1","verb":"promote","instance":"shop-{ordinal}","acceptDataLoss":true}}"#)
}

/// Refused with these words, and nothing is done.
#[track_caller]
fn refused(state: &State, words: &str) {
    let plan = state.plan();
    let answer = plan.answer.expect("no answer");
    assert_eq!(answer.state, RequestState::Refused, "{}", answer.message);
    assert!(answer.message.contains(words), "{}", answer.message);
    let ordered = ["Switchover", "PromotionForced", "InstanceFenced", "PrimaryFenced"];
    let is_ordered = |action: &Action| matches!(action, Action::Record(record) if ordered.contains(&record.reason));
    assert!(!plan.actions.iter().any(is_ordered), "it is recorded");
}

#[track_caller]
fn already(state: &State, words: &str) {
    let answer = state.plan().answer.expect("no answer");
    assert_eq!(answer.state, RequestState::Done, "{}", answer.message);
    assert!(answer.message.contains(words), "{}", answer.message);
}

fn record(state: &State) -> Record {
    match &state.plan().actions[0] {
        Action::Record(record) => record.as_ref().clone(),
        other => panic!("{other:?}"),
    }
}

/// The state after its record was made, with everybody as they were.
fn recorded(state: &State) -> State {
    let record = record(state);
    let mut state = state.clone();
    state.rules = Some(record.rules);
    state
}

fn shown(state: &State) -> MySQLClusterStatus {
    let (subject, observed) = (state.subject(), state.observation());
    let analysis = mainstay_core::analyse::analyse(&subject, &observed, now());
    let plan = plan(&subject, &observed, &analysis, now());
    status(
        &subject,
        &observed,
        &analysis,
        &plan,
        &MySQLClusterStatus::default(),
        now(),
    )
}

fn result(state: &State) -> (RequestResult, String) {
    let request = shown(state).request.unwrap();
    (request.result, request.message)
}

fn running(verb: &str, ordinal: usize, seconds: i64) -> Request {
    let at = now() - SignedDuration::from_secs(seconds);
    Request {
        id: "r1".to_owned(),
        verb: verb.to_owned(),
        instance: Some(name(ordinal)),
        accept_data_loss: false,
        state: RequestState::Running,
        message: String::new(),
        at,
        deadline: None,
    }
}

fn long_ago() -> jiff::Timestamp {
    now() - SignedDuration::from_mins(5)
}

/// A person keeps that instance out.
fn fenced(ordinal: usize) -> impl FnOnce(&mut Rules) {
    move |rules| {
        rules.fences.insert(name(ordinal), now());
    }
}

fn dead(i: Instance) -> Instance {
    i.silent(3600)
}

#[test]
fn rule_10_a_promotion_is_a_switchover_recorded_with_its_request() {
    let state = healthy(3).asks(&asks("promote", 2));
    does(
        &state,
        &[
            "record epoch 6: electing, shop-2 preferred, members shop-1 shop-2, k 1",
            "fence shop-0",
        ],
    );
    let request = record(&state).rules.request.unwrap();
    assert_eq!((request.id.as_str(), request.state), ("r1", RequestState::Running));
    assert_eq!(request.deadline, Some(now() + SignedDuration::from_secs(5)));
    // Once: the same annotation begins nothing more.
    let switching = recorded(&state);
    does(&switching, &["fence shop-0"]);
    let over = healthy(3).asks(&asks("promote", 2)).rules(|rules| {
        rules.request = Some(Request {
            state: RequestState::Failed,
            ..running("promote", 2, 60)
        });
    });
    does(&over, &[]);
    // Another operator process goes on with it.
    let other = switching.rules(|rules| rules.owner = OperatorId("other".to_owned()));
    does(
        &other,
        &[
            "record epoch 7: electing, shop-2 preferred, members shop-1 shop-2, k 1",
            "fence shop-0",
        ],
    );
}

#[rstest]
#[case::unknown(9, |s: State| s, "there is no instance shop-9; there are shop-0, shop-1, shop-2")]
#[case::unreachable(2, |s: State| s.with(2, |i| i.silent(9)), "shop-2 cannot be reached: no route")]
#[case::down(2, |s: State| s.with(2, |i| i.mysqld(Mysqld::Starting)), "mysqld of shop-2 is starting")]
#[case::no_member(2, |s: State| s.rules(|r| r.members = members_but(r, 2)), "shop-2 is no member")]
#[case::reborn(2, |s: State| s.with(2, Instance::reborn), "shop-2 is no member")]
#[case::leaving(2, |s: State| s.with(2, Instance::leaving), "is about to stop itself")]
#[case::errant(2, |s: State| s.with(2, |i| i.set("a:1-100 x:1")), "shop-2 has transactions that shop-0 does not have")]
#[case::detached(2, |s: State| s.with(2, Instance::fenced), "shop-2 follows nobody")]
#[case::wrong_source(2, |s: State| s.with(2, |i| i.follows(1)), "which is not the primary")]
#[case::deaf(2, |s: State| s.with(2, Instance::deaf), "shop-2 hears nothing from shop-0")]
#[case::lagging(2, |s: State| s.with(2, |i| i.report(|r| r.replication.lag = Some(Duration::from_millis(3200)))), "is 3.2 s behind")]
#[case::unknown_lag(2, |s: State| s.with(2, |i| i.report(|r| r.replication.lag = None)), "does not know how far it is behind")]
#[case::broken(2, |s: State| s.with(2, |i| i.report(|r| {
    r.replication.applier_running = false;
    r.replication.applier_error = "duplicate key".to_owned();
})), "does not apply what it receives: duplicate key")]
#[case::fenced(2, |s: State| s.rules(fenced(2)), "shop-2 is fenced on request")]
#[case::not_wanted(2, |s: State| s.declared(1), "beyond spec.replicas")]
fn f25_a_promotion_that_could_not_succeed_is_refused_and_says_why(
    #[case] ordinal: usize,
    #[case] change: fn(State) -> State,
    #[case] words: &str,
) {
    refused(&change(healthy(3)).asks(&asks("promote", ordinal)), words);
    // The switchovers that begin by themselves have the same pre-checks.
    let alone = healthy(3).with(0, Instance::leaving).with(1, |i| i.silent(9));
    let does = alone.does();
    assert!(does[0].contains("electing, shop-2 preferred"), "{does:?}");
    if ordinal == 2 {
        let does = change(alone).does();
        assert!(!does.iter().any(|line| line.contains("electing")), "{does:?}");
    }
}

#[test]
fn what_is_so_already_is_done() {
    already(&healthy(3).asks(&asks("promote", 0)), "shop-0 is the primary");
    already(&healthy(3).asks(&asks("unfence", 1)), "shop-1 is not fenced");
    let fenced = healthy(3).rules(fenced(1));
    already(&fenced.asks(&asks("fence", 1)), "shop-1 is fenced already");
}

#[test]
fn what_cannot_be_read_or_done_is_refused_once() {
    let state = healthy(3).asks("promote shop-1");
    refused(&state, "failed to read the request: expected value");
    let answered = state.plan().answer.unwrap();
    let again = healthy(3)
        .asks("promote shop-1")
        .rules(|rules| rules.request = Some(answered));
    assert_eq!(again.plan().answer, None);
    assert_eq!(result(&state).0, RequestResult::Refused);

    for (text, words) in [
        (
            r#"{"id":"1","verb":"promte","instance":"shop-1"}"#,
            "unknown variant `promte`",
        ),
        (r#"{"id":"1","verb":"promote"}"#, "promote needs an instance"),
        (r#"{"id":"1","verb":"unfence"}"#, "unfence needs an instance"),
        (
            r#"{"id":"1","verb":"unfence","instance":"blog-0"}"#,
            "there is no instance blog-0",
        ),
        (r#"{"id":"1","verb":"pause"}"#, "this version cannot pause"),
        (r#"{"id":"1","verb":"resume"}"#, "this version cannot resume"),
        (r#"{"id":"1","verb":"abort"}"#, "goes back by itself"),
        (
            r#"{"id":"1","verb":"promote","instance":"shop-1","reign":4}"#,
            "another primary was recorded since epoch 4",
        ),
    ] {
        refused(&healthy(3).asks(text), words);
    }
    let same = r#"{"id":"1","verb":"promote","instance":"shop-1","reign":5}"#;
    assert_eq!(healthy(3).asks(same).does().len(), 2);
}

#[test]
fn without_a_memory_nothing_is_done_on_request() {
    refused_without_record(&fresh(3).asks(&asks("promote", 1)), "no primary was recorded yet");
    refused_without_record(&fresh(3).asks("nonsense"), "failed to read the request");
    let behind = healthy(3).rules(|rules| rules.epoch = 3);
    refused_without_record(&behind.asks(&asks("fence", 1)), "status is older than");
    let electing = electing(3).rules(|rules| rules.primary = None);
    refused(&electing.asks(&asks("promote", 1)), "no primary was recorded yet");
    // Not even read, if the memory cannot be.
    let mut state = healthy(3).asks(&asks("promote", 1));
    state.observed.memory = Memory::Unreadable {
        reason: "no baseline".to_owned(),
    };
    let observed = state.observed.clone();
    let plan = plan(&subject(), &observed, &Analysis::default(), now());
    assert!(plan.actions.is_empty());
    assert_eq!(plan.answer.unwrap().message, "no baseline");
}

/// The bootstrap and the resumption go on; the request is answered beside them.
#[track_caller]
fn refused_without_record(state: &State, words: &str) {
    let answer = state.plan().answer.expect("no answer");
    assert_eq!(answer.state, RequestState::Refused);
    assert!(answer.message.contains(words), "{}", answer.message);
}

#[test]
fn a_request_waits_for_the_promotion_before_it() {
    let state = healthy(3).asks(&asks("promote", 2));
    let switching = recorded(&state).asks(r#"{"id":"r2","verb":"fence","instance":"shop-1"}"#);
    assert_eq!(switching.plan().answer, None);
    does(&switching, &["fence shop-0"]);
    // A fence that is not confirmed yet holds nothing up.
    let fencing = healthy(3).rules(|rules| {
        rules.fences.insert(name(2), now());
        rules.request = Some(running("fence", 2, 1));
    });
    let state = fencing
        .with(2, dead)
        .asks(r#"{"id":"r2","verb":"unfence","instance":"shop-2"}"#);
    assert_eq!(record(&state).reason, "InstanceUnfenced");
}

/// shop-1 was asked for, and was recorded in epoch 6.
fn moved(to: usize) -> State {
    let state = electing(3).rules(|rules| {
        rules.phase = Phase::Electing {
            preferred: Some(id(to)),
        };
        rules.request = Some(running("promote", 1, 1));
    });
    let others: Vec<_> = (0..3).filter(|other| *other != to).collect();
    let state = others
        .iter()
        .fold(state, |state, other| state.with(*other, |i| i.follows(to)));
    let state = recorded(&state);
    let members: Vec<_> = state.rules.as_ref().unwrap().members.iter().cloned().collect();
    state.with(to, |i| i.writable().told(&members, 1))
}

#[test]
fn a_promotion_ends_when_a_primary_is_open() {
    assert_eq!(
        result(&moved(1)),
        (RequestResult::Done, "shop-1 is the primary of epoch 6".to_owned())
    );
    // The old one again: it says why.
    let undone = moved(0).rules(|rules| {
        rules.request.as_mut().unwrap().message = "shop-1 could not take over within 5 s (why)".to_owned();
    });
    assert_eq!(
        result(&undone),
        (
            RequestResult::Failed,
            "shop-1 could not take over within 5 s (why); shop-0 is the primary".to_owned()
        )
    );
    // An election that does not end is not the request's business for ever.
    let stuck = |seconds| {
        electing(3).with(0, dead).with(2, dead).rules(|rules| {
            rules.phase_since = long_ago();
            rules.request = Some(running("promote", 1, seconds));
        })
    };
    assert_eq!(result(&stuck(29)).0, RequestResult::Running);
    assert!(stuck(29).plan().look_again.unwrap() <= Duration::from_millis(1005));
    let (state, message) = result(&stuck(30));
    assert_eq!(state, RequestResult::Failed);
    assert!(message.contains("the election goes on by itself"), "{message}");
}

#[test]
fn f25_a_promotion_that_misses_its_deadline_goes_back_and_says_why() {
    let state = healthy(3)
        .rules(|rules| {
            rules.epoch = 6;
            rules.phase = Phase::Electing { preferred: Some(id(1)) };
            rules.phase_since = now() - SignedDuration::from_secs(6);
            rules.began = Some(rules.phase_since);
            rules.request = Some(running("promote", 1, 6));
        })
        .with(0, |i| i.fenced().epoch(6))
        .with(1, |i| {
            i.set("a:1-90")
                .report(|r| r.replication.receiver_error = "denied".to_owned())
        });
    let record = record(&state);
    assert_eq!(record.reason, "SwitchoverUndone");
    let message = record.rules.request.unwrap().message;
    assert!(
        message.starts_with("shop-1 could not take over within 5 s (shop-1 has not received"),
        "{message}"
    );
    assert!(message.ends_with(":91-100: denied)"), "{message}");
    // The gap is that of both elections.
    assert_eq!(record.rules.began, Some(now() - SignedDuration::from_secs(6)));
}

#[test]
fn nobody_is_brought_behind_another_one_while_the_candidate_is_told_to_stop() {
    let state = electing(3).rules(|rules| rules.phase = Phase::Electing { preferred: Some(id(1)) });
    let told = |i: Instance| i.follows(0).epoch(5).busy(mainstay_core::action::VerbKind::Fence, 6);
    does(&state.with(1, told), &[]);
}

#[test]
fn a_fence_is_recorded_before_it_has_an_effect_and_keeps_the_instance_out() {
    let state = healthy(3).asks(&asks("fence", 2));
    does(
        &state,
        &[
            "record epoch 5: open shop-0, members shop-1 shop-2, k 1",
            "fence shop-2",
        ],
    );
    let fencing = recorded(&state);
    assert!(fencing.rules.as_ref().unwrap().keeps_out(&name(2)));
    assert_eq!(result(&fencing), (RequestResult::Running, String::new()));
    // It is told until it is so, and leaves the members as soon as the others suffice.
    does(&fencing, &["fence shop-2"]);
    let fenced = fencing.with(2, Instance::fenced);
    does(&fenced, &["allow shop-0 [shop-1] k 1"]);
    assert_eq!(
        result(&fenced),
        (
            RequestResult::Done,
            "shop-2 is read-only, follows nobody and is behind no Service".to_owned()
        )
    );
    let status = shown(&fenced);
    let condition = status.conditions.iter().find(|c| c.type_ == "Fenced").unwrap();
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str()),
        ("True", "InstanceFenced")
    );
    assert!(
        condition.message.starts_with("shop-2 is fenced on request"),
        "{}",
        condition.message
    );
    assert_eq!(status.health, Some(Health::Degraded));
    assert!(!status.instances[2].ready);
    // Outside of the members it stays fenced, and nothing is done to it, whatever it holds.
    for odd in ["a:1-80", "", "a:1-100 x:1"] {
        let out = healthy(3)
            .rules(|rules| {
                rules.members = members_but(rules, 2);
                rules.fences.insert(name(2), now());
            })
            .with(0, |i| i.told(&[id(1)], 1))
            .with(2, |i| i.fenced().set(odd));
        does(&out, &[]);
        does(&out.with(2, |i| i.epoch(4)), &["fence shop-2"]);
    }
}

#[test]
fn a_fence_needs_no_answer_of_the_instance() {
    let state = healthy(3).with(2, dead).asks(&asks("fence", 2));
    does(&state, &["record epoch 5: open shop-0, members shop-1 shop-2, k 1"]);
    let recorded = recorded(&state);
    assert_eq!(result(&recorded).0, RequestResult::Running);
    // It returns: as a member that nobody attaches.
    does(
        &recorded.with(2, |_| healthy(3).instance(2).fenced().epoch(4)),
        &["fence shop-2"],
    );
}

#[test]
fn a_fence_of_whom_a_commit_needs_is_carried_out_and_told() {
    let state = healthy(3)
        .with(1, |i| i.silent(60))
        .rules(fenced(2))
        .with(2, Instance::fenced);
    // Nobody could be dropped now.
    does(&state, &[]);
    let status = shown(&state);
    let condition = status.conditions.iter().find(|c| c.type_ == "WritesBlocked").unwrap();
    assert_eq!(condition.status, "True");
    assert!(
        condition
            .message
            .contains("(shop-1 cannot be reached; shop-2 is fenced on request)"),
        "{}",
        condition.message
    );
}

/// The primary is fenced on request, and everybody is told.
fn closed() -> State {
    let state = healthy(3).asks(&asks("fence", 0));
    does(
        &state,
        &[
            "record epoch 6: electing, shop-0 preferred, members shop-1 shop-2, k 1",
            "fence shop-0",
        ],
    );
    (0..3).fold(recorded(&state), |state, ordinal| {
        state.with(ordinal, |i| i.fenced().epoch(6))
    })
}

#[test]
fn a_fence_of_the_primary_blocks_writes_until_a_person_decides() {
    let state = closed().rules(|rules| rules.phase_since = long_ago());
    waits(&state, "a person: shop-0, the primary, is fenced on request");
    let status = shown(&state);
    assert_eq!(
        (status.phase, status.health),
        (Some(Shown::Blocked), Some(Health::Unavailable))
    );
    let available = status.conditions.iter().find(|c| c.type_ == "Available").unwrap();
    assert_eq!(
        (available.status.as_str(), available.reason.as_str()),
        ("False", "PrimaryFenced")
    );
    let (result, message) = result(&state);
    assert_eq!(result, RequestResult::Done);
    assert!(
        message.contains("no writes are accepted until it is let in"),
        "{message}"
    );
    // Not even when it is lost meanwhile.
    waits(&state.clone().with(0, dead), "a person: shop-0");

    // It is let in: the same election goes on, and it wins.
    let unfenced = state
        .clone()
        .asks(r#"{"id":"r2","verb":"unfence","instance":"shop-0"}"#);
    does(
        &unfenced,
        &["record epoch 6: electing, shop-0 preferred, members shop-1 shop-2, k 1"],
    );
    let opening = recorded(&unfenced);
    does(&opening, &["attach shop-1 to shop-0", "attach shop-2 to shop-0"]);

    // Another one is promoted: a switchover under its own epoch, and the fenced one stays out.
    let promoted = state.asks(r#"{"id":"r2","verb":"promote","instance":"shop-2"}"#);
    does(
        &promoted,
        &[
            "record epoch 7: electing, shop-2 preferred, members shop-1 shop-2, k 1",
            "fence shop-0",
        ],
    );
    let moving = (0..3).fold(recorded(&promoted), |state, ordinal| {
        state.with(ordinal, |i| i.epoch(7))
    });
    does(&moving, &["attach shop-1 to shop-2"]);
    does(
        &moving.with(1, |i| i.follows(2)),
        &[
            "record epoch 7: open shop-2, members shop-1, k 1",
            "open shop-2 [shop-1] k 1",
        ],
    );
}

#[test]
fn a_single_instance_is_fenced_and_opened_again() {
    let state = healthy(1).asks(&asks("fence", 0));
    does(
        &state,
        &[
            "record epoch 6: electing, shop-0 preferred, members , k 0",
            "fence shop-0",
        ],
    );
    let closed = recorded(&state).with(0, |i| i.fenced().epoch(6));
    waits(&closed, "a person: shop-0");
    let open = closed.asks(r#"{"id":"r2","verb":"unfence","instance":"shop-0"}"#);
    does(
        &recorded(&open),
        &["record epoch 6: open shop-0, members , k 0", "open shop-0 [] k 0"],
    );
}

#[test]
fn who_is_fenced_on_request_neither_wins_nor_follows_nor_testifies() {
    // It would win by its number.
    does(
        &electing(5).with(0, dead).rules(fenced(1)),
        &["attach shop-3 to shop-2", "attach shop-4 to shop-2"],
    );
    // What it has counts: nobody wins over its head.
    let state = electing(3).with(0, dead).with(1, |i| i.set("a:1-101")).rules(fenced(1));
    waits(&state, "an instance that contains everything: shop-1 has");
    waits(&state, "is fenced on request");
    // Nor is it a witness of a silent primary.
    let silent = healthy(3)
        .with(0, |i| i.silent(10))
        .with(1, Instance::fenced)
        .rules(fenced(1));
    waits(&silent, "0 of 1 members do not receive");
    // A rolling restart leaves it as it is.
    let rolling = healthy(3)
        .rules(fenced(2))
        .rules(|rules| rules.members = members_but(rules, 2))
        .with(0, |i| i.told(&[id(1)], 1))
        .with(2, |i| i.fenced().pod(|pod| pod.template = Some("t0".to_owned())));
    waits(&rolling, "shop-2 to be let in again");
}

/// The primary and shop-1 are lost, shop-2 is asked for at any price; five seconds and more ago.
fn forced() -> State {
    let state = electing(3)
        .with(0, dead)
        .with(1, dead)
        .rules(|rules| rules.phase_since = long_ago())
        .asks(&forces(2));
    recorded(&state).rules(|rules| rules.request.as_mut().unwrap().at = now() - SignedDuration::from_secs(1))
}

#[test]
fn rule_10_a_loss_is_accepted_only_where_the_rules_have_to_wait() {
    let lost = electing(3)
        .with(0, dead)
        .with(1, dead)
        .rules(|rules| rules.phase_since = long_ago());
    refused(
        &lost.clone().asks(&asks("promote", 2)),
        "no primary is open that could hand over",
    );
    // The word of a person is recorded first, in the same election.
    let state = lost.asks(&forces(2));
    does(&state, &["record epoch 6: electing, members shop-1 shop-2, k 1"]);
    assert_eq!(record(&state).reason, "PromotionForced");
    // Nobody else is there: it opens alone, and says what is lost.
    does(
        &forced(),
        &["record epoch 6: open shop-2, members , k 0", "open shop-2 [] k 0"],
    );
    let record = record(&forced());
    assert!(record.is_warning());
    let loss = record.rules.data_loss.clone().unwrap();
    assert_eq!((loss.epoch, &loss.instance), (6, &name(2)));
    assert_eq!(loss.missing, set(""));
    assert_eq!(loss.unheard, [name(0), name(1)].into());
    assert!(
        record.message.contains("what only shop-0, shop-1 had is missing, too"),
        "{}",
        record.message
    );
    assert_eq!(record.rules.last_change.unwrap().kind, ChangeKind::Failover);
    // The same without the word of a person.
    let refused = forced().rules(|rules| rules.request.as_mut().unwrap().state = RequestState::Refused);
    waits(&refused, "1 of 2 members is not fenced");
    // It stands for one instance: another one that wins by the rules needs its k followers.
    let other = electing(5)
        .with(0, dead)
        .with(3, dead)
        .with(2, |i| i.set("a:1-40"))
        .with(4, |i| i.set("a:1-100 x:1"));
    let other = other.rules(|rules| {
        rules.phase_since = long_ago();
        rules.request = Some(Request {
            accept_data_loss: true,
            ..running("promote", 2, 60)
        });
    });
    does(&other, &["attach shop-2 to shop-1"]);
    waits(&other.with(2, |i| i.follows(1)), "2 instances to follow shop-1");
}

#[test]
fn a_loss_that_is_known_is_written_down() {
    let hint = |mut i: Instance, text: &str| {
        let last = healthy(3).instance(1).set(text).0.report().cloned();
        if let Reach::Silent { last: kept, .. } = &mut i.0.reach {
            *kept = last.map(Box::new);
        }
        i
    };
    let state = forced().with(1, |i| hint(i, "a:1-110")).with(2, |i| i.set("a:1-40"));
    let loss = record(&state).rules.data_loss.unwrap();
    assert_eq!(
        loss.missing,
        set("a:41-110"),
        "of the baseline, and what shop-1 said last"
    );
    // Later, what comes back and is given up shows more.
    let rules = record(&state).rules;
    let mut after = state.with(2, |i| i.writable().told(&[], 0));
    after.rules = Some(rules);
    let back = healthy(3).instance(1).set("a:1-120 x:1").fenced().epoch(6);
    let after = after.with(1, move |_| back);
    let rebuild = record(&after);
    assert_eq!(rebuild.reason, "Rebuild");
    assert_eq!(rebuild.rules.data_loss.unwrap().missing, set("a:41-120"));
}

#[test]
fn rule_10_nobody_is_forced_who_has_less_or_takes_no_part() {
    let lost = || {
        electing(5)
            .with(0, dead)
            .with(3, dead)
            .with(4, dead)
            .rules(|rules| rules.phase_since = long_ago())
    };
    refused(
        &lost().with(1, |i| i.set("a:1-101")).asks(&forces(2)),
        "shop-1 has everything that shop-2 has",
    );
    refused(&lost().asks(&forces(3)), "shop-3 cannot be reached");
    refused(
        &lost().with(2, Instance::reborn).asks(&forces(2)),
        "neither a member nor the recorded primary",
    );
    refused(
        &lost().with(2, |i| i.mysqld(Mysqld::Failed)).asks(&forces(2)),
        "does not start",
    );
    let kept = lost().rules(fenced(2));
    refused(&kept.asks(&forces(2)), "has to be let in first");
    // Two that have something each: the person chooses.
    let state = lost()
        .with(1, |i| i.set("a:1-100 a:102"))
        .with(2, |i| i.set("a:1-101"))
        .asks(&forces(2));
    assert_eq!(record(&state).reason, "PromotionForced");
    // While the primary is open there is nothing to lose.
    refused(
        &healthy(3).with(2, |i| i.silent(9)).asks(&forces(2)),
        "cannot be reached",
    );
    assert_eq!(record(&healthy(3).asks(&forces(2))).reason, "Switchover");
}

#[test]
fn rule_10_everybody_who_can_answer_is_waited_for() {
    // The primary is lost and nothing can begin by itself: it begins by request, and all are fenced.
    let silent = healthy(3).with(0, dead).with(1, dead).asks(&forces(2));
    does(
        &silent,
        &["record epoch 6: electing, members shop-1 shop-2, k 1", "fence shop-2"],
    );
    let begun = recorded(&silent).with(2, |i| i.fenced().epoch(6));
    waits(&begun, "1 of 2 members is not fenced");
    assert!(begun.plan().look_again.unwrap() <= Duration::from_millis(5005));
    // Somebody comes back in time: it is an ordinary election, and nothing is lost.
    let back = begun.clone().with(1, |_| electing(3).instance(1));
    does(&back, &["attach shop-1 to shop-2"]);
    // Who is being fenced is waited for.
    let old = begun.rules(|rules| rules.phase_since = now() - SignedDuration::from_secs(6));
    waits(
        &old.with(2, |i| i.busy(mainstay_core::action::VerbKind::Fence, 6)),
        "shop-2 to be fenced",
    );
}

#[test]
fn rule_10_followers_that_can_be_had_are_waited_for() {
    // k = 2, and one follower is there.
    let state = electing(5)
        .with(0, dead)
        .with(3, dead)
        .with(4, dead)
        .rules(|rules| rules.phase_since = long_ago())
        .asks(&forces(2));
    let forced = recorded(&state);
    does(&forced, &["attach shop-1 to shop-2"]);
    does(
        &forced.clone().with(1, |i| i.follows(2)),
        &[
            "record epoch 6: open shop-2, members shop-1, k 1",
            "open shop-2 [shop-1] k 1",
        ],
    );
    // One that does not come is not waited for for ever.
    let patient = forced.rules(|rules| rules.request.as_mut().unwrap().at = now() - SignedDuration::from_secs(6));
    does(
        &patient,
        &["record epoch 6: open shop-2, members , k 0", "open shop-2 [] k 0"],
    );
}

#[test]
fn rule_10_the_old_primary_can_be_opened_with_fewer_followers() {
    // It has everything, but nobody is left to acknowledge: strict waits, and a person decides.
    let state = electing(3)
        .with(1, dead)
        .with(2, dead)
        .rules(|rules| rules.phase_since = long_ago());
    waits(&state, "1 instances to follow shop-0");
    let forced = recorded(&state.asks(&forces(0)));
    does(
        &forced,
        &["record epoch 6: open shop-0, members , k 0", "open shop-0 [] k 0"],
    );
    let record = record(&forced);
    assert_eq!((record.reason, record.rules.data_loss), ("PrimaryElected", None));
}

#[test]
fn a_primary_that_crashes_again_and_again_is_the_last_choice() {
    // What it alone has was acknowledged by nobody; as it contains everything it would win each time.
    let crashed = |seconds| {
        electing(3).with(0, |i| i.set("a:1-105")).rules(|rules| {
            rules.began = Some(rules.phase_since);
            rules.primary.as_mut().unwrap().since = rules.phase_since - SignedDuration::from_secs(seconds);
        })
    };
    does(&crashed(61), &["attach shop-1 to shop-0", "attach shop-2 to shop-0"]);
    does(&crashed(59), &["attach shop-2 to shop-1"]);
    // Unless there is no other.
    does(
        &crashed(59).with(1, dead).with(2, |i| i.set("a:1-40")),
        &["attach shop-2 to shop-0"],
    );
}

#[test]
fn what_became_of_a_request_is_news_once() {
    let refused = shown(&healthy(3).asks(&asks("promote", 9)));
    let before = shown(&healthy(3));
    let told = news(&before, &refused);
    let [News::Answered(request)] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!(request.result, RequestResult::Refused);
    assert!(told[0].is_warning());
    assert_eq!(told[0].reason(), "RequestRefused");
    assert!(
        told[0].sentence().starts_with("promote shop-9: there is no instance"),
        "{}",
        told[0].sentence()
    );
    assert!(news(&refused, &refused).is_empty());
    let running = shown(&recorded(&healthy(3).asks(&asks("promote", 2))).rules(|rules| rules.phase_since = long_ago()));
    assert!(news(&before, &running).is_empty());
    // So is a new primary, when it is open.
    let opened = shown(&moved(1));
    let told = news(&before, &opened);
    assert_eq!(told[0].reason(), "PrimaryChanged");
    assert!(
        told[0].sentence().starts_with("switchover shop-0 → shop-1: "),
        "{}",
        told[0].sentence()
    );
    assert!(news(&opened, &opened).is_empty());
}

/// A shop-0 that writes with durability `preferred`; commits wait for that many seconds.
fn preferring(state: State, seconds: i64) -> State {
    state.preferring(now() - SignedDuration::from_secs(seconds))
}

#[test]
fn preferred_durability_lowers_k_after_a_while_and_raises_it_again() {
    let alone = healthy(3).with(1, |i| i.silent(60)).with(2, |i| i.silent(60));
    // Strict waits for ever.
    does(&alone, &[]);
    let waiting = preferring(alone.clone(), 9);
    does(&waiting, &[]);
    assert!(waiting.plan().look_again.unwrap() <= Duration::from_millis(1005));
    let lowered = preferring(alone, 10);
    does(
        &lowered,
        &[
            "record epoch 6: open shop-0, members shop-1 shop-2, k 0",
            "allow shop-0 [shop-1 shop-2] k 0",
        ],
    );
    // It is told for as long as it is so.
    let low = preferring(healthy(3), 10)
        .rules(|rules| rules.acks_required = 0)
        .with(0, |i| i.told(&[id(1), id(2)], 0));
    let away = low.clone().with(1, |i| i.silent(60)).with(2, |i| i.silent(60));
    does(&away, &[]);
    let degraded = shown(&away)
        .conditions
        .into_iter()
        .find(|c| c.type_ == "Degraded")
        .unwrap();
    assert!(
        degraded
            .message
            .contains("a commit waits for 0 acknowledgements instead of 1"),
        "{}",
        degraded.message
    );
    // Somebody is back and has caught up.
    does(&low.with(2, |i| i.silent(60)), &["allow shop-0 [shop-1 shop-2] k 1"]);
    // With five it goes down and up in steps.
    let five = preferring(healthy(5), 10);
    let one = five
        .clone()
        .with(1, |i| i.silent(60))
        .with(2, |i| i.silent(60))
        .with(3, |i| i.silent(60));
    assert_eq!(record(&one).rules.acks_required, 1);
    let low = five.rules(|rules| rules.acks_required = 0);
    let members: Vec<_> = (1..5).map(id).collect();
    let up = low
        .with(0, |i| i.told(&members, 0))
        .with(1, |i| i.silent(60))
        .with(2, |i| i.silent(60))
        .with(3, |i| i.silent(60));
    does(&up, &["allow shop-0 [shop-1 shop-2 shop-3 shop-4] k 1"]);
}

#[test]
fn preferred_durability_changes_nothing_in_an_election() {
    let state = preferring(electing(3).with(0, dead).with(1, dead), 60);
    waits(&state, "1 of 2 members is not fenced");
    // Nor while the primary is closed.
    let state = preferring(healthy(3).with(0, |i| i.silent(1)), 60);
    does(&state, &[]);
}
