//! `MySQLCluster.status`: the memory both ways, and what a DBA reads.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::states::{Instance, State, does, electing, fresh, healthy, id, name, now, set, subject, uuid};
use crate::world::random::Random;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mainstay_api::MySQLClusterStatus;
use mainstay_api::status::{Health, Phase as Shown};
use mainstay_core::action::{Action, Desired};
use mainstay_core::analyse::Analysis;
use mainstay_core::observed::{Mysqld, ObjectKey, ObjectKind, Standstill, Warning};
use mainstay_core::plan::{Plan, plan};
use mainstay_core::rules::{
    Change, ChangeKind, DataLoss, Donor, Healing, Incarnation, Memory, OperatorId, Phase, Phases, PrimaryRef, Rebuild,
    Request, RequestState, Rules, Trouble,
};
use mainstay_core::status::{memory, record, status, told};
use mainstay_core::subject::Subject;
use mainstay_core::validate::SpecProblem;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

/// The status of a state, written over another one.
pub(crate) fn written(state: &State, previous: &MySQLClusterStatus, problems: &[SpecProblem]) -> MySQLClusterStatus {
    let mut observed = state.observation();
    observed.told.ready = told(Some(previous)).ready;
    let subject = Subject {
        spec: Err(problems),
        ..subject()
    };
    let analysis = mainstay_core::analyse::analyse(&subject, &observed, now());
    let plan = plan(&subject, &observed, &analysis, now());
    status(&subject, &observed, &analysis, &plan, previous, now())
}

pub(crate) fn fresh_status(state: &State) -> MySQLClusterStatus {
    written(state, &MySQLClusterStatus::default(), &[])
}

pub(crate) fn condition<'a>(status: &'a MySQLClusterStatus, type_: &str) -> &'a Condition {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .unwrap()
}

#[track_caller]
pub(crate) fn says(status: &MySQLClusterStatus, type_: &str, value: &str, reason: &str, words: &[&str]) {
    let condition = condition(status, type_);
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str()),
        (value, reason),
        "{}",
        condition.message
    );
    for word in words {
        assert!(condition.message.contains(word), "{word:?} in {:?}", condition.message);
    }
    assert_eq!(condition.observed_generation, Some(1));
}

/// Through JSON, as the API server keeps it.
fn kept(status: &MySQLClusterStatus) -> MySQLClusterStatus {
    serde_json::from_str(&serde_json::to_string(status).unwrap()).unwrap()
}

fn any_request(random: &mut Random) -> Request {
    let states = [
        RequestState::Refused,
        RequestState::Running,
        RequestState::Done,
        RequestState::Failed,
    ];
    Request {
        id: random.below(1000).to_string(),
        verb: "promote".to_owned(),
        instance: random.chance(80).then(|| name(1)),
        accept_data_loss: random.chance(30),
        state: *random.pick(&states).unwrap(),
        message: "why".to_owned(),
        at: now(),
        deadline: random.chance(50).then(|| now() + SignedDuration::from_secs(5)),
    }
}

fn any_moment(random: &mut Random) -> Timestamp {
    let micros = i64::try_from(random.below(1_000_000_000_000)).unwrap();
    now() + SignedDuration::from_micros(micros)
}

fn any_loss(random: &mut Random) -> DataLoss {
    DataLoss {
        at: now(),
        epoch: random.below(100),
        instance: name(1),
        server_uuid: random.chance(50).then(|| uuid(0)),
        missing: set("a:7-9"),
        unheard: [name(0), name(2)].into(),
    }
}

fn any_change(random: &mut Random, began: Timestamp) -> Change {
    Change {
        kind: *random
            .pick(&[ChangeKind::Bootstrap, ChangeKind::Failover, ChangeKind::Switchover])
            .unwrap(),
        from: random.chance(50).then(|| name(1)),
        to: name(0),
        began,
        recorded: any_moment(random),
        opened: random.chance(50).then(|| began + SignedDuration::from_millis(412)),
        phases: Phases {
            fence: random.chance(50).then(|| Duration::from_millis(12)),
            route: random.chance(50).then(|| Duration::from_millis(random.below(900))),
            ..Phases::default()
        },
    }
}

