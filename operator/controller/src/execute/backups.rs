//! The interpreter of [`BackupAction`]. What takes long is begun here and goes on in the background.

use k8s_openapi::api::batch::v1::Job;
use kube::api::Preconditions;
use kube::core::ObjectMeta;
use mainstay_api::backup::BackupPhase;
use mainstay_api::{MySQLBackup, MySQLBackupSpec, MySQLBackupStatus};
use mainstay_core::backup::plan::BackupAction;
use mainstay_core::backup::verify::VerificationStart;
use mainstay_core::build::{BackupStart, backup_job, verify_job};
use mainstay_core::validate::ValidatedCluster;

use super::{ExecuteError, Executor};
use crate::backups::Work;
use crate::class::is_conflict;
use crate::events::Line;
use crate::observe::is_ours;
use crate::views;

impl Executor<'_> {
    /// Carries the actions out in order; what failed. An API server that does not answer ends it.
    pub(crate) async fn execute_backups(
        &self,
        spec: Option<&ValidatedCluster>,
        actions: Vec<BackupAction>,
    ) -> Vec<ExecuteError> {
        let mut failures = Vec::new();
        for action in actions {
            let done = match action {
                BackupAction::Create { name, spec } => self.create_backup(&name, *spec).await,
                BackupAction::Start(start) => match spec {
                    Some(spec) => self.start_backup(spec, &start).await,
                    // It is planned with a spec only.
                    None => Ok(()),
                },
                BackupAction::Verify(start) => match spec {
                    Some(spec) => self.start_verification(spec, &start).await,
                    None => Ok(()),
                },
                BackupAction::Report {
                    backup,
                    uid,
                    status,
                    unless_job,
                } => self.report_backup(&backup, &uid, *status, unless_job.as_deref()).await,
                BackupAction::DeleteJob { name, uid } => self.delete_job(&name, &uid).await,
                BackupAction::Expire { .. } | BackupAction::Prune { .. } => {
                    self.delete_stored(spec, action);
                    Ok(())
                }
            };
            let Err(error) = done else { continue };
            if error.is_terminating() {
                break;
            }
            let unreachable = error.is_unreachable();
            failures.push(error);
            if unreachable {
                break;
            }
        }
        failures
    }

    /// One of that name is the same one: its name is made from the due time.
    async fn create_backup(&self, name: &str, spec: MySQLBackupSpec) -> Result<(), ExecuteError> {
        let backup = MySQLBackup {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.cluster.namespace.clone()),
                labels: Some(self.names().labels_of_backup()),
                ..ObjectMeta::default()
            },
            spec,
            status: None,
        };
        let backups = self.context.requests.typed::<MySQLBackup>(&self.cluster.namespace);
        match backups.create(&backup).await {
            Ok(created) => {
                tracing::info!(name, schedule = created.spec.schedule, "created a backup that is due");
                self.keep_backup(created);
                Ok(())
            }
            // The watch tells of it.
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(ExecuteError::kube(format!("create the MySQLBackup {name}"), error)),
        }
    }

    async fn start_backup(&self, spec: &ValidatedCluster, start: &BackupStart) -> Result<(), ExecuteError> {
        let job = backup_job(spec, &self.context.operator_image, start);
        if self.create_job(&start.job, &job).await? {
            let donor = &start.task.donor.instance;
            tracing::info!(backup = start.backup, donor, "started a backup");
        }
        Ok(())
    }

    async fn start_verification(&self, spec: &ValidatedCluster, start: &VerificationStart) -> Result<(), ExecuteError> {
        let job = verify_job(spec, &self.context.operator_image, start);
        if self.create_job(&start.job, &job).await? {
            tracing::info!(backup = start.task.name, "started a verification");
        }
        Ok(())
    }

    /// Creates a Job, and never changes one that exists; whether there was none.
    async fn create_job(&self, name: &str, job: &Job) -> Result<bool, ExecuteError> {
        let attempt = || format!("create the Job {name}");
        let jobs = self.context.requests.typed::<Job>(&self.cluster.namespace);
        match jobs.create(job).await {
            Ok(created) => {
                self.keep_job(&created);
                Ok(true)
            }
            Err(error) if is_conflict(&error) => {
                let found = jobs
                    .get(name)
                    .await
                    .map_err(|error| ExecuteError::kube(attempt(), error))?;
                match found {
                    // Ours, of whatever backup: the next pass looks at it.
                    Some(job) if is_ours(&job.metadata, self.cluster, &self.uid) => self.keep_job(&job),
                    // Of a former cluster of this name: Kubernetes deletes it.
                    Some(job) if self.is_left_behind(&job.metadata) => {
                        return Err(ExecuteError::Lost { attempt: attempt() });
                    }
                    Some(_) => self.context.memories.foreign_job(self.cluster, name),
                    None => return Err(ExecuteError::Lost { attempt: attempt() }),
                }
                self.context.triggers.poke(self.cluster);
                Ok(false)
            }
            Err(error) => Err(ExecuteError::kube(attempt(), error)),
        }
    }

    /// Writes a status over the one that was seen. `unless_job`: that there is no such Job is asked of the API server, because a
    /// cache may not know it yet.
    async fn report_backup(
        &self,
        name: &str,
        uid: &str,
        status: MySQLBackupStatus,
        unless_job: Option<&str>,
    ) -> Result<(), ExecuteError> {
        let attempt = || format!("write the status of the MySQLBackup {name}");
        if let Some(job) = unless_job {
            let jobs = self.context.requests.typed::<Job>(&self.cluster.namespace);
            let found = jobs
                .get(job)
                .await
                .map_err(|error| ExecuteError::kube(attempt(), error))?;
            if let Some(found) = found {
                self.keep_job(&found);
                self.context.triggers.poke(self.cluster);
                return Ok(());
            }
        }
        let known = self.context.world.backups.get(self.cluster, name);
        let Some(known) = known.filter(|known| known.metadata.uid.as_deref() == Some(uid)) else {
            return Ok(());
        };
        let before = known.status.as_ref().and_then(|status| status.phase);
        let wanted = MySQLBackup {
            status: Some(status.clone()),
            ..(*known).clone()
        };
        let backups = self.context.requests.typed::<MySQLBackup>(&self.cluster.namespace);
        let written = backups
            .replace_status(name, &wanted)
            .await
            .map_err(|error| ExecuteError::kube(attempt(), error))?;
        self.keep_backup(written.clone());
        self.tell_backup(&written, before, &status);
        Ok(())
    }

    /// An event for its begin and its end, about the backup and about its cluster.
    fn tell_backup(&self, backup: &MySQLBackup, before: Option<BackupPhase>, status: &MySQLBackupStatus) {
        if before == status.phase {
            return;
        }
        let name = backup.metadata.name.as_deref().unwrap_or_default();
        let message = status.message.as_deref().unwrap_or_default();
        let line = match status.phase {
            Some(BackupPhase::Running) => {
                let donor = status.instance.as_deref().unwrap_or_default();
                Line::normal("BackupStarted", "Backup", format!("{name} copies {donor}"))
            }
            Some(BackupPhase::Succeeded) => Line::normal("BackupSucceeded", "Backup", format!("{name}: {message}")),
            Some(BackupPhase::Failed) => Line::warning("BackupFailed", "Backup", format!("{name}: {message}")),
            Some(BackupPhase::Pending) | None => return,
        };
        self.context.events.publish(backup, line.clone());
        self.context.events.publish(&self.object, line);
    }

    async fn delete_job(&self, name: &str, uid: &str) -> Result<(), ExecuteError> {
        let jobs = self.context.requests.typed::<Job>(&self.cluster.namespace);
        let seen = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        let deleted = jobs.delete(name, seen, None).await;
        if deleted.map_err(|error| ExecuteError::kube(format!("delete the Job {name}"), error))? {
            tracing::info!(name, "deleted the Job of a backup or verification that ended");
        }
        Ok(())
    }

    /// Deletions in the store take as long as the store takes.
    fn delete_stored(&self, spec: Option<&ValidatedCluster>, action: BackupAction) {
        let Some(backup) = spec.and_then(|spec| spec.backup.as_ref()) else {
            return;
        };
        let policies = backup.settings.policies.clone();
        let work = Work::new(self.context, self.cluster, &self.uid);
        let about = self.object.clone();
        self.context
            .leadership
            .spawn(async move { work.delete(about, policies, action).await });
    }

    /// Lets the next pass see what was written before the watch tells it.
    fn keep_backup(&self, backup: MySQLBackup) {
        if let Some(entry) = views::backup(backup) {
            self.context.world.backups.put(entry);
        }
    }

    fn keep_job(&self, job: &Job) {
        if let Some(entry) = views::job(job) {
            self.context.world.jobs.put(entry);
        }
    }
}
