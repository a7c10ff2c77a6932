//! Promotions for which a person accepts that acknowledged writes may be lost.

use super::*;

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
    let stuck = electing(3)
        .with(0, dead)
        .with(1, dead)
        .rules(|rules| rules.phase_since = long_ago());
    refused(
        &stuck.clone().asks(&asks("promote", 2)),
        "no primary is open that could hand over",
    );
    // The word of a person is recorded first, in the same election.
    let state = stuck.asks(&forces(2));
    does(&state, &["record epoch 6: electing, members shop-1 shop-2, k 1"]);
    assert_eq!(record(&state).reason, "PromotionForced");
    // Nobody else is there: it opens alone, and says what is lost.
    does(
        &forced(),
        &["record epoch 6: open shop-2, members , k 0", "open shop-2 [] k 0"],
    );
    let record = record(&forced());
    assert!(record.gives_up());
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
    refused(
        &kept.asks(&forces(2)),
        "let it in first (kubectl mainstay unfence shop shop-2 -n prod)",
    );
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
fn rule_10_what_only_one_has_that_cannot_apply_it_can_be_given_up() {
    let stuck = |i: Instance| i.set("a:1-90").stuck("a:91-101", 60);
    let waiting = electing(3)
        .with(0, dead)
        .with(1, stuck)
        .rules(|rules| rules.phase_since = long_ago());
    refused(
        &waiting.clone().asks(&forces(1)),
        "shop-1 cannot apply what it received: duplicate key (MySQL error 1062)",
    );
    let forced = recorded(&waiting.asks(&forces(2)))
        .rules(|rules| rules.request.as_mut().unwrap().at = now() - SignedDuration::from_secs(6));
    does(
        &forced,
        &["record epoch 6: open shop-2, members , k 0", "open shop-2 [] k 0"],
    );
    let loss = record(&forced).rules.data_loss.unwrap();
    assert_eq!(loss.missing, set("a:101"));
}
