//! The kubectl plugin.

use std::sync::Arc;

use anyhow::{Result, ensure};

use crate::runner::Context;

/// `kubectl mainstay status` shows what the cluster is and where its instances are.
pub(super) async fn status(context: Arc<Context>) -> Result<()> {
    let cluster = context.shared().await?;
    let text = context
        .env
        .mainstay(&["status", &cluster.name, "-n", &cluster.namespace])
        .await?;
    let primary = cluster.primary().await?;
    ensure!(
        text.contains("Running, Healthy"),
        "the status does not say that it is healthy:\n{text}"
    );
    ensure!(
        text.contains("2 of 2 can acknowledge (1 needed)"),
        "the status does not say who can acknowledge:\n{text}"
    );
    for ordinal in 0..3 {
        let name = cluster.instance(ordinal);
        let line = text
            .lines()
            .find(|l| l.split_whitespace().next() == Some(name.as_str()))
            .unwrap_or_default();
        let role = if name == primary { "PRIMARY" } else { "replica" };
        ensure!(
            line.contains(role) && line.contains("node-"),
            "{name} is shown as {line:?}:\n{text}"
        );
    }
    Ok(())
}
