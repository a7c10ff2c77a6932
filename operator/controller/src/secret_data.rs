//! Reading and writing the data of Secrets. Private values come out as `SecretString` and go in from one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use secrecy::{ExposeSecret as _, SecretString};

use crate::pki::Pair;

/// Key of a certificate.
pub(crate) const TLS_CRT: &str = "tls.crt";
/// Key of its private key.
pub(crate) const TLS_KEY: &str = "tls.key";
/// Key of the CA certificates by which others are known.
pub(crate) const CA_CRT: &str = "ca.crt";
/// Type of a Secret that holds a certificate and its key.
pub(crate) const TLS_TYPE: &str = "kubernetes.io/tls";

/// Key of a connection URI, which is composed of the others.
pub(crate) const URI: &str = "uri";
/// Key of the password that a URI holds.
pub(crate) const PASSWORD: &str = "password";

/// Keys whose values are public.
const PUBLIC: [&str; 2] = [TLS_CRT, CA_CRT];

/// A Secret with a name and nothing else but our label.
pub(crate) fn named(namespace: &str, name: &str) -> Secret {
    let labels = BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "mainstay".to_owned())]);
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..Secret::default()
    }
}

/// A public value.
pub(crate) fn text(secret: &Secret, key: &str) -> Option<String> {
    let value = &secret.data.as_ref()?.get(key)?.0;
    String::from_utf8(value.clone()).ok().filter(|text| !text.is_empty())
}

/// A private value.
pub(crate) fn secret(secret: &Secret, key: &str) -> Option<SecretString> {
    text(secret, key).map(SecretString::from)
}

/// Sets a public value.
pub(crate) fn set_text(secret: &mut Secret, key: &str, value: &str) {
    secret
        .data
        .get_or_insert_default()
        .insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
}

/// Sets a private value.
pub(crate) fn set_secret(secret: &mut Secret, key: &str, value: &SecretString) {
    set_text(secret, key, value.expose_secret());
}

/// Sets a certificate and its key.
pub(crate) fn set_pair(secret: &mut Secret, pair: &Pair) {
    set_text(secret, TLS_CRT, &pair.certificate);
    set_secret(secret, TLS_KEY, &pair.key);
}

/// Percent-encodes everything but the unreserved characters of RFC 3986; a person may have chosen the value.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// The URI holds another password than the Secret: somebody changed the password, and the URI is composed anew.
fn is_outdated(data: &BTreeMap<String, ByteString>) -> bool {
    let text = |key: &str| data.get(key).and_then(|value| std::str::from_utf8(&value.0).ok());
    let (Some(uri), Some(password)) = (text(URI), text(PASSWORD).filter(|password| !password.is_empty())) else {
        return false;
    };
    let escaped = SecretString::from(escape(password));
    let held = SecretString::from(format!(":{}@", escaped.expose_secret()));
    !uri.contains(held.expose_secret())
}

/// What may be kept of a Secret: its keys that have a value, and public values. A URI with another password than the Secret's
/// counts as none. Everything else is dropped here, as it arrives from the watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redacted {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// uid of the controlling owner.
    pub(crate) owner: Option<String>,
    pub(crate) metadata: serde_json::Value,
    pub(crate) keys: Vec<String>,
    pub(crate) public: BTreeMap<String, String>,
}

/// Drops the private values of a Secret.
pub(crate) fn redact(mut secret: Secret) -> Redacted {
    let data = secret.data.take().unwrap_or_default();
    secret.metadata.managed_fields = None;
    // An annotation of kubectl apply holds the whole Secret.
    if let Some(annotations) = &mut secret.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    let outdated = is_outdated(&data);
    let keys = data
        .iter()
        .filter(|(key, value)| !(value.0.is_empty() || outdated && *key == URI))
        .map(|(key, _)| key.clone())
        .collect();
    let public = data.into_iter().filter(|(key, _)| PUBLIC.contains(&key.as_str()));
    let public = public
        .filter_map(|(key, value)| Some((key, String::from_utf8(value.0).ok()?)))
        .collect();
    Redacted {
        uid: secret.metadata.uid.clone().unwrap_or_default(),
        resource_version: secret.metadata.resource_version.clone().unwrap_or_default(),
        owner: crate::views::owner(&secret.metadata).map(str::to_owned),
        metadata: serde_json::to_value(&secret.metadata).unwrap_or_default(),
        keys,
        public,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_values_are_not_kept() {
        let mut object = named("db", "shop-ca");
        set_secret(&mut object, TLS_KEY, &"hunter2".into());
        set_text(&mut object, CA_CRT, "public");
        set_text(&mut object, "empty", "");
        let annotations = BTreeMap::from([(
            "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
            "{\"data\":{\"tls.key\":\"hunter2\"}}".to_owned(),
        )]);
        object.metadata.annotations = Some(annotations);
        let redacted = redact(object);
        assert_eq!(redacted.keys, [CA_CRT, TLS_KEY]);
        assert_eq!(redacted.public.get(CA_CRT).map(String::as_str), Some("public"));
        assert!(!format!("{redacted:?}").contains("hunter2"));
    }

    #[test]
    fn a_uri_with_a_former_password_counts_as_none() {
        let keys = |password: &str| {
            let mut object = named("db", "shop-app");
            set_text(&mut object, URI, "mysql://shop:a%40b@shop-primary.db.svc:3306/shop");
            set_text(&mut object, PASSWORD, password);
            redact(object).keys
        };
        assert_eq!(keys("a@b"), [PASSWORD, URI]);
        assert_eq!(keys("another"), [PASSWORD]);
        // A password that is not there yet is made first.
        assert_eq!(keys(""), [URI]);
    }
}
