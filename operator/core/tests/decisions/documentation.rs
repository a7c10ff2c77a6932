//! docs/failover.md says what the code does, where that can be compared.

use mainstay_core::analyse::{PROBLEMS, table};

const PAGE: &str = include_str!("../../../../docs/failover.md");

#[test]
fn the_table_of_problems_is_the_one_of_the_code() {
    let (_, rest) = PAGE.split_once("<!-- problems:begin -->\n").unwrap();
    let (shown, _) = rest.split_once("<!-- problems:end -->").unwrap();
    assert_eq!(
        shown,
        table(),
        "copy the expected table into docs/failover.md:\n{}",
        table()
    );
}

#[test]
fn every_problem_has_a_name_of_its_own() {
    let mut names: Vec<_> = PROBLEMS.iter().map(|code| code.kind().name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), PROBLEMS.len());
}

#[test]
fn every_rule_and_counterexample_has_a_test() {
    let tests = [
        include_str!("rules/mod.rs"),
        include_str!("rules/members.rs"),
        include_str!("rules/elections.rs"),
        include_str!("counterexamples.rs"),
        include_str!("convergence.rs"),
        include_str!("requests/promotions.rs"),
        include_str!("requests/losses.rs"),
        // What instances refuse is shown in the model (C8, C11).
        include_str!("../../../sim/tests/model.rs"),
    ]
    .concat();
    for rule in 0..=10 {
        assert!(tests.contains(&format!("fn rule_{rule}")), "rule {rule}");
    }
    for number in 1..=14 {
        assert!(tests.contains(&format!("fn c{number}_")), "C{number}");
    }
    for number in 1..=9 {
        assert!(tests.contains(&format!("fn l{number}_")), "L{number}");
    }
}
