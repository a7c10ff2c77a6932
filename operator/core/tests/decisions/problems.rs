//! What is told of instances that do not serve and of pods that do not run; the list of problems, and what of it is news.

use jiff::SignedDuration;
use mainstay_api::MySQLClusterStatus;
use mainstay_api::status::{Health, Phase as Shown, ProblemStatus};
use mainstay_core::action::VerbKind;
use mainstay_core::analyse::{Analysis, analyse};
use mainstay_core::observed::{Mysqld, Standstill};
use mainstay_core::rules::{Donor, Rebuild};
use mainstay_core::status::{found, memory, record};
use mainstay_core::subject::Subject;
use mainstay_core::validate::ValidatedCluster;

use crate::states::{Instance, State, electing, fresh, healthy, id, members_but, name, now, subject};
use crate::status::{condition, fresh_status, says, warning, written};

fn names(status: &MySQLClusterStatus) -> Vec<String> {
    let text = |problem: &ProblemStatus| match &problem.instance {
        Some(instance) => format!("{} {instance}", problem.name),
        None => problem.name.clone(),
    };
    status.problems.iter().map(text).collect()
}

/// `Degraded` says why `health` is, with these words.
#[track_caller]
fn not_ready(state: &State, words: &str) {
    let status = fresh_status(state);
    assert_eq!(status.health, Some(Health::Degraded));
    says(&status, "Degraded", "True", "InstanceNotReady", &[words]);
}

#[test]
fn an_instance_that_does_not_serve_is_told_with_the_reason() {
    let pod = |change: fn(&mut mainstay_core::observed::PodView)| healthy(3).with(2, |i| i.pod(change));
    not_ready(
        &pod(|pod| pod.deleting = true),
        "the pod of shop-2 on node node-2 is being deleted",
    );
    let evicted = pod(|pod| (pod.deleting, pod.evicted) = (true, true));
    not_ready(&evicted, "the node does not answer Kubernetes, or has a taint");
    not_ready(
        &healthy(3).with(2, Instance::leaving),
        "shop-2 on node node-2 is being stopped",
    );
    not_ready(
        &healthy(3).with(2, |i| i.mysqld(Mysqld::Starting)),
        "mysqld of shop-2 is starting",
    );
    not_ready(
        &healthy(3).with(2, Instance::fenced),
        "shop-2 does not follow the primary yet",
    );
    let new = healthy(3).with(2, |i| i.silent(60).pod(|pod| pod.ip = None));
    not_ready(&new, "shop-2 on node node-2 has not answered yet");
    // What says why is enough.
    let unreachable = fresh_status(&healthy(3).with(2, |i| i.silent(60)));
    assert_eq!(names(&unreachable), ["InstanceUnreachable shop-2"]);
    // A moment of silence is none.
    let before = fresh_status(&healthy(3));
    let moment = written(&healthy(3).with(2, |i| i.silent(1)), &before, &[]);
    assert_eq!(moment, before);
}

#[test]
fn instances_that_are_not_wanted_any_more_do_not_degrade_the_others() {
    let status = fresh_status(&healthy(5).declared(3));
    assert_eq!(status.health, Some(Health::Healthy), "{:?}", status.conditions);
}

#[test]
fn a_mysqld_that_is_stopped_with_its_pod_does_not_fail() {
    let stopped = |deleting| {
        healthy(3).with(2, move |i| {
            let down = i.mysqld(Mysqld::Down).pod(|pod| pod.deleting = deleting);
            down.report(|report| "it is being stopped".clone_into(&mut report.message))
        })
    };
    assert_eq!(names(&fresh_status(&stopped(false))), ["MysqldFailing shop-2"]);
    assert_eq!(names(&fresh_status(&stopped(true))), ["InstanceNotReady shop-2"]);
}

#[test]
fn the_hint_at_the_configuration_is_given_for_what_is_in_it() {
    let says_of = |message: &'static str| {
        let failed = |i: Instance| i.mysqld(Mysqld::Failed).report(|r| message.clone_into(&mut r.message));
        let status = fresh_status(&healthy(3).with(2, failed));
        condition(&status, "Degraded").message.clone()
    };
    assert!(says_of("exit 1: unknown variable 'query_cache_size=1'").contains("stands in spec.config"));
    let fenced = says_of("it fenced itself: shop-1 was made primary in epoch 7");
    assert!(
        !fenced.contains("spec.config") && fenced.contains("kubectl logs shop-2"),
        "{fenced}"
    );
}

