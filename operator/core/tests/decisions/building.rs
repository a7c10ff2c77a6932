//! Objects, Secrets, routing and rolling restarts.

use std::time::Duration;

use crate::states::{Instance, State, electing, fresh, healthy, id, members_but, name, now, subject, uuid};
use crate::world::World;
use jiff::SignedDuration;
use mainstay_api::cluster::DeletionPolicy;
use mainstay_core::action::Action;
use mainstay_core::analyse::{Problem, ProblemCode, analyse};
use mainstay_core::names::ANNOTATION_MISSING;
use mainstay_core::observed::{InstanceObserved, Mysqld, ObjectKey, ObjectKind, ObjectView, Observed, Reach, Warning};
use mainstay_core::rules::{Change, ChangeKind, InstanceName, Phase, Phases};
use serde_json::json;

const MINUTE: Duration = Duration::from_mins(1);

/// Kinds and names of what a new cluster consists of, in the order in which they are made.
#[test]
fn everything_of_a_new_cluster_is_made_in_one_pass() {
    let mut world = World::new(1, 3);
    world.tick();
    let made: Vec<_> = world
        .last_plan
        .actions
        .iter()
        .map(|action| match action {
            Action::GeneratePasswords { secret, .. } => secret.clone(),
            Action::CreateCa { .. } => "ca".to_owned(),
            Action::IssueServerCertificate { .. } => "certificate".to_owned(),
            Action::WriteClientCa => "client-ca".to_owned(),
            Action::Apply(desired) => format!("{:?} {}", desired.key.kind, desired.key.name),
            other => format!("{other:?}"),
        })
        .collect();
    let place = |name: &str| {
        made.iter()
            .position(|made| made.starts_with(name))
            .unwrap_or_else(|| panic!("{made:?}"))
    };
    let set = place("StatefulSet shop");
    for before in [
        "shop-system",
        "shop-root",
        "ca",
        "certificate",
        "client-ca",
        "ConfigMap",
        "ServiceAccount",
    ] {
        assert!(place(before) < set, "{before} is what a pod refers to: {made:?}");
    }
    assert!(place("ca") < place("certificate"));
    for object in [
        "Service shop-primary",
        "Service shop-replicas",
        "Service shop-instances",
        "PodDisruptionBudget",
    ] {
        place(object);
    }
}

#[test]
fn a_plan_that_was_carried_out_is_empty() {
    for replicas in [1, 3] {
        let mut world = World::new(2, replicas);
        world.settle(MINUTE);
        let observed = world.observe(0);
        let plan = world.plan_of(&observed);
        assert_eq!((plan.actions, plan.waiting), (Vec::new(), Vec::new()));
    }
}

#[test]
fn a_foreign_object_is_left_alone() {
    let mut world = World::new(3, 1);
    world.settle(MINUTE);
    let mut observed = world.observe(0);
    let key = ObjectKey {
        kind: ObjectKind::Service,
        name: "shop-primary".to_owned(),
    };
    let view = observed.objects.get_mut(&key).unwrap();
    view.value = json!({"spec": {"selector": {"app": "something-else"}}});
    let planned = |world: &World, observed: &Observed| world.plan_of(observed).actions.len();
    assert_eq!(planned(&world, &observed), 1, "it differs, so it is applied");
    observed.objects.get_mut(&key).unwrap().ours = false;
    assert_eq!(planned(&world, &observed), 0, "it belongs to somebody else");
    let view = observed.objects.get_mut(&key).unwrap();
    (view.ours, view.contested) = (true, true);
    assert_eq!(planned(&world, &observed), 0, "another writer changes it back");
}

#[test]
fn passwords_are_never_made_anew_under_data() {
    let mut world = World::new(4, 1);
    world.settle(MINUTE);
    let mut observed = world.observe(0);
    observed.secrets.keys.remove("shop-system");
    let plan = world.plan_of(&observed);
    assert!(plan.actions.is_empty(), "{:?}", plan.actions);
    assert!(
        plan.waiting[0]
            .for_what
            .contains("shop-system lacks manager, replication, clone, monitor")
    );
    // A person may have made it anew without its labels.
    let told = analyse(&subject(), &observed, now());
    let told: Vec<_> = told.of(ProblemCode::SecretIncomplete).map(Problem::text).collect();
    let label = "kubectl label secret shop-system -n prod app.kubernetes.io/managed-by=mainstay mysql.mainstay.dev/cluster=shop";
    assert!(matches!(told.as_slice(), [told] if told.contains(label)), "{told:?}");
    // What is composed of them is.
    let mut observed = world.observe(0);
    observed
        .secrets
        .keys
        .get_mut("shop-root")
        .unwrap()
        .retain(|key| key != "uri");
    let plan = world.plan_of(&observed);
    assert!(matches!(&plan.actions[..], [Action::GeneratePasswords { secret, .. }] if secret == "shop-root"));
}

