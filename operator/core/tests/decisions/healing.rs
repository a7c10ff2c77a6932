//! Self-healing (docs/healing.md): what is dropped, given up and replaced, in which order, and what never is.

use std::time::Duration;

use mainstay_core::action::{Action, VerbKind};
use mainstay_core::analyse::ProblemCode;
use mainstay_core::observed::{ArchiveReport, InstanceReport, Mysqld, Warning};
use mainstay_core::plan::GROWTH_REFUSED;
use mainstay_core::rules::{Donor, Healing, Incarnation, Rebuild, Rules, Trouble};
use rstest::rstest;

use crate::states::{Instance, State, ago, does, electing, healthy, id, members_but, name, now, set, waits};

const GIB: u64 = 1 << 30;
const RECORD: &str = "record epoch 6: open shop-0, members shop-1, k 1";

/// A healthy cluster whose spec can be read: volumes are replaced.
fn cluster() -> State {
    healthy(3).accepted()
}

fn full(i: Instance) -> Instance {
    filled(i, 5)
}

fn filled(i: Instance, seconds: u64) -> Instance {
    i.report(|report| {
        report.disk.used = report.disk.size;
        report.disk.full_for = Some(Duration::from_secs(seconds));
    })
}

fn unreadable(i: Instance) -> Instance {
    i.mysqld(Mysqld::Down).report(|report| report.unreadable = true)
}

/// So many starts failed on its data, and the next one is under way.
fn refuses(starts: u32) -> impl FnOnce(Instance) -> Instance {
    move |i| {
        i.mysqld(Mysqld::Starting).report(|report: &mut InstanceReport| {
            report.refusals = starts;
            report.failures = starts;
            "[InnoDB] Database page corruption on disk".clone_into(&mut report.message);
        })
    }
}

/// Its PersistentVolume does not exist any more, and no node takes its pod.
fn lost(i: Instance) -> Instance {
    i.claim(|claim| "Lost".clone_into(&mut claim.phase))
        .silent(5)
        .pod(|pod| {
            pod.node = None;
            pod.ready = false;
        })
}

/// shop-2 left the members in epoch 6.
fn dropped(state: State) -> State {
    state
        .rules(|rules| {
            rules.members = members_but(rules, 2);
            rules.epoch = 6;
        })
        .with(0, |i| i.epoch(6).told(&[id(1)], 1))
        .with(1, |i| i.epoch(6))
        .with(2, |i| i.epoch(6))
}

fn rebuild(trouble: Trouble, claim: Option<&str>, seconds: u64, times: u32) -> Rebuild {
    Rebuild {
        incarnation: id(2).incarnation,
        donor: Donor::Instance(id(0)),
        failures: 0,
        at: ago(seconds),
        reason: String::new(),
        ended: None,
        healing: Some(Healing {
            trouble,
            claim: claim.map(str::to_owned),
            times,
        }),
    }
}

fn noted(rebuild: Rebuild) -> impl FnOnce(&mut Rules) {
    move |rules| {
        rules.rebuilds.insert(name(2), rebuild);
    }
}

/// The state after its record was made, with everybody as they were.
fn recorded(state: &State) -> State {
    let mut after = state.clone();
    after.rules = Some(state.plan_record());
    after
}

/// Nothing of an instance is given up, and what is waited for is said with these words.
#[track_caller]
fn keeps(state: &State, words: &str) {
    let gives_up = |line: &String| ["delete", "clone", "allow"].iter().any(|verb| line.starts_with(verb));
    assert!(!state.does().iter().any(gives_up), "{:?}", state.does());
    assert!(state.waits().contains(words), "{}", state.waits());
}

fn lists(state: &State, code: ProblemCode) -> Option<String> {
    let analysis = state.analysis();
    analysis.of(code).next().map(mainstay_core::analyse::Problem::text)
}

type Disturbance = fn(Instance) -> Instance;

