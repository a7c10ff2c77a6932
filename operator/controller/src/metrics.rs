//! The operator's metrics. Labels are bounded: nothing from a message or an error ever becomes one.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};

use mainstay_api::status::{ChangeKind, LastChange};
use mainstay_core::status::named;

use crate::class::Class;
use crate::index::ClusterName;

/// Name of the controller in labels.
pub(crate) const CONTROLLER: &str = "mysqlcluster";

/// Metrics of one operator process; its own registry, so that several can live in one test.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconciles: IntCounterVec,
    reconciles_by_status: IntCounterVec,
    reconcile_seconds: HistogramVec,
    health: IntGaugeVec,
    verified: GaugeVec,
    status_updates: IntCounterVec,
    status_latency: Histogram,
    api_requests: IntCounterVec,
    watch_errors: IntCounterVec,
    commands: IntCounterVec,
    leader: Gauge,
    change_seconds: HistogramVec,
    change_part_seconds: HistogramVec,
}

/// Where metrics are registered as they are made.
struct Scrape(Registry);

impl Scrape {
    fn add<M: Collector + Clone + 'static>(
        &self,
        metric: Result<M, prometheus::Error>,
    ) -> Result<M, prometheus::Error> {
        let metric = metric?;
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn histogram(&self, name: &str, help: &str, labels: &[&str]) -> Result<HistogramVec, prometheus::Error> {
        self.add(HistogramVec::new(timed(name, help), labels))
    }
}

/// A histogram of seconds.
fn timed(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(buckets())
}

/// How a pass ended, as a label.
const fn result(failed: Option<Class>) -> &'static str {
    match failed {
        None => "success",
        Some(Class::Retry) => "retry",
        Some(Class::Wait) => "wait",
        Some(Class::Permanent) => "permanent",
    }
}

impl Metrics {
    /// Metrics in a new registry.
    pub fn new() -> Result<Self, prometheus::Error> {
        let scrape = Scrape(Registry::new());
        Ok(Self {
            reconciles: scrape.counter(
                "reconcile_total",
                "Passes by controller and result.",
                &["controller", "result"],
            )?,
            reconciles_by_status: scrape.counter("mysql_operator_reconcile_total", "Passes by result.", &["status"])?,
            status_updates: scrape.counter(
                "mysqlcluster_status_update_total",
                "Writes of the status of a MySQLCluster by result.",
                &["result"],
            )?,
            api_requests: scrape.counter(
                "kubernetes_api_requests_total",
                "Requests to the API server, watches apart, by verb, kind and result.",
                &["verb", "kind", "result"],
            )?,
            watch_errors: scrape.counter("kubernetes_watch_errors_total", "Errors of watches by kind.", &["kind"])?,
            commands: scrape.counter(
                "instance_commands_total",
                "Commands to instance managers by verb and result.",
                &["verb", "result"],
            )?,
            change_seconds: scrape.histogram(
                "mysql_primary_change_seconds",
                "Time from the beginning of an election until a primary was open and routed to.",
                &["kind"],
            )?,
            change_part_seconds: scrape.histogram(
                "mysql_primary_change_part_seconds",
                "The same by part: fence, catch up, attach, record, open, route.",
                &["kind", "part"],
            )?,
            reconcile_seconds: scrape.histogram(
                "reconcile_duration_seconds",
                "Time that a pass took.",
                &["controller"],
            )?,
            status_latency: scrape.add(Histogram::with_opts(timed(
                "mysqlcluster_status_update_latency_seconds",
                "Time that the API server took to write the status of a MySQLCluster.",
            )))?,
            health: scrape.add(IntGaugeVec::new(
                Opts::new(
                    "mysql_cluster_health_status",
                    "Instances of a cluster that serve in this role.",
                ),
                &["namespace", "cluster", "role"],
            ))?,
            verified: scrape.add(GaugeVec::new(
                Opts::new(
                    "mainstay_mysql_backup_verified_timestamp_seconds",
                    "When a backup was restored and checked last, in seconds since 1970; 0: none was yet.",
                ),
                &["namespace", "cluster"],
            ))?,
            leader: scrape.add(Gauge::new(
                "mainstay_leader",
                "1 while this process holds the leader lease.",
            ))?,
            registry: scrape.0,
        })
    }

    pub(crate) fn pass(&self, failed: Option<Class>, took: Duration) {
        self.reconciles.with_label_values(&[CONTROLLER, result(failed)]).inc();
        self.reconciles_by_status.with_label_values(&[result(failed)]).inc();
        self.reconcile_seconds
            .with_label_values(&[CONTROLLER])
            .observe(took.as_secs_f64());
    }