fn any_rules(seed: u64) -> Rules {
    let mut random = Random::new(seed);
    let members = (1..=random.below(4))
        .map(|ordinal| id(usize::try_from(ordinal).unwrap()))
        .collect();
    let primary = random.chance(80).then(|| PrimaryRef {
        id: id(0),
        server_uuid: uuid(0),
        epoch: random.below(100),
        since: any_moment(&mut random),
    });
    let electing = primary.is_none() || random.chance(50);
    let preferred = random.chance(50).then(|| id(1));
    let rebuild = Rebuild {
        incarnation: Incarnation("old".to_owned()),
        donor: Donor::Instance(id(1)),
        failures: 0,
        at: any_moment(&mut random),
        reason: "why".to_owned(),
        ended: random.chance(50).then(|| any_moment(&mut random)),
        healing: random.chance(50).then(|| Healing {
            trouble: *random
                .pick(&[Trouble::Data, Trouble::Lost, Trouble::Unreadable, Trouble::Full])
                .unwrap(),
            claim: random.chance(50).then(|| "claim-2".to_owned()),
            times: u32::try_from(random.below(9)).unwrap(),
        }),
    };
    let began = any_moment(&mut random);
    Rules {
        epoch: random.below(1 << 40),
        owner: OperatorId("someone".to_owned()),
        phase: if electing {
            Phase::Electing { preferred }
        } else {
            Phase::Open
        },
        phase_since: any_moment(&mut random),
        primary,
        baseline: set(if random.chance(30) { "" } else { "a:1-100 b:5 x:7-9" }),
        members,
        acks_required: u32::try_from(random.below(4)).unwrap(),
        server_id_base: u32::try_from(random.below(1 << 31)).unwrap(),
        rebuilds: if random.chance(50) {
            BTreeMap::from([(name(2), rebuild)])
        } else {
            BTreeMap::new()
        },
        began: (electing && random.chance(70)).then(|| any_moment(&mut random)),
        fences: if random.chance(30) {
            BTreeMap::from([(name(2), any_moment(&mut random))])
        } else {
            BTreeMap::new()
        },
        request: random.chance(50).then(|| any_request(&mut random)),
        data_loss: random.chance(30).then(|| any_loss(&mut random)),
        last_change: random.chance(70).then(|| any_change(&mut random, began)),
    }
}

proptest! {
    #[test]
    fn what_is_recorded_is_read_back(seed in any::<u64>()) {
        let rules = any_rules(seed);
        let status = kept(&record(&MySQLClusterStatus::default(), &rules));
        prop_assert_eq!(memory(Some(&status)), Memory::Known(Box::new(rules)));
    }
}

#[test]
fn no_memory_is_absent() {
    assert_eq!(memory(None), Memory::Absent);
    let status = MySQLClusterStatus {
        ready: Some("0/3".to_owned()),
        ..MySQLClusterStatus::default()
    };
    assert_eq!(memory(Some(&status)), Memory::Absent);
}

#[rstest]
#[case("epoch", |s: &mut MySQLClusterStatus| s.epoch = None)]
#[case("epoch", |s: &mut MySQLClusterStatus| s.epoch = Some(-1))]
#[case("owner", |s: &mut MySQLClusterStatus| s.owner = None)]
#[case("election", |s: &mut MySQLClusterStatus| s.election = None)]
#[case("election.since", |s: &mut MySQLClusterStatus| s.election.as_mut().unwrap().since = None)]
#[case("primary", |s: &mut MySQLClusterStatus| s.primary = None)]
#[case("primary.since", |s: &mut MySQLClusterStatus| s.primary.as_mut().unwrap().since = None)]
#[case("primary.epoch", |s: &mut MySQLClusterStatus| s.primary.as_mut().unwrap().epoch = -5)]
#[case("baseline", |s: &mut MySQLClusterStatus| s.baseline = None)]
#[case("baseline", |s: &mut MySQLClusterStatus| s.baseline = Some("nonsense".to_owned()))]
#[case("acksRequired", |s: &mut MySQLClusterStatus| s.acks_required = None)]
#[case("acksRequired", |s: &mut MySQLClusterStatus| s.acks_required = Some(-1))]
#[case("serverIdBase", |s: &mut MySQLClusterStatus| s.server_id_base = None)]
fn half_a_memory_is_unreadable_and_never_absent(#[case] field: &str, #[case] damage: fn(&mut MySQLClusterStatus)) {
    let rules = healthy(3).rules.unwrap();
    let mut status = record(&MySQLClusterStatus::default(), &rules);
    damage(&mut status);
    let Memory::Unreadable { reason } = memory(Some(&status)) else {
        panic!("{field} is read")
    };
    assert!(reason.contains(&format!("status.{field}:")), "{reason}");
}

