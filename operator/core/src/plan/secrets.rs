//! Passwords and certificates: made once, renewed in time, never replaced under a data directory that needs them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::action::Action;
use crate::layout::{PORT_MYSQL, SYSTEM_ACCOUNTS};
use crate::observed::{CertificateView, InstanceObserved, ObjectKey, ObjectKind, ObjectView, Observed, StoreSecret};
use crate::plan::draft::Draft;
use crate::subject::Subject;
use crate::validate::ValidatedCluster;

/// A CA is replaced when less than this is left of it: a third of its ten years.
const CA_RENEWAL: SignedDuration = SignedDuration::from_hours(10 * 365 * 24 / 3);

/// A generated Secret with passwords.
struct Wanted {
    name: String,
    /// Random values, and what is composed of them.
    keys: Vec<String>,
    fixed: Vec<(String, String)>,
}

impl Wanted {
    fn missing(&self, observed: &Observed) -> Vec<String> {
        let there = observed.secrets.keys.get(&self.name);
        let all = self.keys.iter().chain(self.fixed.iter().map(|(key, _)| key));
        all.filter(|key| !there.is_some_and(|there| there.contains(key)))
            .cloned()
            .collect()
    }

    /// Keys with values that a data directory was made with.
    fn secret_missing(&self, observed: &Observed) -> Vec<String> {
        let composed = |key: &String| key == "uri" || self.fixed.iter().any(|(fixed, _)| fixed == key);
        self.missing(observed)
            .into_iter()
            .filter(|key| !composed(key))
            .collect()
    }
}

fn wanted(subject: &Subject<'_>, spec: Option<&ValidatedCluster>) -> Vec<Wanted> {
    let names = subject.names();
    let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let connection = |user: &str, database: Option<&str>| {
        let mut fixed = vec![
            ("username".to_owned(), user.to_owned()),
            ("host".to_owned(), names.service_host(&names.primary_service())),
            ("port".to_owned(), PORT_MYSQL.to_string()),
        ];
        fixed.extend(database.map(|database| ("database".to_owned(), database.to_owned())));
        fixed
    };
    let mut secrets = vec![
        Wanted {
            name: names.system_secret(),
            keys: text(&SYSTEM_ACCOUNTS),
            fixed: Vec::new(),
        },
        Wanted {
            name: names.root_secret(),
            keys: text(&["password", "uri"]),
            fixed: connection("root", None),
        },
    ];
    if let Some(app) = spec.and_then(|spec| spec.application.as_ref()) {
        let fixed = connection(&app.user, Some(&app.database));
        secrets.push(Wanted {
            name: names.app_secret(),
            keys: text(&["password", "uri"]),
            fixed,
        });
    }
    secrets
}

/// Secrets that lack a password with which an existing data directory was made, and what each lacks: generating another
/// one would lock everybody out.
pub(crate) fn incomplete(subject: &Subject<'_>, observed: &Observed) -> Vec<(String, Vec<String>)> {
    if !has_data(observed) {
        return Vec::new();
    }
    let secrets = wanted(subject, subject.spec.ok());
    let lacking = secrets.into_iter().map(|secret| {
        let missing = secret.secret_missing(observed);
        (secret.name, missing)
    });
    lacking.filter(|(_, missing)| !missing.is_empty()).collect()
}

/// A volume was bound, or a primary was elected: there is data that was made with the passwords.
fn has_data(observed: &Observed) -> bool {
    let bound = observed.instances.iter().filter_map(|instance| instance.claim.as_ref());
    bound.into_iter().any(|claim| claim.phase != "Pending") || observed.rules().is_some()
}

/// Makes what is missing and renews what ends.
pub(crate) fn plan(subject: &Subject<'_>, observed: &Observed, building: bool, now: Timestamp, draft: &mut Draft) {
    if let (true, Ok(spec)) = (building, subject.spec) {
        for secret in wanted(subject, Some(spec)) {
            if ours(observed, &secret.name) && !secret.missing(observed).is_empty() {
                let Wanted { name, keys, fixed } = secret;
                let owned = deletes_all(observed, spec);
                draft.push(Action::GeneratePasswords {
                    secret: name,
                    keys,
                    fixed,
                    owned,
                });
            }
        }
    }
    if let Ok(spec) = subject.spec {
        ownership(subject, observed, spec, draft);
        store_access(subject, observed, spec, draft);
    }
    certificates(subject, observed, now, draft);
}