    pub(crate) fn status_update(&self, result: &str, took: Duration) {
        self.status_updates.with_label_values(&[result]).inc();
        self.status_latency.observe(took.as_secs_f64());
    }

    pub(crate) fn api_request(&self, verb: &str, kind: &str, result: &str) {
        self.api_requests.with_label_values(&[verb, kind, result]).inc();
    }

    pub(crate) fn watch_error(&self, kind: &str) {
        self.watch_errors.with_label_values(&[kind]).inc();
    }

    pub(crate) fn command(&self, verb: &str, result: &str) {
        self.commands.with_label_values(&[verb, result]).inc();
    }

    /// A primary was elected and is open. Failovers that a person had to wait for end up in the last bucket.
    pub(crate) fn change(&self, change: &LastChange) {
        let kind = match change.kind {
            ChangeKind::Bootstrap => "bootstrap",
            ChangeKind::Failover => "failover",
            ChangeKind::Switchover => "switchover",
        };
        let seconds = |ms: i64| Duration::from_millis(ms.max(0).unsigned_abs()).as_secs_f64();
        if let Some(ms) = change.writes_blocked_ms {
            self.change_seconds.with_label_values(&[kind]).observe(seconds(ms));
        }
        for (part, ms) in named(&change.phases.unwrap_or_default()) {
            if let Some(ms) = ms {
                self.change_part_seconds
                    .with_label_values(&[kind, part])
                    .observe(seconds(ms));
            }
        }
    }

    pub(crate) fn health(&self, cluster: &ClusterName, role: &str, serving: i64) {
        self.health
            .with_label_values(&[&cluster.namespace, &cluster.name, role])
            .set(serving);
    }

    /// When a backup was verified last, in seconds since 1970; `None`: no verification is declared.
    pub(crate) fn verified(&self, cluster: &ClusterName, at: Option<f64>) {
        let labels = [cluster.namespace.as_str(), cluster.name.as_str()];
        match at {
            Some(seconds) => self.verified.with_label_values(&labels).set(seconds),
            // An error means that there was none.
            None => {
                let _ = self.verified.remove_label_values(&labels);
            }
        }
    }

    /// Forgets a cluster that was deleted.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.verified(cluster, None);
        for role in ["primary", "replica"] {
            // An error means that there was none.
            let _ = self
                .health
                .remove_label_values(&[&cluster.namespace, &cluster.name, role]);
        }
    }

    pub(crate) fn leader(&self, leads: bool) {
        self.leader.set(if leads { 1.0 } else { 0.0 });
    }

    /// What `/metrics` answers.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// 1 ms to 16 s.
fn buckets() -> Vec<f64> {
    (0..8).map(|i| 0.001 * 4_f64.powi(i)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switchover() -> LastChange {
        serde_json::from_value(serde_json::json!({
            "kind": "switchover", "from": "shop-0", "to": "shop-1", "at": "2026-11-29T12:00:00.000000Z",
            "writesBlockedMs": 187, "phases": {"fenceMs": 10, "catchUpMs": 50}
        }))
        .unwrap()
    }

    #[test]
    fn names_of_the_dashboards_are_in_a_scrape() -> Result<(), prometheus::Error> {
        let metrics = Metrics::new()?;
        let shop = ClusterName::new("db", "shop");
        metrics.pass(None, Duration::from_millis(3));
        metrics.status_update("success", Duration::from_millis(3));
        metrics.api_request("apply", "Service", "200");
        metrics.health(&shop, "primary", 1);
        metrics.change(&switchover());
        metrics.verified(&shop, Some(1_800_000_000.0));
        let scrape = metrics.render()?;
        for line in [
            "reconcile_total{controller=\"mysqlcluster\",result=\"success\"} 1",
            "mysql_operator_reconcile_total{status=\"success\"} 1",
            "mysql_cluster_health_status{cluster=\"shop\",namespace=\"db\",role=\"primary\"} 1",
            "mainstay_mysql_backup_verified_timestamp_seconds{cluster=\"shop\",namespace=\"db\"} 1800000000",
            "mysqlcluster_status_update_total{result=\"success\"} 1",
            "mysql_primary_change_seconds_count{kind=\"switchover\"} 1",
            "mysql_primary_change_part_seconds_sum{kind=\"switchover\",part=\"catch up\"} 0.05",
            "mysqlcluster_status_update_latency_seconds_count 1",
            "kubernetes_api_requests_total{kind=\"Service\",result=\"200\",verb=\"apply\"} 1",
        ] {
            assert!(scrape.contains(line), "{line} is not in\n{scrape}");
        }
        metrics.forget(&shop);
        assert!(!metrics.render()?.contains("cluster=\"shop\""));
        Ok(())
    }
}