/// One field alone is a memory that somebody damaged.
#[rstest]
#[case("epoch", json!(7))]
#[case("owner", json!("me"))]
#[case("election", json!({"phase": "Electing", "since": "2026-11-29T12:00:00.000000Z"}))]
#[case("primary", json!({"instance": "shop-0", "incarnation": "a", "serverUuid": "u", "epoch": 7,
    "since": "2026-11-29T12:00:00.000000Z"}))]
#[case("members", json!([{"instance": "shop-1", "incarnation": "b"}]))]
#[case("acksRequired", json!(1))]
#[case("baseline", json!(""))]
#[case("serverIdBase", json!(100))]
fn rule_0_what_is_left_of_a_memory_is_not_absent(#[case] field: &str, #[case] value: serde_json::Value) {
    let status: MySQLClusterStatus = serde_json::from_value(json!({field: value})).unwrap();
    assert!(matches!(memory(Some(&status)), Memory::Unreadable { .. }), "{field}");
}

#[test]
fn a_primary_that_is_a_member_was_not_written_by_these_rules() {
    let mut rules = healthy(3).rules.unwrap();
    rules.members.insert(id(0));
    let status = record(&MySQLClusterStatus::default(), &rules);
    assert!(matches!(memory(Some(&status)), Memory::Unreadable { .. }));
}

#[test]
fn a_healthy_cluster_says_so_and_then_nothing_more() {
    let status = fresh_status(&healthy(3));
    assert_eq!(
        (status.phase, status.health),
        (Some(Shown::Running), Some(Health::Healthy))
    );
    assert_eq!(status.ready.as_deref(), Some("3/3"));
    assert_eq!(status.version.as_deref(), Some("9.7.4"));
    says(&status, "Available", "True", "Open", &[]);
    says(&status, "Progressing", "False", "UpToDate", &[]);
    says(&status, "Degraded", "False", "Complete", &[]);
    says(&status, "SpecAccepted", "True", "Accepted", &[]);
    says(&status, "ResourcesReady", "True", "Ready", &[]);
    says(&status, "WritesBlocked", "False", "Acknowledged", &[]);
    // Positions and heartbeats move on; the status does not.
    let later = healthy(3)
        .with(0, |i| i.set("a:1-5000"))
        .with(1, |i| i.set("a:1-4999"))
        .with(2, |i| i.set("a:1-4000"));
    assert_eq!(kept(&written(&later, &kept(&status), &[])), kept(&status));
}

/// Who waits for `Progressing=False` at the newest generation must not be told so by the pass that begins the change.
#[test]
fn a_change_of_the_template_is_progress_before_any_pod_is_outdated() {
    let state = healthy(3);
    let (observed, subject) = (state.observation(), subject());
    let told = |actions| {
        let plan = Plan {
            actions,
            ..Plan::default()
        };
        let before = MySQLClusterStatus {
            observed_generation: Some(0),
            ..MySQLClusterStatus::default()
        };
        status(&subject, &observed, &Analysis::default(), &plan, &before, now())
    };
    let set = Desired {
        key: ObjectKey {
            kind: ObjectKind::StatefulSet,
            name: "shop".to_owned(),
        },
        value: serde_json::Value::Null,
    };
    let applies = told(vec![Action::Apply(Box::new(set))]);
    assert_eq!(applies.phase, Some(Shown::Updating));
    says(&applies, "Progressing", "True", "Updating", &[]);
    assert_eq!(applies.observed_generation, Some(1));
    // In a pass that commands nothing was compared with the spec.
    let commands = told(vec![Action::Command(Vec::new())]);
    assert_eq!(
        (commands.phase, commands.observed_generation),
        (Some(Shown::Running), Some(0))
    );
}

#[test]
fn the_time_of_a_condition_changes_only_with_its_status() {
    let mut before = fresh_status(&healthy(3));
    let long_ago: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for condition in &mut before.conditions {
        condition.last_transition_time.0 = long_ago;
    }
    let after = written(&healthy(3).with(2, |i| i.mysqld(Mysqld::Failed)), &before, &[]);
    assert_eq!(condition(&after, "Available").last_transition_time.0, long_ago);
    assert_eq!(condition(&after, "Degraded").last_transition_time.0, now());
}

