//! `spec.backup` of a `MySQLCluster`: what is stored, when, where, and for how long.

#![expect(
    unreachable_pub,
    reason = "KubeSchema copies each struct into a function, with its visibility"
)]

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backup::BackupMethod;
use crate::store::{Encryption, Store};

/// Backups of a cluster and the archive of its binlogs.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupSettings {
    /// Where backups and the archive are stored.
    pub store: Store,

    /// When backups are made; several schedules may stand side by side.
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<BackupSchedule>,

    /// How long backups are kept whose schedule says nothing, does not exist any more, or that were made by hand; unset: for
    /// ever. The newest one that succeeded is never deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,

    /// Encrypts everything before it leaves the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,

    /// Continuous archive of the binlogs, for recovery to a point in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Archive>,

    /// Restores the newest backup and its archive into a throw-away instance, and records that it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,

    /// Volume on which a backup is copied and booted before it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<BackupVolume>,
}

/// When backups are made.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupSchedule {
    /// Name: at most 20 lower case letters, digits and `-`, because the names of backups are derived from it.
    #[schemars(length(min = 1, max = 20), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Five fields of cron (minute, hour, day of the month, month, day of the week), six with seconds in front, or `@hourly`,
    /// `@daily`, `@weekly`, `@monthly`, `@yearly`. What cannot be read is told in the condition `SpecAccepted`.
    #[schemars(length(min = 1, max = 120))]
    #[x_kube(validation = Rule::new("!self.contains('TZ=')").message("set timeZone instead of a zone in the schedule"))]
    pub schedule: String,

    /// Time zone of the schedule, for example `Europe/Berlin`; default `UTC`.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_+/-]+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,

    /// No run begins while this is true; what was missed is made up once afterwards. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// Whether the first run begins at once and not at the first due time. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub immediate: Option<bool>,

    /// `physical` (default) or `logical`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<BackupMethod>,

    /// How long the backups of this schedule are kept; unset: as `spec.backup.retention` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// How long backups are kept: with both members a backup must satisfy both to stay.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.count) || has(self.age)").message("set count, age or both; without a retention backups are kept for ever"))]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// Number of backups that succeeded.
    #[schemars(range(min = 1, max = 10000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,

    /// Age in hours, days or weeks, for example `36h`, `30d`, `12w`.
    #[schemars(length(min = 2, max = 6))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]*[hdw]$')").message("write a number of hours, days or weeks, for example 36h, 30d or 12w"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<String>,
}

/// Continuous archive of the binlogs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Archive {
    /// Whether the primary stores its binlogs as it writes them; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// When the newest backup is tried out.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// As in `schedules`.
    #[schemars(length(min = 1, max = 120))]
    #[x_kube(validation = Rule::new("!self.contains('TZ=')").message("set timeZone instead of a zone in the schedule"))]
    pub schedule: String,

    /// Time zone of the schedule; default `UTC`.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_+/-]+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,

    /// No run begins while this is true. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

/// Volume on which a backup is copied and booted; deleted when the backup has ended.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupVolume {
    /// StorageClass; unset: that of the instances.
    #[schemars(length(min = 1, max = 253))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,

    /// Size; unset: that of the instances.
    #[schemars(schema_with = "crate::schema::quantity")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
}
