//! Sizes that follow from the memory of the container and from the volume (case F15).
//!
//! Memory is a budget: every line of [`Sizes`] that costs memory is subtracted from the limit, and the buffer pool gets
//! what is left, rounded down to whole chunks. All figures are integers, and each grows with memory, so that a larger
//! limit never gives a smaller size. docs/configuration.md has the same table for people.
//!
//! | what | formula (M: memory, V: volume) |
//! |---|---|
//! | server without pools | 220 MiB below 1 GiB of memory, else 340 MiB; measured on 9.7.4, manager included |
//! | kept free | M / 16, for the page cache of binlogs and relay logs |
//! | connections | M / 8 MiB, 32 to 1000; each costs 1 MiB |
//! | temporary tables | M / 32, 16 MiB to 2 GiB |
//! | events queued for the appliers | M / 32, 16 to 128 MiB |
//! | log buffer | M / 64, 4 to 64 MiB |
//! | table cache | M / 1 MiB, 256 to 4000 tables; each costs 16 KiB |
//! | buffer pool | 12/13 of the rest: InnoDB describes each page besides holding it |
//! | redo log | V / 16, 64 MiB to 16 GiB, not more than the pool but at least 64 MiB |
//! | binlog and relay log files | V / 64, 16 to 256 MiB |
//! | binlogs are kept | V / 1 GiB × 6 h, 1 to 7 days |

use std::fmt;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The smallest volume that holds an empty server with its logs.
pub const SMALLEST_VOLUME: u64 = GIB;
/// Memory that is assumed when neither a limit nor a request is declared.
pub const ASSUMED_MEMORY: u64 = 512 * MIB;

/// Below this the instruments of performance_schema are made smaller.
const SMALL: u64 = GIB;
/// Server and manager without pools and connections, instruments made smaller.
const SERVER_SMALL: u64 = 220 * MIB;
/// The same with all instruments.
const SERVER: u64 = 340 * MIB;
/// One connection with its buffers.
const CONNECTION: u64 = MIB;
/// One open table.
const TABLE: u64 = 16 * KIB;
/// The smallest buffer pool with which a server is of use.
const LEAST_POOL: u64 = 32 * MIB;

/// Memory of the mysql container in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The kernel ends what uses more.
    Limited(u64),
    /// There is no limit; so much is taken as a measure (the request, or [`ASSUMED_MEMORY`]), and nothing contradicts it.
    Unlimited(u64),
}

/// What the user decided in `spec.config`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// `max_connections`.
    pub max_connections: Option<u64>,
    /// `innodb_buffer_pool_size` in bytes.
    pub buffer_pool: Option<u64>,
}

/// Sizes of a server, in bytes where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// `innodb_buffer_pool_size`, a multiple of chunk times instances.
    pub buffer_pool: u64,
    /// `innodb_buffer_pool_chunk_size`.
    pub buffer_pool_chunk: u64,
    /// `innodb_buffer_pool_instances`.
    pub buffer_pool_instances: u64,
    /// `max_connections`.
    pub max_connections: u64,
    /// `temptable_max_ram`, for all sessions together.
    pub temporary_tables: u64,
    /// `replica_pending_jobs_size_max`.
    pub pending_jobs: u64,
    /// `innodb_log_buffer_size`.
    pub log_buffer: u64,
    /// `table_open_cache` and `table_definition_cache`, in tables.
    pub table_cache: u64,
    /// Instruments of performance_schema are made smaller.
    pub small_instruments: bool,
    /// `innodb_redo_log_capacity`.
    pub redo_log: u64,
    /// `max_binlog_size`, which relay logs follow.
    pub binlog_file: u64,
    /// `binlog_expire_logs_seconds`, in seconds.
    pub binlog_expiry: u64,
}

/// The memory cannot hold what is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction {
    limit: u64,
    needed: u64,
    enough: u64,
    wishes: Wishes,
    most_connections: u64,
}

