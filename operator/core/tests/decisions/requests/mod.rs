//! Requests of people (rule 10 of docs/failover.md): what each is answered, and what is done about it.

mod durability;
mod fences;
mod losses;
mod promotions;
mod rebuilds;

use std::time::Duration;

use crate::states::{
    Instance, State, dead, does, electing, fresh, healthy, id, members_but, name, now, set, subject, waits,
};
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
    let ordered = [
        "Switchover",
        "PromotionForced",
        "InstanceFenced",
        "PrimaryFenced",
        "RebuildRequested",
    ];
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
fn what_is_so_already_is_done() {
    already(&healthy(3).asks(&asks("promote", 0)), "shop-0 is the primary");
    already(&healthy(3).asks(&asks("unfence", 1)), "shop-1 is not fenced");
    let fenced = healthy(3).rules(fenced(1));
    already(&fenced.asks(&asks("fence", 1)), "shop-1 is fenced already");
}

#[test]
fn what_cannot_be_read_or_done_is_refused_once() {
    let state = healthy(3).asks("promote shop-1");
    refused(&state, "failed to read the request: expected a JSON object");
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
        (
            r#"["1","promote","shop-1",true,null]"#,
            "failed to read the request: expected a JSON object",
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
    let electing = electing(3).rules(|rules| rules.primary = None).with(0, |i| {
        i.report(|report| {
            report.persisted.primary = None;
            report.persisted.told_epoch = 0;
        })
    });
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

#[test]
fn an_operator_that_has_just_begun_judges_no_promotion_before_it_has_heard_both() {
    for ordinal in [0, 1] {
        let state = healthy(3).with(ordinal, |i| i.silent(1)).asks(&asks("promote", 1));
        assert_eq!(state.plan().answer, None);
        let waits = format!("request waits for shop-{ordinal} to be heard");
        assert!(state.waits().contains(&waits), "{}", state.waits());
    }
    refused(&healthy(3).with(1, |i| i.silent(3)).asks(&asks("promote", 1)), "shop-1");
}
