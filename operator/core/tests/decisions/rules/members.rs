//! Rules 1, 7 and 9: who is a member, and who may become one.

use super::*;

#[test]
fn rule_1_add_is_fence_then_record_and_allow_then_attach() {
    // A replica that is not a member, attached to nobody, not confirmed.
    let outside = healthy(3).rules(|rules| rules.members = members_but(rules, 2));
    let outside = outside
        .with(0, |i| i.told(&[id(1)], 1))
        .with(2, |i| i.fenced().epoch(4));
    does(&outside, &["fence shop-2"]);
    let fenced = outside.with(2, |i| i.epoch(5));
    let record = "record epoch 6: open shop-0, members shop-1 shop-2, k 1";
    does(&fenced, &[record, "allow shop-0 [shop-1 shop-2] k 1"]);
    // The record is made; the primary has the list; now it is attached.
    let recorded = healthy(3)
        .rules(|rules| rules.epoch = 6)
        .with(0, |i| i.epoch(6))
        .with(2, Instance::fenced);
    does(&recorded, &["attach shop-2 to shop-0"]);
}

#[test]
fn rule_1_add_needs_a_confirmed_primary() {
    let state = healthy(3).rules(|rules| rules.members = members_but(rules, 2));
    let state = state
        .with(0, |i| i.told(&[id(1)], 1).epoch(4))
        .with(2, Instance::fenced);
    // The reign began in epoch 5, so one that was told in epoch 4 is no open primary at all.
    let state = state.rules(|rules| rules.primary.as_mut().unwrap().epoch = 4);
    does(&state, &["allow shop-0 [shop-1] k 1"]);
}

#[test]
fn rule_1_several_join_by_one_record() {
    let state = healthy(5).rules(|rules| {
        rules.members.remove(&id(3));
        rules.members.remove(&id(4));
    });
    let state = state
        .with(0, |i| i.told(&[id(1), id(2)], 2))
        .with(3, Instance::fenced)
        .with(4, Instance::fenced);
    let record = "record epoch 6: open shop-0, members shop-1 shop-2 shop-3 shop-4, k 2";
    does(&state, &[record, "allow shop-0 [shop-1 shop-2 shop-3 shop-4] k 2"]);
}

/// shop-2 came back with another data directory.
fn stale_member() -> State {
    healthy(3).with(2, |i| i.reborn().fenced().set("a:1-100"))
}

#[test]
fn rule_1_drop_is_allow_then_mark_then_containment_then_record() {
    // (a) the primary excludes it first.
    let state = stale_member().rules(|rules| rules.epoch = 6);
    let state = state.with(2, |i| i.epoch(6));
    does(&state, &["allow shop-0 [shop-1] k 1", "attach shop-1 to shop-0"]);
    // (b) then a marker.
    let state = state.with(0, |i| i.epoch(6).told(&[id(1)], 1)).with(1, |i| i.epoch(6));
    // Its new data directory joins meanwhile; the old one stays excluded.
    let both = "record epoch 7: open shop-0, members shop-1 shop-2 shop-2, k 1";
    does(&state, &[both, "allow shop-0 [shop-1 shop-2] k 1"]);
    // Without it there is only the drop.
    let state = state.with(2, |i| i.mysqld(Mysqld::Starting));
    does(&state, &["mark shop-0"]);
    // (c) the rest has to contain it.
    let state = state.with(0, |i| i.marker("a:1-101"));
    waits(&state, "1 of the other members to contain everything, 0 do");
    // (d) only then the record.
    let state = state.with(1, |i| i.set("a:1-101"));
    does(&state, &["record epoch 7: open shop-0, members shop-1, k 1"]);
}

#[test]
fn rule_1_the_last_member_that_receives_is_not_dropped() {
    let state = stale_member()
        .with(1, |i| i.silent(10))
        .with(2, |i| i.mysqld(Mysqld::Starting));
    does(&state, &[]);
}

#[test]
fn rule_1_nobody_is_dropped_without_an_open_primary() {
    let state = electing(3).with(2, Instance::reborn).with(0, |i| i.silent(60));
    waits(&state, "1 of 2 members is not fenced");
}

