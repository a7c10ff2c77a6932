//! The tables of manifests in tests/fixtures: what CEL cannot say is said here, in the same words that e2e expects.

mod common;

use std::time::Duration;

use common::{checked, manifests};

#[test]
fn valid_manifests_have_no_problem() {
    let manifests = manifests("valid");
    assert!(manifests.len() >= 9);
    for (path, text) in manifests {
        if let Err(problems) = checked(&text) {
            panic!("{}: {problems:#?}", path.display());
        }
    }
}

#[test]
fn wrong_manifests_are_explained() {
    let mut conditions = 0;
    for (path, text) in manifests("invalid") {
        let (expected, by) = (comments(&text, "# expect:"), comments(&text, "# refused-by:"));
        assert!(
            !expected.is_empty() && (by == ["apiserver"] || by == ["condition"]),
            "{}",
            path.display()
        );
        if by == ["apiserver"] {
            continue;
        }
        conditions += 1;
        let problems = checked(&text).expect_err(&path.display().to_string());
        let said = |words: &&str| {
            problems
                .iter()
                .any(|p| format!("{}: {}", p.field, p.message).contains(words))
        };
        assert!(
            expected.iter().all(said),
            "{}: expected {expected:?}, got {problems:#?}",
            path.display()
        );
    }
    assert!(conditions >= 20, "{conditions}");
}

fn comments<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.strip_prefix(key))
        .map(str::trim)
        .collect()
}

#[test]
fn all_problems_are_reported_at_once() {
    let problems = checked(
        "{apiVersion: mysql.mainstay.dev/v1, kind: MySQLCluster, metadata: {name: shop}, spec: {replicas: 2, image: m,
          storage: {size: 1Gi}, config: {server_id: 1, tmp_table_size: 1Mi}, podTemplate: {spec: {hostNetwork: true}}}}",
    )
    .unwrap_err();
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    let all = [
        "spec.replicas",
        "spec.config.server_id",
        "spec.config.tmp_table_size",
        "spec.podTemplate.spec.hostNetwork",
    ];
    assert_eq!(fields, all);
}

#[test]
fn defaults_are_resolved() {
    let (_, text) = manifests("valid")
        .into_iter()
        .find(|(path, _)| path.ends_with("minimal.yaml"))
        .unwrap();
    let cluster = checked(&text).unwrap();
    assert_eq!(cluster.certificate_lifetime, Duration::from_hours(2160));
    assert!(cluster.fallback_to_primary && !cluster.deletes_data());
    assert_eq!((cluster.application.clone(), cluster.overlay.clone()), (None, None));
    assert_eq!(
        cluster.certificate_names().first().map(String::as_str),
        Some("*.minimal-instances.prod")
    );
}

#[test]
fn f15_a_volume_that_holds_no_server_is_refused() {
    let sized = |size: &str| {
        checked(&format!(
            "{{apiVersion: mysql.mainstay.dev/v1, kind: MySQLCluster, metadata: {{name: shop}}, spec: {{replicas: 3,
              image: m, storage: {{size: {size}}}}}}}"
        ))
    };
    sized("1Gi").unwrap();
    let problems = sized("500Mi").unwrap_err();
    let [problem] = problems.as_slice() else {
        panic!("{problems:?}")
    };
    assert_eq!(
        (problem.field.as_str(), problem.message.as_str()),
        ("spec.storage.size", "at least 1Gi")
    );
}
