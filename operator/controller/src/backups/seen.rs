//! What is seen of a cluster's backups, as the value from which a plan is made. No decision, and no request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use mainstay_api::{MySQLBackup, MySQLCluster};
use mainstay_core::backup::plan::{BackupSeen, JobSeen, JobState, Listing, Seen};
use mainstay_core::backup::summary;
use mainstay_core::backup::verify::{self, VerificationJob, Verified};
use mainstay_core::backup::wire::Outcome;
use mainstay_core::names::{self, Names};

use super::progress::Heard;
use crate::context::Context;
use crate::index::ClusterName;
use crate::views::{BackupPodView, JobEnd, JobView, Main};

/// What is known now.
pub(crate) fn see(context: &Context, cluster: &ClusterName, object: &MySQLCluster, uid: &str) -> Seen {
    let backups: Vec<BackupSeen> = context
        .world
        .backups
        .of(cluster)
        .values()
        .map(|backup| backup_seen(backup))
        .collect();
    let told = object.status.as_ref().and_then(|status| status.backup.as_deref());
    let (jobs, verification) = jobs(context, cluster, uid, &backups);
    Seen {
        jobs,
        verification,
        runs: summary::runs(told),
        told: told.cloned().unwrap_or_default(),
        store: store(context, cluster, object, uid, &backups),
        backups,
    }
}

/// A `MySQLBackup` as decisions see it.
pub(crate) fn backup_seen(backup: &MySQLBackup) -> BackupSeen {
    BackupSeen {
        name: backup.name_any(),
        uid: backup.uid().unwrap_or_default(),
        created_at: backup
            .creation_timestamp()
            .map_or(Timestamp::UNIX_EPOCH, |created| created.0),
        deleting: backup.metadata.deletion_timestamp.is_some(),
        spec: backup.spec.clone(),
        status: backup.status.clone().unwrap_or_default(),
    }
}

/// What is in the store; nothing is asked of a store that is not declared.
fn store(
    context: &Context,
    cluster: &ClusterName,
    object: &MySQLCluster,
    uid: &str,
    backups: &[BackupSeen],
) -> Listing {
    if object.spec.backup.is_none() {
        context.shelves.forget(cluster);
        return Listing::Unknown { reason: None };
    }
    let ended: BTreeSet<String> = backups
        .iter()
        .filter(|backup| backup.ended())
        .map(|backup| backup.uid.clone())
        .collect();
    context.shelves.look(context, cluster, uid, ended)
}

fn jobs(
    context: &Context,
    cluster: &ClusterName,
    uid: &str,
    backups: &[BackupSeen],
) -> (Vec<JobSeen>, Option<VerificationJob>) {
    let jobs = context.world.jobs.of(cluster);
    let verify = Names::new(&cluster.namespace, &cluster.name).verify_job();
    let pods = context.world.backup_pods.of(cluster);
    // How far a verification is stands on its page, and nothing is decided by it.
    let of_backups = pods.values().filter(|pod| pod.job != verify);
    let running = of_backups.filter(|pod| matches!(pod.main, Main::Running { .. }));
    let addresses = running.filter_map(|pod| Some((pod.uid.clone(), pod.ip?)));
    let heard = context.followers.of(cluster, &addresses.collect());
    let now = context.platform.now();
    let heard = |pod: Option<&BackupPodView>| pod.and_then(|pod| heard.get(&pod.uid)).copied();
    let seen = || jobs.iter().filter(|(_, job)| !is_former(job, uid));
    let of_backups = seen().filter(|(name, _)| **name != verify);
    let own = of_backups.map(|(name, job)| {
        let pod = newest(name, &pods);
        JobSeen {
            name: name.clone(),
            uid: job.uid.clone(),
            ours: true,
            created_at: job.created_at,
            donor: job.donor.clone(),
            state: if is_of_another(name, job, backups) {
                JobState::Obsolete
            } else {
                state(job, pod, heard(pod), now, ended)
            },
        }
    });
    let mut all: Vec<JobSeen> = own.collect();
    let mut verification = seen().find(|(name, _)| **name == verify).map(|(name, job)| {
        let pod = newest(name, &pods);
        VerificationJob {
            name: name.clone(),
            uid: job.uid.clone(),
            ours: true,
            created_at: job.created_at,
            due: job.due.unwrap_or(job.created_at),
            backup: job.verifies.clone().unwrap_or_default(),
            state: state(job, pod, heard(pod), now, verification_ended),
        }
    });
    for name in context.memories.foreign_jobs(cluster) {
        if jobs.contains_key(&name) {
            continue;
        }
        if name == verify {
            verification = Some(foreign_verification(name, now));
        } else {
            all.push(JobSeen {
                name,
                uid: String::new(),
                ours: false,
                created_at: now,
                donor: None,
                state: JobState::Waiting {
                    since: now,
                    reason: None,
                },
            });
        }
    }
    (all, verification)
}

/// Somebody else's Job has the name.
fn foreign_verification(name: String, now: Timestamp) -> VerificationJob {
    VerificationJob {
        name,
        uid: String::new(),
        ours: false,
        created_at: now,
        due: now,
        backup: String::new(),
        state: JobState::Waiting {
            since: now,
            reason: None,
        },
    }
}