#[test]
fn rule_1_the_list_in_force_follows_status() {
    for state in [
        // A stranger may acknowledge (C14), a member may not, k is another one.
        healthy(3).with(0, |i| i.told(&[id(1), id(2), id(7)], 1)),
        healthy(3).with(0, |i| i.told(&[id(1)], 1)),
        healthy(3).with(0, |i| i.told(&[id(1), id(2)], 0)),
    ] {
        does(&state, &["allow shop-0 [shop-1 shop-2] k 1"]);
    }
}

#[test]
fn rule_1_k_is_lowered_in_status_first() {
    let state = healthy(5).declared(3);
    let record = "record epoch 6: open shop-0, members shop-1 shop-2 shop-3 shop-4, k 1";
    does(&state, &[record, "allow shop-0 [shop-1 shop-2 shop-3 shop-4] k 1"]);
}

#[test]
fn rule_1_k_is_raised_on_the_primary_first() {
    let members = [id(1), id(2)];
    let state = healthy(3)
        .rules(|rules| rules.acks_required = 0)
        .with(0, |i| i.told(&members, 0));
    does(&state, &["allow shop-0 [shop-1 shop-2] k 1"]);
    let state = state.with(0, |i| i.told(&members, 1));
    does(&state, &["mark shop-0"]);
    let state = state.with(0, |i| i.marker("a:1-101"));
    does(&state, &["record epoch 6: open shop-0, members shop-1 shop-2, k 1"]);
    // Nobody has caught up yet: it stays.
    let behind = |i: Instance| i.report(|r| r.replication.lag = Some(Duration::from_secs(9)));
    let state = healthy(3)
        .rules(|rules| rules.acks_required = 0)
        .with(0, |i| i.told(&members, 0));
    does(&state.with(1, behind).with(2, behind), &[]);
}

fn outside(replicas: usize) -> State {
    let last = replicas - 1;
    let members: Vec<_> = (1..last).map(id).collect();
    let acks = u32::try_from(replicas / 2).unwrap();
    healthy(replicas)
        .rules(|rules| rules.members = members_but(rules, last))
        .with(0, |i| i.told(&members, acks))
        .with(last, Instance::fenced)
}

#[test]
fn rule_7_a_subset_joins() {
    let state = outside(3).with(2, |i| i.set("a:1-80"));
    does(
        &state,
        &[
            "record epoch 6: open shop-0, members shop-1 shop-2, k 1",
            "allow shop-0 [shop-1 shop-2] k 1",
        ],
    );
}

#[test]
fn rule_7_an_errant_instance_is_cloned_from_a_replica() {
    let state = outside(3).with(2, |i| i.set("a:1-80 x:1"));
    does(
        &state,
        &[
            "record epoch 5: open shop-0, members shop-1, k 1",
            "clone shop-2 from shop-1",
        ],
    );
    let Action::Record(record) = &state.plan().actions[0] else {
        panic!("no record")
    };
    let intent = &record.rules.rebuilds[&name(2)];
    let donor = Donor::Instance(id(1));
    assert_eq!((&intent.incarnation, &intent.donor), (&id(2).incarnation, &donor));
    // No replica can give: the primary does.
    let state = state.with(1, |i| i.report(|r| r.replication.lag = Some(Duration::from_secs(9))));
    does(
        &state,
        &[
            "record epoch 5: open shop-0, members shop-1, k 1",
            "clone shop-2 from shop-0",
        ],
    );
}

#[test]
fn rule_7_empty_or_too_far_behind_is_cloned() {
    for state in [
        outside(3).with(2, |i| i.set("")),
        outside(3).with(0, |i| i.purged("a:1-90")).with(2, |i| i.set("a:1-80")),
    ] {
        does(
            &state,
            &[
                "record epoch 5: open shop-0, members shop-1, k 1",
                "clone shop-2 from shop-1",
            ],
        );
    }
}

#[test]
fn rule_7_rebuilds_are_limited() {
    let rebuilt = |incarnation: &str, seconds: i64| {
        let at = now() - jiff::SignedDuration::from_secs(seconds);
        let incarnation = mainstay_core::rules::Incarnation(incarnation.to_owned());
        let rebuild = Rebuild {
            incarnation,
            donor: Donor::Instance(id(1)),
            failures: 0,
            at,
            reason: String::new(),
            ended: None,
            healing: None,
        };
        outside(3)
            .with(2, |i| i.set("a:1-80 x:1"))
            .rules(|rules| drop(rules.rebuilds.insert(name(2), rebuild)))
    };
    waits(&rebuilt("life-2", 5), "a pause after a clone that did not succeed");
    waits(&rebuilt("an-earlier-life", 30), "it was rebuilt a moment ago");
    assert_eq!(rebuilt("life-2", 20).does().len(), 2);
    assert_eq!(rebuilt("an-earlier-life", 70).does().len(), 2);
}