#[rstest]
#[case::full(full)]
#[case::unreadable(unreadable)]
#[case::lost(lost)]
fn f33_a_volume_is_dropped_given_up_deleted_and_cloned(#[case] trouble: Disturbance) {
    let state = cluster().with(2, trouble);
    does(&state, &["allow shop-0 [shop-1] k 1"]);
    let listed = state.with(0, |i| i.told(&[id(1)], 1));
    does(&listed, &["mark shop-0"]);
    let marked = listed.with(0, |i| i.marker("a:1-101")).with(1, |i| i.set("a:1-101"));
    does(&marked, &[RECORD]);
    let outside = dropped(marked);
    does(&outside, &[RECORD, "delete the claim of shop-2"]);
    // The intent names the claim, and stands before the deletion.
    let plan = outside.plan();
    let Action::Record(record) = &plan.actions[0] else {
        panic!("{plan:#?}")
    };
    let healing = record.rules.rebuilds[&name(2)].healing.clone().unwrap();
    assert_eq!((healing.claim.as_deref(), healing.times), (Some("claim-2"), 1));
    assert_eq!(record.reason, "VolumeGivenUp");
    let given_up = recorded(&outside);
    // An operator that died behind its record is continued.
    does(&given_up, &["delete the claim of shop-2"]);
    let going = given_up.with(2, |i| i.claim(|claim| claim.deleting = true));
    does(&going, &["delete shop-2"]);
    let at_once = |action: &Action| matches!(action, Action::DeletePod { at_once: true, .. });
    assert!(going.plan().actions.iter().any(at_once));
    let ending = going.with(2, |i| i.pod(|pod| pod.deleting = true));
    waits(&ending, "shop-2 waits for its new volume");
    // What comes back has another claim and nothing on it.
    let back = ending.with(2, |i| {
        let i = i.returned().claim(|claim| *claim = Instance::new_claim("claim-new"));
        i.pristine()
            .reborn()
            .epoch(6)
            .report(|report| report.disk.full_for = None)
    });
    assert_eq!(back.does()[1], "clone shop-2 from shop-1");
    let healing = back.plan_record().rebuilds[&name(2)].healing.clone().unwrap();
    assert_eq!((healing.claim, healing.times), (None, 1), "it is the same healing");
}

#[test]
fn a_pod_that_waits_for_a_claim_that_is_gone_is_made_anew() {
    let given_up = dropped(cluster().with(2, lost)).rules(noted(rebuild(Trouble::Lost, Some("claim-2"), 1, 1)));
    does(&given_up.clone(), &["delete the claim of shop-2"]);
    let mut gone = given_up;
    gone.observed.instances[2].claim = None;
    does(&gone, &["delete shop-2"]);
    // On a node it has one, which was not seen yet.
    let there = gone
        .clone()
        .with(2, |i| i.pod(|pod| pod.node = Some("node-2".to_owned())));
    does(&there, &[]);
    gone.observed.instances[2].pod = None;
    does(&gone, &[]);
}

#[test]
fn a_broken_data_directory_is_cloned_over_after_so_many_starts() {
    does(&cluster().with(2, refuses(2)), &[]);
    let state = cluster().with(2, refuses(3));
    does(&state, &["allow shop-0 [shop-1] k 1"]);
    let text = lists(&state, ProblemCode::DataBroken).unwrap();
    assert!(text.contains("page corruption"), "{text}");
    assert_eq!(lists(&state, ProblemCode::MysqldFailing), None, "it is told once");
    let outside = dropped(state);
    does(&outside, &[RECORD, "clone shop-2 from shop-1"]);
    // Also while nobody can read the spec, because no volume is touched.
    does(
        &dropped(healthy(3).with(2, refuses(3))),
        &[RECORD, "clone shop-2 from shop-1"],
    );
    // A clone that is refused is tried again soon, from another donor, and counts once.
    let again = recorded(&outside);
    waits(&again, "because it was healed a short time ago");
    let later = again.rules(|rules| rules.rebuilds.get_mut(&name(2)).unwrap().at = ago(11));
    assert_eq!(later.does()[1], "clone shop-2 from shop-0");
    assert_eq!(
        later.plan_record().rebuilds[&name(2)].healing.as_ref().unwrap().times,
        1
    );
    // One that runs is not broken.
    let runs = dropped(cluster().with(2, |i| i.fenced().report(|report| report.refusals = 9)));
    assert!(runs.does()[0].starts_with("record epoch 7: open shop-0, members shop-1 shop-2"));
}

#[test]
fn f33_a_moment_of_fullness_is_nothing() {
    let moment = cluster().with(2, |i| filled(i, 2));
    does(&moment, &[]);
    assert!(moment.plan().look_again.unwrap() <= Duration::from_millis(1100));
    let state = cluster().with(0, |i| filled(i, 2));
    does(&state, &[]);
}

