//! The failover rules, model-checked (docs/simulation.md, "The model"): every interleaving within some bounds, and that the
//! model finds what broken rules lose.

use std::time::Duration;

use mainstay_sim::model::{Bounds, Defect, Milestone, Outcome, Start, check};

/// Nothing within the bounds breaks a property, and nothing is left to explore.
#[track_caller]
fn holds(bounds: &Bounds) -> Outcome {
    let outcome = check(bounds);
    println!("{outcome}");
    assert!(outcome.counterexamples.is_empty(), "{outcome}");
    assert!(outcome.exhausted, "{outcome}");
    outcome
}

/// Small enough for every run of the tests.
const fn quick(name: &'static str) -> Bounds {
    Bounds {
        limit: Duration::from_mins(3),
        ..Bounds::quiet(name)
    }
}

#[test]
fn one_fault_of_any_kind() {
    let outcome = holds(&Bounds {
        faults: 1,
        kills: true,
        partitions: true,
        liveness: true,
        ..quick("a crash, a kill, a cut or a partition")
    });
    for milestone in [
        Milestone::FailedOver,
        Milestone::SecondReign,
        Milestone::Returned,
        Milestone::Dropped,
        Milestone::Cloned,
    ] {
        assert!(outcome.reached.contains(&milestone), "{milestone:?} was not reached");
    }
}

#[test]
fn one_fault_and_two_transactions() {
    holds(&Bounds {
        faults: 1,
        transactions: 2,
        ..quick("a fault, two transactions")
    });
}

#[test]
fn a_lost_volume() {
    holds(&Bounds {
        volumes: 1,
        liveness: true,
        ..quick("a lost volume")
    });
}

#[test]
fn a_late_command_and_a_fault() {
    holds(&Bounds {
        late: 1,
        faults: 1,
        ..quick("a late command, a fault")
    });
}

#[test]
fn a_restart_of_the_operator_and_a_fault() {
    holds(&Bounds {
        restarts: 1,
        faults: 1,
        ..quick("a restart of the operator, a fault")
    });
}

#[test]
fn a_status_that_is_lost_or_restored() {
    holds(&Bounds {
        restores: 1,
        liveness: true,
        ..quick("a lost or restored status")
    });
}

#[test]
fn reports_that_are_old_and_a_fault() {
    holds(&Bounds {
        streams: true,
        faults: 1,
        ..quick("old reports and an old status, a fault")
    });
}

#[test]
fn growth_and_shrinking() {
    let shrinks = holds(&Bounds {
        scale: &[1],
        liveness: true,
        ..quick("3 to 1")
    });
    assert!(shrinks.reached.contains(&Milestone::Lowered));
    let grows = holds(&Bounds {
        replicas: 1,
        scale: &[3],
        liveness: true,
        ..quick("1 to 3")
    });
    assert!(grows.reached.contains(&Milestone::Raised));
}

#[test]
fn a_new_cluster_and_a_fault() {
    let outcome = holds(&Bounds {
        start: Start::New,
        faults: 1,
        ..quick("a new cluster, a fault")
    });
    assert!(outcome.reached.contains(&Milestone::Founded));
}

/// What was recovered counts as acknowledged: nobody is ever open without it.
#[test]
fn recovered_data_and_a_fault() {
    let outcome = holds(&Bounds {
        start: Start::Recovered,
        transactions: 2,
        faults: 1,
        liveness: true,
        ..quick("recovered data, a fault")
    });
    for milestone in [Milestone::Founded, Milestone::Cloned] {
        assert!(outcome.reached.contains(&milestone), "{milestone:?} was not reached");
    }
}

#[test]
fn recovered_data_and_a_lost_volume() {
    holds(&Bounds {
        start: Start::Recovered,
        transactions: 2,
        volumes: 1,
        liveness: true,
        ..quick("recovered data, a lost volume")
    });
}

#[test]
fn recovered_data_and_a_restart_of_the_operator() {
    holds(&Bounds {
        start: Start::Recovered,
        restarts: 1,
        passes: 1,
        ..quick("recovered data, a restart of the operator, a pass of a second one")
    });
}

#[test]
fn an_instance_that_is_no_member_and_a_fault() {
    holds(&Bounds {
        start: Start::OneOutside,
        faults: 1,
        liveness: true,
        ..quick("one is no member, a fault")
    });
}

#[test]
fn a_transaction_that_was_held_back_and_a_fault() {
    holds(&Bounds {
        start: Start::HeldBack,
        transactions: 2,
        faults: 1,
        liveness: true,
        ..quick("a transaction of a former life of the primary, a fault")
    });
}

