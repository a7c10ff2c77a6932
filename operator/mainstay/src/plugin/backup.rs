//! `kubectl mainstay backup`: creates a `MySQLBackup`, and with `--wait` shows how far it is.

use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use mainstay_api::backup::{BackupMethod, BackupPhase};
use mainstay_api::{MySQLBackup, MySQLBackupSpec, MySQLBackupStatus, MySQLCluster};
use mainstay_core::names::MAX_BACKUP_NAME;

use super::request::say;
use super::{PluginError, REQUEST_TIMEOUT, Target, connect, get};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Arguments of `backup`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BackupArgs {
    /// Name of the MySQLCluster.
    cluster: String,
    /// Name of the MySQLBackup; default: the cluster's and the time.
    #[arg(long)]
    name: Option<String>,
    /// `physical` (the server's files; default) or `logical` (SQL statements).
    #[arg(long, value_parser = method, value_name = "METHOD")]
    method: Option<BackupMethod>,
    /// Wait until it is stored, and show how far it is.
    #[arg(short, long)]
    wait: bool,
    /// How long to wait, in seconds; default: as long as it takes.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    #[command(flatten)]
    target: Target,
}

/// `mainstay backup CLUSTER`: what to print.
pub(crate) async fn backup(args: &BackupArgs) -> Result<String, PluginError> {
    let (client, namespace) = connect(&args.target).await?;
    let cluster = get(&client, &namespace, &args.cluster).await?;
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| default_name(&args.cluster, Timestamp::now()));
    if let Some(why) = refusal(&cluster) {
        return Err(PluginError::RequestRefused(why));
    }
    create(&client, &namespace, args, &name).await?;
    if args.wait {
        follow(&client, &namespace, &name, args).await
    } else {
        Ok(format!(
            "{name} was created. Follow it with --wait, or: kubectl get myb {name} -n {namespace}\n"
        ))
    }
}

/// `shop-20261129-120311`: for people, so that two within a minute have names of their own.
fn default_name(cluster: &str, now: Timestamp) -> String {
    let end = now.strftime("-%Y%m%d-%H%M%S").to_string();
    let room = MAX_BACKUP_NAME.saturating_sub(end.len());
    let cluster = cluster.get(..room).unwrap_or(cluster).trim_end_matches('-');
    format!("{cluster}{end}")
}

fn method(word: &str) -> Result<BackupMethod, String> {
    let methods = [BackupMethod::Physical, BackupMethod::Logical];
    let found = methods.into_iter().find(|method| method.as_str() == word);
    found.ok_or_else(|| "write physical or logical".to_owned())
}

/// What would keep it from ever being made.
fn refusal(cluster: &MySQLCluster) -> Option<String> {
    cluster.spec.backup.is_none().then(|| {
        "the cluster declares no store: set spec.backup.store (kubectl explain myc.spec.backup.store)".to_owned()
    })
}

async fn create(client: &Client, namespace: &str, args: &BackupArgs, name: &str) -> Result<(), PluginError> {
    let backup = MySQLBackup {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: MySQLBackupSpec {
            cluster: args.cluster.clone(),
            method: args.method,
            store: None,
            schedule: None,
            scheduled_at: None,
        },
        status: None,
    };
    let backups: Api<MySQLBackup> = Api::namespaced(client.clone(), namespace);
    let params = PostParams {
        field_manager: Some("kubectl-mainstay".to_owned()),
        ..PostParams::default()
    };
    tokio::time::timeout(REQUEST_TIMEOUT, backups.create(&params, &backup))
        .await
        .map_err(|_| PluginError::Slow(REQUEST_TIMEOUT.as_secs()))?
        .map_err(|error| PluginError::patch(error, namespace))?;
    Ok(())
}

