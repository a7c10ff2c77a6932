//! What the client's errors mean.

use std::error::Error;
use std::io;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::RequestId as _;
use aws_smithy_runtime_api::http::Response;

use crate::error::{Place, StoreError, chain};

/// Classifies a failure; the client has repeated what may pass.
pub(super) fn fault<E>(what: &'static str, place: Place, error: &SdkError<E, Response>) -> StoreError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match error {
        SdkError::ServiceError(service) => {
            let metadata = service.err().meta();
            let code = metadata.code().unwrap_or_default();
            let status = service.raw().status().as_u16();
            let mut reason = match (code, metadata.message().unwrap_or_default()) {
                ("", _) => format!("HTTP status {status}"),
                (code, "") => code.to_owned(),
                (code, message) => format!("{code}: {message}"),
            };
            if let Some(id) = metadata.request_id() {
                reason = format!("{reason} [request {id}]");
            }
            answered(what, place, status, code, reason)
        }
        SdkError::TimeoutError(_) => unreachable_store(what, place, "it took too long".to_owned()),
        SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_) | SdkError::ResponseError(_) => {
            network(what, place, error)
        }
        _ => StoreError::Other {
            what,
            place,
            reason: chain(error),
        },
    }
}

/// What a store's answer means.
pub(super) fn answered(what: &'static str, place: Place, status: u16, code: &str, reason: String) -> StoreError {
    match (code, status) {
        ("NoSuchBucket", _) => StoreError::NoSuchBucket { what, place },
        ("NoSuchKey" | "NotFound", _) | ("", 404) => StoreError::NotFound { what, place },
        ("PreconditionFailed", _) | ("", 412) => StoreError::AlreadyExists { what, place },
        (
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "InvalidToken"
            | "TokenRefreshRequired"
            | "InvalidClientTokenId"
            | "UnrecognizedClientException"
            | "RequestTimeTooSkewed"
            | "AuthorizationHeaderMalformed",
            _,
        )
        | (_, 401) => StoreError::WrongCredentials { what, place, reason },
        ("BadDigest" | "InvalidDigest" | "XAmzContentSHA256Mismatch" | "XAmzContentChecksumMismatch", _) => {
            StoreError::Corrupt { what, place, reason }
        }
        ("AccessDenied", _) | (_, 403) => StoreError::Denied { what, place, reason },
        _ => StoreError::Other { what, place, reason },
    }
}

/// What it means that there was no answer.
fn network(what: &'static str, place: Place, error: &(dyn Error + 'static)) -> StoreError {
    let reason = chain(error);
    if holds::<CredentialsError>(error) {
        StoreError::WrongCredentials { what, place, reason }
    } else if holds::<rustls::Error>(error) {
        StoreError::Tls { what, place, reason }
    } else if is_damage(&reason) {
        StoreError::Corrupt { what, place, reason }
    } else {
        unreachable_store(what, place, reason)
    }
}

fn unreachable_store(what: &'static str, place: Place, reason: String) -> StoreError {
    StoreError::Unreachable { what, place, reason }
}

/// Whether an error says that a checksum did not fit.
pub(super) fn is_damage(reason: &str) -> bool {
    reason.contains("checksum mismatch")
}

/// Whether an error is, or is caused by, one of this type.
fn holds<T: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<T>() {
            return true;
        }
        // An io::Error hides the error that it holds from `source`.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    false
}
