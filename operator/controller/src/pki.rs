//! Certificates: Mainstay's own CAs and what they sign. P-256 throughout; pure but for the keys' randomness.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use mainstay_core::observed::CertificateView;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use secrecy::{ExposeSecret as _, SecretString};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, Pem, X509Certificate};

/// How long a CA lives.
pub(crate) const CA_LIFETIME: Duration = Duration::from_hours(10 * 365 * 24);
/// Clocks of nodes may differ by this much.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Why a certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// rcgen refused.
    #[error("failed to make a certificate for {subject}")]
    Make {
        /// For whom.
        subject: String,
        /// Why.
        source: rcgen::Error,
    },
    /// Something that should be a certificate is none.
    #[error("failed to read a certificate: {0}")]
    Read(String),
}

/// A certificate and its key, PEM.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: SecretString,
}

/// For whom a certificate is.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) common_name: &'a str,
    pub(crate) dns_names: &'a [String],
    /// The URI by which managers tell the role (decision B11).
    pub(crate) uri: &'a str,
    /// Whether it proves a server, too; every certificate of ours may prove a client.
    pub(crate) server: bool,
}

/// Makes a CA.
pub(crate) fn create_ca(common_name: &str, now: Timestamp) -> Result<Pair, PkiError> {
    let failed = |source| PkiError::Make {
        subject: common_name.to_owned(),
        source,
    };
    let mut params = params(common_name, now, CA_LIFETIME).map_err(failed)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem().into(),
    })
}

/// Signs a certificate for `subject`.
pub(crate) fn issue(ca: &Pair, subject: &Subject<'_>, now: Timestamp, lifetime: Duration) -> Result<Pair, PkiError> {
    let failed = |source| PkiError::Make {
        subject: subject.common_name.to_owned(),
        source,
    };
    let ca_key = KeyPair::from_pem(ca.key.expose_secret()).map_err(failed)?;
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, ca_key).map_err(failed)?;
    let mut params = params(subject.common_name, now, lifetime).map_err(failed)?;
    for name in subject.dns_names {
        params
            .subject_alt_names
            .push(SanType::DnsName(Ia5String::try_from(name.as_str()).map_err(failed)?));
    }
    params
        .subject_alt_names
        .push(SanType::URI(Ia5String::try_from(subject.uri).map_err(failed)?));
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if subject.server {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem().into(),
    })
}

fn params(common_name: &str, now: Timestamp, lifetime: Duration) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    // X.520 allows 64 characters.
    params
        .distinguished_name
        .push(DnType::CommonName, common_name.chars().take(64).collect::<String>());
    let start = now.checked_sub(SKEW).unwrap_or(now);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since_epoch = |at: Timestamp| Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default());
    params.not_before = epoch + since_epoch(start);
    params.not_after = epoch + since_epoch(now) + lifetime;
    Ok(params)
}

/// What is known of a certificate from itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspected {
    pub(crate) view: CertificateView,
    /// Identifier of its own key, if it is a CA.
    pub(crate) key_id: Option<Vec<u8>>,
    /// Identifier of the key that signed it.
    pub(crate) signed_by: Option<Vec<u8>>,
}

/// Reads the first certificate of a PEM text.
pub(crate) fn inspect(pem: &str) -> Result<Inspected, PkiError> {
    let first = Pem::iter_from_buffer(pem.as_bytes())
        .next()
        .ok_or_else(|| PkiError::Read("there is none".to_owned()))?
        .map_err(|error| PkiError::Read(error.to_string()))?;
    inspect_der(&first.contents)
}

fn inspect_der(der: &[u8]) -> Result<Inspected, PkiError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| PkiError::Read(error.to_string()))?;
    let time = |seconds| Timestamp::from_second(seconds).map_err(|error| PkiError::Read(error.to_string()));
    let validity = certificate.validity();
    let view = CertificateView {
        not_before: time(validity.not_before.timestamp())?,
        not_after: time(validity.not_after.timestamp())?,
        dns_names: dns_names(&certificate),
    };
    let mut inspected = Inspected {
        view,
        key_id: None,
        signed_by: None,
    };
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => inspected.key_id = Some(id.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                inspected.signed_by = id.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            _ => {}
        }
    }
    Ok(inspected)
}