/// Says what changes until it ended.
async fn follow(client: &Client, namespace: &str, name: &str, args: &BackupArgs) -> Result<String, PluginError> {
    let backups: Api<MySQLBackup> = Api::namespaced(client.clone(), namespace);
    let began = Instant::now();
    let mut told = String::new();
    loop {
        let looked = tokio::time::timeout(REQUEST_TIMEOUT, backups.get_opt(name)).await;
        let backup = looked
            .map_err(|_| PluginError::Slow(REQUEST_TIMEOUT.as_secs()))?
            .map_err(|error| PluginError::request(error, namespace))?;
        let Some(backup) = backup else {
            return Err(PluginError::RequestFailed(format!("{name} was deleted meanwhile")));
        };
        let status = backup.status.unwrap_or_default();
        match status.phase {
            Some(BackupPhase::Succeeded) => return Ok(format!("{}\n", done(name, &status))),
            Some(BackupPhase::Failed) => {
                let why = status
                    .error
                    .map_or_else(String::new, |error| format!(": {}", error.message));
                return Err(PluginError::RequestFailed(format!("{name} failed{why}")));
            }
            Some(BackupPhase::Pending | BackupPhase::Running) | None => {}
        }
        if let Some(waited) = args.timeout.filter(|limit| began.elapsed().as_secs() >= *limit) {
            return Err(PluginError::BackupUnfinished {
                waited,
                name: name.to_owned(),
                namespace: namespace.to_owned(),
            });
        }
        let line = line(name, &status);
        if line != told {
            say(&format!("{line}\n"));
            told = line;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// `shop-20261129-120311  physical from shop-2   copied 2.1 GB of 5.1 GB, 210.0 MB/s, 15 s left`.
fn line(name: &str, status: &MySQLBackupStatus) -> String {
    let method = status.method.unwrap_or_default().as_str();
    let from = status
        .instance
        .as_ref()
        .map(|instance| format!("{method} from {instance}   "));
    let message = status.message.as_deref().unwrap_or("waits for the operator");
    format!("{name}  {}{message}", from.unwrap_or_default())
}

/// `shop-20261129-120311  done in 24 s: 5.1 GB, stored in 2.4 GB, GTID …, s3://…`.
fn done(name: &str, status: &MySQLBackupStatus) -> String {
    let took = status.started_at.as_ref().zip(status.completed_at.as_ref());
    let took = took.map(|(began, ended)| format!(" in {} s", ended.0.duration_since(began.0).as_secs()));
    let parts = [
        status.message.clone(),
        status.gtid_executed.as_ref().map(|set| format!("GTID {set}")),
        status.location.clone(),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{name}  done{}: {}", took.unwrap_or_default(), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugin::fixtures;

    fn status(value: serde_json::Value) -> MySQLBackupStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_method_is_a_word() {
        assert_eq!(method("logical"), Ok(BackupMethod::Logical));
        assert_eq!(method("physical"), Ok(BackupMethod::Physical));
        assert!(method("Logical").is_err());
    }

    #[test]
    fn names_fit_and_are_of_the_time() {
        let now = fixtures::now();
        assert_eq!(default_name("shop", now), "shop-20261129-120000");
        let long = default_name(&"c".repeat(63), now);
        assert_eq!(long.len(), MAX_BACKUP_NAME);
    }

    #[test]
    fn a_backup_says_where_it_is() {
        assert_eq!(line("b", &status(json!({}))), "b  waits for the operator");
        let running = json!({"phase": "Running", "method": "physical", "instance": "shop-2",
            "message": "copied 2.1 GB of 5.1 GB, 210.0 MB/s, 15 s left"});
        assert_eq!(
            line("b", &status(running)),
            "b  physical from shop-2   copied 2.1 GB of 5.1 GB, 210.0 MB/s, 15 s left"
        );
        let stored = json!({"phase": "Succeeded", "message": "5.1 GB, stored in 2.4 GB", "gtidExecuted": "3f2a:1-88121",
            "location": "s3://shop-backups/x/manifest.json", "startedAt": "2026-11-29T12:00:00.000000Z",
            "completedAt": "2026-11-29T12:00:24.100000Z"});
        assert_eq!(
            done("b", &status(stored)),
            "b  done in 24 s: 5.1 GB, stored in 2.4 GB, GTID 3f2a:1-88121, s3://shop-backups/x/manifest.json"
        );
    }

    #[test]
    fn a_cluster_without_a_store_is_told_before_anything_is_created() {
        let cluster = fixtures::cluster(json!({}));
        assert!(refusal(&cluster).unwrap().contains("spec.backup.store"));
    }
}