/// The first tries of a receiver may come before the primary lets it in.
#[test]
fn a_receiver_that_was_attached_a_moment_ago_is_not_broken() {
    let refused = |i: Instance| {
        i.connecting().report(|report| {
            "Access denied for user (MySQL error 3118)".clone_into(&mut report.replication.receiver_error);
        })
    };
    let told = |change: fn(Instance) -> Instance| fresh_status(&healthy(3).with(2, |i| change(refused(i))));
    let attached = told(|i| i.answered(VerbKind::Attach, 5, None));
    says(&attached, "Degraded", "False", "Complete", &[]);
    let being = told(|i| i.busy(VerbKind::Attach, 5));
    says(&being, "Degraded", "False", "Complete", &[]);
    let lasting = told(|i| {
        i.answered(VerbKind::Attach, 5, None).heard(|heard| {
            let answer = heard.answer.as_mut().unwrap();
            answer.at = now() - SignedDuration::from_secs(6);
        })
    });
    says(&lasting, "Degraded", "True", "ReplicationBroken", &["error 3118"]);
    // One that gave up has no source any more.
    let gave_up = told(|i| {
        i.answered(VerbKind::Attach, 5, None)
            .report(|report| report.replication.source_host = None)
    });
    says(&gave_up, "Degraded", "True", "ReplicationBroken", &["error 3118"]);
    // It is looked at again when the time is over.
    let waits = healthy(3).with(2, |i| refused(i).answered(VerbKind::Attach, 5, None));
    assert!(waits.plan().look_again.unwrap() <= std::time::Duration::from_millis(5005));
}

/// A cluster whose only pod is not scheduled, because its claim of this class is not bound.
fn unbound(class: Option<&str>) -> State {
    const SCHEDULER: &str =
        "Unschedulable: 0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";
    let mut state = fresh(1).with(0, |i| {
        i.silent(60).pod(|pod| {
            (pod.node, pod.ip, pod.ready) = (None, None, false);
            pod.trouble = Some(SCHEDULER.to_owned());
        })
    });
    let claim = state.observed.instances[0].claim.as_mut().unwrap();
    "Pending".clone_into(&mut claim.phase);
    claim.class = class.map(str::to_owned);
    state
}