/// Minutes to hours: `cargo test --workspace --release --test model -- --ignored --nocapture`.
#[test]
#[ignore = "takes hours"]
fn larger_bounds() {
    let long = |name| Bounds {
        limit: Duration::from_hours(1),
        ..Bounds::quiet(name)
    };
    for bounds in [
        Bounds {
            start: Start::OneOutside,
            faults: 2,
            ..long("one is no member, two faults")
        },
        Bounds {
            faults: 2,
            liveness: true,
            ..long("two faults")
        },
        Bounds {
            faults: 1,
            volumes: 1,
            ..long("a lost volume, a fault")
        },
        Bounds {
            faults: 1,
            passes: 1,
            ..long("a pass of a second operator, a fault")
        },
        Bounds {
            faults: 1,
            restores: 1,
            ..long("a lost or restored status, a fault")
        },
        Bounds {
            departures: 1,
            liveness: true,
            ..long("a primary that leaves")
        },
        Bounds {
            departures: 1,
            faults: 1,
            ..long("a primary that leaves, a fault")
        },
        Bounds {
            scale: &[5],
            liveness: true,
            ..long("3 to 5")
        },
        Bounds {
            replicas: 5,
            faults: 1,
            ..long("five instances, a fault")
        },
    ] {
        let outcome = check(&bounds);
        println!("{outcome}");
        assert!(outcome.counterexamples.is_empty(), "{outcome}");
    }
}

/// A broken rule is found out.
#[track_caller]
fn finds(defect: Defect, bounds: &Bounds) {
    let outcome = check(&Bounds {
        defect: Some(defect),
        ..bounds.clone()
    });
    println!("{defect:?}: {outcome}");
    assert!(
        !outcome.counterexamples.is_empty(),
        "{defect:?} was not found: {outcome}"
    );
}

const TWO_FAULTS: Bounds = Bounds {
    faults: 2,
    ..quick("two faults")
};
const VOLUME: Bounds = Bounds {
    faults: 1,
    volumes: 1,
    ..quick("a lost volume, a fault")
};

#[test]
fn c5_the_dead_count_as_fenced() {
    finds(Defect::DeadAreFenced, &VOLUME);
}

#[test]
fn c1_c2_a_member_is_dropped_without_a_marker() {
    finds(Defect::NoMarker, &VOLUME);
}

#[test]
fn c6_relay_logs_do_not_count() {
    finds(Defect::RelayLogsIgnored, &TWO_FAULTS);
}

#[test]
fn l3_a_winner_is_recorded_before_anybody_follows_it() {
    let bounds = Bounds {
        liveness: true,
        ..VOLUME
    };
    finds(Defect::RecordedFirst, &bounds);
}

#[test]
fn c12_facts_of_older_epochs_count() {
    finds(Defect::OldFacts, &TWO_FAULTS);
}

#[test]
fn c14_anyone_may_acknowledge() {
    finds(Defect::AnyoneAcknowledges, &TWO_FAULTS);
}

#[test]
fn c8_old_commands_are_taken() {
    finds(Defect::OldCommands, &TWO_FAULTS);
}

#[test]
fn c3_attaching_drops_a_relay_log() {
    finds(Defect::RelayLogsDropped, &TWO_FAULTS);
}

#[test]
fn c4_an_operator_commands_under_an_epoch_of_another_one() {
    // One process excludes a member, the other one drops it on that sight, and its own Allow of before comes late.
    let bounds = Bounds {
        scale: &[1],
        passes: 1,
        ..quick("3 to 1, a pass of a second operator")
    };
    finds(Defect::ForeignEpochs, &bounds);
}

#[test]
fn c11_a_new_data_directory_keeps_its_server_uuid() {
    let bounds = Bounds {
        start: Start::HeldBack,
        transactions: 2,
        faults: 1,
        ..quick("a transaction of a former life of the primary, a fault")
    };
    finds(Defect::UuidsKept, &bounds);
}

#[test]
fn rule_0_status_is_written_whatever_was_written_meanwhile() {
    let bounds = Bounds {
        start: Start::OneOutside,
        passes: 1,
        ..quick("one is no member, a pass of a second operator")
    };
    finds(Defect::BlindWrites, &bounds);
}

#[test]
fn c6_a_baseline_is_forgotten() {
    let bounds = Bounds {
        faults: 1,
        liveness: true,
        ..quick("a fault")
    };
    finds(Defect::NoBaseline, &bounds);
}
