//! The Job controller, and what the pod of a backup does: it copies its donor for a while, stores the copy with its manifest,
//! and leaves the termination message of the real program. That of a verification looks for as long whether the store has the backup.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Secret;
use mainstay_controller::Pages;
use mainstay_core::backup::BackupManifest;
use mainstay_core::backup::manifest::{FORMAT, StoredFile};
use mainstay_core::backup::plan::{BackupStep, Progress, StoredBackup};
use mainstay_core::backup::verify;
use mainstay_core::backup::wire::{Outcome, Task};
use mainstay_core::names::Names;
use mainstay_store::{ACCESS_FILE, Access, Existing, Store as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kubelet::{key_of, text};
use super::{Inner, World};
use crate::kubernetes::{DeleteOptions, Key, Resource};

/// From the moment that a pod is on its node until its program runs.
const START: Duration = Duration::from_secs(2);
/// Bytes that a backup has.
const SIZE: u64 = 5_000_000_000;

/// Backups that are made.
#[derive(Clone, Debug)]
pub(super) struct Backups {
    /// How long one takes.
    pub(super) takes: Duration,
    /// By uid of the pod.
    runs: BTreeMap<String, Run>,
}

impl Default for Backups {
    fn default() -> Self {
        Self {
            takes: Duration::from_mins(1),
            runs: BTreeMap::new(),
        }
    }
}

#[derive(Clone, Debug)]
struct Run {
    node: String,
    ip: IpAddr,
    starts_at: Instant,
    ends_at: Instant,
    told: bool,
    /// Its node lost power meanwhile: nothing of it is left, which is told when the kubelet runs again.
    died: bool,
}

/// Reads how far backups are.
#[derive(Clone, Debug)]
pub struct SimPages(pub World);

#[async_trait]
impl Pages for SimPages {
    async fn progress(&self, pod: IpAddr) -> Result<Progress, String> {
        self.0.with(|w| {
            let now = Instant::now();
            let run = w.backups.runs.values().find(|run| run.ip == pod);
            let run = run.filter(|run| !run.died && run.starts_at <= now && now < run.ends_at);
            let run = run.ok_or_else(|| "connection refused".to_owned())?;
            let done = now.duration_since(run.starts_at).as_secs_f64() / w.backups.takes.as_secs_f64();
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of a round number"
            )]
            let bytes = (SIZE as f64 * done) as u64;
            Ok(Progress {
                step: BackupStep::Copy,
                bytes,
                total: Some(SIZE),
                rate: None,
                rows: None,
            })
        })
    }
}

/// Whether a pod is one of a backup, or of a verification.
pub(super) fn is_backup(pod: &Value) -> bool {
    let labels = pod.pointer("/metadata/labels");
    labels.is_some_and(|labels| labels.get("mysql.mainstay.dev/backup").is_some()) || is_verification(pod)
}

fn is_verification(pod: &Value) -> bool {
    pod.pointer("/metadata/labels/mysql.mainstay.dev~1verifies").is_some()
}

/// The container that is judged.
fn main_container(pod: &Value) -> &'static str {
    if is_verification(pod) { "verify" } else { "backup" }
}

impl Inner {
    /// How long backups take from now on.
    pub fn let_backups_take(&mut self, time: Duration) {
        self.backups.takes = time;
    }

    /// Programs of backups on a node without power end.
    pub(super) fn end_backups_on(&mut self, node: &str) {
        for run in self.backups.runs.values_mut().filter(|run| run.node == node) {
            run.died = true;
        }
    }

    /// The Job controller: one pod for each Job, and no second one.
    pub(super) fn reconcile_jobs(&mut self) {
        let (Some(jobs), Some(pods)) = (Resource::find("batch", "jobs"), Resource::find("", "pods")) else {
            return;
        };
        for job in self.server.list(jobs, "") {
            let ended = job.pointer("/status/conditions").is_some();
            if ended || !text(&job, "/metadata/deletionTimestamp").is_empty() {
                continue;
            }
            let namespace = text(&job, "/metadata/namespace").to_owned();
            let mine = self.server.list(pods, &namespace);
            let mine = mine.iter().find(|pod| owner(pod) == text(&job, "/metadata/uid"));
            let began = job.pointer("/status/active").is_some();
            let end = match mine.map(|pod| text(pod, "/status/phase")) {
                Some("Succeeded") => Some(("Complete", "")),
                Some("Failed") => Some(("Failed", "BackoffLimitExceeded")),
                // Its pod was deleted: there is no second one.
                None if began => Some(("Failed", "BackoffLimitExceeded")),
                None => {
                    let _ = self.server.create(pods, &namespace, self.pod_of(&job));
                    let _ = self
                        .server
                        .patch(&key_of(jobs, &job), Some("status"), json!({"status": {"active": 1}}));
                    None
                }
                Some(_) => None,
            };
            if let Some((kind, reason)) = end {
                let condition = json!({"type": kind, "status": "True", "reason": reason,
                    "message": "Job has reached the specified backoff limit"});
                let status = json!({"status": {"active": null, "conditions": [condition]}});
                let _ = self.server.patch(&key_of(jobs, &job), Some("status"), status);
            }
        }
    }