/// Never a member that is needed; never without an open primary; never what a person keeps.
#[rstest]
#[case::full(full)]
#[case::unreadable(unreadable)]
#[case::lost(lost)]
#[case::broken(|i| refuses(3)(i))]
fn what_is_never_given_up(#[case] trouble: Disturbance) {
    // Nobody else acknowledges.
    let needed = cluster().with(1, |i| i.silent(60)).with(2, trouble);
    does(&needed, &[]);
    assert!(
        needed.waits().contains("another member that can acknowledge"),
        "{}",
        needed.waits()
    );
    // It is the recorded primary.
    let primary = cluster().with(0, trouble);
    let harmless = |line: &String| line.starts_with("record epoch 6: electing") || line.starts_with("fence");
    assert!(primary.does().iter().all(harmless), "{:?}", primary.does());
    // While a primary is sought, nobody knows what is needed.
    for member in [true, false] {
        let mut state = electing(3)
            .accepted()
            .with(2, trouble)
            .with(0, |i| i.silent(60))
            .with(1, |i| i.silent(60));
        if !member {
            state = state.rules(|rules| rules.members = members_but(rules, 2));
        }
        let replaces = |line: &String| line.starts_with("delete") || line.starts_with("clone");
        assert!(!state.does().iter().any(replaces), "{:?}", state.does());
    }
    // A person keeps it out, or it is not wanted any more.
    let kept = dropped(cluster().with(2, trouble)).rules(|rules| {
        rules.fences.insert(name(2), now());
    });
    keeps(&kept, "");
}

#[test]
fn f33_a_person_who_keeps_volumes_is_told_the_command() {
    for trouble in [full as Disturbance, unreadable, lost] {
        let kept = |state: State| state.keeping_volumes().with(2, trouble);
        keeps(&kept(cluster()), "a person to replace its volume");
        keeps(&kept(dropped(cluster())), "a person to replace its volume");
        let told = kept(cluster()).analysis();
        let texts: Vec<_> = told
            .problems
            .iter()
            .map(mainstay_core::analyse::Problem::text)
            .collect();
        let command = "kubectl delete pvc data-shop-2 -n prod --wait=false && kubectl delete pod shop-2 -n prod";
        assert!(texts.iter().any(|text| text.contains(command)), "{texts:?}");
    }
    // Nor while nobody can read what a person wants.
    keeps(&dropped(healthy(3).with(2, full)), "a person to replace its volume");
}

/// A manager that cannot read its state file says so, and does not know who it is.
#[test]
fn f33_who_does_not_know_who_it_is_is_replaced_and_never_cloned_over() {
    let nobody = |i: Instance| {
        unreadable(i).mysqld(Mysqld::Failed).report(|report| {
            report.incarnation = Incarnation(String::new());
            report.server_uuid.clear();
            report.history_reset = true;
        })
    };
    does(&cluster().with(2, nobody), &["allow shop-0 [shop-1] k 1"]);
    let outside = dropped(cluster().with(2, nobody));
    does(&outside, &[RECORD, "delete the claim of shop-2"]);
    keeps(
        &dropped(cluster().keeping_volumes().with(2, nobody)),
        "a person to replace its volume",
    );
    let electing = electing(3).accepted().with(0, |i| i.silent(60)).with(2, nobody);
    keeps(&electing.rules(|rules| rules.members = members_but(rules, 2)), "");
}

#[test]
fn f33_what_would_not_fit_is_told_and_kept() {
    // 8.6 GiB and a tenth and 256 MiB are more than 9.7 GiB.
    let large = |i: Instance| i.report(|report| report.disk.used = 9 * GIB);
    let state = dropped(cluster().with(0, large).with(1, large).with(2, full));
    keeps(&state, "a volume that holds what the others have");
    let text = lists(&state, ProblemCode::VolumeFull).unwrap();
    assert!(text.contains("raise spec.storage.size"), "{text}");
    // One donor is enough: what fills the other one may be no data.
    let state = dropped(cluster().with(0, large).with(2, full));
    does(&state, &[RECORD, "delete the claim of shop-2"]);
    // A volume that is lost holds nothing to wait for.
    let state = dropped(cluster().with(0, large).with(1, large).with(2, lost));
    does(&state, &[RECORD, "delete the claim of shop-2"]);
}