#[test]
fn rule_7_what_cannot_be_cloned_is_restored_from_the_newest_backup() {
    let with = |failures: Option<u32>, backed_up: bool| {
        let last = failures.map(|failures| Rebuild {
            incarnation: id(2).incarnation,
            donor: Donor::Instance(id(1)),
            failures,
            at: now() - jiff::SignedDuration::from_secs(20),
            reason: String::new(),
            ended: None,
            healing: None,
        });
        let state = outside(3).archiving();
        let state = if backed_up { state.backed_up() } else { state };
        let state = state.with(0, |i| i.purged("a:1-30")).with(2, |i| i.set("a:1-80 x:1"));
        state.rules(|rules| {
            if let Some(last) = last {
                rules.rebuilds.insert(name(2), last);
            }
        })
    };
    let after = |failures| with(failures, true);
    let does = |state: &State| state.does()[1].clone();
    // One donor after the other, then the store, and again from the beginning.
    assert_eq!(does(&after(None)), "clone shop-2 from shop-1");
    assert_eq!(does(&after(Some(0))), "clone shop-2 from shop-0");
    let restored = after(Some(1));
    let expected = format!("refill shop-2 with at least {}", set("a:1-30"));
    assert_eq!(does(&restored), expected);
    let record = restored.plan_record();
    let intent = &record.rebuilds[&name(2)];
    assert_eq!((&intent.donor, intent.failures), (&Donor::Store, 2));
    assert_eq!(does(&after(Some(2))), "clone shop-2 from shop-0");
    assert_eq!(does(&after(Some(4))), expected);
    // Without a backup, or the access to it, there is nothing but clones.
    assert_eq!(does(&after(Some(1)).without_access()), "clone shop-2 from shop-1");
    assert_eq!(does(&with(Some(1), false)), "clone shop-2 from shop-1");
}

#[test]
fn rule_7_an_errant_member_is_isolated_then_dropped() {
    let state = healthy(3).with(2, |i| i.set("a:1-100 x:1"));
    does(&state, &["fence shop-2"]);
    let state = state.with(2, Instance::fenced);
    does(&state, &["allow shop-0 [shop-1] k 1"]);
    // Not when it alone can acknowledge.
    let state = healthy(3).with(1, |i| i.silent(10)).with(2, |i| i.set("a:1-100 x:1"));
    waits(&state, "another member that can acknowledge");
}

#[test]
fn rule_9_a_new_cluster_begins_with_an_election() {
    let expected = [
        "record epoch 1: electing, shop-0 preferred, members shop-0 shop-1 shop-2, k 1",
        "fence shop-0",
        "fence shop-1",
        "fence shop-2",
    ];
    does(&fresh(3), &expected);
    does(
        &fresh(1),
        &[
            "record epoch 1: electing, shop-0 preferred, members shop-0, k 0",
            "fence shop-0",
        ],
    );
    // Not before everybody answered: a volume that cannot be looked at may hold data.
    waits(&fresh(3).with(2, |i| i.silent(60)), "shop-2 to answer");
    waits(
        &fresh(3).with(2, |i| i.mysqld(Mysqld::Initialising)),
        "shop-2 to be initialised",
    );
    // Claims of further ordinals may hold data, too.
    waits(
        &fresh(5).declared(3),
        "a person: the claims data-shop-3, data-shop-4 exist beyond the 3 declared instances and may hold data; declare \
         them, too: kubectl scale mysqlcluster shop --replicas=5 -n prod; or delete what is not needed: kubectl delete \
         pvc data-shop-3 data-shop-4 -n prod",
    );
    // No cluster has four instances.
    waits(
        &fresh(4).declared(3),
        "the claim data-shop-3 exists beyond the 3 declared instances and may hold data; delete what is not needed: \
         kubectl delete pvc data-shop-3 -n prod",
    );
    // One of those between has no claim: a new volume would be in the way next.
    let mut gap = fresh(5).declared(3).with(3, Instance::gone);
    gap.observed.instances[3].claim = None;
    waits(
        &gap,
        "may hold data; delete what is not needed: kubectl delete pvc data-shop-4 -n prod",
    );
}