impl Contradiction {
    /// The field that has to change, unless the limit does.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self.wishes {
            Wishes {
                max_connections: Some(_),
                ..
            } => "spec.config.max_connections",
            Wishes {
                buffer_pool: Some(_), ..
            } => "spec.config.innodb_buffer_pool_size",
            Wishes {
                max_connections: None,
                buffer_pool: None,
            } => "spec.resources.limits.memory",
        }
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(MIB);
        let (limit, needed, enough) = (shown(self.limit), mib(self.needed), mib(self.enough));
        match self.wishes.max_connections {
            Some(connections) if self.most_connections > 0 => write!(
                f,
                "{connections} connections need {needed} MiB with the server, and the limit is {limit}; raise \
                 resources.limits.memory to {enough}Mi or lower max_connections to {}",
                self.most_connections
            ),
            Some(_) | None => write!(
                f,
                "the server needs {needed} MiB at least, and the limit is {limit}; raise resources.limits.memory to \
                 {enough}Mi{}",
                if self.wishes.buffer_pool.is_some() {
                    " or lower innodb_buffer_pool_size"
                } else {
                    ""
                }
            ),
        }
    }
}

/// A size in the largest unit of which it is a whole number, and in MiB at most: "384 MiB", "1 KiB", "1000000 bytes".
fn shown(bytes: u64) -> String {
    match bytes {
        0 => "0 bytes".to_owned(),
        _ if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        _ if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        _ => format!("{bytes} bytes"),
    }
}

impl Sizes {
    /// Derives the sizes.
    ///
    /// # Errors
    /// When a limit cannot hold the server with what the user decided.
    pub fn new(memory: Memory, volume: u64, wishes: Wishes) -> Result<Self, Contradiction> {
        let sizes = match memory {
            Memory::Limited(bytes) => Self::within(bytes, wishes).ok_or_else(|| contradiction(bytes, wishes))?,
            // Nothing contradicts an assumption: the wishes are taken, and the pool is what would be left without them.
            Memory::Unlimited(bytes) => {
                let sizes = Self::within(
                    bytes,
                    Wishes {
                        max_connections: None,
                        ..wishes
                    },
                )
                .unwrap_or_else(|| Self::frame(bytes).with_pool_of(wishes.buffer_pool.unwrap_or(LEAST_POOL)));
                Self {
                    max_connections: wishes.max_connections.unwrap_or(sizes.max_connections),
                    ..sizes
                }
            }
        };
        Ok(sizes.on(volume))
    }

    /// Memory that a server with these sizes uses at most, the reserve for the page cache included.
    #[must_use]
    pub const fn total(&self, memory: u64) -> u64 {
        self.without_pool(memory) + pool_cost(self.buffer_pool)
    }

    /// The sizes within a limit, if it can hold them.
    fn within(memory: u64, wishes: Wishes) -> Option<Self> {
        let frame = Self::frame(memory);
        let frame = Self {
            max_connections: wishes.max_connections.unwrap_or(frame.max_connections),
            ..frame
        };
        let rest = memory.checked_sub(frame.without_pool(memory))?;
        let sizes = match wishes.buffer_pool {
            Some(pool) => frame.with_pool_of(pool),
            None => frame.with_pool_within(rest.min(Self::rest_at_threshold(memory, frame.max_connections)) / 13 * 12),
        };
        (sizes.buffer_pool >= LEAST_POOL && sizes.total(memory) <= memory).then_some(sizes)
    }

    /// From 1 GiB on the instruments are larger: what they cost is not given to the pool just below it, which would make
    /// the pool shrink where memory grows.
    fn rest_at_threshold(memory: u64, connections: u64) -> u64 {
        let frame = Self::frame(SMALL);
        let frame = Self {
            max_connections: connections.max(frame.max_connections),
            ..frame
        };
        if memory < SMALL {
            SMALL.saturating_sub(frame.without_pool(SMALL))
        } else {
            u64::MAX
        }
    }

