//! The long run: faults in a random order, from a printed seed, under a writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, ListParams};

use crate::cluster::{Cluster, HEAL};
use crate::runner::{Context, say};
use crate::writer::Writer;
use crate::{operator, pods};

/// Faults of one run.
const FAULTS: usize = 40;
/// How long writes may be away after a fault.
const WRITES: Duration = Duration::from_secs(90);

/// Each fault may strike while the one before is still being healed; in the end nothing acknowledged is lost.
pub(super) async fn random(context: Arc<Context>) -> Result<()> {
    let seed = seed()?;
    context.note(format!("SEED={seed}"));
    say(&format!("           SEED={seed}"));
    let mut random = Random(seed);
    let cluster = context.shared().await?;
    let mut writer = Writer::start(cluster.app().await?, "churn").await?;
    for number in 1..=FAULTS {
        let fault = Fault::ALL
            .get(random.below(Fault::ALL.len()))
            .copied()
            .unwrap_or(Fault::PodDeleted);
        let instance = cluster.instance(i32::try_from(random.below(3))?);
        let began = Instant::now();
        fault
            .strike(&cluster, &instance)
            .await
            .with_context(|| format!("fault {number}, {fault:?} of {instance}"))?;
        // Every third fault strikes before the one before is healed.
        if random.below(3) > 0 {
            let what = || format!("after fault {number}, {fault:?} of {instance}");
            writer.progress(20, WRITES).await.with_context(what)?;
            cluster.serves(HEAL).await.with_context(what)?;
        }
        say(&format!(
            "           {number:>2} {fault:?} {instance} {:.1} s",
            began.elapsed().as_secs_f64()
        ));
    }
    cluster.serves(HEAL).await?;
    let history = writer.finish().await?;
    let (gap, errors, rows) = (history.gap_ms(), history.error_count, history.acknowledged.len());
    context.note(format!("{rows} writes, longest gap {gap} ms, {errors} errors"));
    cluster.check(&history, "churn").await
}

/// A fault.
#[derive(Clone, Copy, Debug)]
enum Fault {
    PodDeleted,
    PodForceDeleted,
    MysqldKilled,
    OperatorDeleted,
    AllPodsForceDeleted,
}

impl Fault {
    const ALL: [Self; 5] = [
        Self::PodDeleted,
        Self::PodForceDeleted,
        Self::MysqldKilled,
        Self::OperatorDeleted,
        Self::AllPodsForceDeleted,
    ];

    async fn strike(self, cluster: &Cluster, instance: &str) -> Result<()> {
        let api = cluster.pods();
        match self {
            Self::PodDeleted => pods::delete(&api, instance, false).await,
            Self::PodForceDeleted => pods::delete(&api, instance, true).await,
            // The pod may be away because of the fault before.
            Self::MysqldKilled => pods::kill_mysqld(&api, instance).await.or(Ok(())),
            Self::OperatorDeleted => operator::restart(&cluster.env).await,
            Self::AllPodsForceDeleted => {
                let all = ListParams::default().labels(&cluster.selector());
                api.delete_collection(&DeleteParams::default().grace_period(0), &all)
                    .await?;
                Ok(())
            }
        }
    }
}

/// `SEED`, else a new one.
fn seed() -> Result<u64> {
    match std::env::var("SEED") {
        Ok(text) => text.parse().with_context(|| format!("SEED is not a number: {text}")),
        Err(_) => Ok(u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default()),
    }
}

/// `SplitMix64`: a run can be repeated from its seed on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let n = u64::try_from(n).unwrap_or(1).max(1);
        usize::try_from((z ^ (z >> 31)) % n).unwrap_or_default()
    }
}
