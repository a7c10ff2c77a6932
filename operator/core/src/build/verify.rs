//! The Job of a verification (docs/backup.md, "The Job of a verification"): that of a backup, without a way to an instance, and
//! with what decrypts.

use k8s_openapi::api::batch::v1::Job;

use super::backup::{job, labels, mount, of_every_program, program, spec};
use super::map;
use super::pod::volumes;
use crate::backup::verify::VerificationStart;
use crate::layout;
use crate::names::{ANNOTATION_DUE, LABEL_VERIFIES};
use crate::validate::ValidatedCluster;

/// Container that verifies: what it says counts, whatever else runs in the pod (case F24).
pub const VERIFY_CONTAINER: &str = "verify";

const KEYS: &str = "keys";

/// The Job. It is created and never changed.
#[must_use]
pub fn verify_job(cluster: &ValidatedCluster, operator_image: &str, start: &VerificationStart) -> Job {
    let labels = labels(cluster, LABEL_VERIFIES, &start.task.name);
    let mut container = program(cluster, VERIFY_CONTAINER, (layout::env::VERIFY, start.task.to_text()));
    let mut volumes = of_every_program(cluster, &labels);
    // The user's own Secret, and all of it: what was stored before a rotation needs the key of then. No copy is made.
    let key = cluster
        .backup
        .as_ref()
        .and_then(|backup| backup.destination.key.as_ref());
    if let Some(entry) = key {
        volumes.push(volumes::secret(KEYS, entry.name.clone(), &[]));
        let mounts = container.volume_mounts.get_or_insert_default();
        mounts.push(mount(KEYS, layout::KEYS_DIR, true));
    }
    let pod = spec(cluster, operator_image, container, volumes);
    let due = start.due.to_string();
    job(cluster, &start.job, labels, map([(ANNOTATION_DUE, due.as_str())]), pod)
}