#[test]
fn secrets_follow_the_deletion_policy() {
    let mut world = World::new(4, 3);
    world.settle(MINUTE);
    let secret = |observed: &mut Observed, name: &str, owners: serde_json::Value| {
        let key = ObjectKey {
            kind: ObjectKind::Secret,
            name: name.to_owned(),
        };
        let view = ObjectView {
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            ours: true,
            value: json!({"metadata": {"name": name, "ownerReferences": owners}}),
            contested: false,
        };
        observed.objects.insert(key, view);
    };
    let changes = |world: &World, owners: &serde_json::Value, left: Option<&InstanceObserved>| -> Vec<(String, bool)> {
        let mut observed = world.observe(0);
        observed.instances.extend(left.cloned());
        for name in ["shop-system", "shop-root", "shop-ca", "shop-server-tls"] {
            secret(&mut observed, name, owners.clone());
        }
        let actions = world.plan_of(&observed).actions;
        let change = |action: Action| match action {
            Action::OwnSecret { secret, owned } => Some((secret, owned)),
            _ => None,
        };
        actions.into_iter().filter_map(change).collect()
    };
    let (nobody, cluster) = (json!([]), json!([{"uid": "uid-shop", "controller": true}]));
    let all = |owned| ["shop-system", "shop-root", "shop-ca"].map(|name| (name.to_owned(), owned));
    assert_eq!(changes(&world, &nobody, None), []);
    assert_eq!(
        changes(&world, &cluster, None),
        all(false),
        "kept data needs its passwords"
    );
    world.change_spec(|cluster| cluster.spec.deletion_policy = Some(DeletionPolicy::Delete));
    assert_eq!(changes(&world, &cluster, None), []);
    assert_eq!(
        changes(&world, &nobody, None),
        all(true),
        "deleted data leaves no passwords"
    );
    // The claims of those that are not declared any more stay, whatever the policy is.
    let left = InstanceObserved {
        name: InstanceName("shop-3".to_owned()),
        ordinal: 3,
        pod: None,
        reach: Reach::Unknown {
            since: now(),
            reason: "no pod".to_owned(),
        },
        ..world.observe(0).instances[2].clone()
    };
    let left = Some(left);
    assert_eq!(changes(&world, &cluster, left.as_ref()), all(false));
    assert_eq!(changes(&world, &nobody, left.as_ref()), []);
}

#[test]
fn pods_are_labelled_with_their_role_and_once() {
    let mut world = World::new(8, 3);
    world.settle(MINUTE);
    let roles = |world: &World| -> Vec<Option<String>> {
        let pod = |instance: &InstanceObserved| instance.pod.as_ref().and_then(|pod| pod.role.clone());
        world.observe(0).instances.iter().map(pod).collect()
    };
    let (primary, replica) = (Some("primary".to_owned()), Some("replica".to_owned()));
    assert_eq!(roles(&world), [primary.clone(), replica.clone(), replica.clone()]);
    world.crash(0, Duration::from_secs(30));
    world.until("another primary", Duration::from_secs(20), |w| {
        w.open_primary().is_some_and(|p| p != 0)
    });
    let opened = world.open_primary().unwrap();
    world.settle(MINUTE);
    assert_eq!(roles(&world)[opened], primary);
    assert_eq!(roles(&world).iter().filter(|role| **role == replica).count(), 2);
}