fn dns_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let dns = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    let mut dns: Vec<String> = dns.collect();
    dns.sort();
    dns
}

/// Identifiers of the keys of the CAs of a PEM text.
pub(crate) fn key_ids(bundle: &str) -> Vec<Vec<u8>> {
    certificates(bundle)
        .iter()
        .filter_map(|pem| inspect(pem).ok()?.key_id)
        .collect()
}

/// The certificates of several PEM texts as one, each once, without those that ended before `now` and without anything
/// that is no certificate.
pub(crate) fn bundle<'a>(pems: impl IntoIterator<Item = &'a str>, now: Timestamp) -> String {
    let mut bundle = String::new();
    for block in pems.into_iter().flat_map(certificates) {
        let valid = inspect(&block).is_ok_and(|inspected| inspected.view.not_after > now);
        if valid && !bundle.contains(&block) {
            bundle.push_str(&block);
        }
    }
    bundle
}

/// The certificates of a PEM text, each with its delimiters and a newline after each line.
fn certificates(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines().map(str::trim) {
        if line == "-----BEGIN CERTIFICATE-----" {
            block = Some(String::new());
        }
        if let Some(text) = &mut block {
            text.push_str(line);
            text.push('\n');
        }
        if line == "-----END CERTIFICATE-----" {
            found.extend(block.take());
        }
    }
    found
}

/// Two thirds of its life are over.
pub(crate) fn due(view: &CertificateView, now: Timestamp) -> bool {
    let life = view.not_after.duration_since(view.not_before);
    let end_of_second_third = view.not_before.checked_add(life / 3 * 2);
    end_of_second_third.map_or(true, |at| now >= at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn later(hours: i64) -> Timestamp {
        now().checked_add(SignedDuration::from_hours(hours)).unwrap()
    }

    #[test]
    fn a_server_certificate_names_its_signer_and_its_names() {
        let ca = create_ca("shop", now()).unwrap();
        let names = ["*.shop-instances.db.svc".to_owned(), "shop-primary".to_owned()];
        let subject = Subject {
            common_name: "shop",
            dns_names: &names,
            uri: "mainstay://db/shop/instance",
            server: true,
        };
        let server = inspect(&issue(&ca, &subject, now(), HOUR * 3).unwrap().certificate).unwrap();
        assert_eq!(server.view.dns_names, names);
        assert_eq!(server.view.not_after, later(3));
        assert!(server.signed_by.is_some());
        assert_eq!(server.signed_by, inspect(&ca.certificate).unwrap().key_id);
        let other = create_ca("shop", now()).unwrap();
        assert_ne!(server.signed_by, inspect(&other.certificate).unwrap().key_id);
    }

    #[test]
    fn a_certificate_is_due_at_two_thirds_of_its_life() {
        let view = CertificateView {
            not_before: now(),
            not_after: later(3),
            dns_names: Vec::new(),
        };
        assert!(!due(&view, later(1)));
        assert!(due(&view, later(2)));
        assert!(due(&view, later(9)));
    }

    #[test]
    fn a_bundle_holds_each_certificate_once_and_no_key() {
        let old = create_ca("shop", now()).unwrap();
        let new = create_ca("shop", later(1)).unwrap();
        let dirty = format!("{}{}junk\n", old.key.expose_secret(), old.certificate);
        let both = bundle(
            [new.certificate.as_str(), dirty.as_str(), old.certificate.as_str()],
            now(),
        );
        assert_eq!(both.matches("BEGIN CERTIFICATE").count(), 2);
        assert!(!both.contains("PRIVATE"));
        assert_eq!(bundle([both.as_str()], now()), both);
        let end_of_old = later(10 * 365 * 24);
        let rest = bundle([both.as_str()], end_of_old);
        assert_eq!(inspect(&rest).unwrap(), inspect(&new.certificate).unwrap());
    }
}