#[test]
fn a_restart_of_the_operator_shows_nothing() {
    let before = fresh_status(&healthy(3));
    // The new process has heard nobody yet.
    let silent = (0..3).fold(healthy(3), |state, ordinal| state.with(ordinal, |i| i.silent(0)));
    let after = written(&silent, &before, &[]);
    assert_eq!(after, before);
    // Two seconds later it does.
    let silent = (0..3).fold(healthy(3), |state, ordinal| state.with(ordinal, |i| i.silent(3)));
    let after = written(&silent, &before, &[]);
    says(&after, "Available", "False", "PrimaryLost", &["shop-0"]);
    says(&after, "Degraded", "True", "InstanceUnreachable", &["shop-0", "node-1"]);
    assert_eq!(after.health, Some(Health::Unavailable));
}

#[test]
fn an_election_is_told_in_words() {
    let old = now() - SignedDuration::from_secs(5);
    let state = electing(3).rules(|rules| rules.phase_since = old);
    let state = state.with(0, |i| i.silent(60)).with(1, |i| i.silent(60));
    let status = fresh_status(&state);
    assert_eq!(
        (status.phase, status.health),
        (Some(Shown::FailingOver), Some(Health::Unavailable))
    );
    says(
        &status,
        "Available",
        "False",
        "ElectionInProgress",
        &["in place of shop-0", "as soon as it is safe"],
    );
    let words = [
        "1 of 2 members is not fenced; it must be fewer than 1",
        "shop-1 cannot be reached: no route",
    ];
    says(&status, "Progressing", "True", "FailingOver", &words);
}

#[test]
fn a_fresh_election_costs_no_write_but_its_own_record() {
    let before = fresh_status(&healthy(3));
    let rules = electing(3).rules.unwrap();
    let recorded = record(&before, &rules);
    assert_eq!(
        (recorded.phase, recorded.health),
        (Some(Shown::FailingOver), Some(Health::Unavailable))
    );
    assert_eq!(written(&electing(3).with(0, |i| i.silent(1)), &recorded, &[]), recorded);
}

#[test]
fn the_opening_of_a_new_primary_ends_the_gap() {
    let state = healthy(3).rules(|rules| {
        let began = now() - SignedDuration::from_millis(420);
        let recorded = now() - SignedDuration::from_millis(100);
        rules.last_change = Some(Change {
            kind: ChangeKind::Failover,
            from: Some(name(1)),
            to: name(0),
            began,
            recorded,
            opened: None,
            phases: Phases::default(),
        });
    });
    let change = fresh_status(&state).last_change.unwrap();
    assert_eq!(change.writes_blocked_ms, Some(420));
}

#[test]
fn blocked_writes_are_told() {
    let state = healthy(3).with(1, |i| i.silent(60)).with(2, |i| i.silent(60));
    let status = fresh_status(&state);
    says(
        &status,
        "WritesBlocked",
        "True",
        "WritesBlocked",
        &["waits for 1 acknowledgement", "bring a replica back"],
    );
    says(
        &status,
        "Available",
        "False",
        "WritesBlocked",
        &["waits for 1 acknowledgement"],
    );
    assert_eq!(status.health, Some(Health::Unavailable));
}

fn stands(standstill: Standstill) -> State {
    healthy(3).with(0, |i| i.report(|report| report.standstill = Some(standstill)))
}

fn locked() -> Standstill {
    Standstill::GlobalLock {
        holder: "session 73 of root@10.0.0.7".to_owned(),
    }
}

#[test]
fn f33_a_full_volume_of_the_primary_blocks_writes() {
    let full = stands(Standstill::DiskFull);
    let status = fresh_status(&full);
    for (type_, value) in [("WritesBlocked", "True"), ("Available", "False")] {
        let words = [
            "volume of shop-0, the primary, is full",
            "though enough replicas acknowledge",
            "PURGE BINARY LOGS",
            "kubectl mainstay promote shop ANOTHER -n prod",
            "kubectl delete pod shop-0 -n prod",
        ];
        says(&status, type_, value, "DiskFull", &words);
    }
    assert_eq!(
        (status.phase, status.health),
        (Some(Shown::Running), Some(Health::Unavailable))
    );
    // It is told. What is done about it is rule 2's business.
    does(&full, &[]);
}