#[test]
fn certificates_are_renewed_after_two_thirds_and_when_names_change() {
    let mut world = World::new(5, 1);
    world.settle(MINUTE);
    let issues = |world: &World, observed: &Observed| {
        let actions = world.plan_of(observed).actions;
        actions
            .iter()
            .any(|action| matches!(action, Action::IssueServerCertificate { .. }))
    };
    let mut observed = world.observe(0);
    assert!(!issues(&world, &observed));
    observed.secrets.server.as_mut().unwrap().dns_names.pop();
    assert!(issues(&world, &observed), "another name");
    let observed = world.observe(0);
    world.now += SignedDuration::from_hours(59 * 24);
    assert!(!issues(&world, &observed), "90 days, of which 59 are over");
    world.now += SignedDuration::from_hours(2 * 24);
    assert!(issues(&world, &observed), "60 are over");
    // An invalid spec does not let them end.
    world.change_spec(|cluster| cluster.spec.replicas = 2);
    assert!(issues(&world, &observed));
}

#[test]
fn nothing_is_built_from_an_invalid_spec_and_elections_go_on() {
    let mut world = World::new(6, 3);
    world.settle(MINUTE);
    world.run(Duration::from_secs(12));
    world.change_spec(|cluster| cluster.spec.replicas = 4);
    let before = world.kubernetes.stateful_set().cloned();
    world.crash(0, Duration::from_secs(30));
    world.until("another primary", Duration::from_secs(20), |w| {
        w.open_primary().is_some_and(|p| p != 0)
    });
    world.until("it is routed", Duration::from_secs(5), |w| {
        let primary = w.open_primary().map(|p| w.node(p).name.0.clone());
        w.kubernetes.routed("shop-primary") == Vec::from_iter(primary)
    });
    assert_eq!(world.kubernetes.stateful_set().cloned(), before);
}

/// Who is written into the slice of a Service, if it is written.
fn routes(state: &State, service: &str) -> Option<Vec<String>> {
    let mut found = None;
    for action in state.plan().actions {
        let Action::Apply(desired) = action else { continue };
        let of = desired
            .value
            .pointer("/metadata/labels/kubernetes.io~1service-name")
            .and_then(|v| v.as_str());
        if of != Some(service) || !desired.key.name.ends_with("ipv4") {
            continue;
        }
        let endpoints = desired.value["endpoints"].as_array().into_iter().flatten();
        found = Some(
            endpoints
                .map(|e| e["targetRef"]["name"].as_str().unwrap().to_owned())
                .collect(),
        );
    }
    found
}

/// The slices as this state writes them.
fn routed(mut state: State) -> State {
    for action in state.plan().actions {
        if let Action::Apply(desired) = action {
            let view = mainstay_core::observed::ObjectView {
                uid: "slice".to_owned(),
                resource_version: "1".to_owned(),
                ours: true,
                value: desired.value.clone(),
                contested: false,
            };
            state.observed.objects.insert(desired.key.clone(), view);
        }
    }
    state
}

fn names(ordinals: &[usize]) -> Vec<String> {
    ordinals.iter().map(|ordinal| format!("shop-{ordinal}")).collect()
}

const PRIMARY: &str = "shop-primary";
const REPLICAS: &str = "shop-replicas";

#[test]
fn clients_are_sent_to_the_open_primary_and_to_members() {
    assert_eq!(routes(&healthy(3), PRIMARY), Some(names(&[0])));
    assert_eq!(routes(&healthy(3), REPLICAS), Some(names(&[1, 2])));
    // Written once, they are left alone.
    assert_eq!(routes(&routed(healthy(3)), PRIMARY), None);
    assert_eq!(routes(&routed(healthy(3)), REPLICAS), None);
    // Somebody who was not compared never serves; a leaving one no longer.
    let state = healthy(3).rules(|rules| rules.members = members_but(rules, 2));
    assert_eq!(routes(&state, REPLICAS), Some(names(&[1])));
    assert_eq!(
        routes(&healthy(3).with(1, Instance::leaving), REPLICAS),
        Some(names(&[2]))
    );
    // Nobody is left: the primary stands in.
    let state = healthy(3)
        .with(1, |i| i.mysqld(Mysqld::Down))
        .with(2, |i| i.mysqld(Mysqld::Down));
    assert_eq!(routes(&state, REPLICAS), Some(names(&[0])));
}

#[test]
fn a_replica_is_not_taken_out_for_a_moment_of_silence() {
    let state = routed(healthy(3));
    assert_eq!(routes(&state.clone().with(1, |i| i.silent(1)), REPLICAS), None);
    assert_eq!(routes(&state.with(1, |i| i.silent(3)), REPLICAS), Some(names(&[2])));
}

