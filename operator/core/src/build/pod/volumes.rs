//! Volumes of an instance's pod, and where they are mounted.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::layout::{
    APP_SECRET_DIR, BIN_DIR, CLIENT_CA_DIR, CONFIG_DIR, ROOT_SECRET_DIR, RUN_DIR, SERVER_TLS_DIR, SYSTEM_SECRET_DIR,
    VOLUME,
};
use crate::names::CLAIM_TEMPLATE;
use crate::validate::ValidatedCluster;

/// Readable by MySQL's group only.
const SECRET_MODE: i32 = 0o440;

/// Volumes besides the claim, which the StatefulSet adds.
pub(super) fn volumes(cluster: &ValidatedCluster, config: &str) -> Vec<Volume> {
    let names = cluster.names();
    let mut volumes = vec![
        Volume {
            name: "bin".to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        },
        Volume {
            name: "run".to_owned(),
            // In memory: it holds sockets, and passwords on their way into mysqld.
            empty_dir: Some(EmptyDirVolumeSource {
                medium: Some("Memory".to_owned()),
                size_limit: Some(Quantity("16Mi".to_owned())),
            }),
            ..Volume::default()
        },
        Volume {
            name: "config".to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: config.to_owned(),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        },
        secret("system", names.system_secret(), &[]),
        secret("root", names.root_secret(), &[]),
        secret("server-tls", names.server_tls_secret(), &[]),
        secret("client-ca", names.client_ca_secret(), &[]),
    ];
    if cluster.application.is_some() {
        volumes.push(secret("app", names.app_secret(), &["password"]));
    }
    volumes
}

/// Mounts of the mysql container.
pub(super) fn mounts(cluster: &ValidatedCluster) -> Vec<VolumeMount> {
    let mut mounts = vec![
        mount(CLAIM_TEMPLATE, VOLUME, false),
        mount("bin", BIN_DIR, true),
        mount("run", RUN_DIR, false),
        mount("config", CONFIG_DIR, true),
        mount("system", SYSTEM_SECRET_DIR, true),
        mount("root", ROOT_SECRET_DIR, true),
        mount("server-tls", SERVER_TLS_DIR, true),
        mount("client-ca", CLIENT_CA_DIR, true),
    ];
    if cluster.application.is_some() {
        mounts.push(mount("app", APP_SECRET_DIR, true));
    }
    mounts
}

pub(super) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// A Secret's keys as files; all of them when none is named.
fn secret(volume: &str, name: String, keys: &[&str]) -> Volume {
    use k8s_openapi::api::core::v1::KeyToPath;
    let items = keys.iter().map(|key| KeyToPath { key: (*key).to_owned(), path: (*key).to_owned(), mode: None });
    Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(name),
            default_mode: Some(SECRET_MODE),
            items: (!keys.is_empty()).then(|| items.collect()),
            optional: None,
        }),
        ..Volume::default()
    }
}
