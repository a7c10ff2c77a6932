//! Case F15, and the properties of the budget.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn sizes(memory: u64, volume: u64) -> Sizes {
    Sizes::new(Memory::Limited(memory), volume, Wishes::default()).unwrap()
}

/// memory in MiB → pool in MiB, connections.
#[rstest]
#[case(384, 32, 48)]
#[case(512, 128, 64)]
#[case(768, 304, 96)]
#[case(1024, 352, 128)]
#[case(2048, 1024, 256)]
#[case(3072, 1696, 384)]
#[case(8192, 5280, 1000)]
#[case(65536, 53248, 1000)]
fn f15_pool_and_connections_by_limit(#[case] memory: u64, #[case] pool: u64, #[case] connections: u64) {
    let sizes = sizes(memory * MIB, 20 * GIB);
    assert_eq!((sizes.buffer_pool / MIB, sizes.max_connections), (pool, connections));
}

/// volume in GiB → redo, binlog file in MiB, hours.
#[rstest]
#[case(1, 64, 16, 24)]
#[case(2, 128, 32, 24)]
#[case(20, 1024, 256, 120)]
#[case(100, 1024, 256, 168)]
fn f15_logs_by_volume(#[case] volume: u64, #[case] redo: u64, #[case] binlog: u64, #[case] hours: u64) {
    let sizes = sizes(2 * GIB, volume * GIB);
    assert_eq!(
        (
            sizes.redo_log / MIB,
            sizes.binlog_file / MIB,
            sizes.binlog_expiry / 3600
        ),
        (redo, binlog, hours)
    );
}

#[test]
fn f15_too_little_memory_is_a_contradiction_with_a_remedy() {
    let error = Sizes::new(Memory::Limited(256 * MIB), GIB, Wishes::default()).unwrap_err();
    assert_eq!(error.field(), "spec.resources.limits.memory");
    let text = error.to_string();
    assert!(
        text.contains("the limit is 256 MiB; raise resources.limits.memory to 384Mi"),
        "{text}"
    );
    assert!(Sizes::new(Memory::Limited(384 * MIB), GIB, Wishes::default()).is_ok());
}

#[test]
fn f15_too_many_connections_are_a_contradiction_with_both_remedies() {
    let wishes = Wishes {
        max_connections: Some(5000),
        ..Wishes::default()
    };
    let error = Sizes::new(Memory::Limited(GIB), GIB, wishes).unwrap_err();
    assert_eq!(error.field(), "spec.config.max_connections");
    let text = error.to_string();
    assert!(text.starts_with("5000 connections need "), "{text}");
    let number = |after: &str| {
        text.split(after)
            .nth(1)
            .unwrap()
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    // Both remedies work, and the second is the best of its kind.
    let (memory, most) = (number("limits.memory to ") * MIB, number("max_connections to "));
    assert!(Sizes::new(Memory::Limited(memory), GIB, wishes).is_ok(), "{text}");
    let with = |n| {
        Sizes::new(
            Memory::Limited(GIB),
            GIB,
            Wishes {
                max_connections: Some(n),
                ..Wishes::default()
            },
        )
    };
    assert!(with(most).is_ok() && with(most + 1).is_err(), "{text}");
}

#[test]
fn f15_a_pool_of_the_user_is_kept_or_refused() {
    let wish = |pool| Wishes {
        buffer_pool: Some(pool),
        ..Wishes::default()
    };
    assert_eq!(
        Sizes::new(Memory::Limited(GIB), GIB, wish(256 * MIB))
            .unwrap()
            .buffer_pool,
        256 * MIB
    );
    assert_eq!(
        Sizes::new(Memory::Limited(GIB), GIB, wish(250_000_000))
            .unwrap()
            .buffer_pool,
        240 * MIB
    );
    let error = Sizes::new(Memory::Limited(GIB), GIB, wish(900 * MIB)).unwrap_err();
    assert_eq!(error.field(), "spec.config.innodb_buffer_pool_size");
    assert!(
        error.to_string().contains("or lower innodb_buffer_pool_size"),
        "{error}"
    );
}

#[test]
fn f15_without_a_limit_nothing_contradicts() {
    let wishes = Wishes {
        max_connections: Some(5000),
        buffer_pool: None,
    };
    let sizes = Sizes::new(Memory::Unlimited(ASSUMED_MEMORY), GIB, wishes).unwrap();
    assert_eq!((sizes.buffer_pool, sizes.max_connections), (128 * MIB, 5000));
    let tiny = Sizes::new(Memory::Unlimited(64 * MIB), GIB, Wishes::default()).unwrap();
    assert_eq!(tiny.buffer_pool, LEAST_POOL);
}

proptest! {
    #[test]
    fn the_budget_stays_within_the_limit(memory in 1..1_u64 << 42, volume in GIB..1 << 45, connections in prop::option::of(10..20_000_u64)) {
        let wishes = Wishes { max_connections: connections, buffer_pool: None };
        if let Ok(sizes) = Sizes::new(Memory::Limited(memory), volume, wishes) {
            prop_assert!(sizes.total(memory) <= memory);
            prop_assert!(sizes.buffer_pool >= LEAST_POOL);
            prop_assert_eq!(sizes.buffer_pool % (sizes.buffer_pool_chunk * sizes.buffer_pool_instances), 0);
        }
    }

    #[test]
    fn from_the_smallest_limit_on_every_limit_works(memory in 384 * MIB..1 << 42) {
        prop_assert!(Sizes::new(Memory::Limited(memory), GIB, Wishes::default()).is_ok());
    }

    #[test]
    fn more_memory_never_gives_less(memory in 384 * MIB..1 << 38, more in 0..1_u64 << 34) {
        let (less, more) = (sizes(memory, 20 * GIB), sizes(memory + more, 20 * GIB));
        prop_assert!(less.buffer_pool <= more.buffer_pool);
        prop_assert!(less.max_connections <= more.max_connections);
        prop_assert!(less.temporary_tables <= more.temporary_tables);
        prop_assert!(less.redo_log <= more.redo_log);
        prop_assert!(less.table_cache <= more.table_cache);
    }

    #[test]
    fn a_larger_volume_never_gives_less(volume in GIB..1 << 40, more in 0..1_u64 << 40) {
        let (less, more) = (sizes(GIB, volume), sizes(GIB, volume + more));
        prop_assert!(less.redo_log <= more.redo_log && less.binlog_file <= more.binlog_file);
        prop_assert!(less.binlog_expiry <= more.binlog_expiry);
    }
}
