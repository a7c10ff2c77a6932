//! How far a replica is behind, as a person is told: in steps, so that a figure that grows by a second each second is no write
//! each second.

use std::time::Duration;

/// In seconds. The first is [`Timing::lagging`](crate::timing::Timing::lagging).
const STEPS: [u64; 10] = [30, 60, 120, 300, 600, 1800, 3600, 10_800, 43_200, 86_400];

/// The step to tell: the highest that `lag` has reached, from `first` on. One that was told `before` is left only when `lag`
/// lies a tenth below it, and the last one when it lies below half of `first`: a replica that is about to catch up, or to fall
/// behind, would be told of again and again. A lag that is not known changes nothing.
#[must_use]
pub(crate) fn step(lag: Option<Duration>, before: Option<Duration>, first: Duration) -> Option<Duration> {
    let Some(lag) = lag else { return before };
    let mut steps = STEPS.iter().map(|step| Duration::from_secs(*step));
    let reached = steps.rfind(|step| *step >= first && *step <= lag);
    let told = before.filter(|told| reached < Some(*told) && lag >= *told / 10 * 9);
    let last = before.filter(|_| lag >= first / 2).map(|_| first);
    told.or(reached).or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(30);

    fn after(lags: &[u64]) -> Vec<Option<u64>> {
        let mut told = None;
        let mut steps = Vec::new();
        for lag in lags {
            told = step(Some(Duration::from_secs(*lag)), told, FIRST);
            steps.push(told.map(|step| step.as_secs()));
        }
        steps
    }

    #[test]
    fn a_lag_is_told_in_steps() {
        let steps = after(&[0, 29, 30, 59, 60, 311, 599, 600, 90_000, 200_000]);
        let expected = [0, 0, 30, 30, 60, 300, 300, 600, 86_400, 86_400];
        let expected: Vec<_> = expected.map(|step| (step > 0).then_some(step)).into();
        assert_eq!(steps, expected);
    }

    #[test]
    fn around_a_step_nothing_changes() {
        assert_eq!(
            after(&[300, 299, 271, 301, 269, 121]),
            [Some(300), Some(300), Some(300), Some(300), Some(120), Some(120)]
        );
        assert_eq!(
            after(&[31, 29, 15, 31, 14, 29]),
            [Some(30), Some(30), Some(30), Some(30), None, None]
        );
        assert_eq!(after(&[130, 16, 14]), [Some(120), Some(30), None]);
    }

    #[test]
    fn an_unknown_lag_changes_nothing() {
        let told = Some(Duration::from_mins(5));
        assert_eq!(step(None, told, FIRST), told);
        assert_eq!(step(None, None, FIRST), None);
    }
}
