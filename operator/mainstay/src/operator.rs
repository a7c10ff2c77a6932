//! `mainstay operator`: flags and environment variables become the controller's settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mainstay_controller::{Access, DEFAULT_CONCURRENCY, LeaseTimings, Settings};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The image of this version, when none is named.
const DEFAULT_IMAGE: &str = concat!("mainstay.dev/mainstay:", env!("CARGO_PKG_VERSION"));

/// Arguments of `operator`.
#[derive(Args, Clone, Debug)]
pub(crate) struct OperatorArgs {
    /// kubeconfig file; default: inside of Kubernetes the service account, outside $KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: its current one.
    #[arg(long)]
    context: Option<String>,
    /// Namespace of the operator's own CA and lease; default: the pod's, outside of Kubernetes mainstay-system.
    #[arg(short, long, env = "MAINSTAY_OPERATOR_NAMESPACE")]
    namespace: Option<String>,
    /// Namespaces whose clusters are looked after, separated by commas; default: all.
    #[arg(
        long,
        env = "MAINSTAY_WATCH_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE,…"
    )]
    watch_namespaces: Vec<String>,
    /// Image from which the init container of every MySQL pod copies this binary.
    #[arg(long, env = "MAINSTAY_OPERATOR_IMAGE", default_value = DEFAULT_IMAGE, value_name = "IMAGE")]
    operator_image: String,
    /// How many clusters are looked at at the same time.
    #[arg(long, default_value_t = DEFAULT_CONCURRENCY, value_name = "N")]
    concurrency: u16,
    /// Where /healthz and /readyz are served.
    #[arg(long, default_value = "[::]:8080", value_name = "ADDRESS:PORT")]
    health_address: SocketAddr,
    /// Where /metrics is served.
    #[arg(long, default_value = "[::]:9090", value_name = "ADDRESS:PORT")]
    metrics_address: SocketAddr,
    /// Seconds for which the leader's lease counts after it was last renewed.
    #[arg(long, default_value_t = 6, value_name = "SECONDS")]
    lease_duration: u32,
    /// Seconds for which the leader tries to renew it before it stops all work.
    #[arg(long, default_value_t = 4, value_name = "SECONDS")]
    lease_renew_deadline: u32,
    /// Seconds between two tries to get or to renew it.
    #[arg(long, default_value_t = 1, value_name = "SECONDS")]
    lease_retry_period: u32,
}

impl OperatorArgs {
    fn settings(self) -> Result<Settings, String> {
        let (period, deadline, duration) = (self.lease_retry_period, self.lease_renew_deadline, self.lease_duration);
        if period == 0 || deadline <= period || duration <= deadline {
            return Err(format!(
                "--lease-retry-period ({period} s), --lease-renew-deadline ({deadline} s) and --lease-duration ({duration} s) must rise in this order"
            ));
        }
        if self.concurrency == 0 {
            return Err("--concurrency must be at least 1".to_owned());
        }
        let seconds = |s: u32| Duration::from_secs(s.into());
        Ok(Settings {
            access: Access {
                kubeconfig: self.kubeconfig,
                context: self.context,
            },
            namespaces: self.watch_namespaces,
            operator_namespace: self.namespace,
            lease: Some(LeaseTimings {
                duration: seconds(duration),
                renew_deadline: seconds(deadline),
                period: seconds(period),
            }),
            health_addr: Some(self.health_address),
            metrics_addr: Some(self.metrics_address),
            concurrency: self.concurrency,
            ..Settings::new(self.operator_image)
        })
    }
}

/// Runs the operator until SIGTERM or Ctrl-C.
pub(crate) async fn run(args: OperatorArgs) -> Result<(), String> {
    let settings = args.settings()?;
    let stop = CancellationToken::new();
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        return Err("failed to listen for SIGTERM and Ctrl-C".to_owned());
    };
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = interrupt.recv() => tracing::info!("interrupted: stopping"),
        }
        asked.cancel();
    });
    mainstay_controller::run(settings, stop)
        .await
        .map_err(|error| crate::plugin::chain(&error))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: OperatorArgs,
    }

    fn settings(line: &[&str]) -> Result<Settings, String> {
        Line::try_parse_from([&["operator"], line].concat())
            .unwrap()
            .args
            .settings()
    }

    #[test]
    fn defaults_are_those_of_the_controller() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.lease, Some(LeaseTimings::default()));
        assert_eq!((settings.health_addr, settings.metrics_addr), {
            let defaults = Settings::new("x");
            (defaults.health_addr, defaults.metrics_addr)
        });
        assert!(settings.namespaces.is_empty());
        assert!(settings.operator_image.ends_with(env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn namespaces_are_a_list() {
        assert_eq!(
            settings(&["--watch-namespaces=db,shop"]).unwrap().namespaces,
            ["db", "shop"]
        );
    }

    #[test]
    fn contradictions_are_refused_with_the_flags_named() {
        let error = settings(&["--lease-duration=4", "--lease-renew-deadline=4"]).unwrap_err();
        assert!(
            error.contains("--lease-renew-deadline (4 s) and --lease-duration (4 s)"),
            "{error}"
        );
        assert!(settings(&["--concurrency=0"]).is_err());
    }
}