    /// What follows from memory alone, without a pool.
    fn frame(memory: u64) -> Self {
        Self {
            buffer_pool: 0,
            buffer_pool_chunk: 0,
            buffer_pool_instances: 0,
            max_connections: (memory / (8 * MIB)).clamp(32, 1000),
            temporary_tables: whole(memory / 32).clamp(16 * MIB, 2 * GIB),
            pending_jobs: whole(memory / 32).clamp(16 * MIB, 128 * MIB),
            log_buffer: whole(memory / 64).clamp(4 * MIB, 64 * MIB),
            table_cache: (memory / MIB).clamp(256, 4000),
            small_instruments: memory < SMALL,
            redo_log: 0,
            binlog_file: 0,
            binlog_expiry: 0,
        }
    }

    /// With the largest pool of whole chunks that is not larger than this.
    fn with_pool_within(self, pool: u64) -> Self {
        let instances = (pool / GIB).clamp(1, 8);
        let chunk = if pool < GIB {
            16 * MIB
        } else if pool < 32 * GIB {
            32 * MIB
        } else {
            128 * MIB
        };
        Self {
            buffer_pool: pool / (chunk * instances) * chunk * instances,
            buffer_pool_chunk: chunk,
            buffer_pool_instances: instances,
            ..self
        }
    }

    /// With the pool that the user wants, rounded up to whole chunks as MySQL does.
    fn with_pool_of(self, pool: u64) -> Self {
        let sizes = self.with_pool_within(pool);
        let unit = sizes.buffer_pool_chunk * sizes.buffer_pool_instances;
        Self {
            buffer_pool: pool.div_ceil(unit).saturating_mul(unit),
            ..sizes
        }
    }

    /// With the sizes that follow from the volume.
    fn on(self, volume: u64) -> Self {
        let redo = whole(volume / 16)
            .clamp(64 * MIB, 16 * GIB)
            .min(self.buffer_pool.max(64 * MIB));
        Self {
            redo_log: whole(redo),
            binlog_file: whole(volume / 64).clamp(16 * MIB, 256 * MIB),
            binlog_expiry: (volume / GIB).saturating_mul(6 * 3600).clamp(86_400, 7 * 86_400),
            ..self
        }
    }

    const fn without_pool(&self, memory: u64) -> u64 {
        let server = if self.small_instruments { SERVER_SMALL } else { SERVER };
        let connections = self.max_connections.saturating_mul(CONNECTION);
        let fixed = server + memory / 16 + self.temporary_tables + self.pending_jobs + self.log_buffer;
        fixed
            .saturating_add(self.table_cache * TABLE)
            .saturating_add(connections)
    }
}

/// What a buffer pool of that size costs with the descriptions of its pages.
const fn pool_cost(pool: u64) -> u64 {
    pool.saturating_add(pool / 12)
}

const fn whole(bytes: u64) -> u64 {
    bytes / MIB * MIB
}

/// Finds a limit that would be enough, in steps of 64 MiB.
fn contradiction(limit: u64, wishes: Wishes) -> Contradiction {
    let step = 64 * MIB;
    let frame = Sizes::frame(limit);
    let least = Sizes {
        max_connections: wishes.max_connections.unwrap_or(frame.max_connections),
        ..frame
    };
    let needed = least
        .without_pool(limit)
        .saturating_add(pool_cost(wishes.buffer_pool.unwrap_or(LEAST_POOL)));
    let first = limit.max(needed).div_ceil(step);
    let enough =
        (first..first.saturating_add(1 << 12)).find(|n| Sizes::within(n.saturating_mul(step), wishes).is_some());
    let spent = Sizes {
        max_connections: 0,
        ..frame
    }
    .without_pool(limit);
    let left = limit
        .saturating_sub(spent)
        .saturating_sub(pool_cost(wishes.buffer_pool.unwrap_or(LEAST_POOL)));
    let most = left / CONNECTION;
    let fits = most >= 10
        && Sizes::within(
            limit,
            Wishes {
                max_connections: Some(most),
                ..wishes
            },
        )
        .is_some();
    Contradiction {
        limit,
        needed,
        enough: enough.unwrap_or(first).saturating_mul(step),
        wishes,
        most_connections: if fits { most } else { 0 },
    }
}

#[cfg(test)]
mod tests;