#[test]
fn a_silent_primary_stays_until_another_one_is_open() {
    let state = routed(healthy(3)).with(0, |i| i.silent(3600));
    assert_eq!(routes(&state, PRIMARY), None);
    // A new operator process that has heard nobody yet touches nothing.
    let state = (0..3).fold(routed(healthy(3)), |state, ordinal| {
        state.with(ordinal, |i| i.silent(0))
    });
    assert_eq!((routes(&state, PRIMARY), routes(&state, REPLICAS)), (None, None));
}

/// A forced deletion leaves no time for a word, and another pod has the name at once.
#[test]
fn rule_2a_a_pod_that_was_replaced_begins_an_election_at_once() {
    let silent = routed(healthy(3)).with(0, |i| i.silent(0));
    let electing = |state: &State| state.does().iter().any(|line| line.contains("electing"));
    assert!(!electing(&silent));
    assert!(electing(
        &silent.with(0, |i| i.pod(|pod| pod.uid = "another".to_owned()))
    ));
    // The Service still routes to the former primary, and the new one is silent for a moment.
    let moved = routed(healthy(3)).rules(|rules| {
        rules.primary.as_mut().unwrap().id = id(1);
        rules.members = [id(0), id(2)].into();
    });
    assert!(!electing(&moved.with(1, |i| i.silent(0)).with(0, Instance::fenced)));
}

/// The slices of a healthy cluster, in an election.
fn unrouted() -> State {
    let mut state = electing(3);
    state.observed.objects = routed(healthy(3)).observed.objects;
    state
}

#[test]
fn an_election_takes_the_old_primary_out_a_second_after_it_returned_or_after_three_seconds() {
    let unrouted = |mysqld, preferred: Option<usize>, milliseconds| {
        let since = now() - SignedDuration::from_millis(milliseconds);
        unrouted().with(0, |i| i.mysqld(mysqld)).rules(|rules| {
            rules.phase = Phase::Electing {
                preferred: preferred.map(id),
            };
            rules.phase_since = since;
        })
    };
    let out = Some(names(&[]));
    for (mysqld, preferred, limit) in [
        // After crash recovery it may show what nobody acknowledged.
        (Mysqld::Starting, None, 1000),
        (Mysqld::Running, None, 1000),
        (Mysqld::Starting, Some(1), 1000),
        // In a switchover it answers, and shows nothing else than before.
        (Mysqld::Running, Some(1), 3000),
        (Mysqld::Down, None, 3000),
    ] {
        // One write is enough, the new primary's; one just before would hold it up.
        let early = unrouted(mysqld, preferred, limit - 1);
        assert_eq!(routes(&early, PRIMARY), None, "{mysqld:?} {preferred:?}");
        assert_eq!(
            routes(&unrouted(mysqld, preferred, limit), PRIMARY),
            out,
            "{mysqld:?} {preferred:?}"
        );
        assert!(
            early
                .plan()
                .look_again
                .is_some_and(|again| again <= Duration::from_millis(10))
        );
    }
}

#[test]
fn reads_are_not_rerouted_around_a_change_of_primary() {
    // In the election, and one second after the opening, the slice for reads is left alone (decision A9).
    let state = unrouted().with(1, |i| i.mysqld(Mysqld::Down));
    assert_eq!(routes(&state, REPLICAS), None);
    let moved = |opened: Option<i64>| {
        routed(healthy(3)).with(1, |i| i.mysqld(Mysqld::Down)).rules(|rules| {
            rules.last_change = Some(Change {
                kind: ChangeKind::Switchover,
                from: Some(name(1)),
                to: name(0),
                began: now() - SignedDuration::from_secs(2),
                recorded: now() - SignedDuration::from_secs(2),
                opened: opened.map(|ms| now() - SignedDuration::from_millis(ms)),
                phases: Phases::default(),
            });
        })
    };
    assert_eq!(routes(&moved(None), REPLICAS), None);
    assert_eq!(routes(&moved(Some(900)), REPLICAS), None);
    assert!(
        moved(Some(900)).plan().look_again.unwrap() < Duration::from_millis(120),
        "and is looked at in time"
    );
    assert_eq!(routes(&moved(Some(1000)), REPLICAS), Some(names(&[2])));
}

