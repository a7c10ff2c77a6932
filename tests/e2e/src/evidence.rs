//! What is kept when a scenario fails.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::env::{Env, OPERATOR_NAMESPACE};

/// Collects objects, events and logs of the namespaces and of the operator into a folder; its path.
pub async fn collect(env: &Env, scenario: &str, namespaces: &[String], error: &anyhow::Error) -> Result<PathBuf> {
    let folder = env.evidence.join(scenario);
    std::fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    write(&folder, "error.txt", &format!("{error:?}\n"))?;
    keep(env, &folder, "nodes.txt", &["get", "nodes", "-o", "wide"]).await?;
    keep(
        env,
        &folder,
        "operator.txt",
        &["-n", OPERATOR_NAMESPACE, "get", "all,lease", "-o", "wide"],
    )
    .await?;
    let selector = [
        "-n",
        OPERATOR_NAMESPACE,
        "logs",
        "-l",
        "app.kubernetes.io/name=mainstay",
        "--prefix",
    ];
    keep(env, &folder, "operator.log", &[&selector[..], &["--tail=-1"]].concat()).await?;
    keep(
        env,
        &folder,
        "operator-previous.log",
        &[&selector[..], &["--tail=-1", "--previous"]].concat(),
    )
    .await?;
    for namespace in namespaces {
        namespace_evidence(env, &folder, namespace).await?;
    }
    Ok(folder)
}

async fn namespace_evidence(env: &Env, folder: &Path, namespace: &str) -> Result<()> {
    let kinds = "myc,statefulsets,pods,pvc,services,endpointslices,pdb,configmaps,serviceaccounts";
    keep(
        env,
        folder,
        &format!("{namespace}.txt"),
        &["-n", namespace, "get", kinds, "-o", "wide"],
    )
    .await?;
    keep(
        env,
        folder,
        &format!("{namespace}.yaml"),
        &["-n", namespace, "get", kinds, "-o", "yaml"],
    )
    .await?;
    keep(
        env,
        folder,
        &format!("{namespace}-describe.txt"),
        &["-n", namespace, "describe", "myc,statefulset,pod,pvc"],
    )
    .await?;
    let sorted = [
        "-n",
        namespace,
        "get",
        "events",
        "--sort-by=.lastTimestamp",
        "-o",
        "wide",
    ];
    keep(env, folder, &format!("{namespace}-events.txt"), &sorted).await?;
    let pods = env
        .kubectl(&["-n", namespace, "get", "pods", "-o", "name"])
        .await
        .unwrap_or_default();
    for pod in pods.lines() {
        let file = format!("{namespace}-{}", pod.trim_start_matches("pod/"));
        let logs = ["-n", namespace, "logs", pod, "--all-containers", "--timestamps"];
        keep(env, folder, &format!("{file}.log"), &logs).await?;
        keep(
            env,
            folder,
            &format!("{file}-previous.log"),
            &[&logs[..], &["--previous"]].concat(),
        )
        .await?;
    }
    Ok(())
}

/// What could not be read is evidence too.
async fn keep(env: &Env, folder: &Path, file: &str, args: &[&str]) -> Result<()> {
    let text = env.kubectl(args).await.unwrap_or_else(|error| format!("{error:#}\n"));
    write(folder, file, &text)
}

fn write(folder: &Path, file: &str, text: &str) -> Result<()> {
    let path = folder.join(file);
    std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
}