    fn pod_of(&self, job: &Value) -> Value {
        let name = text(job, "/metadata/name");
        let mut pod = job.pointer("/spec/template").cloned().unwrap_or_default();
        pod["metadata"]["name"] = json!(format!("{name}-{:05}", self.next_process % 100_000));
        pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] = json!(name);
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": text(job, "/metadata/uid"),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        pod
    }

    /// The kubelet of a backup's pod; returns when to look again.
    pub(super) fn sync_backup(&mut self, resource: &'static Resource, pod: &Value, now: Instant) -> Option<Instant> {
        let uid = text(pod, "/metadata/uid").to_owned();
        let key = key_of(resource, pod);
        let deleting = !text(pod, "/metadata/deletionTimestamp").is_empty();
        let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        if deleting || ended {
            self.backups.runs.remove(&uid);
        }
        if deleting {
            let options = DeleteOptions {
                uid: Some(uid),
                grace: Some(0),
                ..DeleteOptions::default()
            };
            // It may have been force-deleted meanwhile.
            let _ = self.server.delete(&key, &options);
            return None;
        }
        if ended {
            return None;
        }
        if !self.mounts_exist(pod) {
            return Some(now + Duration::from_millis(250));
        }
        let mut run = self.backups.runs.get(&uid).cloned().unwrap_or_else(|| {
            self.next_ip = self.next_ip.wrapping_add(1).max(1);
            Run {
                node: text(pod, "/spec/nodeName").to_owned(),
                ip: IpAddr::V4(Ipv4Addr::new(10, 245, 0, self.next_ip)),
                starts_at: now + START,
                ends_at: now + START + self.backups.takes,
                told: false,
                died: false,
            }
        });
        let due = if run.died {
            let state = json!({"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": self.server.clock().rfc3339()}});
            let state = container(main_container(pod), &state);
            let status = json!({"status": {"phase": "Failed", "containerStatuses": [state]}});
            let _ = self.server.patch(&key, Some("status"), status);
            None
        } else if now >= run.ends_at {
            self.tell_end(&key, pod);
            None
        } else if now >= run.starts_at {
            if !run.told {
                run.told = true;
                let state = json!({"running": {"startedAt": self.server.clock().rfc3339()}});
                let state = container(main_container(pod), &state);
                let status = json!({"phase": "Running", "podIP": run.ip.to_string(), "containerStatuses": [state]});
                let _ = self.server.patch(&key, Some("status"), json!({"status": status}));
            }
            Some(run.ends_at)
        } else {
            Some(run.starts_at)
        };
        self.backups.runs.insert(uid, run);
        due
    }

    fn tell_end(&self, key: &Key, pod: &Value) {
        let (good, message) = if is_verification(pod) {
            let outcome = self.verified(pod);
            (matches!(outcome, verify::Outcome::Verified(_)), outcome.to_text())
        } else {
            let outcome = self.outcome(pod);
            (matches!(outcome, Outcome::Stored(_)), outcome.to_text())
        };
        let (phase, code) = if good { ("Succeeded", 0) } else { ("Failed", 1) };
        let state =
            json!({"terminated": {"exitCode": code, "message": message, "finishedAt": self.server.clock().rfc3339()}});
        let state = container(main_container(pod), &state);
        let status = json!({"status": {"phase": phase, "containerStatuses": [state]}});
        let _ = self.server.patch(key, Some("status"), status);
    }

    /// What the program of a verification says in the end.
    fn verified(&self, pod: &Value) -> verify::Outcome {
        let manifest = self.manifest_to_verify(pod);
        manifest.map_or_else(
            |message| verify::Outcome::Failed {
                reason: "NotRecoverable".to_owned(),
                message,
            },
            |manifest| {
                verify::Outcome::Verified(Box::new(verify::Verified {
                    id: manifest.id,
                    name: manifest.name,
                    reached: Some(manifest.gtid_executed),
                    reached_time: Some(manifest.completed_at),
                    schemas: 2,
                    tables: 40,
                    prepared: 0,
                    seconds: self.backups.takes.as_secs(),
                    completed_at: self.server.clock().now(),
                }))
            },
        )
    }

    fn manifest_to_verify(&self, pod: &Value) -> Result<BackupManifest, String> {
        let task = variable(pod, "MAINSTAY_VERIFY").ok_or("the pod has no task")?;
        let task = verify::Task::from_text(task).map_err(|error| error.to_string())?;
        let namespace = text(pod, "/metadata/namespace");
        let access = self.access(namespace, text(pod, "/metadata/labels/mysql.mainstay.dev~1cluster"))?;
        let key = access.cluster.backup_manifest(&task.id);
        let json = self.stores.0.get(&key, 1 << 20).now_or_never();
        let json = json
            .ok_or("the store does not answer")?
            .map_err(|error| error.to_string())?;
        BackupManifest::from_json(&json).map_err(|error| error.to_string())
    }

    /// What the program says in the end.
    fn outcome(&self, pod: &Value) -> Outcome {
        self.store(pod).map_or_else(
            |message| Outcome::Failed {
                reason: "CopyFailed".to_owned(),
                message,
            },
            |stored| Outcome::Stored(Box::new(stored)),
        )
    }

    fn store(&self, pod: &Value) -> Result<StoredBackup, String> {
        let namespace = text(pod, "/metadata/namespace");
        let task = task(pod).ok_or("the pod has no task")?;
        let donor = self
            .process(namespace, &task.donor.instance)
            .ok_or_else(|| format!("{} cannot be reached", task.donor.instance))?;
        let data = self
            .volume(donor)
            .and_then(|volume| volume.data.as_ref())
            .ok_or("the donor has no data")?;
        let access = self.access(namespace, text(pod, "/metadata/labels/mysql.mainstay.dev~1cluster"))?;
        let now = self.server.clock().now();
        let manifest = BackupManifest {
            format: FORMAT,
            id: task.id.clone(),
            name: Some(task.name.clone()),
            schedule: task.schedule.clone(),
            cluster: access.cluster.clone(),
            instance: task.donor.instance.clone(),
            mysql_version: donor.version.clone(),
            server_uuid: task.donor.server_uuid.clone(),
            epoch: task.epoch,
            gtid_executed: data.executed.clone(),
            started_at: now,
            completed_at: now,
            method: task.method,
            files: vec![StoredFile {
                name: "data.tar.zst".to_owned(),
                size: SIZE / 2,
                sha256: String::new(),
            }],
            encryption: None,
            uncompressed_bytes: SIZE,
            data_bytes: None,
        };
        let json = manifest.to_json().map_err(|error| error.to_string())?;
        let objects = [
            (access.cluster.backup_data(&task.id, false), vec![0]),
            (access.cluster.backup_manifest(&task.id), json),
        ];
        for (key, content) in &objects {
            // In memory nothing is waited for.
            let put = self
                .stores
                .0
                .put(key, content.clone().into(), Existing::Keep)
                .now_or_never();
            put.ok_or("the store does not answer")?
                .map_err(|error| error.to_string())?;
        }
        Ok(StoredBackup {
            size: SIZE,
            stored: SIZE / 2,
            executed: Some(data.executed.clone()),
            location: format!(
                "s3://{}/{}",
                access.store.bucket,
                access.cluster.backup_manifest(&task.id)
            ),
            key_id: None,
            mysql_version: donor.version.clone(),
            completed_at: now,
        })
    }

    /// The access to the store that the pod mounts.
    fn access(&self, namespace: &str, cluster: &str) -> Result<Access, String> {
        let secrets = Resource::find("", "secrets").ok_or("there are no Secrets")?;
        let name = Names::new(namespace, cluster).store_secret();
        let secret = self.server.get(&Key::new(secrets, namespace, &name));
        let secret = secret.ok_or_else(|| format!("there is no Secret {name}"))?;
        let secret: Secret = serde_json::from_value(Value::clone(&secret)).map_err(|error| error.to_string())?;
        let bytes = secret.data.and_then(|mut data| data.remove(ACCESS_FILE));
        let text = bytes
            .and_then(|bytes| String::from_utf8(bytes.0).ok())
            .unwrap_or_default();
        Access::from_json(&text.into()).map_err(|error| error.to_string())
    }
}

fn container(name: &str, state: &Value) -> Value {
    json!({"name": name, "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": state})
}

fn owner(pod: &Value) -> &str {
    text(pod, "/metadata/ownerReferences/0/uid")
}

fn task(pod: &Value) -> Option<Task> {
    Task::from_text(variable(pod, "MAINSTAY_BACKUP")?).ok()
}

/// An environment variable of the container that is judged.
fn variable<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array)?;
    let main = main_container(pod);
    let container = containers.iter().find(|c| text(c, "/name") == main)?;
    let env = container.get("env")?.as_array()?;
    let value = env.iter().find(|env| text(env, "/name") == name)?;
    Some(text(value, "/value"))
}