/// A Job of a former cluster of that name, which Kubernetes deletes.
fn is_former(job: &JobView, uid: &str) -> bool {
    job.owner.as_deref().is_some_and(|owner| owner != uid)
}

/// A Job of a `MySQLBackup` that was deleted, whose name another one has now: it says nothing about its successor.
fn is_of_another(name: &str, job: &JobView, backups: &[BackupSeen]) -> bool {
    let present = backups.iter().find(|backup| names::backup_job(&backup.name) == name);
    present.is_some_and(|backup| job.backup.as_ref() != Some(&backup.uid))
}

fn newest<'a>(job: &str, pods: &'a BTreeMap<String, Arc<BackupPodView>>) -> Option<&'a BackupPodView> {
    let own = pods.values().filter(|pod| pod.job == job);
    own.max_by_key(|pod| pod.created_at).map(|pod| &**pod)
}

/// How far a Job is. What the container of the backup says counts, whatever else runs in its pod (case F24); `ended` reads its exit
/// code and its termination message.
fn state<T>(
    job: &JobView,
    pod: Option<&BackupPodView>,
    heard: Option<Heard>,
    now: Timestamp,
    ended: impl Fn(i32, &str) -> JobState<T>,
) -> JobState<T> {
    match (pod.map(|pod| &pod.main), &job.end) {
        (Some(Main::Ended { code, message, .. }), _) => ended(*code, message),
        (Some(Main::Never { reason, message }), _) => JobState::Failed {
            reason: reason.clone(),
            message: message.clone(),
        },
        (_, JobEnd::Failed { reason, message }) => JobState::Failed {
            reason: reason.clone(),
            message: format!("its Job failed: {message}"),
        },
        (_, JobEnd::Complete) => JobState::Succeeded { stored: None },
        (Some(Main::Running { since }), JobEnd::Not) => JobState::Active {
            progress: heard.and_then(|heard| heard.progress),
            // What is not known is no reason to give it up: it has a watchdog of its own. But Kubernetes has ended it, and its
            // node does not say so: who knows whether there still is one.
            moved_at: heard
                .and_then(|heard| heard.moved_at)
                .or_else(|| pod?.ends_by)
                .unwrap_or(now)
                .clamp(*since, now.max(*since)),
        },
        (Some(Main::Waiting), JobEnd::Not) => JobState::Waiting {
            since: pod.map_or(job.created_at, |pod| pod.created_at),
            reason: pod.and_then(|pod| pod.trouble.clone()),
        },
        (None, JobEnd::Not) => JobState::Waiting {
            since: job.created_at,
            reason: None,
        },
    }
}

fn ended(code: i32, message: &str) -> JobState {
    match Outcome::from_text(message) {
        Some(Outcome::Stored(stored)) if code == 0 => JobState::Succeeded { stored: Some(stored) },
        Some(Outcome::Failed { reason, message }) => JobState::Failed { reason, message },
        Some(Outcome::Stored(_)) | None if code == 0 => JobState::Succeeded { stored: None },
        Some(Outcome::Stored(_)) | None => broken(code, message),
    }
}

fn verification_ended(code: i32, message: &str) -> JobState<Verified> {
    match verify::Outcome::from_text(message) {
        Some(verify::Outcome::Verified(verified)) if code == 0 => JobState::Succeeded { stored: Some(verified) },
        Some(verify::Outcome::Failed { reason, message }) => JobState::Failed { reason, message },
        Some(verify::Outcome::Verified(_)) | None if code == 0 => JobState::Succeeded { stored: None },
        Some(verify::Outcome::Verified(_)) | None => broken(code, message),
    }
}

/// It ended without an outcome.
fn broken<T>(code: i32, message: &str) -> JobState<T> {
    let said = message.trim();
    let said = if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    };
    JobState::Failed {
        reason: "ContainerEnded".to_owned(),
        message: format!(
            "its container ended with exit code {code}{said}; see the log of its node if that says nothing"
        ),
    }
}

#[cfg(test)]
mod tests {
    use mainstay_core::backup::plan::StoredBackup;

    use super::*;

