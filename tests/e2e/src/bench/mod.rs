//! Benches. Each ends with one line of JSON.

mod archive;
mod create;
mod failover;
mod footprint;
mod heal;
mod switchover;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::env::Env;
use crate::history::History;

/// A bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// From the applied manifest to three available instances.
    Create,
    /// Memory and CPU of the operator at 1 and at 10 clusters.
    Footprint,
    /// Write gap in faults of the primary and of its node; FAULT names single ones.
    Failover,
    /// Write gap when the primary is moved on purpose, under load.
    Switchover,
    /// From a commit to its segment in the archive, and what is missing after a kill of the primary.
    Archive,
    /// From a full disk or a lost volume to a healthy cluster; FAULT names single ones.
    Heal,
}

/// Runs a bench.
pub async fn run(env: &Env, name: Name) -> Result<()> {
    match name {
        Name::Create => create::run(env, runs(10)?).await,
        Name::Footprint => footprint::run(env).await,
        Name::Failover => failover::run(env).await,
        Name::Switchover => switchover::run(env, runs(50)?).await,
        Name::Archive => archive::run(env).await,
        Name::Heal => heal::run(env).await,
    }
}

/// Repetitions: `RUNS`, else 3 with `QUICK=1`, else the bench's own number.
fn runs(usual: usize) -> Result<usize> {
    if let Ok(text) = std::env::var("RUNS") {
        return text.parse().with_context(|| format!("RUNS is not a number: {text}"));
    }
    let quick = std::env::var("QUICK").is_ok_and(|v| v == "1");
    Ok(if quick { 3 } else { usual })
}

/// The faults that `FAULT` names (separated by commas), or all of them.
fn chosen<T: ValueEnum>() -> Result<Vec<T>> {
    let Ok(names) = std::env::var("FAULT") else {
        return Ok(T::value_variants().to_vec());
    };
    let find = |name: &str| {
        let known = || T::value_variants().iter().map(name_of).collect::<Vec<_>>().join(", ");
        let found = T::from_str(name.trim(), false).ok();
        found.with_context(|| format!("FAULT={name} is not known; there are {}", known()))
    };
    names.split(',').map(find).collect()
}

/// What a fault is called in `FAULT` and in the result.
fn name_of<T: ValueEnum>(fault: &T) -> String {
    let value = fault.to_possible_value();
    value.map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// What clients saw in several runs.
#[derive(Debug, Default)]
struct Gaps {
    /// Longest time between two acknowledged writes, in milliseconds, of each run.
    longest: Vec<f64>,
    errors: usize,
    writes: usize,
}

impl Gaps {
    /// Adds a run whose history was compared with what every instance holds: nothing is missing.
    fn add(&mut self, history: &History) {
        self.longest.push(history.gap.as_secs_f64() * 1000.0);
        self.errors += history.error_count;
        self.writes += history.acknowledged.len();
    }

    fn line(&self) -> String {
        format!(
            "{} runs: gap p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms; {} errors; 0 of {} acknowledged writes lost",
            self.longest.len(),
            median(&self.longest),
            percentile(&self.longest, 99),
            worst(&self.longest),
            self.errors,
            self.writes
        )
    }

    /// A run that lost a write has ended the bench, so `lost` counts none.
    fn json(&self) -> Value {
        let (p50, p99, max) = (
            median(&self.longest),
            percentile(&self.longest, 99),
            worst(&self.longest),
        );
        json!({
            "n": self.longest.len(),
            "gap_ms": {"p50": p50.round(), "p99": p99.round(), "max": max.round()},
            "errors": self.errors,
            "lost": 0,
        })
    }
}

/// How the last change of primary spent its time, as status tells it.
async fn phases(cluster: &Cluster) -> Result<Option<String>> {
    let status = cluster.get().await?.status.unwrap_or_default();
    let Some(change) = status.last_change else {
        return Ok(None);
    };
    let phases = serde_json::to_value(change.phases)?;
    let blocked = change
        .writes_blocked_ms
        .map_or_else(|| "?".to_owned(), |ms| ms.to_string());
    Ok(Some(format!("by its own record {blocked} ms: {phases}")))
}

/// The smallest value that at least `percent` of the values do not exceed.
fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// The value below which half of the values lie: of an even number the mean of the middle two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        at(middle)
    } else {
        f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
    }
}

/// The largest value.
fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let values: Vec<f64> = (1..=50).map(f64::from).collect();
        assert!((percentile(&values, 99) - 50.0).abs() < 1e-9);
        assert!((percentile(&values, 50) - 25.0).abs() < 1e-9);
        assert!(percentile(&[], 99).is_nan());
    }

    #[test]
    fn medians() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
        assert!((worst(&[1.0, 5.0, 2.0]) - 5.0).abs() < 1e-9);
    }
}
