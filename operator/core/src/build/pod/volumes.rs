//! What is mounted where (see `layout`).

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, KeyToPath, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::build::config_hash;
use crate::layout;
use crate::names::CLAIM_TEMPLATE;
use crate::validate::ValidatedCluster;

/// The instance manager's binary.
pub(in crate::build) const BIN: &str = "bin";
const RUN: &str = "run";
const CONFIG: &str = "config";
const SYSTEM: &str = "system";
const ROOT: &str = "root";
const APP: &str = "app";
const SERVER_TLS: &str = "server-tls";
const CLIENT_CA: &str = "client-ca";
const STORE: &str = "store";
const RECOVERY: &str = "recovery";
/// The only key that an instance needs of a Secret for people.
const PASSWORD: &str = "password";

/// Names of the volumes that the template declares; the claim's comes on top.
pub(in crate::build) const NAMES: [&str; 10] = [
    BIN, RUN, CONFIG, SYSTEM, ROOT, APP, SERVER_TLS, CLIENT_CA, STORE, RECOVERY,
];

/// Readable by the group that fsGroup gives the files to, by nobody else.
const SECRET_MODE: i32 = 0o440;

pub(super) fn of_pod(cluster: &ValidatedCluster) -> Vec<Volume> {
    let names = cluster.names();
    let mut volumes = vec![
        empty(BIN, EmptyDirVolumeSource::default()),
        // Sockets, and the file with which the server sets passwords at its start: in memory, never on a node's disk.
        empty(
            RUN,
            EmptyDirVolumeSource {
                medium: Some("Memory".to_owned()),
                size_limit: Some(Quantity("32Mi".to_owned())),
            },
        ),
        Volume {
            name: CONFIG.to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: names.config_map(&config_hash(cluster)),
                ..Default::default()
            }),
            ..Default::default()
        },
        secret(SYSTEM, names.system_secret(), &[]),
        secret(ROOT, names.root_secret(), &[PASSWORD]),
        secret(SERVER_TLS, names.server_tls_secret(), &[]),
        secret(CLIENT_CA, names.client_ca_secret(), &[]),
        // Always in the template, whether they exist or not: a store that is declared later restarts no server.
        optional(secret(STORE, names.store_secret(), &[])),
        optional(secret(RECOVERY, names.recovery_secret(), &[])),
    ];
    volumes.extend(
        cluster
            .application
            .iter()
            .map(|_| secret(APP, names.app_secret(), &[PASSWORD])),
    );
    volumes
}

pub(super) fn of_mysql(cluster: &ValidatedCluster) -> Vec<VolumeMount> {
    let mount = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..Default::default()
    };
    let mut mounts = vec![
        mount(CLAIM_TEMPLATE, layout::VOLUME, false),
        mount(RUN, layout::RUN_DIR, false),
        mount(BIN, layout::BIN_DIR, true),
        mount(CONFIG, layout::CONFIG_DIR, true),
        mount(SYSTEM, layout::SYSTEM_SECRET_DIR, true),
        mount(ROOT, layout::ROOT_SECRET_DIR, true),
        mount(SERVER_TLS, layout::SERVER_TLS_DIR, true),
        mount(CLIENT_CA, layout::CLIENT_CA_DIR, true),
        mount(STORE, layout::STORE_DIR, true),
        mount(RECOVERY, layout::RECOVERY_DIR, true),
    ];
    mounts.extend(
        cluster
            .application
            .iter()
            .map(|_| mount(APP, layout::APP_SECRET_DIR, true)),
    );
    mounts
}

pub(in crate::build) fn empty(name: &str, source: EmptyDirVolumeSource) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(source),
        ..Default::default()
    }
}

fn optional(volume: Volume) -> Volume {
    Volume {
        secret: volume.secret.map(|source| SecretVolumeSource {
            optional: Some(true),
            ..source
        }),
        ..volume
    }
}

/// A Secret's keys as files; all of them when none is named.
pub(in crate::build) fn secret(volume: &str, secret: String, keys: &[&str]) -> Volume {
    let items = keys.iter().map(|&key| KeyToPath {
        key: key.to_owned(),
        path: key.to_owned(),
        mode: None,
    });
    Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret),
            default_mode: Some(SECRET_MODE),
            items: Some(items.collect::<Vec<_>>()).filter(|items| !items.is_empty()),
            optional: None,
        }),
        ..Default::default()
    }
}
