//! What is declared of backups, and backups that were asked for.

use jiff::Timestamp;
use mainstay_api::{MySQLBackupSpec, MySQLBackupStatus};
use mainstay_core::backup::plan::BackupSeen;
use mainstay_core::validate::ValidatedCluster;
use serde_json::{Value, json};

/// A cluster that declares this as `spec.backup`.
pub(crate) fn with_backup(backup: &Value) -> ValidatedCluster {
    let cluster = serde_json::from_value(json!({
        "apiVersion": "mysql.mainstay.dev/v1",
        "kind": "MySQLCluster",
        "metadata": {"name": "shop", "namespace": "prod", "uid": "uid-shop", "generation": 1},
        "spec": {"replicas": 3, "image": "mysql:9.7.4", "storage": {"size": "1Gi"}, "backup": backup}
    }));
    ValidatedCluster::new(&cluster.unwrap()).unwrap()
}

/// A backup of which nothing is known but that it was asked for.
pub(crate) fn asked_for(name: &str, created_at: Timestamp) -> BackupSeen {
    BackupSeen {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        created_at,
        deleting: false,
        spec: MySQLBackupSpec {
            cluster: "shop".to_owned(),
            method: None,
            store: None,
            schedule: None,
            scheduled_at: None,
        },
        status: MySQLBackupStatus::default(),
    }
}
