//! Execute: the one interpreter of [`Action`]. It makes no choices; what it cannot do it reports.

mod apply;
mod backups;
mod certificates;
mod claims;
mod commands;
mod delete;
mod label;
mod passwords;
mod record;
mod recovery;
mod store;

pub(crate) use record::write_status;

use std::time::Duration;

use kube::Resource as _;
use kube::ResourceExt as _;
use mainstay_api::MySQLCluster;
use mainstay_core::action::Action;
use mainstay_core::names::Names;
use mainstay_core::observed::Observed;
use mainstay_core::rules::Rules;

use crate::class::{self, Class};
use crate::context::Context;
use crate::index::ClusterName;
use crate::pki::PkiError;

/// Why an action was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecuteError {
    /// The API server refused, or was not reached.
    #[error("failed to {attempt}")]
    Kube {
        /// What was attempted.
        attempt: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// The name belongs to somebody else.
    #[error("failed to {attempt}: an object of that name exists and is not part of this cluster")]
    Foreign {
        /// What was attempted.
        attempt: String,
    },
    /// Somebody else wrote first: the rest of the plan is void.
    #[error("failed to {attempt}: the object was changed meanwhile")]
    Lost {
        /// What was attempted.
        attempt: String,
    },
    /// Something that another action makes is not there yet.
    #[error("failed to {attempt}: {missing} is missing")]
    Missing {
        /// What was attempted.
        attempt: String,
        /// What is missing.
        missing: String,
    },
    /// What is declared cannot be used.
    #[error("failed to {attempt}: {reason}")]
    Declared {
        /// What was attempted.
        attempt: String,
        /// What is wrong with which field.
        reason: String,
    },
    /// A certificate could not be made.
    #[error("failed to {attempt}")]
    Pki {
        /// What was attempted.
        attempt: String,
        /// Why it failed.
        source: PkiError,
    },
}

impl ExecuteError {
    /// What it means for the next try.
    #[must_use]
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Kube { source, .. } => class::of_kube(source),
            Self::Foreign { .. } => Class::Wait,
            // The next pass tells it; what is declared is looked up again after a while.
            Self::Lost { .. } | Self::Missing { .. } | Self::Declared { .. } => Class::Retry,
            Self::Pki { .. } => Class::Permanent,
        }
    }

    /// The API server was not reached, or did not answer.
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if class::failure(source) == class::Failure::Network)
    }

    /// The namespace is being deleted, and the cluster with it.
    fn is_terminating(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if class::is_namespace_terminating(source))
    }

    pub(crate) fn kube(attempt: impl Into<String>, source: kube::Error) -> Self {
        let attempt = attempt.into();
        if class::is_conflict(&source) {
            Self::Lost { attempt }
        } else {
            Self::Kube {
                attempt,
                source: Box::new(source),
            }
        }
    }
}

/// What became of a plan.
#[derive(Debug, Default)]
pub(crate) struct Execution {
    /// The memory that a `Record` wrote.
    pub(crate) recorded: Option<Rules>,
    /// What failed; the rest was done.
    pub(crate) failures: Vec<ExecuteError>,
    /// The namespace is being deleted: the rest was not done, and nothing is left to do.
    pub(crate) terminating: bool,
}

/// Carries out the plan of one pass.
pub(crate) struct Executor<'a> {
    context: &'a Context,
    cluster: &'a ClusterName,
    uid: String,
    observed: &'a Observed,
    /// The cluster as it was read or last written in this pass.
    object: MySQLCluster,
}

impl<'a> Executor<'a> {
    pub(crate) fn new(
        context: &'a Context,
        cluster: &'a ClusterName,
        object: MySQLCluster,
        observed: &'a Observed,
    ) -> Self {
        Self {
            context,
            cluster,
            uid: object.uid().unwrap_or_default(),
            observed,
            object,
        }
    }

    /// Carries the actions out in order. An error is a record that was not made: nothing after it was done.
    pub(crate) async fn execute(&mut self, actions: Vec<Action>) -> Result<Execution, ExecuteError> {
        let mut execution = Execution::default();
        for action in actions {
            let done = match action {
                Action::Record(record) => {
                    self.record(&record).await?;
                    execution.recorded = Some(record.rules);
                    continue;
                }
                Action::Command(commands) => {
                    self.command(commands);
                    continue;
                }
                Action::Apply(desired) => self.apply(&desired).await,
                Action::GeneratePasswords {
                    secret,
                    keys,
                    fixed,
                    owned,
                } => self.generate_passwords(&secret, &keys, &fixed, owned).await,
                Action::OwnSecret { secret, owned } => self.own(&secret, owned).await,
                Action::LabelPod { instance, uid, role } => self.label_pod(&instance, &uid, role).await,
                Action::CreateCa { owned } => self.create_ca(owned).await,
                Action::IssueServerCertificate { dns_names, lifetime } => {
                    self.issue_server_certificate(&dns_names, lifetime).await
                }
                Action::WriteClientCa => self.write_client_ca().await,
                Action::WriteStoreAccess { destination } => self.write_store_access(destination.as_deref()).await,
                Action::WriteRecovery { secret, wish } => self.write_recovery(&secret, &wish).await,
                Action::DeletePod {
                    instance,
                    uid,
                    at_once,
                    reason,
                } => self.delete_pod(&instance, &uid, at_once, &reason).await,
                Action::DeleteClaim {
                    instance,
                    uid,
                    resource_version,
                    reason,
                } => self.delete_claim(&instance, &uid, &resource_version, &reason).await,
                Action::GrowClaim {
                    instance,
                    uid,
                    bytes,
                    reason,
                } => self.grow_claim(&instance, &uid, bytes, &reason).await,
                Action::DeleteObject {
                    key,
                    uid,
                    resource_version,
                } => self.delete_object(&key, &uid, &resource_version).await,
            };
            let Err(error) = done else { continue };
            if error.is_terminating() {
                execution.terminating = true;
                break;
            }
            // Nobody answers: the rest would only keep the next pass waiting.
            let unreachable = error.is_unreachable();
            execution.failures.push(error);
            if unreachable {
                break;
            }
        }
        Ok(execution)
    }

    /// The cluster as it is now, for the write of its status.
    pub(crate) fn into_object(self) -> MySQLCluster {
        self.object
    }

    fn names(&self) -> Names {
        Names::new(&self.cluster.namespace, &self.cluster.name)
    }

    fn owner_reference(&self) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference> {
        self.object.controller_owner_ref(&())
    }
}

/// A duration as a person writes it.
pub(crate) fn human(took: Duration) -> String {
    if took < Duration::from_secs(1) {
        format!("{} ms", took.as_millis())
    } else {
        format!("{:.1} s", took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests;
