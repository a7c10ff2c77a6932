//! Instances whose data directory a person wants to be replaced.

use mainstay_core::rules::{Donor, MemberId, Rebuild};

use super::*;

const RECORD: &str = "record epoch 5: open shop-0, members shop-1 shop-2, k 1";

/// It was asked for a moment ago, and is recorded.
fn asked() -> State {
    let state = healthy(3).asks(&asks("rebuild", 2));
    does(&state, &[RECORD]);
    assert_eq!(record(&state).reason, "RebuildRequested");
    recorded(&state)
}

/// It left the members.
fn dropped(state: State) -> State {
    state
        .rules(|rules| {
            rules.members = members_but(rules, 2);
            rules.epoch = 6;
        })
        .with(0, |i| i.epoch(6).told(&[id(1)], 1))
        .with(1, |i| i.epoch(6))
        .with(2, |i| i.fenced().epoch(6))
}

#[test]
fn rule_10_a_rebuild_is_recorded_then_fenced_then_dropped_then_cloned() {
    let state = asked();
    assert_eq!(result(&state), (RequestResult::Running, String::new()));
    does(&state, &["fence shop-2"]);
    let fenced = state.with(2, Instance::fenced);
    does(&fenced, &["allow shop-0 [shop-1] k 1"]);
    let listed = fenced.with(0, |i| i.told(&[id(1)], 1));
    does(&listed, &["mark shop-0"]);
    let marked = listed.with(0, |i| i.marker("a:1-101")).with(1, |i| i.set("a:1-101"));
    does(&marked, &["record epoch 6: open shop-0, members shop-1, k 1"]);
    assert!(record(&marked).message.contains("shop-2 is to be rebuilt on request"));
    let dropped = dropped(marked);
    does(
        &dropped,
        &[
            "record epoch 6: open shop-0, members shop-1, k 1",
            "clone shop-2 from shop-1",
        ],
    );
    // Once: what comes of it is an instance like any other.
    let cloned = recorded(&dropped).with(2, |i| i.reborn().fenced().set("a:1-100").epoch(6));
    assert_eq!(result(&cloned).0, RequestResult::Running);
    assert!(cloned.does()[0].starts_with("record epoch 7: open shop-0, members shop-1 shop-2"));
    let joined = recorded(&cloned);
    let (result, message) = result(&joined);
    assert_eq!(
        (result, message.as_str()),
        (
            RequestResult::Done,
            "shop-2 is a clone of shop-1 and may acknowledge again"
        )
    );
}

#[test]
fn a_person_who_asks_does_not_wait_for_the_limit_and_gets_one_rebuild() {
    let before = |at| Rebuild {
        incarnation: mainstay_core::rules::Incarnation("an-earlier-life".to_owned()),
        donor: Donor::Instance(id(1)),
        failures: 0,
        at,
        reason: String::new(),
        ended: None,
        healing: None,
    };
    let state = dropped(asked());
    let rebuilt = |at| {
        state
            .clone()
            .rules(|rules| drop(rules.rebuilds.insert(name(2), before(at))))
    };
    assert_eq!(
        rebuilt(now() - SignedDuration::from_secs(5)).does()[1],
        "clone shop-2 from shop-1"
    );
    // It has begun: nothing is left to do but to let it join, whatever becomes of the clone.
    let begun = rebuilt(now() + SignedDuration::from_secs(5));
    assert!(begun.does()[0].starts_with("record epoch 7"), "{:?}", begun.does());
    // A clock that is set back does not make two of one.
    let late = state.rules(|rules| rules.request.as_mut().unwrap().at = now() + SignedDuration::from_secs(60));
    let intent = record(&late).rules.rebuilds[&name(2)].at;
    assert_eq!(intent, now() + SignedDuration::from_secs(60));
}

#[test]
fn a_rebuild_that_the_rules_forbid_is_refused_and_says_why() {
    let asks = |ordinal| asks("rebuild", ordinal);
    refused(
        &healthy(3).asks(&asks(0)),
        "shop-0 is the primary: promote another instance first",
    );
    refused(
        &healthy(1).asks(&asks(0)),
        "shop-0 is the only instance: there is nobody to clone it from",
    );
    refused(
        &healthy(3).rules(fenced(2)).asks(&asks(2)),
        "shop-2 is fenced on request: let it in first (kubectl mainstay unfence shop shop-2 -n prod)",
    );
    refused(&healthy(3).with(2, dead).asks(&asks(2)), "shop-2 cannot be reached");
    refused(&healthy(3).asks(&asks(7)), "there is no instance shop-7");
    // It went when `replicas` was lowered, and its claim stays.
    let left = healthy(1).grown(2).declared(1).with(1, Instance::gone);
    refused(&left.asks(&asks(1)), "there is no instance shop-1; there is shop-0");
    refused(
        &healthy(3).with(2, |i| i.mysqld(Mysqld::Failed)).asks(&asks(2)),
        "deleting its claim and then its pod",
    );
    // The only one that can acknowledge.
    refused(
        &healthy(3).with(1, dead).asks(&asks(2)),
        "shop-2 is needed: a commit waits for 1 acknowledgement, and 0 other members receive",
    );
    refused(&electing(3).asks(&asks(2)), "no primary is open");
    already(
        &healthy(3).with(2, |i| i.mysqld(Mysqld::Cloning)).asks(&asks(2)),
        "shop-2 is being cloned",
    );
    // One that is no member is nobody's loss.
    let outside = dropped(healthy(3)).with(1, dead);
    assert_eq!(record(&outside.asks(&asks(2))).reason, "RebuildRequested");
}

#[test]
fn what_begins_too_late_has_failed_and_the_instance_stays() {
    let late = asked()
        .with(1, dead)
        .rules(|rules| rules.request.as_mut().unwrap().at = now() - SignedDuration::from_secs(31));
    // It is needed meanwhile, and goes on.
    does(&late, &[]);
    let (result, message) = result(&late);
    assert_eq!(result, RequestResult::Failed);
    assert!(message.contains("within 30 s: shop-2 is needed"), "{message}");
    // Until then the next request waits.
    let early = asked().asks(r#"{"id":"r2","verb":"fence","instance":"shop-1"}"#);
    assert_eq!(early.plan().answer, None);
    does(&early, &["fence shop-2"]);
}

#[test]
fn a_clone_that_never_began_is_no_rebuild() {
    // It was recorded, and the instance came back as it was before the command reached it.
    let state = asked().rules(|rules| {
        let intent = Rebuild {
            incarnation: id(2).incarnation,
            donor: Donor::Instance(id(1)),
            failures: 0,
            at: now(),
            reason: "on request".to_owned(),
            ended: None,
            healing: None,
        };
        rules.rebuilds.insert(name(2), intent);
    });
    let (result, message) = result(&state);
    assert_eq!(result, RequestResult::Failed);
    assert!(message.contains("ask again"), "{message}");
}

#[test]
fn what_was_asked_for_waits_for_an_election_and_a_new_primary_is_not_rebuilt() {
    let electing = electing(3).rules(|rules| rules.request = Some(running("rebuild", 2, 1)));
    does(&electing, &["attach shop-0 to shop-1", "attach shop-2 to shop-1"]);
    let wins = recorded(
        &electing
            .with(0, |i| i.follows(2))
            .with(1, |i| i.follows(2))
            .rules(|rules| {
                rules.phase = Phase::Electing { preferred: Some(id(2)) };
            }),
    );
    let members: Vec<MemberId> = wins.rules.as_ref().unwrap().members.iter().cloned().collect();
    let open = wins.with(2, |i| i.writable().told(&members, 1));
    does(&open, &[]);
}