#[test]
fn a_lock_on_everything_blocks_writes_and_begins_no_election() {
    let state = stands(locked());
    let status = fresh_status(&state);
    for (type_, value) in [("WritesBlocked", "True"), ("Available", "False")] {
        let words = [
            "session 73 of root@10.0.0.7 locked everything on shop-0",
            "no commit ends, though enough replicas acknowledge",
            "UNLOCK TABLES",
        ];
        says(&status, type_, value, "GlobalReadLock", &words);
    }
    does(&state, &[]);
    let unknown = fresh_status(&stands(Standstill::GlobalLock { holder: String::new() }));
    says(
        &unknown,
        "WritesBlocked",
        "True",
        "GlobalReadLock",
        &["somebody locked everything on shop-0"],
    );
    // On a replica it keeps nobody from writing.
    let replica = healthy(3).with(1, |i| i.report(|report| report.standstill = Some(locked())));
    says(&fresh_status(&replica), "WritesBlocked", "False", "Acknowledged", &[]);
}

/// k is lowered (durability `preferred`) when commits have waited for replicas for long enough: waiting for a person, or for room,
/// is no such time.
#[test]
fn only_waiting_for_replicas_counts_as_waiting_for_replicas() {
    let before = fresh_status(&stands(locked()));
    assert_eq!(told(Some(&before)).blocked_since, None);
    let mut long = before.clone();
    for condition in &mut long.conditions {
        condition.last_transition_time.0 = "2026-11-29T11:00:00Z".parse().unwrap();
    }
    let alone = stands(locked()).with(1, |i| i.silent(60)).with(2, |i| i.silent(60));
    let after = written(&alone, &long, &[]);
    let words = [
        "0 of 2 members receive",
        "session 73 of root@10.0.0.7",
        "no commit ends; ",
    ];
    says(&after, "WritesBlocked", "True", "WritesBlocked", &words);
    assert_eq!(told(Some(&after)).blocked_since, Some(now()));
    // From there on it does.
    let mut earlier = after;
    for condition in &mut earlier.conditions {
        condition.last_transition_time.0 = "2026-11-29T11:59:00Z".parse().unwrap();
    }
    let later = written(&alone, &earlier, &[]);
    assert_eq!(told(Some(&later)).blocked_since, "2026-11-29T11:59:00Z".parse().ok());
}

#[test]
fn a_full_volume_of_a_replica_is_named() {
    let full = |i: Instance| {
        i.deaf().report(|report| {
            report.standstill = Some(Standstill::DiskFull);
            (report.disk.used, report.disk.size) = (999, 1000);
        })
    };
    let status = fresh_status(&healthy(3).with(1, full).with(2, full));
    let words = ["the volume of shop-1 is full; the volume of shop-2 is full"];
    says(&status, "WritesBlocked", "True", "WritesBlocked", &words);
    says(
        &status,
        "Degraded",
        "True",
        "DiskNearlyFull",
        &["the volume of shop-1 is full"],
    );
}

fn lag(state: State, seconds: u64) -> State {
    state.with(2, |i| {
        i.report(|report| report.replication.lag = Some(Duration::from_secs(seconds)))
    })
}

#[test]
fn a_replica_that_is_far_behind_is_told_in_steps() {
    let first = fresh_status(&lag(healthy(3), 311));
    says(
        &first,
        "Degraded",
        "True",
        "ReplicationLagging",
        &[
            "shop-2 is 300 s or more behind shop-0",
            "reads from it are old",
            "primary key",
        ],
    );
    assert_eq!(first.health, Some(Health::Degraded));
    assert_eq!(first.instances[2].behind_seconds, Some(300));
    assert_eq!(first.instances[1].behind_seconds, None);
    // A figure that moves is no write; nor is an applier that is between two transactions, or a moment of silence.
    let before = kept(&first);
    let next = |state: State, before: &MySQLClusterStatus| {
        let mut state = state;
        state.observed.told = told(Some(before));
        written(&state, before, &[])
    };
    assert_eq!(next(lag(healthy(3), 350), &before), before);
    assert_eq!(next(lag(healthy(3), 280), &before), before);
    let unknown = healthy(3).with(2, |i| i.report(|report| report.replication.lag = None));
    assert_eq!(next(unknown, &before), before);
    assert_eq!(next(healthy(3).with(2, |i| i.silent(1)), &before), before);
    let better = next(lag(healthy(3), 130), &before);
    assert_eq!(better.instances[2].behind_seconds, Some(120));
    assert_eq!(next(lag(healthy(3), 16), &better).instances[2].behind_seconds, Some(30));
    let over = next(lag(healthy(3), 5), &better);
    says(&over, "Degraded", "False", "Complete", &[]);
    assert_eq!(over.instances[2].behind_seconds, None);
    // Ordinary lag is none, and without an open primary there is nobody to be behind.
    says(
        &fresh_status(&lag(healthy(3), 29)),
        "Degraded",
        "False",
        "Complete",
        &[],
    );
    let closed = electing(3).rules(|rules| rules.phase_since = now() - SignedDuration::from_secs(5));
    assert_eq!(next(lag(closed, 311), &before).instances[2].behind_seconds, None);
}