/// F27: deleted in the middle of its first election, and created again over the claims that it left.
#[test]
fn rule_9_a_first_election_without_end_is_begun_again() {
    let fenced = |i: Instance| i.fenced().set("").epoch(4).report(|r| r.pristine = false);
    let state = fresh(3).with(0, fenced).with(2, fenced);
    let expected = [
        "record epoch 5: electing, shop-0 preferred, members shop-0 shop-1 shop-2, k 1",
        "fence shop-0",
        "fence shop-1",
        "fence shop-2",
    ];
    does(&state, &expected);
    // Nobody has a transaction, but one was opened: an ordinary resumption, for which nobody's volume may be new.
    waits(
        &state.clone().with(0, |i| i.told(&[id(1), id(2)], 1)),
        "shop-1 has an empty volume",
    );
    // Or one has a transaction, wherever it comes from.
    waits(&state.with(0, |i| i.set("a:1")), "shop-1 has an empty volume");
}

#[test]
fn rule_9_a_lost_status_is_resumed_from_the_newest_reign() {
    let expected = [
        "record epoch 6: electing, members shop-1 shop-2, k 1",
        "fence shop-0",
        "fence shop-1",
        "fence shop-2",
    ];
    does(&healthy(3).without_memory(), &expected);
    // Somebody was the primary before, and was told more since: the newest *reign* counts, not the newest command.
    let older = healthy(3)
        .with(2, |i| i.epoch(3).told(&[id(0)], 1).epoch(9))
        .without_memory();
    assert_eq!(older.does()[0], "record epoch 10: electing, members shop-1 shop-2, k 1");
    // One does not answer, one has an empty volume, one member holds other data: a person.
    waits(
        &healthy(3).without_memory().with(1, |i| i.silent(60)),
        "shop-1 to answer",
    );
    waits(
        &healthy(3).without_memory().with(1, Instance::pristine),
        "shop-1 has an empty volume while others hold data, and status that said who had been the primary is lost; \
         restore the status of the MySQLCluster",
    );
    // More are declared than there were before: a person knows that nothing was lost.
    waits(
        &healthy(3).without_memory().grown(5),
        "if there were 3 instances before: kubectl scale mysqlcluster shop --replicas=3 -n prod, and then: kubectl \
         delete pvc data-shop-3 data-shop-4 -n prod; if volumes were lost, restore the status of the MySQLCluster",
    );
    waits(
        &healthy(3).without_memory().with(1, Instance::reborn),
        "shop-1 does not hold the data",
    );
}

#[test]
fn rule_9_a_status_that_is_behind_is_resumed_too() {
    let state = healthy(3).rules(|rules| rules.epoch = 3);
    assert_eq!(state.does()[0], "record epoch 6: electing, members shop-1 shop-2, k 1");
    waits(&state.with(1, |i| i.silent(60)), "shop-1 to answer");
}

#[test]
fn rule_9_a_single_instance_grows_by_clone_add_attach_and_raise() {
    let state = healthy(1).grown(3);
    does(&state, &["fence shop-1", "fence shop-2"]);
    let fenced = |i: Instance| i.fenced().epoch(5).report(|r| r.pristine = false);
    let state = state.with(1, fenced).with(2, fenced);
    does(
        &state,
        &["record epoch 5: open shop-0, members , k 0", "clone shop-1 from shop-0"],
    );
}

#[test]
fn rule_9_shrinking_lowers_k_then_drops() {
    let state = healthy(3).declared(1);
    does(
        &state,
        &[
            "record epoch 6: open shop-0, members shop-1 shop-2, k 0",
            "allow shop-0 [shop-1 shop-2] k 0",
        ],
    );
    let lowered = state
        .rules(|rules| rules.acks_required = 0)
        .with(0, |i| i.told(&[id(1), id(2)], 0));
    does(&lowered, &["allow shop-0 [shop-2] k 0"]);
    let closed = lowered.with(0, |i| i.told(&[id(2)], 0));
    does(&closed, &["record epoch 6: open shop-0, members shop-2, k 0"]);
    // The primary is not wanted: it hands over first.
    let moved = electing(3).with(2, Instance::leaving);
    assert!(!moved.does().is_empty());
}