/// The annotation by which a plan reminds the StatefulSet of missing pods.
fn reminder(state: &State) -> Option<String> {
    state.plan().actions.into_iter().find_map(|action| {
        let Action::Apply(desired) = action else { return None };
        let annotations = desired.value.pointer("/metadata/annotations")?;
        (desired.key.kind == ObjectKind::StatefulSet)
            .then(|| annotations.get(ANNOTATION_MISSING)?.as_str().map(str::to_owned))?
    })
}

/// `kubectl delete statefulset` while the primary's pod takes its time: the next set fails to make a pod of that name, and
/// tries again only after minutes.
#[test]
fn f27_a_stateful_set_is_reminded_once_of_a_pod_that_it_does_not_make() {
    let built = routed(healthy(3).accepted());
    assert_eq!(reminder(&built), None);
    let missing = |seconds| built.clone().with(1, |i| i.gone().silent(seconds));
    assert_eq!(reminder(&missing(1)), None, "it is about to make it");
    assert!(
        missing(1)
            .plan()
            .look_again
            .is_some_and(|again| again <= Duration::from_millis(1010))
    );
    let late = missing(3);
    assert_eq!(reminder(&late).as_deref(), Some("shop-1 since 2026-11-29T11:59:57Z"));
    assert_eq!(reminder(&routed(late.clone())), None, "once is enough");
    let mut explained = late;
    explained.observed.warnings.push(Warning {
        about: "StatefulSet/shop".to_owned(),
        uid: None,
        reason: "FailedCreate".to_owned(),
        message: "exceeded quota".to_owned(),
        at: now(),
    });
    assert_eq!(reminder(&explained), None, "it knows, and says why");
}

fn deleted(state: &State) -> Vec<String> {
    let deletes = state.does();
    deletes
        .iter()
        .filter_map(|line| line.strip_prefix("delete "))
        .map(str::to_owned)
        .collect()
}

fn outdated(state: State, ordinals: &[usize]) -> State {
    ordinals.iter().fold(state, |state, ordinal| {
        state.with(*ordinal, |i| i.pod(|pod| pod.template = Some("old".to_owned())))
    })
}

#[test]
fn f14_a_roll_takes_replicas_first_one_at_a_time_when_all_others_are_synced() {
    assert_eq!(deleted(&outdated(healthy(3), &[0, 1, 2])), ["shop-2"]);
    assert_eq!(deleted(&outdated(healthy(3), &[0, 1])), ["shop-1"]);
    // While another one is impaired nothing is deleted: away, behind, not ready, being deleted.
    let roll = || outdated(healthy(3), &[0, 1]);
    let behind = |i: Instance| i.report(|r| r.replication.lag = Some(Duration::from_mins(1)));
    for state in [
        roll().with(2, |i| i.silent(60)),
        roll().with(2, behind),
        roll().with(2, |i| i.pod(|pod| pod.ready = false)),
        roll().with(2, |i| i.pod(|pod| pod.deleting = true)),
    ] {
        assert_eq!(deleted(&state), Vec::<String>::new());
        assert!(
            state.waits().contains("rolling restart waits for shop-2"),
            "{}",
            state.waits()
        );
    }
}

#[test]
fn f14_the_primary_is_moved_before_its_pod_is_replaced() {
    let state = outdated(healthy(3), &[0]);
    let record = "record epoch 6: electing, shop-1 preferred, members shop-1 shop-2, k 1";
    assert_eq!(state.does(), [record, "fence shop-0"]);
    // A single instance has nobody to hand over to.
    assert_eq!(deleted(&outdated(healthy(1), &[0])), ["shop-0"]);
}

#[test]
fn f12_a_stuck_pod_is_replaced_without_waiting_for_anything() {
    let stuck = |i: Instance| {
        i.silent(600).pod(|pod| {
            pod.ready = false;
            pod.trouble = Some("mysql: ImagePullBackOff".to_owned());
        })
    };
    // Another one is impaired, too; an election waits; there is no memory yet: it does not matter.
    let state = outdated(healthy(3), &[2]).with(2, stuck).with(1, |i| i.silent(60));
    assert_eq!(deleted(&state), ["shop-2"]);
    let state = outdated(electing(3), &[2]).with(2, stuck).with(0, |i| i.silent(60));
    assert_eq!(deleted(&state), ["shop-2"]);
    let state = outdated(fresh(1), &[0]).with(0, stuck);
    assert_eq!(deleted(&state), ["shop-0"]);
    // With the present template it is not: that would change nothing.
    assert_eq!(deleted(&healthy(3).with(2, stuck)), Vec::<String>::new());
    // A recovery takes as long as it takes.
    let state = outdated(healthy(3), &[2]).with(2, |i| i.mysqld(Mysqld::Starting).pod(|pod| pod.ready = false));
    assert!(
        !deleted(&state).is_empty(),
        "it is the impaired one itself, and an outdated one"
    );
    let state = outdated(electing(3), &[2]).with(2, |i| i.mysqld(Mysqld::Starting).pod(|pod| pod.ready = false));
    assert_eq!(deleted(&state), Vec::<String>::new());
}

