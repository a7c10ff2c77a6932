//! The scenarios, in the order in which they run.

mod all_at_once;
mod backups;
mod broken;
mod churn;
mod configuration;
mod data_path;
mod deletion;
mod explained;
mod healing;
mod idle;
mod invalid;
mod names;
mod outside;
mod overlay;
mod passwords;
mod plugin;
mod recovery;
mod restarts;
mod rights;
mod view;

use std::time::Duration;

use crate::runner::{Manner, Scenario, Suite};

/// Longest time of a scenario that says nothing else.
const LIMIT: Duration = Duration::from_mins(4);

/// Declares a scenario.
macro_rules! scenario {
    ($name:literal, $suite:ident, $manner:ident, $limit:expr, $run:path, $shows:literal) => {
        Scenario {
            name: $name,
            shows: $shows,
            suite: Suite::$suite,
            manner: Manner::$manner,
            limit: $limit,
            run: |context| Box::pin($run(context)),
        }
    };
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    scenario!(
        "idle",
        Ci,
        Background,
        Duration::from_mins(10),
        idle::no_writes,
        "no API writes in 5 minutes of idleness but the lease (F30)"
    ),
    scenario!(
        "smoke",
        Ci,
        Shared,
        LIMIT,
        data_path::smoke,
        "a cluster of three comes up, a row goes in and comes out of a replica"
    ),
    scenario!(
        "data-path",
        Ci,
        Shared,
        LIMIT,
        data_path::all_of_it,
        "Services, TLS, time zones, the application's Secret, accounts, semi-sync"
    ),
    scenario!(
        "policy-changed-f27",
        Long,
        Own,
        LIMIT,
        deletion::policy_changed,
        "a deletion policy that is changed later counts for the Secrets, too (F27)"
    ),
    scenario!(
        "role-labels",
        Long,
        Shared,
        LIMIT,
        data_path::role_labels,
        "pods carry their role as a label"
    ),
    scenario!(
        "plugin-status",
        Ci,
        Shared,
        LIMIT,
        plugin::status,
        "kubectl mainstay status shows the cluster"
    ),
    scenario!(
        "backup",
        Ci,
        Shared,
        Duration::from_mins(6),
        backups::by_hand,
        "a backup by hand is stored, told and leaves nothing behind; a missing Secret is named"
    ),
    scenario!(
        "sizes-f15",
        Ci,
        Shared,
        LIMIT,
        configuration::sizes,
        "mysqld has the derived sizes (F15)"
    ),
    scenario!(
        "rights",
        Ci,
        Shared,
        LIMIT,
        rights::least_privilege,
        "the operator may do what it needs and nothing else"
    ),
    scenario!(
        "invalid",
        Ci,
        Own,
        LIMIT,
        invalid::refused,
        "every wrong manifest is refused or explained within 2 s"
    ),
    scenario!(
        "explained",
        Ci,
        Own,
        LIMIT,
        explained::conditions,
        "quota, scheduling and image trouble stand in the conditions"
    ),
    scenario!(
        "names-f01",
        Ci,
        Own,
        LIMIT,
        names::lengths,
        "the longest name works, longer ones are refused (F01)"
    ),
    scenario!(
        "equal-names-f28",
        Ci,
        Own,
        LIMIT,
        names::equal,
        "equal names in two namespaces, a foreign Service with our name (F28)"
    ),
    scenario!(
        "overlay-f24-f04",
        Ci,
        Own,
        LIMIT,
        overlay::reaches_pods,
        "overlay in every pod; ndots:1; no full domain (F24, F04)"
    ),
    scenario!(
        "roll",
        Ci,
        Shared,
        LIMIT,
        configuration::roll,
        "a change of configuration restarts one instance at a time, the primary last"
    ),
    scenario!(
        "passwords-f11",
        Ci,
        Own,
        LIMIT,
        passwords::odd,
        "odd passwords; Secrets edited, emptied and deleted (F11)"
    ),
    scenario!(
        "deletion-f27",
        Ci,
        Own,
        Duration::from_mins(6),
        deletion::claims,
        "claims outlive the cluster and bring it back; policy Delete; namespaces end (F27)"
    ),
    scenario!(
        "pods-restart",
        Ci,
        Shared,
        LIMIT,
        restarts::pods,
        "any pod or mysqld may end; no acknowledged write is lost"
    ),
    scenario!(
        "healing-f33",
        Ci,
        Own,
        Duration::from_mins(6),
        healing::full_and_lost,
        "a full disk and a lost volume, of a replica and of the primary, heal under a writer (F33)"
    ),
    scenario!(
        "operator-restart",
        Ci,
        Disturbing,
        LIMIT,
        restarts::operator,
        "the operator may end at any moment"
    ),
    scenario!(
        "broken-at-start-f05",
        Ci,
        Disturbing,
        LIMIT,
        broken::at_start,
        "everything broken while the operator was away heals (F05)"
    ),
    scenario!(
        "all-at-once-f17",
        Ci,
        Disturbing,
        LIMIT,
        all_at_once::force_deleted,
        "all pods force-deleted; a volume gone; ordinal 0 outdated (F17)"
    ),
    scenario!(
        "node-down-f17",
        Ci,
        Disturbing,
        LIMIT,
        all_at_once::node_down,
        "all pods force-deleted while a node is down (F17)"
    ),
    scenario!(
        "recovery-f06-f09",
        Ci,
        Disturbing,
        Duration::from_mins(8),
        recovery::from_a_backup_and_from_the_bucket,
        "a mistake undone from a backup and a time; after a failover the lost cluster from its bucket, row by row (F06, F09)"
    ),
    scenario!(
        "outside",
        Ci,
        Disturbing,
        LIMIT,
        outside::creates,
        "the operator outside of the cluster does the same"
    ),
    scenario!(
        "churn",
        Long,
        Disturbing,
        Duration::from_hours(1),
        churn::random,
        "40 random faults under a writer, from a printed SEED"
    ),
    scenario!(
        "secrets-in-view-f31",
        Ci,
        Disturbing,
        LIMIT,
        view::no_passwords,
        "no password in logs, events, objects or process lists (F31)"
    ),
];
