//! The failover rules, model-checked (docs/simulation.md, "The model").

use std::time::Duration;

use mainstay_sim::model::{Bounds, check};

#[test]
fn three_instances_two_faults() {
    let outcome = check(&Bounds {
        faults: 1,
        transactions: 1,
        limit: Duration::from_mins(3),
        ..Bounds::quiet("N=3, 1 fault")
    });
    println!("{outcome}");
    assert!(outcome.counterexamples.is_empty());
}
