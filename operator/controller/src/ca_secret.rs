//! A CA in a Secret, and its renewal, which nobody notices.
//!
//! `ca.crt` is the bundle by which others are known, `tls.crt` and `tls.key` the newest CA. A new CA joins the bundle at
//! once but signs nothing for a day: until then its predecessor (`old.crt`, `old.key`) does, and the bundle reaches
//! everybody who has to check a signature. The predecessor stays in the bundle until it ends.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;

use crate::pki::{self, Pair, PkiError};
use crate::secret_data::{self, CA_CRT, TLS_CRT, TLS_KEY};

const OLD_CRT: &str = "old.crt";
const OLD_KEY: &str = "old.key";
/// How long a new CA only spreads.
const SPREAD: SignedDuration = SignedDuration::from_hours(24);

/// What a Secret holds of a CA.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No CA that can be used.
    Absent,
    /// Two thirds of its life are over.
    Due,
    /// All is well.
    Good,
}

/// What the Secret holds.
pub(crate) fn state(secret: Option<&Secret>, now: Timestamp) -> State {
    let Some(secret) = secret else { return State::Absent };
    let certificate = secret_data::text(secret, TLS_CRT).and_then(|pem| pki::inspect(&pem).ok());
    match certificate {
        Some(certificate) if secret_data::secret(secret, TLS_KEY).is_some() => {
            if pki::due(&certificate.view, now) {
                State::Due
            } else {
                State::Good
            }
        }
        Some(_) | None => State::Absent,
    }
}

/// Puts a new CA into the Secret, beside the one that is there.
pub(crate) fn put(secret: &mut Secret, ca: &Pair, now: Timestamp) {
    for (from, to) in [(TLS_CRT, OLD_CRT), (TLS_KEY, OLD_KEY)] {
        if let Some(value) = secret_data::secret(secret, from) {
            secret_data::set_secret(secret, to, &value);
        }
    }
    let before = secret_data::text(secret, CA_CRT).unwrap_or_default();
    secret_data::set_text(
        secret,
        CA_CRT,
        &pki::bundle([ca.certificate.as_str(), before.as_str()], now),
    );
    secret_data::set_pair(secret, ca);
    secret.type_ = Some(secret_data::TLS_TYPE.to_owned());
}

/// The CA that signs now; `None` if there is none.
pub(crate) fn signer(secret: &Secret, now: Timestamp) -> Result<Option<Pair>, PkiError> {
    let pair = |crt, key| {
        let (certificate, key) = (secret_data::text(secret, crt)?, secret_data::secret(secret, key)?);
        Some(Pair { certificate, key })
    };
    let Some(newest) = pair(TLS_CRT, TLS_KEY) else {
        return Ok(None);
    };
    let view = pki::inspect(&newest.certificate)?.view;
    let spreads = now.duration_since(view.not_before) < SPREAD;
    let old = pair(OLD_CRT, OLD_KEY).filter(|_| spreads);
    let old_lives = |old: &Pair| pki::inspect(&old.certificate).is_ok_and(|old| old.view.not_after > now);
    Ok(Some(old.filter(old_lives).unwrap_or(newest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::CA_LIFETIME;

    #[test]
    fn a_new_ca_spreads_for_a_day_before_it_signs() {
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let at = |hours: i64| start.checked_add(SignedDuration::from_hours(hours)).unwrap();
        let mut secret = secret_data::named("db", "shop-ca");
        assert_eq!(state(Some(&secret), start), State::Absent);
        let first = pki::create_ca("CA", start).unwrap();
        put(&mut secret, &first, start);
        assert_eq!(state(Some(&secret), start), State::Good);
        assert_eq!(
            signer(&secret, start).unwrap().unwrap().certificate,
            first.certificate,
            "nobody else can"
        );

        let due = i64::try_from(CA_LIFETIME.as_secs()).unwrap() / 3600 * 2 / 3 + 1;
        assert_eq!(state(Some(&secret), at(due)), State::Due);
        let second = pki::create_ca("CA", at(due)).unwrap();
        put(&mut secret, &second, at(due));
        assert_eq!(state(Some(&secret), at(due)), State::Good);
        assert_eq!(
            signer(&secret, at(due + 1)).unwrap().unwrap().certificate,
            first.certificate
        );
        assert_eq!(
            signer(&secret, at(due + 24)).unwrap().unwrap().certificate,
            second.certificate
        );
        let bundle = secret_data::text(&secret, CA_CRT).unwrap();
        assert!(bundle.contains(&first.certificate) && bundle.contains(&second.certificate));
    }
}