#[test]
fn a_bad_spec_is_told_and_the_database_goes_on() {
    let problem = SpecProblem {
        field: "spec.config.server_id".to_owned(),
        message: "is Mainstay's".to_owned(),
    };
    let status = written(&healthy(3), &MySQLClusterStatus::default(), &[problem]);
    says(
        &status,
        "SpecAccepted",
        "False",
        "SpecInvalid",
        &["spec.config.server_id: is Mainstay's", "goes on as it was last built"],
    );
    says(&status, "Available", "True", "Open", &[]);
    assert_eq!(status.phase, Some(Shown::Running));
}

#[test]
fn a_bad_spec_of_a_cluster_that_was_never_built_blocks_it() {
    let problem = SpecProblem {
        field: "spec.config.server_id".to_owned(),
        message: "is Mainstay's".to_owned(),
    };
    let mut state = fresh(3);
    state.observed.objects.clear();
    state.observed.instances.clear();
    let status = written(&state, &MySQLClusterStatus::default(), &[problem]);
    says(
        &status,
        "SpecAccepted",
        "False",
        "SpecInvalid",
        &["correct the field; nothing is made before"],
    );
    says(&status, "Progressing", "False", "Blocked", &[]);
    assert_eq!(
        (status.phase, status.health),
        (Some(Shown::Blocked), Some(Health::Unavailable))
    );
    assert!(!condition(&status, "SpecAccepted").message.contains("last built"));
    let pending = ["nothing is made before the spec can be accepted"];
    says(&status, "Available", "False", "FirstPrimaryPending", &pending);
}

pub(crate) fn warning(about: &str, reason: &str, message: &str) -> Warning {
    Warning {
        about: about.to_owned(),
        uid: None,
        reason: reason.to_owned(),
        message: message.to_owned(),
        at: now(),
    }
}

#[test]
fn a_failing_stateful_set_is_explained() {
    let mut quota = fresh(3).with(2, Instance::gone);
    quota.observed.warnings = vec![warning("StatefulSet/shop", "FailedCreate", "exceeded quota: pods")];
    says(
        &fresh_status(&quota),
        "ResourcesReady",
        "False",
        "PodsNotCreated",
        &["exceeded quota"],
    );
    // The event outlives what it tells of.
    let mut over = fresh(3);
    over.observed.warnings = quota.observed.warnings;
    says(&fresh_status(&over), "ResourcesReady", "True", "Ready", &[]);
    // That another pod is missing now says nothing of the one that was.
    let mut another = fresh(3).with(2, Instance::gone);
    let failed = "create Pod shop-1 in StatefulSet shop failed error: the claim is being deleted";
    another.observed.warnings = vec![warning("StatefulSet/shop", "FailedCreate", failed)];
    says(&fresh_status(&another), "ResourcesReady", "True", "Ready", &[]);

    let trouble = |text: &'static str, node: bool| {
        fresh(3).with(1, |i| {
            i.silent(60).pod(|pod| {
                pod.trouble = Some(text.to_owned());
                pod.node = node.then(|| "node-1".to_owned());
            })
        })
    };
    let unscheduled = fresh_status(&trouble("Unschedulable: 0/3 nodes are available", false));
    says(
        &unscheduled,
        "ResourcesReady",
        "False",
        "PodUnschedulable",
        &["shop-1", "0/3 nodes", "make room"],
    );
    let image = fresh_status(&trouble("mysql: ErrImagePull: not found: nope:1", true));
    says(
        &image,
        "ResourcesReady",
        "False",
        "ImageNotPulled",
        &["nope:1", "spec.image"],
    );
    let crash = "mysql: CrashLoopBackOff: back-off 20s restarting (exit code 1: unknown variable 'query_cache_size')";
    let crash = fresh_status(&trouble(crash, true));
    says(
        &crash,
        "ResourcesReady",
        "False",
        "PodFailing",
        &["unknown variable 'query_cache_size'"],
    );
}

