//! Benches. Each ends with one line of JSON.

mod create;
mod footprint;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::env::Env;

/// A bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// From the applied manifest to three available instances.
    Create,
    /// Memory and CPU of the operator at 1 and at 10 clusters.
    Footprint,
}

/// Runs a bench.
pub async fn run(env: &Env, name: Name) -> Result<()> {
    match name {
        Name::Create => create::run(env, runs(10)?).await,
        Name::Footprint => footprint::run(env).await,
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
    fn medians() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
        assert!((worst(&[1.0, 5.0, 2.0]) - 5.0).abs() < 1e-9);
    }
}