#[test]
fn a_set_shrinks_only_after_its_last_instances_have_left() {
    let mut world = World::new(7, 3);
    world.settle(MINUTE);
    world.run(Duration::from_secs(12));
    world.change_spec(|cluster| cluster.spec.replicas = 1);
    world.until("members have left", MINUTE, |w| {
        let rules = w.rules().unwrap();
        let members = rules.members.len();
        assert!(
            members == 0 || w.kubernetes.set_replicas() > 1,
            "shrunk while {members} are members"
        );
        members == 0
    });
    world.settle(MINUTE);
    assert_eq!(world.kubernetes.set_replicas(), 1);
    assert!(world.rules().unwrap().phase == Phase::Open && world.open_primary() == Some(0));
}

#[test]
fn f12_a_stuck_pod_is_deleted_once_in_a_pass() {
    let state = outdated(healthy(3), &[2]).with(2, |i| i.mysqld(Mysqld::Failed).pod(|pod| pod.ready = false));
    assert_eq!(deleted(&state), ["shop-2"]);
}

#[test]
fn f14_the_primary_is_the_last_one_also_with_the_highest_ordinal() {
    let members = [id(0), id(1)];
    let state = healthy(3)
        .rules(|rules| {
            let primary = rules.primary.as_mut().unwrap();
            (primary.id, primary.server_uuid) = (id(2), uuid(2));
            rules.members = members.clone().into();
        })
        .with(2, |i| i.writable().told(&members, 1))
        .with(0, |i| i.fenced().follows(2))
        .with(1, |i| i.follows(2));
    assert_eq!(deleted(&outdated(state, &[1, 2])), ["shop-1"]);
}

#[test]
fn f14_a_configuration_that_a_pod_refers_to_is_kept() {
    let mut world = World::new(3, 1);
    world.settle(MINUTE);
    let mut observed = world.observe(0);
    let key = ObjectKey {
        kind: ObjectKind::ConfigMap,
        name: "shop-config-former".to_owned(),
    };
    let view = |ours| ObjectView {
        uid: "former".to_owned(),
        resource_version: "1".to_owned(),
        ours,
        value: json!({}),
        contested: false,
    };
    let deletes = |world: &World, observed: &Observed| {
        let plan = world.plan_of(observed);
        let mut deleted = plan.actions.iter();
        deleted.any(|action| matches!(action, Action::DeleteObject { key, .. } if key.name == "shop-config-former"))
    };
    observed.objects.insert(key.clone(), view(true));
    assert!(deletes(&world, &observed));
    observed.instances[0].pod.as_mut().unwrap().config_map = Some(key.name.clone());
    assert!(!deletes(&world, &observed), "the pod may restart at any time");
    observed.instances[0].pod.as_mut().unwrap().config_map = None;
    observed.objects.insert(key, view(false));
    assert!(!deletes(&world, &observed), "it is not ours (F28)");
}

#[test]
fn f28_no_password_is_put_into_a_foreign_secret() {
    let world = World::new(3, 1);
    let mut observed = world.observe(0);
    let fills = |observed: &Observed| {
        let plan = world.plan_of(observed);
        let mut filled = plan.actions.iter();
        filled.any(|action| matches!(action, Action::GeneratePasswords { secret, .. } if secret == "shop-root"))
    };
    assert!(fills(&observed));
    let key = ObjectKey {
        kind: ObjectKind::Secret,
        name: "shop-root".to_owned(),
    };
    let view = ObjectView {
        uid: "theirs".to_owned(),
        resource_version: "1".to_owned(),
        ours: false,
        value: json!({}),
        contested: false,
    };
    observed.objects.insert(key, view);
    assert!(!fills(&observed));
}
