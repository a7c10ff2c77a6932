//! Kubernetes quantities, exactly: `500m`, `1500M`, `1.5Gi`, `2e9`.

use std::fmt;
use std::str::FromStr;

/// An amount in thousandths of its unit (bytes, cores), rounded up as Kubernetes does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    milli: u128,
}

impl Amount {
    /// So many whole units.
    #[must_use]
    pub fn whole(units: u64) -> Self {
        Self {
            milli: u128::from(units) * 1000,
        }
    }

    /// Whole units (bytes), rounded up; `u64::MAX` when it does not fit.
    #[must_use]
    pub fn units(self) -> u64 {
        u64::try_from(self.milli.div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// Thousandths (of a core); `u64::MAX` when it does not fit.
    #[must_use]
    pub fn milli(self) -> u64 {
        u64::try_from(self.milli).unwrap_or(u64::MAX)
    }
}

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a quantity, or larger than Kubernetes can count; write a number with an optional suffix, for example 500m, 2, 1500M, 20Gi or 2e9"
)]
pub struct QuantityError(String);

impl FromStr for Amount {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)
            .map(|milli| Self { milli })
            .ok_or_else(|| QuantityError(text.to_owned()))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milli.is_multiple_of(1000) {
            write!(f, "{}", self.milli / 1000)
        } else {
            write!(f, "{}m", self.milli)
        }
    }
}

/// Bytes as a person writes them: in the largest binary unit of which they are a whole number.
#[must_use]
pub fn binary(bytes: u64) -> String {
    const UNITS: [(&str, u32); 5] = [("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let whole = UNITS
        .into_iter()
        .find(|(_, bits)| bytes > 0 && bytes.is_multiple_of(1 << bits));
    whole.map_or_else(|| bytes.to_string(), |(unit, bits)| format!("{}{unit}", bytes >> bits))
}

/// Thousandths, or nothing when it is not a quantity or larger than any machine.
fn parse(text: &str) -> Option<u128> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || fraction.len() > 9 || whole.len() > 20 {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let (numerator, denominator) = factor(suffix)?;
    Some(
        digits
            .checked_mul(numerator)?
            .checked_mul(1000)?
            .div_ceil(scale.checked_mul(denominator)?),
    )
}

/// The factor of a suffix as a fraction.
fn factor(suffix: &str) -> Option<(u128, u128)> {
    let power = |base: u128, n: u32| Some((base.pow(n), 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => power(1000, 1),
        "M" => power(1000, 2),
        "G" => power(1000, 3),
        "T" => power(1000, 4),
        "P" => power(1000, 5),
        "E" => power(1000, 6),
        "Ki" => power(1024, 1),
        "Mi" => power(1024, 2),
        "Gi" => power(1024, 3),
        "Ti" => power(1024, 4),
        "Pi" => power(1024, 5),
        "Ei" => power(1024, 6),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            match digits.parse::<i32>().ok()? {
                n @ 0..=18 => power(10, u32::try_from(n).ok()?),
                n @ -18..0 => Some((1, 10_u128.pow(n.unsigned_abs()))),
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f15_quantities_are_exact() {
        for (text, units) in [
            ("0", 0),
            ("256Mi", 268_435_456),
            ("1500M", 1_500_000_000),
            ("1.5Gi", 1_610_612_736),
            ("2e9", 2_000_000_000),
            ("2E9", 2_000_000_000),
            (".5Gi", 536_870_912),
            ("1Ti", 1_099_511_627_776),
            ("1E", 1_000_000_000_000_000_000),
            ("1500m", 2),
            ("12e-1", 2),
        ] {
            assert_eq!(text.parse::<Amount>().unwrap().units(), units, "{text}");
        }
    }

    #[test]
    fn equal_amounts_are_equal_however_they_are_written() {
        let amount = |text: &str| text.parse::<Amount>().unwrap();
        assert_eq!(amount("1"), amount("1000m"));
        assert_eq!(amount("1Gi"), amount("1024Mi"));
        assert!(amount("1G") < amount("1Gi"));
        assert_eq!(amount("100m").milli(), 100);
        assert_eq!(amount("1500m").to_string(), "1500m");
        assert_eq!(amount("2k").to_string(), "2000");
    }

    #[test]
    fn what_is_not_a_quantity_is_named() {
        for text in [
            "",
            ".",
            "Gi",
            "1.2.3",
            "-1",
            "1 Gi",
            "1gi",
            "1e99",
            "99999999999999999999999",
            "1KiB",
        ] {
            let error = text.parse::<Amount>().unwrap_err();
            assert!(
                error.to_string().contains(&format!("\"{text}\" is not a quantity")),
                "{error}"
            );
        }
    }
}