    /// Of a backup.
    fn state(job: &JobView, pod: Option<&BackupPodView>, heard: Option<Heard>, now: Timestamp) -> JobState {
        super::state(job, pod, heard, now, ended)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn job(end: JobEnd) -> JobView {
        JobView {
            uid: "job".to_owned(),
            owner: Some("cluster".to_owned()),
            backup: Some("backup".to_owned()),
            created_at: at(0),
            donor: Some("shop-2".to_owned()),
            verifies: None,
            due: None,
            end,
        }
    }

    fn pod(main: Main) -> BackupPodView {
        BackupPodView {
            uid: "pod".to_owned(),
            job: "b-backup".to_owned(),
            ip: None,
            created_at: at(5),
            ends_by: None,
            trouble: Some("Unschedulable: 0/3 nodes".to_owned()),
            main,
        }
    }

    #[expect(clippy::unnecessary_box_returns, reason = "as it stands in the outcome")]
    fn stored() -> Box<StoredBackup> {
        Box::new(StoredBackup {
            size: 5,
            stored: 2,
            executed: None,
            location: String::new(),
            key_id: None,
            mysql_version: "9.7.4".to_owned(),
            completed_at: at(9),
        })
    }

    fn ended_with(code: i32, message: String) -> Main {
        Main::Ended {
            code,
            message,
            at: at(9),
        }
    }

    fn failed() -> JobEnd {
        JobEnd::Failed {
            reason: "BackoffLimitExceeded".to_owned(),
            message: "Job has reached the specified backoff limit".to_owned(),
        }
    }

    #[test]
    fn f24_the_container_of_the_backup_is_judged() {
        let good = ended_with(0, Outcome::Stored(stored()).to_text());
        // A sidecar runs on, so the Job is not complete.
        for end in [JobEnd::Not, JobEnd::Complete] {
            let seen = state(&job(end), Some(&pod(good.clone())), None, at(20));
            assert_eq!(seen, JobState::Succeeded { stored: Some(stored()) });
        }
        let bad = Outcome::Failed {
            reason: "CopyFailed".to_owned(),
            message: "no route".to_owned(),
        };
        let seen = state(
            &job(JobEnd::Not),
            Some(&pod(ended_with(1, bad.to_text()))),
            None,
            at(20),
        );
        let told = JobState::Failed {
            reason: "CopyFailed".to_owned(),
            message: "no route".to_owned(),
        };
        assert_eq!(seen, told);
    }

    #[test]
    fn an_end_without_words_is_no_success() {
        let silent = |code| {
            state(
                &job(failed()),
                Some(&pod(ended_with(code, String::new()))),
                None,
                at(20),
            )
        };
        let JobState::Failed { message, .. } = silent(137) else {
            panic!("{:?}", silent(137));
        };
        assert!(message.contains("exit code 137"), "{message}");
        assert_eq!(silent(0), JobState::Succeeded { stored: None });
        // Its pod is gone, and the Job says why.
        let JobState::Failed { reason, .. } = state(&job(failed()), None, None, at(20)) else {
            panic!("not failed");
        };
        assert_eq!(reason, "BackoffLimitExceeded");
        assert_eq!(
            state(&job(JobEnd::Complete), None, None, at(20)),
            JobState::Succeeded { stored: None }
        );
    }

    #[test]
    fn what_waits_says_since_when_and_why() {
        let waiting = JobState::Waiting {
            since: at(5),
            reason: Some("Unschedulable: 0/3 nodes".to_owned()),
        };
        assert_eq!(
            state(&job(JobEnd::Not), Some(&pod(Main::Waiting)), None, at(20)),
            waiting
        );
        let none = JobState::Waiting {
            since: at(0),
            reason: None,
        };
        assert_eq!(state(&job(JobEnd::Not), None, None, at(20)), none);
    }

    #[test]
    fn a_page_that_is_not_reached_gives_nothing_up() {
        let running = pod(Main::Running { since: at(6) });
        let seen = |heard| state(&job(JobEnd::Not), Some(&running), heard, at(2000));
        let moved = |moved_at| JobState::Active {
            progress: None,
            moved_at,
        };
        assert_eq!(seen(None), moved(at(2000)));
        let heard = |moved_at| {
            Some(Heard {
                progress: None,
                moved_at,
            })
        };
        assert_eq!(seen(heard(None)), moved(at(2000)));
        assert_eq!(seen(heard(Some(at(30)))), moved(at(30)));
        // Its node is gone, and with it whoever could say that the pod has ended.
        let deleted = BackupPodView {
            ends_by: Some(at(400)),
            ..running
        };
        let seen = |now| state(&job(JobEnd::Not), Some(&deleted), None, now);
        assert_eq!(seen(at(2000)), moved(at(400)));
        assert_eq!(seen(at(390)), moved(at(390)), "it has a moment to end");
    }

    #[test]
    fn a_verification_is_judged_by_its_own_words() {
        let seen = |code, text: &str| {
            let pod = pod(ended_with(code, text.to_owned()));
            super::state(&job(JobEnd::Not), Some(&pod), None, at(20), verification_ended)
        };
        let verified = verify::Outcome::Verified(Box::new(Verified {
            id: mainstay_core::backup::BackupId::parse("20261130t030000z-a").unwrap(),
            name: None,
            reached: None,
            reached_time: None,
            schemas: 1,
            tables: 2,
            prepared: 0,
            seconds: 3,
            completed_at: at(9),
        }));
        assert!(matches!(
            seen(0, &verified.to_text()),
            JobState::Succeeded { stored: Some(_) }
        ));
        // Words that do not fit its end prove nothing.
        assert!(matches!(seen(1, &verified.to_text()), JobState::Failed { reason, .. } if reason == "ContainerEnded"));
        assert!(matches!(seen(0, "done"), JobState::Succeeded { stored: None }));
        let failed = verify::Outcome::Failed {
            reason: "KeyMissing".to_owned(),
            message: "no key was given".to_owned(),
        };
        assert!(matches!(seen(1, &failed.to_text()), JobState::Failed { reason, .. } if reason == "KeyMissing"));
    }
}