#[test]
fn volumes_are_replaced_one_at_a_time() {
    let two = healthy(5)
        .accepted()
        .rules(|rules| {
            rules.members = [id(1), id(2)].into();
        })
        .with(0, |i| i.told(&[id(1), id(2)], 2))
        .with(3, lost)
        .with(4, lost);
    does(
        &two,
        &[
            "record epoch 5: open shop-0, members shop-1 shop-2, k 2",
            "delete the claim of shop-3",
        ],
    );
    let first = recorded(&two).with(3, |i| i.claim(|claim| claim.deleting = true));
    does(&first, &["delete shop-3"]);
    // The new one is not bound: nobody knows whether there will be one.
    let pending = first.with(3, |i| {
        i.claim(|claim| {
            *claim = Instance::new_claim("claim-new");
            "Pending".clone_into(&mut claim.phase);
        })
    });
    waits(&pending, "shop-4 waits for the new volume of shop-3");
    let bound = pending.with(3, |i| i.claim(|claim| *claim = Instance::new_claim("claim-new")));
    assert_eq!(bound.does()[1], "delete the claim of shop-4");
}

#[test]
fn what_lies_on_a_volume_that_was_given_up_never_joins_again() {
    let intent = || noted(rebuild(Trouble::Full, Some("claim-2"), 1, 1));
    // It has room again, and is as good as any other; somebody may be about to delete it all the same.
    let well = |state: State| state.with(2, Instance::fenced);
    let open = dropped(well(cluster()));
    assert!(open.does()[0].starts_with("record epoch 7: open shop-0, members shop-1 shop-2"));
    does(&open.rules(intent()), &["delete the claim of shop-2"]);
    // Nor as the follower of a winner.
    let electing = electing(3)
        .accepted()
        .rules(|rules| rules.members = members_but(rules, 2))
        .with(0, |i| i.silent(60));
    does(&electing, &["attach shop-2 to shop-1"]);
    let doomed = electing.rules(intent());
    does(&doomed, &[]);
    // On another claim it is somebody else.
    let other = doomed.with(2, |i| i.claim(|claim| *claim = Instance::new_claim("claim-new")));
    does(&other, &["attach shop-2 to shop-1"]);
}

/// After the n-th time for the same trouble, how many seconds it is left alone.
#[rstest]
#[case(1, 60)]
#[case(3, 60)]
#[case(4, 120)]
#[case(9, 3600)]
fn what_comes_again_and_again_is_healed_later_and_later(#[case] times: u32, #[case] pause: u64) {
    let state = |trouble, seconds| {
        let last = rebuild(trouble, Some("an-older-claim"), seconds, times);
        dropped(cluster().with(2, full)).rules(noted(Rebuild {
            ended: Some(ago(seconds - 20)),
            ..last
        }))
    };
    let early = state(Trouble::Full, pause - 10);
    keeps(&early, "because it was healed a short time ago");
    assert_eq!(early.plan().look_again.map(|after| after.as_secs()), Some(10));
    let text = lists(&early, ProblemCode::HealingPaused).unwrap();
    assert!(text.contains("left alone until 2026-11-29T12:00:10Z"), "{text}");
    let due = state(Trouble::Full, pause + 1);
    let healing = due.plan_record().rebuilds[&name(2)].healing.clone().unwrap();
    assert_eq!(healing.times, times + 1);
    // Another trouble is another matter, though not at once.
    assert_eq!(
        state(Trouble::Lost, 61).plan_record().rebuilds[&name(2)]
            .healing
            .as_ref()
            .unwrap()
            .times,
        1
    );
    // So is the same after an hour as a member.
    let old = dropped(cluster().with(2, full)).rules(noted(Rebuild {
        ended: Some(ago(3601)),
        ..rebuild(Trouble::Full, Some("an-older-claim"), 3700, times)
    }));
    assert_eq!(old.plan_record().rebuilds[&name(2)].healing.as_ref().unwrap().times, 1);
}