/// The access to the store, whenever nobody knows that it is what is declared. What is refused is looked at again when the
/// Secrets that are named change.
fn store_access(subject: &Subject<'_>, observed: &Observed, spec: &ValidatedCluster, draft: &mut Draft) {
    match observed.secrets.store {
        StoreSecret::Outdated if ours(observed, &subject.names().store_secret()) => {
            let destination = spec.backup.as_ref().map(|backup| Box::new(backup.destination.clone()));
            draft.push(Action::WriteStoreAccess { destination });
        }
        StoreSecret::Outdated | StoreSecret::Current | StoreSecret::Refused { .. } | StoreSecret::Unknown => {}
    }
}

/// Whether nothing is left of the data when the cluster is deleted. The claims of instances that went when `replicas` was
/// lowered stay under either policy, and are of no use without the passwords and the CA.
fn deletes_all(observed: &Observed, spec: &ValidatedCluster) -> bool {
    let stays = |instance: &InstanceObserved| instance.ordinal >= spec.replicas && instance.claim.is_some();
    spec.deletes_data() && !observed.instances.iter().any(stays)
}

/// Secrets without which kept data is useless are deleted with the cluster only if all of the data is, as the policy says now.
fn ownership(subject: &Subject<'_>, observed: &Observed, spec: &ValidatedCluster, draft: &mut Draft) {
    let names = subject.names();
    let owned = deletes_all(observed, spec);
    let kept = wanted(subject, Some(spec)).into_iter().map(|secret| secret.name);
    for secret in kept.chain([names.ca_secret()]) {
        let key = ObjectKey {
            kind: ObjectKind::Secret,
            name: secret,
        };
        let other = |view: &ObjectView| view.ours && is_owned(view) != owned;
        if observed.objects.get(&key).is_some_and(other) {
            let secret = key.name;
            draft.push(Action::OwnSecret { secret, owned });
        }
    }
}

/// It is deleted with its cluster.
fn is_owned(view: &ObjectView) -> bool {
    let owners = view.value.pointer("/metadata/ownerReferences");
    let mut owners = owners.and_then(serde_json::Value::as_array).into_iter().flatten();
    owners.any(|owner| owner.get("controller") == Some(&serde_json::Value::Bool(true)))
}

/// Nobody else's Secret has that name.
fn ours(observed: &Observed, name: &str) -> bool {
    let key = ObjectKey {
        kind: ObjectKind::Secret,
        name: name.to_owned(),
    };
    observed.objects.get(&key).is_none_or(|secret| secret.ours)
}

/// Certificates go on being renewed while the spec is not valid: with the names and the lifetime that they have.
fn certificates(subject: &Subject<'_>, observed: &Observed, now: Timestamp, draft: &mut Draft) {
    let names = subject.names();
    let free = [names.ca_secret(), names.server_tls_secret(), names.client_ca_secret()];
    if !free.iter().all(|name| ours(observed, name)) {
        return;
    }
    let secrets = &observed.secrets;
    let owned = subject.spec.is_ok_and(|spec| deletes_all(observed, spec));
    let ca_ends = secrets
        .ca_expires
        .is_none_or(|expires| expires.duration_since(now) <= CA_RENEWAL);
    if ca_ends && (subject.spec.is_ok() || secrets.ca_expires.is_some()) {
        draft.push(Action::CreateCa { owned });
    }
    let (dns_names, lifetime) = match (subject.spec, &secrets.server) {
        (Ok(spec), _) => (spec.certificate_names(), spec.certificate_lifetime),
        (Err(_), Some(server)) => (server.dns_names.clone(), lifetime(server)),
        // Nothing was built yet.
        (Err(_), None) => return,
    };
    match &secrets.server {
        Some(server) if server.dns_names == dns_names && now < renewal(server) => {
            draft.look_in(Duration::try_from(renewal(server).duration_since(now)).unwrap_or_default());
        }
        Some(_) | None => draft.push(Action::IssueServerCertificate { dns_names, lifetime }),
    }
    if !secrets.client_ca_current {
        draft.push(Action::WriteClientCa);
    }
}

fn lifetime(certificate: &CertificateView) -> Duration {
    Duration::try_from(certificate.not_after.duration_since(certificate.not_before)).unwrap_or_default()
}

/// After two thirds of its lifetime.
fn renewal(certificate: &CertificateView) -> Timestamp {
    let two_thirds = lifetime(certificate) / 3 * 2;
    certificate
        .not_before
        .checked_add(two_thirds)
        .unwrap_or(certificate.not_after)
}