#[test]
fn an_unbound_claim_is_told_as_what_it_is() {
    let status = fresh_status(&unbound(Some("fast")));
    assert_eq!(names(&status), ["VolumeNotBound shop-0"]);
    let words = [
        "kubectl describe pvc data-shop-0 -n prod",
        "create the class, or delete the cluster",
        "cannot be changed",
    ];
    says(&status, "ResourcesReady", "False", "VolumeNotBound", &words);
    says(
        &status,
        "Available",
        "False",
        "FirstPrimaryPending",
        &["shop-0 does not come up"],
    );
    // A claim that was kept from a cluster of that name.
    let mut kept = unbound(Some("fast"));
    let failed = warning(
        "PersistentVolumeClaim/data-shop-0",
        "ProvisioningFailed",
        "\"fast\" not found",
    );
    kept.observed.warnings = vec![failed];
    let declared = declared("testbed");
    let subject = Subject {
        spec: Ok(&declared),
        ..subject()
    };
    let said = |state: &State| {
        let problems = analyse(&subject, &state.observation(), now()).problems;
        problems
            .iter()
            .map(mainstay_core::analyse::Problem::text)
            .collect::<Vec<_>>()
    };
    let text = said(&kept).join("\n");
    for words in [
        "\"fast\" not found; it was kept, is of the StorageClass fast, and spec.storage names testbed",
        "kubectl delete pvc data-shop-0 -n prod",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let same = said(&unbound(Some("testbed"))).join("\n");
    assert!(
        same.contains("create the class") && !same.contains("it was kept"),
        "{same}"
    );
    // Another claim, of the overlay, is not ours.
    let mut other = unbound(None);
    "Bound".clone_into(&mut other.observed.instances[0].claim.as_mut().unwrap().phase);
    assert_eq!(names(&fresh_status(&other)), ["PodUnschedulable shop-0"]);
}

fn declared(class: &str) -> ValidatedCluster {
    let cluster = serde_json::from_value(serde_json::json!({
        "apiVersion": "mysql.mainstay.dev/v1",
        "kind": "MySQLCluster",
        "metadata": {"name": "shop", "namespace": "prod", "uid": "uid-shop", "generation": 1},
        "spec": {"replicas": 1, "image": "mysql:9.7.4", "storage": {"size": "1Gi", "storageClassName": class}}
    }));
    ValidatedCluster::new(&cluster.unwrap()).unwrap()
}

#[test]
fn a_volume_on_a_cordoned_node_is_told_with_the_node() {
    let tail =
        "no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    let scheduler = "Unschedulable: 0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match \
                     PersistentVolume's node affinity. ";
    let told = |said: &str, node: Option<&str>| {
        let mut state = healthy(3).with(1, |i| {
            i.silent(60).pod(|pod| {
                (pod.node, pod.ip, pod.ready) = (None, None, false);
                pod.trouble = Some(format!("{said}{tail}"));
            })
        });
        let claim = state.observed.instances[1].claim.as_mut().unwrap();
        claim.node = node.map(str::to_owned);
        let status = fresh_status(&state);
        assert_eq!(names(&status), ["PodUnschedulable shop-1"]);
        condition(&status, "ResourcesReady").message.clone()
    };
    assert_eq!(
        told(scheduler, Some("node-3")),
        "shop-1: Unschedulable: 0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match \
         PersistentVolume's node affinity; its volume ties it to node-3; if that is cordoned: kubectl uncordon node-3"
    );
    assert!(told(scheduler, None).ends_with("kubectl uncordon NODE"));
    let full = told(
        "Unschedulable: 0/3 nodes are available: 3 Insufficient memory. ",
        Some("node-3"),
    );
    assert!(
        full.ends_with("3 Insufficient memory; make room, or change spec.podTemplate or spec.resources"),
        "{full}"
    );
}

#[test]
fn the_worst_problem_comes_first_and_a_notice_is_none() {
    assert!(fresh_status(&healthy(3)).problems.is_empty());
    let two = healthy(3)
        .with(0, |i| i.report(|report| report.standstill = Some(Standstill::DiskFull)))
        .with(1, |i| i.silent(60));
    assert_eq!(
        names(&fresh_status(&two)),
        ["DiskFull shop-0", "InstanceUnreachable shop-1"]
    );
    let blocked = healthy(3).with(1, |i| i.silent(60)).with(2, |i| i.silent(60));
    assert_eq!(names(&fresh_status(&blocked))[0], "WritesBlocked");
    assert!(
        fresh_status(&healthy(3).with(0, |i| i.set("a:1-100 x:1")))
            .problems
            .is_empty()
    );
    // A cluster that is being made is on its way, until something keeps it from coming up.
    assert!(fresh_status(&fresh(3)).problems.is_empty());
    let stuck = fresh(3).with(0, |i| i.mysqld(Mysqld::Failed));
    assert_eq!(names(&fresh_status(&stuck)), ["MysqldFailing shop-0"]);
    // Of a single instance the cause says more than that nothing is open.
    let single = healthy(1).with(0, |i| i.mysqld(Mysqld::Failed));
    assert_eq!(
        names(&fresh_status(&single)),
        ["MysqldFailing shop-0", "PrimaryLost shop-0"]
    );
}

#[test]
fn an_election_is_a_problem_from_its_record_on_and_the_others_stay() {
    let before = fresh_status(&healthy(3).with(1, |i| i.silent(60)).with(2, |i| i.silent(60)));
    let recorded = record(&before, electing(3).rules.as_ref().unwrap());
    assert_eq!(
        names(&recorded),
        [
            "ElectionInProgress",
            "InstanceUnreachable shop-1",
            "InstanceUnreachable shop-2"
        ]
    );
    assert_eq!(
        names(&record(&before, healthy(3).rules.as_ref().unwrap())),
        names(&before)
    );
}

#[test]
fn a_restart_of_the_operator_forgets_no_problem() {
    let alone = healthy(3).with(1, |i| i.silent(60)).with(2, |i| i.silent(60));
    let before = fresh_status(&alone);
    let begun = (0..3).fold(healthy(3), |state, ordinal| state.with(ordinal, |i| i.silent(0)));
    assert_eq!(names(&written(&begun, &before, &[])), names(&before));
}

fn told(previous: &MySQLClusterStatus, state: &State) -> (MySQLClusterStatus, Vec<(bool, &'static str, String)>) {
    let next = written(state, previous, &[]);
    let analysis: Analysis = analyse(&subject(), &state.observation(), now());
    let news = found(previous, &next, &analysis);
    let lines = news
        .iter()
        .map(|news| (news.is_warning(), news.reason(), news.sentence()));
    let lines = lines.collect();
    (next, lines)
}

#[test]
fn a_problem_is_told_in_an_event_when_it_appears() {
    let well = fresh_status(&healthy(3));
    let failing = |failures| {
        healthy(3).with(2, move |i| {
            let down = i.mysqld(Mysqld::Down);
            down.report(|report| {
                report.failures = failures;
                "exit 1".clone_into(&mut report.message);
            })
        })
    };
    let (bad, lines) = told(&well, &failing(1));
    let [(true, "MysqldFailing", sentence)] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    assert!(
        sentence.starts_with("mysqld of shop-2 is down: exit 1; its whole log"),
        "{sentence}"
    );
    // In other words it is the same one; that of another instance is another one.
    assert!(told(&bad, &failing(2)).1.is_empty());
    let both = failing(2).with(1, |i| i.mysqld(Mysqld::Failed));
    let (_, lines) = told(&bad, &both);
    let reasons: Vec<_> = lines.iter().map(|line| line.1).collect();
    assert_eq!(reasons, ["WritesBlocked", "MysqldFailing"]);
    assert!(lines[1].2.contains("mysqld of shop-1"), "{lines:?}");
    // What passes by itself is not told, and neither is what is only worth knowing.
    for passing in [
        healthy(3).with(2, Instance::gone),
        healthy(3).with(2, Instance::leaving),
        healthy(3).with(0, |i| i.set("a:1-100 x:1")),
        fresh(3),
    ] {
        assert!(told(&well, &passing).1.is_empty());
    }
}

#[test]
fn a_roll_is_over_when_its_last_instance_is_back() {
    let rolling = healthy(3)
        .template("t2")
        .with(1, |i| i.pod(|pod| pod.template = Some("t2".to_owned())));
    let rolling = rolling.with(0, |i| i.pod(|pod| pod.template = Some("t2".to_owned())));
    let last = written(&rolling, &fresh_status(&healthy(3)), &[]);
    assert_eq!(last.phase, Some(Shown::Updating));
    let deleted = rolling.clone().with(2, |i| i.pod(|pod| pod.deleting = true));
    let ending = written(&deleted, &last, &[]);
    assert_eq!(ending.phase, Some(Shown::Updating));
    let back = rolling.with(2, |i| i.pod(|pod| pod.template = Some("t2".to_owned())));
    assert_eq!(written(&back, &ending, &[]).phase, Some(Shown::Running));
    // Without a roll nothing is one.
    let leaving = healthy(3).with(2, Instance::leaving);
    assert_eq!(fresh_status(&leaving).phase, Some(Shown::Running));
}

#[test]
fn a_rebuild_ends_when_its_instance_is_a_member_again() {
    let rebuilt = |state: State| {
        state.rules(|rules| {
            let intent = Rebuild {
                incarnation: mainstay_core::rules::Incarnation("an-earlier-life".to_owned()),
                donor: Donor::Instance(id(1)),
                failures: 0,
                at: now(),
                reason: "on request".to_owned(),
                ended: None,
                healing: None,
            };
            rules.rebuilds.insert(name(2), intent);
        })
    };
    let outside = rebuilt(healthy(3)).rules(|rules| rules.members = members_but(rules, 2));
    let going_on = fresh_status(&outside.with(2, |i| i.mysqld(Mysqld::Cloning)));
    assert_eq!(going_on.rebuilds[0].ended, None);
    let over = fresh_status(&rebuilt(healthy(3)));
    assert_eq!(over.rebuilds[0].ended.as_ref().map(|ended| ended.0), Some(now()));
    // It stays so, whatever becomes of the instance.
    let mut away = rebuilt(healthy(3)).with(2, |i| i.silent(60));
    let mainstay_core::rules::Memory::Known(rules) = memory(Some(&over)) else {
        panic!("{over:?}")
    };
    away.rules = Some(*rules);
    assert_eq!(written(&away, &over, &[]).rebuilds, over.rebuilds);
}

#[test]
fn who_joins_is_named_as_progress() {
    let joining = healthy(3)
        .rules(|rules| rules.members = members_but(rules, 2))
        .with(2, Instance::fenced);
    says(
        &fresh_status(&joining),
        "Progressing",
        "True",
        "Joining",
        &["shop-2 may not acknowledge yet"],
    );
}
