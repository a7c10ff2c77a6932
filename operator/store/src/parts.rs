//! How large the parts of an upload are.
//!
//! S3 takes 10,000 parts of 5 MiB to 5 GiB, and 5 TiB altogether. A part is held in memory until it is stored, so that it
//! can be sent again; small parts need little memory, and too small ones run out of numbers. Without a known bound the
//! parts begin with 8 MiB and double after each 1000; with one, they have a ten-thousandth of it (and a quarter more), so
//! that memory need not grow.
//!
//! | size | largest part, bound unknown | bound known | memory |
//! |---|---|---|---|
//! | up to 54 GiB | 8 to 32 MiB | 8 MiB | 48 to 64 MiB |
//! | 250 GiB | 256 MiB (512 MiB of memory) | 32 MiB | 64 MiB |
//! | 1 TiB | 1 GiB (2 GiB of memory) | 132 MiB | 264 MiB |

/// One mebibyte.
pub const MIB: u64 = 1024 * 1024;

/// The most parts that an upload may have.
pub const MAX_PARTS: u32 = 10_000;

/// The largest part that S3 takes.
pub const MAX_PART: u64 = 5 * 1024 * MIB;

/// The largest object that S3 takes.
pub const MAX_OBJECT: u64 = 5 * 1024 * 1024 * MIB;

/// The first parts: what is smaller is stored in one request.
pub const FIRST_PART: u64 = 8 * MIB;

/// Memory for parts, the one that is being filled included, as long as two of them fit.
pub const BUDGET: u64 = 48 * MIB;

/// Sizes of the parts of one upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    first: u64,
    /// Parts that are as large as the first one.
    constant: u32,
    /// Parts after which the size doubles from then on.
    step: u32,
}

impl Schedule {
    /// For content of at most `expected` bytes, or of any size.
    #[must_use]
    pub const fn new(expected: Option<u64>) -> Self {
        match expected {
            None => Self {
                first: FIRST_PART,
                constant: 1000,
                step: 1000,
            },
            // The bound may have been wrong: the last 2000 parts double so often that sixteen times as much fits.
            Some(bound) => {
                let wanted = bound.div_ceil(8000).next_multiple_of(MIB);
                Self {
                    first: if wanted > FIRST_PART { wanted } else { FIRST_PART },
                    constant: 8000,
                    step: 200,
                }
            }
        }
    }

    /// Bytes of a part, by its index from 0; only the last part of an upload is smaller. `None` when there may be no such
    /// part.
    #[must_use]
    pub const fn size(&self, index: u32) -> Option<u64> {
        if index >= MAX_PARTS {
            return None;
        }
        let doublings = if index < self.constant {
            0
        } else {
            (index - self.constant) / self.step + 1
        };
        // At most 10 doublings: no overflow, since the first is at most 5 TiB / 8000.
        let size = self.first.saturating_mul(1 << doublings);
        Some(if size < MAX_PART { size } else { MAX_PART })
    }

    /// How many parts of this size may be in memory at a time.
    #[must_use]
    pub const fn in_memory(size: u64) -> u64 {
        let fit = BUDGET / size;
        if fit > 2 { fit } else { 2 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1024 * MIB;

    /// Parts in which so many bytes are sent, and the largest of them.
    fn parts(schedule: Schedule, bytes: u64) -> Option<(u32, u64)> {
        let (mut sent, mut largest) = (0, 0);
        for index in 0.. {
            if sent >= bytes {
                return Some((index, largest));
            }
            let size = schedule.size(index)?;
            sent += size;
            largest = size;
        }
        None
    }

    #[test]
    fn sizes_are_those_of_the_table() {
        let unknown = Schedule::new(None);
        assert_eq!(parts(unknown, 54 * GIB).unwrap().1, 32 * MIB);
        assert_eq!(parts(unknown, 250 * GIB).unwrap().1, 256 * MIB);
        assert_eq!(parts(unknown, 1024 * GIB).unwrap().1, GIB);
        for (size, part) in [(54 * GIB, 8), (250 * GIB, 32), (1024 * GIB, 132)] {
            assert_eq!(parts(Schedule::new(Some(size)), size).unwrap().1, part * MIB);
        }
        assert_eq!(
            (
                Schedule::in_memory(8 * MIB),
                Schedule::in_memory(16 * MIB),
                Schedule::in_memory(32 * MIB)
            ),
            (6, 3, 2)
        );
    }

    #[test]
    fn the_largest_object_fits() {
        assert!(parts(Schedule::new(None), MAX_OBJECT).is_some());
        assert!(parts(Schedule::new(Some(MAX_OBJECT)), MAX_OBJECT).is_some());
        assert_eq!(Schedule::new(None).size(MAX_PARTS), None);
    }

    proptest! {
        #[test]
        fn every_part_is_what_s3_takes(expected in prop::option::of(0..=MAX_OBJECT), index in 0..MAX_PARTS) {
            let schedule = Schedule::new(expected);
            let size = schedule.size(index).unwrap();
            prop_assert!((FIRST_PART..=MAX_PART).contains(&size));
            prop_assert!(index == 0 || schedule.size(index - 1).unwrap() <= size);
        }

        #[test]
        fn what_was_expected_fits_and_needs_no_growth(expected in 0..=MAX_OBJECT) {
            let schedule = Schedule::new(Some(expected));
            let (count, largest) = parts(schedule, expected).unwrap();
            prop_assert!(count <= 8000);
            prop_assert!(expected == 0 || largest == schedule.size(0).unwrap());
        }

        #[test]
        fn sixteen_times_what_was_expected_fits(expected in 0..=MAX_OBJECT / 16) {
            prop_assert!(parts(Schedule::new(Some(expected)), expected * 16).is_some());
        }

        #[test]
        fn memory_is_bounded(expected in 0..250 * GIB, index in 0..8000_u32) {
            let size = Schedule::new(Some(expected)).size(index).unwrap();
            prop_assert!(size * Schedule::in_memory(size) <= 64 * MIB);
        }
    }
}