#[test]
fn what_kubernetes_said_of_volumes_and_mounts_is_told() {
    let mut state = fresh(3).with(1, |i| i.silent(60).pod(|pod| pod.ready = false));
    state.observed.warnings = vec![warning("Pod/shop-1", "FailedMount", "secret \"shop-ca\" not found")];
    says(
        &fresh_status(&state),
        "ResourcesReady",
        "False",
        "PodFailing",
        &["shop-1", "not found"],
    );
    // Neither of a former pod, nor of what the kubelet does not find any more.
    let ready = |state: &State| says(&fresh_status(state), "ResourcesReady", "True", "Ready", &[]);
    let mut former = state.clone();
    former.observed.warnings[0].uid = Some("a-former-pod".to_owned());
    ready(&former);
    former.observed.warnings[0].uid = Some("pod-1".to_owned());
    former.observed.warnings[0].at = now() - SignedDuration::from_mins(4);
    ready(&former);
    let mut state = fresh(3);
    state.observed.instances[1].claim.as_mut().unwrap().phase = "Pending".to_owned();
    state.observed.warnings = vec![warning(
        "PersistentVolumeClaim/data-shop-1",
        "ProvisioningFailed",
        "no such class",
    )];
    says(
        &fresh_status(&state),
        "ResourcesReady",
        "False",
        "VolumeNotBound",
        &["shop-1", "no such class"],
    );
    // An event of the StatefulSet that is no refusal, and a refusal.
    let mut state = healthy(3);
    state.observed.warnings = vec![warning("StatefulSet/shop", "RecreatingFailedPod", "shop-1")];
    says(&fresh_status(&state), "ResourcesReady", "True", "Ready", &[]);
    state.observed.warnings = vec![warning("StatefulSet/shop", "Invalid", "spec.template: no such field")];
    says(
        &fresh_status(&state),
        "ResourcesReady",
        "False",
        "ObjectRefused",
        &["no such field"],
    );
}

#[test]
fn the_pause_between_two_tries_does_not_change_the_status() {
    let looping =
        |text: &'static str| fresh(3).with(1, |i| i.silent(60).pod(|pod| pod.trouble = Some(text.to_owned())));
    let first = fresh_status(&looping("mysql: CrashLoopBackOff: back-off 20s restarting"));
    let later = written(
        &looping("mysql: CrashLoopBackOff: back-off 2m40s restarting"),
        &first,
        &[],
    );
    assert_eq!(first, later);
    let first = fresh_status(&looping("mysql: ErrImagePull: not found"));
    let later = written(&looping("mysql: ImagePullBackOff: not found"), &first, &[]);
    assert_eq!(first, later);
}

#[test]
fn mysqlds_own_words_reach_the_conditions() {
    let state = healthy(3).with(2, |i| {
        i.mysqld(Mysqld::Failed)
            .report(|r| r.message = "no space left".to_owned())
    });
    says(
        &fresh_status(&state),
        "Degraded",
        "True",
        "MysqldFailing",
        &["shop-2", "no space left"],
    );
}

/// A new cluster has no memory yet, and instances all the same.
#[test]
fn what_mysqld_says_of_a_configuration_reaches_the_conditions_of_a_new_cluster() {
    let refused = |mysqld, failures, message: &str| {
        let message = message.to_owned();
        fresh(3).with(0, |i| {
            i.mysqld(mysqld).report(|report| {
                report.failures = failures;
                report.message = message;
            })
        })
    };
    let why = "exit 1: unknown variable 'query_cache_size=1'";
    let failed = fresh_status(&refused(Mysqld::Failed, 2, why));
    let words = [
        "mysqld of shop-0 does not start: exit 1: unknown variable 'query_cache_size=1'",
        "kubectl logs shop-0 -n prod -c mysql",
        "spec.config",
    ];
    says(&failed, "Degraded", "True", "MysqldFailing", &words);
    // Each next try that fails changes nothing.
    for mysqld in [Mysqld::Starting, Mysqld::Initialising, Mysqld::Failed] {
        assert_eq!(written(&refused(mysqld, 3, why), &failed, &[]), failed, "{mysqld:?}");
    }
    // A first start is no failure, whatever is said of how far it is.
    let first = fresh_status(&refused(Mysqld::Initialising, 0, "the data directory is being made"));
    says(&first, "Degraded", "False", "Complete", &[]);
}

