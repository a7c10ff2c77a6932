//! Keys of the age format.

use std::fmt;
use std::str::FromStr;

use secrecy::{ExposeSecret as _, SecretString};

use super::error::ArchiveError;

/// The public key to which content is encrypted (`age1…`). It cannot decrypt: whoever makes backups need not be able to
/// read them.
#[derive(Clone)]
pub struct Recipient(pub(super) age::x25519::Recipient);

/// The private key with which content is decrypted (`AGE-SECRET-KEY-1…`).
#[derive(Clone)]
pub struct PrivateKey(pub(super) age::x25519::Identity);

impl Recipient {
    /// The key's text, which is its name in manifests; no secret.
    #[must_use]
    pub fn key_id(&self) -> String {
        self.0.to_string()
    }
}

impl FromStr for Recipient {
    type Err = ArchiveError;

    fn from_str(text: &str) -> Result<Self, ArchiveError> {
        text.trim().parse().map(Self).map_err(|_| ArchiveError::InvalidKey {
            what: "public key",
            reason: "it is not of the form age1…, as age-keygen -y prints it",
        })
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipient({})", self.key_id())
    }
}

impl PrivateKey {
    /// A new one.
    #[must_use]
    pub fn generate() -> Self {
        Self(age::x25519::Identity::generate())
    }

    /// Reads a key, alone or in a file as `age-keygen` writes it, with comments.
    pub fn parse(text: &SecretString) -> Result<Self, ArchiveError> {
        let mut lines = text
            .expose_secret()
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let invalid = |reason| ArchiveError::InvalidKey {
            what: "private key",
            reason,
        };
        let line = lines.next().ok_or_else(|| invalid("there is none"))?;
        if lines.next().is_some() {
            return Err(invalid("there is more than one"));
        }
        line.parse()
            .map(Self)
            .map_err(|_| invalid("it is not of the form AGE-SECRET-KEY-1…, as age-keygen writes it"))
    }

    /// The text that [`PrivateKey::parse`] takes.
    #[must_use]
    pub fn to_text(&self) -> SecretString {
        self.0.to_string()
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn recipient(&self) -> Recipient {
        Recipient(self.0.to_public())
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(of {})", self.recipient().key_id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_age_writes_them_and_never_shown() {
        let key = PrivateKey::generate();
        let text = key.to_text();
        let file = format!("# created: 2026\n# public key: age1\n{}\n", text.expose_secret());
        let read = PrivateKey::parse(&file.into()).unwrap();
        assert_eq!(read.recipient().key_id(), key.recipient().key_id());
        assert!(!format!("{read:?}").contains("SECRET"), "{read:?}");
        let public: Recipient = key.recipient().key_id().parse().unwrap();
        assert_eq!(public.key_id(), key.recipient().key_id());
        for wrong in ["", "# nothing", "AGE-SECRET-KEY-1XYZ"] {
            let error = PrivateKey::parse(&wrong.into()).unwrap_err().to_string();
            assert!(!error.contains("XYZ"), "{error}");
        }
        assert!("age1xyz".parse::<Recipient>().is_err());
    }
}
