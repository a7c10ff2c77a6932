//! Answers of the API server that are not success.

use std::fmt;

use serde_json::{Value, json};

/// A refusal, as a `metav1.Status` would carry it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Sentence for a person.
    pub message: String,
    /// Machine-readable cause in the details; empty when there is none.
    pub cause: &'static str,
}

impl Failure {
    /// 400
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self {
            code: 400,
            reason: "BadRequest",
            message: message.into(),
            cause: "",
        }
    }

    /// 403
    #[must_use]
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self {
            code: 403,
            reason: "Forbidden",
            message: message.into(),
            cause: "",
        }
    }

    /// 403 because nothing new may be made in a namespace that is being deleted.
    #[must_use]
    pub fn terminating(namespace: &str) -> Self {
        Self {
            cause: "NamespaceTerminating",
            ..Self::forbidden(format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            ))
        }
    }

    /// 404
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self {
            code: 404,
            reason: "NotFound",
            message: message.into(),
            cause: "",
        }
    }

    /// 409 because the object exists.
    #[must_use]
    pub fn already_exists(message: impl Into<String>) -> Self {
        Self {
            code: 409,
            reason: "AlreadyExists",
            message: message.into(),
            cause: "",
        }
    }

    /// 409 because of a precondition or another field manager.
    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self {
            code: 409,
            reason: "Conflict",
            message: message.into(),
            cause: "",
        }
    }

    /// 410: the resource version is too old.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self {
            code: 410,
            reason: "Expired",
            message: message.into(),
            cause: "",
        }
    }

    /// 422
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: 422,
            reason: "Invalid",
            message: message.into(),
            cause: "",
        }
    }

    /// Another code, for fault injection.
    #[must_use]
    pub fn of_code(code: u16) -> Self {
        let reason = match code {
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Self {
            code,
            reason,
            message: format!("injected failure {code}"),
            cause: "",
        }
    }

    /// The answer's body.
    #[must_use]
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.cause.is_empty() {
            status["details"] = json!({"causes": [{"reason": self.cause, "message": self.message, "field": ""}]});
        }
        status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}
