//! What the operator and the instances may do.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};

use crate::env::OPERATOR_NAMESPACE;
use crate::runner::Context;

/// File with the operator's rights: a change of it is a change that a reviewer sees.
const GOLDEN: &str = "tests/e2e/golden/operator-rights.txt";

/// The operator's rights are exactly the golden ones; an instance has none beyond everybody's.
pub(super) async fn least_privilege(context: Arc<Context>) -> Result<()> {
    let cluster = context.shared().await?;
    let operator = format!("system:serviceaccount:{OPERATOR_NAMESPACE}:mainstay");
    let rights = list(&context, &cluster.namespace, &operator).await?;
    let golden = context.env.root.join(GOLDEN);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return write(&golden, &rights);
    }
    let wanted = std::fs::read_to_string(&golden).with_context(|| format!("failed to read {}", golden.display()))?;
    ensure!(
        rights == wanted,
        "the operator's rights are not those of {GOLDEN}:\n{}",
        difference(&wanted, &rights)
    );
    for verb in ["create", "patch", "delete"] {
        for resource in [
            "nodes",
            "clusterroles",
            "deployments.apps",
            "pods/exec",
            "serviceaccounts/token",
        ] {
            let may = may(&context, &cluster.namespace, &operator, verb, resource).await?;
            ensure!(!may, "the operator may {verb} {resource}");
        }
    }
    let denied = crate::audit::forbidden(context.env.testbed()?).await?;
    ensure!(denied.is_empty(), "the operator tried what it may not: {denied:?}");
    let instance = format!("system:serviceaccount:{}:{}-instance", cluster.namespace, cluster.name);
    let nobody = format!("system:serviceaccount:{}:default", cluster.namespace);
    let (has, everybody) = (
        list(&context, &cluster.namespace, &instance).await?,
        list(&context, &cluster.namespace, &nobody).await?,
    );
    ensure!(
        has == everybody,
        "an instance has rights of its own:\n{}",
        difference(&everybody, &has)
    );
    Ok(())
}

/// `kubectl auth can-i --list`, sorted, with one space between the columns.
async fn list(context: &Context, namespace: &str, who: &str) -> Result<String> {
    let table = context
        .env
        .kubectl(&["auth", "can-i", "--list", "--no-headers", "-n", namespace, "--as", who])
        .await?;
    let mut lines: Vec<String> = table
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort();
    Ok(lines.join("\n") + "\n")
}

async fn may(context: &Context, namespace: &str, who: &str, verb: &str, resource: &str) -> Result<bool> {
    // Of TYPE/NAME kubectl takes the second for the name of an object; and it exits with 1 for "no".
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let subresource = format!("--subresource={subresource}");
    let question = [
        "auth",
        "can-i",
        verb,
        resource,
        &subresource,
        "-n",
        namespace,
        "--as",
        who,
    ];
    let answer = context.env.kubectl(&question).await;
    Ok(answer.is_ok_and(|text| text.trim() == "yes"))
}

fn write(golden: &Path, rights: &str) -> Result<()> {
    let folder = golden.parent().context("the golden file has no folder")?;
    std::fs::create_dir_all(folder).context("failed to create the golden folder")?;
    std::fs::write(golden, rights).with_context(|| format!("failed to write {}", golden.display()))
}

fn difference(wanted: &str, found: &str) -> String {
    let missing = wanted
        .lines()
        .filter(|l| !found.lines().any(|f| f == *l))
        .map(|l| format!("- {l}"));
    let more = found
        .lines()
        .filter(|l| !wanted.lines().any(|w| w == *l))
        .map(|l| format!("+ {l}"));
    missing.chain(more).collect::<Vec<_>>().join("\n")
}
