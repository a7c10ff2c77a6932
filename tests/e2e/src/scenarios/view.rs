//! Case F31: secrets in view.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;

use crate::cluster::Cluster;
use crate::env::OPERATOR_NAMESPACE;
use crate::pods;
use crate::runner::Context;

/// No generated password, neither plain nor in base64, is in logs, events, objects or process lists.
pub(super) async fn no_passwords(context: Arc<Context>) -> Result<()> {
    let cluster = context.shared().await?;
    let needles = needles(&cluster).await?;
    for (place, text) in places(&cluster).await? {
        ensure!(!text.is_empty(), "{place} is empty: nothing was searched");
        for (what, needle) in &needles {
            ensure!(!text.contains(needle.as_str()), "{what} is in {place}");
        }
    }
    Ok(())
}

/// Every password and private key of the cluster's Secrets, plain and in base64.
async fn needles(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let mut needles = Vec::new();
    for suffix in ["system", "root", "app", "ca", "server-tls"] {
        for (key, value) in cluster.secret(suffix).await? {
            let private_key = value.contains("PRIVATE KEY");
            if suffix != "system" && key != "password" && !private_key {
                continue;
            }
            ensure!(
                value.len() >= 16,
                "{key} of -{suffix} has only {} characters",
                value.len()
            );
            let quoted = serde_json::to_string(&ByteString(value.clone().into_bytes()))?;
            needles.push((
                format!("{key} of -{suffix} in base64"),
                quoted.trim_matches('"').to_owned(),
            ));
            // A key is recognised by a line of its own.
            let plain = if private_key {
                value.lines().nth(1).unwrap_or_default()
            } else {
                value.as_str()
            };
            needles.push((format!("{key} of -{suffix}"), plain.to_owned()));
        }
    }
    ensure!(needles.len() >= 14, "only {} secrets were found", needles.len());
    Ok(needles)
}

async fn places(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let env = &cluster.env;
    let n = cluster.namespace.as_str();
    let kinds = "myc,statefulsets,pods,services,endpointslices,configmaps,serviceaccounts,pdb,pvc,controllerrevisions";
    let mut places = vec![
        (
            "the objects".to_owned(),
            env.kubectl(&["-n", n, "get", kinds, "-o", "yaml"]).await?,
        ),
        (
            "the events".to_owned(),
            env.kubectl(&["-n", n, "get", "events", "-o", "yaml"]).await?,
        ),
        (
            "the descriptions".to_owned(),
            env.kubectl(&["-n", n, "describe", "myc,statefulset,pods"]).await?,
        ),
        (
            "the operator's log".to_owned(),
            env.kubectl(&[
                "-n",
                OPERATOR_NAMESPACE,
                "logs",
                "-l",
                "app.kubernetes.io/name=mainstay",
                "--tail=-1",
            ])
            .await?,
        ),
    ];
    let mut root = cluster.root().await?;
    for ordinal in 0..3 {
        let pod = cluster.instance(ordinal);
        let logs = env
            .kubectl(&["-n", n, "logs", &pod, "--all-containers", "--tail=-1"])
            .await?;
        places.push((format!("the logs of {pod}"), logs));
        let processes = ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"];
        places.push((
            format!("the processes of {pod}"),
            pods::exec(&cluster.pods(), &pod, pods::MYSQL, &processes).await?,
        ));
        let defaults = ["cat", mainstay_core::layout::DEFAULTS_FILE];
        places.push((
            format!("my.cnf of {pod}"),
            pods::exec(&cluster.pods(), &pod, pods::MYSQL, &defaults)
                .await
                .context("failed to read my.cnf")?,
        ));
        root = root.at(cluster.pod_address(&pod).await?);
        let mut client = root.connect().await?;
        let sessions: Vec<(u64, Option<String>)> = client
            .rows("SELECT id, info FROM performance_schema.processlist")
            .await?;
        places.push((format!("the sessions of {pod}"), format!("{sessions:?}")));
    }
    Ok(places)
}