#[test]
fn f33_a_primary_whose_volume_is_full_is_relieved_by_one_with_room() {
    let state = cluster().with(0, full).with(1, full);
    does(
        &state,
        &[
            "record epoch 6: electing, shop-2 preferred, members shop-1 shop-2, k 1",
            "fence shop-0",
        ],
    );
    // Nobody has room: it stays, and a person is told.
    let nobody = state.with(2, |i| i.report(|report| report.disk.used = report.disk.size / 20 * 19));
    assert!(
        nobody.waits().contains("switchover waits for a replica"),
        "{}",
        nobody.waits()
    );
    assert!(!nobody.does().iter().any(|line| line.contains("electing")));
    // Not again at once.
    let fresh = cluster()
        .with(0, full)
        .rules(|rules| rules.primary.as_mut().unwrap().since = ago(4));
    does(&fresh, &[]);
    assert!(fresh.plan().look_again.unwrap() <= Duration::from_secs(7));
    // The same for a volume that is lost while it still runs.
    let lost = cluster().with(0, |i| i.claim(|claim| "Lost".clone_into(&mut claim.phase)));
    assert!(lost.does()[0].starts_with("record epoch 6: electing, shop-1 preferred"));
    // A single instance has nobody.
    does(&healthy(1).accepted().with(0, full), &[]);
}

#[test]
fn rule_4_a_volume_that_takes_nothing_does_not_win_against_one_that_does() {
    // shop-0 has what nobody acknowledged, because its volume is full.
    let state = electing(3)
        .with(0, |i| full(i).set("a:1-101"))
        .with(2, |i| i.follows(1));
    assert_eq!(state.does()[0], "record epoch 6: open shop-1, members shop-2, k 1");
    // Without another one it does.
    let alone = electing(3)
        .with(0, |i| full(i).set("a:1-101"))
        .with(2, |i| i.silent(60));
    assert!(
        alone.does().iter().any(|line| line == "attach shop-1 to shop-0"),
        "{:?}",
        alone.does()
    );
    let others = electing(3).with(0, |i| i.silent(60)).with(1, full);
    does(&others, &["attach shop-1 to shop-2"]);
}

/// An archive that has stored everything but the last ten transactions.
fn archived(state: State) -> State {
    state.archiving().with(0, |i| {
        i.report(|report| {
            report.archive = Some(ArchiveReport {
                behind: set("a:91-100"),
                ..ArchiveReport::default()
            });
        })
    })
}

fn used(percent: u64) -> impl FnOnce(Instance) -> Instance {
    move |i| i.report(|report| report.disk.used = (report.disk.size * percent).div_ceil(100))
}

#[test]
fn f33_what_is_archived_and_everywhere_is_purged_before_a_volume_is_full() {
    let uuid = crate::states::uuid(0);
    let purge = |last: u32| format!("purge shop-1 {uuid}:1-{last}");
    let state = || archived(healthy(3)).with(1, used(86));
    does(&state(), &[&purge(90)]);
    does(&archived(healthy(3)).with(1, used(84)), &[]);
    // What another one has not executed it may ask for.
    let behind = state().with(2, |i| i.set("a:1-70").received("a:71-100"));
    does(&behind, &[&purge(70)]);
    does(&state().with(2, |i| i.silent(60)), &[]);
    does(&state().with(2, |i| i.mysqld(Mysqld::Down)), &[]);
    // One that is rebuilt in any case asks for nothing of before.
    let rebuilt = archived(dropped(healthy(3).accepted()))
        .rules(noted(rebuild(Trouble::Full, None, 5, 1)))
        .with(1, used(86))
        .with(2, |i| i.mysqld(Mysqld::Cloning));
    does(&rebuilt, &[&purge(90)]);
    // Nothing without an archive, of what is missing in it, or of what is purged already.
    does(&cluster().with(1, used(86)), &[]);
    let gap = state().with(0, |i| {
        i.report(|report| report.archive.as_mut().unwrap().missing = set("a:1-90"))
    });
    does(&gap, &[]);
    does(&state().with(1, |i| i.purged("a:1-90")), &[]);
    // Once a minute, whatever came of it.
    let told = state().with(1, |i| i.answered(VerbKind::Purge, 5, None));
    does(&told, &[]);
    assert!(told.plan().look_again.unwrap() <= Duration::from_secs(61));
}

