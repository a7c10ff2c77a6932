//! Feature A8: the operator outside of the cluster.

use std::sync::Arc;

use anyhow::Result;

use crate::cluster::{Cluster, HEAL};
use crate::operator::{self, Outside};
use crate::pods;
use crate::runner::Context;

/// With the installed operator at zero, one started by hand makes a cluster, heals it and hands it back.
pub(super) async fn creates(context: Arc<Context>) -> Result<()> {
    let env = &context.env;
    let namespace = context.namespace().await?;
    let cluster = operator::away(env, async || {
        let outside = Outside::start(env).await?;
        let cluster = Cluster::create(env, &namespace, &context.manifest("hand", 3).with_app()).await?;
        cluster.serves(HEAL).await?;
        pods::kill_mysqld(&cluster.pods(), &cluster.primary().await?).await?;
        cluster.serves(HEAL).await?;
        outside.stop().await?;
        Ok(cluster)
    })
    .await?;
    cluster.serves(HEAL).await
}
