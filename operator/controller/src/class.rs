//! What an error means for the next try: decided once, here.

use std::time::Duration;

use kube::core::Status;

/// What to do about an error; the most hopeful first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// It may pass: try again soon, then less and less often.
    Retry,
    /// Something outside must change first, and nothing tells when it did: look again now and then.
    Wait,
    /// Only another spec helps, and its arrival calls a pass.
    Permanent,
}

/// How a request to the API server failed, as far as repeating it within a pass is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The API server asks to slow down, perhaps for how long.
    Throttled(Option<Duration>),
    /// Nobody knows whether the request arrived.
    Network,
    /// The API server answered, and would answer the same again.
    Answered,
}

/// Classes an error of the API server for the pass.
#[must_use]
pub(crate) fn of_kube(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => of_status(status),
        kube::Error::BuildRequest(_) | kube::Error::SerdeError(_) => Class::Permanent,
        _ => Class::Retry,
    }
}

fn of_status(status: &Status) -> Class {
    match status.code {
        // Conflict and not found: the next pass sees the newer state.
        404 | 408 | 409 | 410 | 429 => Class::Retry,
        // Forbidden: quota, admission or missing rights. Unauthorised: a token that is being renewed.
        401 | 403 => Class::Wait,
        400..=499 => Class::Permanent,
        _ => Class::Retry,
    }
}

/// Whether and how a request may be repeated at once.
pub(crate) fn failure(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => match status.code {
            429 => {
                let asked = status
                    .details
                    .as_ref()
                    .map(|d| d.retry_after_seconds)
                    .filter(|s| *s > 0);
                Failure::Throttled(asked.map(|seconds| Duration::from_secs(u64::from(seconds))))
            }
            503 | 504 => Failure::Network,
            _ => Failure::Answered,
        },
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => Failure::Network,
        _ => Failure::Answered,
    }
}

/// Whether the object was changed or made by somebody else meanwhile.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Whether the namespace is being deleted: nothing new can be made in it any more, ever.
pub(crate) fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether the object does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn api(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("no", "Reason").with_code(code).boxed())
    }

    #[rstest]
    #[case(409, Class::Retry, Failure::Answered)]
    #[case(404, Class::Retry, Failure::Answered)]
    #[case(403, Class::Wait, Failure::Answered)]
    #[case(422, Class::Permanent, Failure::Answered)]
    #[case(429, Class::Retry, Failure::Throttled(None))]
    #[case(500, Class::Retry, Failure::Answered)]
    #[case(503, Class::Retry, Failure::Network)]
    fn answers(#[case] code: u16, #[case] class: Class, #[case] repeat: Failure) {
        assert_eq!(of_kube(&api(code)), class);
        assert_eq!(failure(&api(code)), repeat);
    }
}
