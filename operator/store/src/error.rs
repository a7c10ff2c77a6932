//! Why something could not be had from, or given to, an object store.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Where a request went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address of the store; `AWS <region>` when it was not given.
    pub endpoint: Arc<str>,
    /// Bucket.
    pub bucket: Arc<str>,
    /// Whole key of the object, or what a listing was to begin with; empty when the request was about the bucket.
    pub key: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, bucket, key } = self;
        if key.is_empty() {
            write!(f, "bucket {bucket} at {endpoint}")
        } else {
            write!(f, "{key} in bucket {bucket} at {endpoint}")
        }
    }
}

/// Failure of one operation. `what` completes "failed to …"; `reason` is what the store or the network said. No message
/// holds a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
    #[error(
        "failed to {what} {place}: there is no such object; look whether it was deleted or stored under another prefix"
    )]
    NotFound {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
    },
    /// An object was to be made, and there is one.
    #[error("failed to {what} {place}: the object exists and is never overwritten; use another name or delete it")]
    AlreadyExists {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
    },
    /// The credentials are known, and do not suffice.
    #[error(
        "failed to {what} {place}: access denied ({reason}); allow these credentials to get, put, list and delete \
         objects of the bucket below the prefix, and to list and abort multipart uploads"
    )]
    Denied {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
        /// What the store said.
        reason: String,
    },
    /// There is no such bucket.
    #[error("failed to {what} {place}: there is no such bucket; create it, or correct bucket, region or endpoint")]
    NoSuchBucket {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
    },
    /// The store does not know the credentials, or they do not fit together, or there are none.
    #[error(
        "failed to {what} {place}: the credentials are not valid ({reason}); correct access key, secret key and region \
         in the Secret, or the service account that the pod uses"
    )]
    WrongCredentials {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
        /// What the store or the source of the credentials said.
        reason: String,
    },
    /// No answer came, although it was asked again.
    #[error(
        "failed to {what} {place}: no answer ({reason}); look at the endpoint, network policies and the store itself"
    )]
    Unreachable {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
        /// Why.
        reason: String,
    },
    /// The store could not prove who it is.
    #[error(
        "failed to {what} {place}: TLS: {reason}; give the CA that signed the store's certificate, and use a name that \
         is in it"
    )]
    Tls {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
        /// Why.
        reason: String,
    },
    /// What arrived is not what was sent.
    #[error(
        "failed to {what} {place}: the content is damaged ({reason}); use another copy, and look at the store's disks"
    )]
    Corrupt {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
        /// How that is known.
        reason: String,
    },
    /// It is larger than what may be read or stored.
    #[error("failed to {what} {place}: it is larger than {limit} bytes; look whether this is the right object")]
    TooLarge {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
        /// The limit in bytes.
        limit: u64,
    },
    /// What was to be stored could not be read to its end; nothing was stored.
    #[error("failed to {what} {place}: its content could not be read: {reason}; nothing was stored")]
    Content {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
        /// Why.
        reason: String,
    },
    /// The store refused for another reason.
    #[error("failed to {what} {place}: {reason}; if the message does not help, look at the store's own log")]
    Other {
        /// What was attempted.
        what: &'static str,
        /// Where.
        place: Place,
        /// What the store said.
        reason: String,
    },
}

impl StoreError {
    /// Whether the same may succeed later without anybody doing something.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Content { .. } | Self::Other { .. } => true,
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::Denied { .. }
            | Self::NoSuchBucket { .. }
            | Self::WrongCredentials { .. }
            | Self::Tls { .. }
            | Self::Corrupt { .. }
            | Self::TooLarge { .. } => false,
        }
    }

    /// The failure behind an error of a stream that a store gave.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        let mut inner: &(dyn std::error::Error + 'static) = error.get_ref()?;
        loop {
            if let Some(found) = inner.downcast_ref() {
                return Some(found);
            }
            // An io::Error hides the error that it holds from `source`.
            inner = match inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(held) => held,
                None => inner.source()?,
            };
        }
    }
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        let kind = match error {
            StoreError::NotFound { .. } | StoreError::NoSuchBucket { .. } => io::ErrorKind::NotFound,
            StoreError::Denied { .. } | StoreError::WrongCredentials { .. } => io::ErrorKind::PermissionDenied,
            StoreError::Corrupt { .. } => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// An error with its causes in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_behind_a_streams_error_is_found() {
        let failure = StoreError::NotFound {
            what: "read",
            place: Place {
                endpoint: "http://127.0.0.1:7070".into(),
                bucket: "backups".into(),
                key: "prod/shop".to_owned(),
            },
        };
        let wrapped = io::Error::other(io::Error::from(failure.clone()));
        assert_eq!(StoreError::of(&wrapped), Some(&failure));
        assert_eq!(
            failure.to_string(),
            "failed to read prod/shop in bucket backups at http://127.0.0.1:7070: there is no such object; look whether \
             it was deleted or stored under another prefix"
        );
        assert_eq!(StoreError::of(&io::Error::other("no store")), None);
    }
}
