//! JSON logs on standard output, one object a line.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// What is logged when neither `--log` nor `RUST_LOG` says otherwise.
pub(crate) const DEFAULT: &str = "info";

/// Sends logs to standard output as JSON. `filter` is in the syntax of `RUST_LOG`, for example
/// `info,mainstay_controller=debug`.
pub(crate) fn start(filter: &str) -> Result<(), String> {
    let filter =
        EnvFilter::try_new(filter).map_err(|error| format!("failed to understand the log filter {filter}: {error}"))?;
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_span_events(FmtSpan::NONE)
        .with_env_filter(filter)
        .try_init()
        .map_err(|error| format!("failed to start logging: {error}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_bad_filter_is_a_sentence() {
        let error = super::start("mainstay=loud").unwrap_err();
        assert!(
            error.starts_with("failed to understand the log filter mainstay=loud"),
            "{error}"
        );
    }
}