#[test]
fn f17_two_instances_on_one_node_are_worth_knowing() {
    let on = |node: &'static str| move |i: Instance| i.pod(move |pod| pod.node = Some(node.to_owned()));
    let apart = healthy(3).with(0, on("a")).with(1, on("b")).with(2, on("c"));
    says(&fresh_status(&apart), "Degraded", "False", "Complete", &[]);
    let status = fresh_status(&apart.with(2, on("a")));
    says(
        &status,
        "Degraded",
        "False",
        "NodeShared",
        &["shop-0 and shop-2 run on a"],
    );
    assert_eq!(status.health, Some(Health::Healthy));
}

#[test]
fn f11_a_password_that_cannot_be_used_is_told_once() {
    let ignored = "the password in system/replication is ignored: MySQL allows 32 bytes for it";
    let both = format!("{ignored}; the password in root/password is ignored: it is empty");
    let state = healthy(3)
        .with(1, |i| i.report(|r| r.message = ignored.to_owned()))
        .with(2, |i| i.report(|r| r.message = both));
    let status = fresh_status(&state);
    says(
        &status,
        "ResourcesReady",
        "False",
        "SecretUnusable",
        &["root/password", "MySQL allows 32 bytes"],
    );
    let said = status.conditions.iter().find(|c| c.type_ == "ResourcesReady").unwrap();
    assert_eq!(
        said.message.matches("system/replication").count(),
        1,
        "{}",
        said.message
    );
    assert_eq!(status.health, Some(Health::Healthy));
}

#[test]
fn a_lost_status_asks_for_what_is_missing() {
    let state = healthy(3).without_memory().with(1, |i| i.silent(60));
    let status = fresh_status(&state);
    assert_eq!(status.phase, Some(Shown::Blocked));
    says(
        &status,
        "Available",
        "False",
        "StatusLost",
        &["hold data", "every instance answers"],
    );
    says(&status, "Progressing", "False", "Blocked", &["shop-1 to answer"]);
    says(
        &status,
        "Available",
        "False",
        "StatusLost",
        &["it waits for shop-1 to answer"],
    );
}

/// `Progressing` is `False`, and nobody looks there.
#[test]
fn a_lost_status_says_what_a_person_can_do() {
    let lost = |state: State, words: &[&str]| {
        let status = fresh_status(&state.without_memory());
        says(&status, "Available", "False", "StatusLost", words);
    };
    lost(
        healthy(5).declared(3),
        &[
            "the claims data-shop-3, data-shop-4 exist beyond the 3 declared instances",
            "kubectl scale mysqlcluster shop --replicas=5 -n prod",
            "kubectl delete pvc data-shop-3 data-shop-4 -n prod",
        ],
    );
    lost(
        healthy(3).grown(5),
        &[
            "shop-3, shop-4 have empty volumes while others hold data",
            "kubectl scale mysqlcluster shop --replicas=3 -n prod",
            "kubectl delete pvc data-shop-3 data-shop-4 -n prod",
        ],
    );
    // Nothing of it can be resumed: it is a new cluster beside claims that were left.
    let left = fresh_status(&fresh(3).declared(1));
    let words = [
        "the claims data-shop-1, data-shop-2 exist",
        "kubectl delete pvc data-shop-1 data-shop-2 -n prod",
    ];
    says(&left, "Available", "False", "FirstPrimaryPending", &words);
}

#[test]
fn what_a_person_injected_is_told_before_it_matters() {
    let status = fresh_status(&healthy(3).with(0, |i| i.set("a:1-100 x:1")));
    // It is worth knowing, and impairs nothing.
    says(
        &status,
        "Degraded",
        "False",
        "ForeignTransactions",
        &["which it did not write itself"],
    );
    assert_eq!(status.health, Some(Health::Healthy));
}