#[test]
fn rule_1_a_list_that_is_uncertain_or_names_others_is_told_again() {
    let allow = ["allow shop-0 [shop-1 shop-2] k 1"];
    does(
        &healthy(3).with(0, |i| i.report(|report| report.list_uncertain = true)),
        &allow,
    );
    does(&healthy(3).with(0, |i| i.told(&[id(1), id(5)], 1)), &allow);
}

#[test]
fn rule_1_add_applies_a_relay_log_first() {
    let state = outside(3).with(2, |i| i.set("a:1-80").received("a:81-90"));
    waits(&state, "its relay log to be applied");
}

#[test]
fn rule_1_one_record_waits_for_all_that_are_on_their_way() {
    let two = healthy(5)
        .rules(|rules| rules.members = [id(1), id(2)].into())
        .with(0, |i| i.told(&[id(1), id(2)], 2))
        .with(3, Instance::fenced);
    let told = |i: Instance| i.fenced().epoch(4).busy(VerbKind::Fence, 5);
    does(&two.clone().with(4, told), &[]);
    // One whose fence does not work holds up nobody.
    let fails = |i: Instance| i.fenced().epoch(4).answered(VerbKind::Fence, 5, Some("no answer"));
    does(
        &two.with(4, fails),
        &[
            "record epoch 6: open shop-0, members shop-1 shop-2 shop-3, k 2",
            "allow shop-0 [shop-1 shop-2 shop-3] k 2",
        ],
    );
}

#[test]
fn rule_7_what_the_primary_purged_is_not_waited_for() {
    // It cannot get it by following. While nobody else can acknowledge it is not dropped either.
    let state = healthy(3)
        .with(0, |i| i.purged("a:1-95"))
        .with(1, |i| i.silent(10))
        .with(2, |i| i.fenced().set("a:1-90"));
    waits(&state, "the primary purged what it lacks");
}

#[test]
fn rule_7_a_donor_stays() {
    let state = outside(3).with(1, Instance::leaving).with(2, |i| i.set("a:1-80 x:1"));
    assert_eq!(state.does()[1], "clone shop-2 from shop-0");
}

#[test]
fn rule_9_nobody_is_dropped_before_k_is_lowered() {
    // Another one joins first: the list goes on naming those that are not wanted any more, because k is still 2.
    let state = healthy(5)
        .declared(3)
        .rules(|rules| rules.members = members_but(rules, 2))
        .with(0, |i| i.told(&[id(1), id(3), id(4)], 2))
        .with(2, Instance::fenced);
    does(
        &state,
        &[
            "record epoch 6: open shop-0, members shop-1 shop-2 shop-3 shop-4, k 2",
            "allow shop-0 [shop-1 shop-2 shop-3 shop-4] k 2",
        ],
    );
}

/// shop-0 was told that it is the primary, with its baseline; status is lost.
fn lost(state: State) -> State {
    state
        .with(0, |i| i.report(|report| report.persisted.baseline = set("a:1-50")))
        .without_memory()
}

#[test]
fn rule_9_what_is_resumed_is_what_the_last_primary_was_told() {
    let rules = lost(healthy(3)).plan_record();
    assert_eq!(rules.baseline, set("a:1-50"));
    assert_eq!(rules.members, [id(1), id(2)].into());
    assert_eq!((rules.epoch, rules.acks_required), (6, 1));
    let primary = rules.primary.unwrap();
    assert_eq!((primary.id, primary.epoch, primary.server_uuid), (id(0), 5, uuid(0)));
}

#[test]
fn rule_9_what_was_told_to_another_life_is_not_resumed() {
    waits(&lost(healthy(3).with(0, Instance::reborn)), "no instance was ever told");
}

#[test]
fn rule_9_nobody_knows_who_may_have_acknowledged_under_an_uncertain_list() {
    let state = healthy(3).with(0, |i| i.report(|report| report.list_uncertain = true));
    let members = lost(state).plan_record().members;
    let unknown = members.iter().filter(|member| member.incarnation.0 == "unknown");
    assert_eq!(unknown.count(), 2, "{members:?}");
}