#[test]
fn f33_a_full_volume_is_not_given_up_while_room_can_be_made() {
    let state = archived(cluster()).with(2, full);
    let lines = state.does();
    assert!(lines[0].starts_with("purge shop-2"), "{lines:?}");
    assert!(state.waits().contains("its binlogs to be purged"), "{}", state.waits());
    // It did not help.
    let told = state.with(2, |i| i.answered(VerbKind::Purge, 5, None));
    does(&told, &["allow shop-0 [shop-1] k 1"]);
    let primary = archived(cluster()).with(0, full);
    assert!(primary.does()[0].starts_with("purge shop-0"));
}

#[test]
fn f33_a_volume_grows_up_to_its_limit_before_it_is_full() {
    let claim = |requested: u64, capacity: u64| {
        move |i: Instance| {
            i.claim(|claim| {
                claim.requested = Some(requested * GIB);
                claim.capacity = Some(capacity * GIB);
            })
        }
    };
    let state = |percent, requested, capacity| {
        let state = (0..3).fold(cluster().growing("10Gi", "13Gi"), |state, at| {
            state.with(at, claim(10, 10))
        });
        state.with(1, |i| claim(requested, capacity)(used(percent)(i)))
    };
    does(&state(79, 10, 10), &[]);
    does(&state(80, 10, 10), &["grow shop-1 to 12Gi"]);
    does(&state(80, 12, 12), &[]);
    // One step until the volume has followed.
    does(&state(95, 12, 10), &[]);
    does(&state(95, 12, 12), &["grow shop-1 to 13Gi"]);
    does(&state(99, 13, 13), &[]);
    // A full volume waits for it, and is replaced when it cannot be.
    let full = state(99, 10, 10).with(1, full);
    assert!(
        full.does().contains(&"grow shop-1 to 12Gi".to_owned()),
        "{:?}",
        full.does()
    );
    assert!(full.waits().contains("its volume to grow"), "{}", full.waits());
    let mut refused = full;
    refused.observed.warnings.push(Warning {
        about: "PersistentVolumeClaim/data-shop-1".to_owned(),
        uid: Some("claim-1".to_owned()),
        reason: GROWTH_REFUSED.to_owned(),
        message: "only dynamically provisioned pvc can be resized".to_owned(),
        at: now(),
    });
    assert_eq!(refused.does()[0], "allow shop-0 [shop-2] k 1");
    let text = lists(&refused, ProblemCode::VolumeNotGrown).unwrap();
    assert!(text.contains("only dynamically provisioned"), "{text}");
}

#[test]
fn f10_a_larger_size_is_asked_for_everywhere_and_a_new_claim_follows_the_primary() {
    let state = (0..3).fold(cluster().growing("12Gi", "20Gi"), |state, at| {
        state.with(at, |i| i.claim(|claim| claim.requested = Some(10 * GIB)))
    });
    let all = ["grow shop-0 to 12Gi", "grow shop-1 to 12Gi", "grow shop-2 to 12Gi"];
    does(&state, &all);
    // Never less than there is.
    let larger = (0..3).fold(state, |state, at| {
        state.with(at, |i| i.claim(|claim| claim.requested = Some(14 * GIB)))
    });
    does(&larger, &[]);
    // A new one was made as on the first day.
    let outside = dropped(larger).with(2, |i| {
        i.mysqld(Mysqld::Initialising)
            .claim(|claim| claim.requested = Some(12 * GIB))
    });
    does(&outside, &["grow shop-2 to 14Gi"]);
}

#[test]
fn a_trouble_is_told_where_it_is() {
    for (trouble, code) in [
        (full as Disturbance, ProblemCode::VolumeFull),
        (unreadable, ProblemCode::VolumeUnreadable),
        (lost, ProblemCode::VolumeLost),
    ] {
        assert!(lists(&cluster().with(2, trouble), code).is_some(), "{code:?}");
    }
    // The open primary's is told as what it comes to; of a single instance it says what is left to do.
    assert_eq!(lists(&cluster().with(0, full), ProblemCode::VolumeFull), None);
    let single = healthy(1).accepted().with(0, |i| lost(i).silent(60));
    let text = lists(&single, ProblemCode::VolumeLost).unwrap();
    assert!(text.contains("spec.bootstrap.recovery"), "{text}");
    // Silence is no trouble of a volume.
    let away = cluster().with(2, |i| full(i).silent(60));
    assert_eq!(lists(&away, ProblemCode::VolumeFull), None);
}
