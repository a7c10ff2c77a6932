//! A promotion is a switchover with a deadline.

use super::*;

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