#[test]
fn rule_9_who_is_kept_out_stays_out_when_an_older_status_is_resumed() {
    let state = healthy(3).rules(|rules| {
        rules.epoch = 3;
        rules.fences.insert(name(2), now());
    });
    assert!(state.plan_record().keeps_out(&name(2)));
}

#[test]
fn rule_7_a_donor_has_the_baseline_and_gives_to_one_at_a_time() {
    // It is applied to within the bound and lacks what was recorded: it joined a moment ago.
    let state = outside(3).with(2, |i| i.set("a:1-40 x:1"));
    let lacking = state.with(1, |i| i.set("a:1-40"));
    assert_eq!(lacking.does()[1], "clone shop-2 from shop-0");
    // shop-1 gives to shop-4.
    let rebuild = |incarnation| Rebuild {
        incarnation,
        donor: Donor::Instance(id(1)),
        failures: 0,
        at: now(),
        reason: String::new(),
        ended: None,
        healing: None,
    };
    let state = healthy(5)
        .rules(|rules| {
            rules.members = [id(1), id(2)].into();
            rules.rebuilds.insert(name(4), rebuild(id(4).incarnation));
        })
        .with(0, |i| i.told(&[id(1), id(2)], 2))
        .with(3, |i| i.fenced().set("a:1-80 x:1"))
        .with(4, |i| i.reborn().mysqld(Mysqld::Cloning));
    assert_eq!(state.does()[1], "clone shop-3 from shop-2");
}

#[test]
fn rule_1_a_member_with_a_broken_applier_is_fenced_then_dropped_then_rebuilt() {
    let stuck = |seconds| healthy(3).with(2, move |i| i.set("a:1-90").stuck("a:91-100", seconds));
    // Its applier may get over it; then nobody waits for a message.
    does(&stuck(29), &[]);
    let look = stuck(29).plan().look_again.unwrap();
    assert!(look <= Duration::from_millis(1100), "{look:?}");
    let state = stuck(30);
    does(&state, &["fence shop-2"]);
    let held = |i: Instance| i.fenced().set("a:1-90").stuck("a:91-100", 31);
    let state = state.with(2, held);
    does(&state, &["allow shop-0 [shop-1] k 1"]);
    let state = state
        .with(0, |i| i.told(&[id(1)], 1).marker("a:1-101"))
        .with(1, |i| i.set("a:1-101"));
    let drop = state.plan();
    let Action::Record(record) = &drop.actions[0] else {
        panic!("no record")
    };
    assert!(
        record
            .message
            .ends_with("shop-2 cannot apply what it received: duplicate key (MySQL error 1062)"),
        "{}",
        record.message
    );
    let outside = |seconds| outside(3).with(2, move |i| i.set("a:1-90").stuck("a:91-100", seconds));
    waits(&outside(5), "its relay log to be applied");
    does(
        &outside(31),
        &[
            "record epoch 5: open shop-0, members shop-1, k 1",
            "clone shop-2 from shop-1",
        ],
    );
}

#[test]
fn rule_1_a_broken_applier_acknowledges_as_long_as_it_is_needed() {
    let needed = |i: Instance| i.set("a:1-90").stuck("a:91-100", 300);
    let state = healthy(3).with(1, dead).with(2, needed);
    does(&state, &[]);
    // It lost the primary: what it received comes from there, so it goes on where it was.
    let detached = state
        .clone()
        .with(2, |i| i.fenced().set("a:1-90").stuck("a:91-100", 300));
    does(&detached, &["attach shop-2 to shop-0"]);
    // The other one is back: it is not needed any more.
    does(
        &detached.with(1, |_| healthy(3).instance(1)),
        &["allow shop-0 [shop-1] k 1"],
    );
    // Two broken ones acknowledge for each other; one after the other is rebuilt.
    let both = healthy(3).with(1, needed).with(2, needed);
    does(&both, &["fence shop-1"]);
    does(&both.clone().with(1, |i| i.busy(VerbKind::Fence, 5)), &[]);
    // An errant one is isolated first, and replaces nobody.
    does(&both.clone().with(2, |i| i.set("a:1-90 x:1")), &["fence shop-2"]);
    let one = both.with(1, |i| i.fenced().set("a:1-90").stuck("a:91-100", 300));
    does(&one, &["allow shop-0 [shop-2] k 1"]);
    // One that has nothing to apply is none.
    does(&healthy(3).with(2, |i| i.stuck("a:91-100", 300)), &[]);
}
