//! What is measured, as processes of their own: each says its result, with the most memory that it had, in one line of JSON.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use mainstay_core::backup::Key;
use mainstay_core::backup::wire::{Outcome, Task};
use mainstay_core::observed::Mysqld;
use mainstay_instance::backup::make;
use mainstay_store::archive::{Meter, Sealing, store_directory};
use mainstay_store::{Access, S3};
use serde_json::{Value, json};

use crate::support::pod::{Pod, settings};
use crate::support::store::WISH;
use crate::support::{Cluster, PATIENCE};

/// A process of this program.
pub(crate) struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Child {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// A backup for the pod of a Job.
    pub(crate) fn backup(pod: &Pod, cluster: &Cluster) -> Self {
        let config_file = cluster.nodes[0].config.paths.config_file.display().to_string();
        let page = pod.settings.page.port().to_string();
        let (root, task) = (pod.files.path().to_str().unwrap(), pod.settings.task.to_text());
        Self::start(&["backup", root, &config_file, &page, &task])
    }

    /// The streaming pass of a backup: this directory, under this key.
    pub(crate) fn pass(pod: &Pod, data: &Path, key: &Key) -> Self {
        let store = pod.settings.store.to_str().unwrap();
        Self::start(&["pass", store, data.to_str().unwrap(), key.as_str()])
    }

    /// An instance that recovers what is ordered there, in which the rows must be these.
    pub(crate) fn restore(orders: &Path, sum: &str) -> Self {
        Self::start(&["restore", orders.to_str().unwrap(), sum])
    }

    /// What it said, when it has ended.
    pub(crate) fn result(&mut self) -> Option<Value> {
        let ended = self.0.try_wait().unwrap()?;
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(ended.success(), "{ended}: {text}");
        Some(serde_json::from_str(text.lines().last().unwrap()).unwrap())
    }
}

/// Most memory that this process had at a time, in MiB.
fn rss_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib / 1024
}

fn say(result: &Value) {
    println!("{result}");
}

pub(crate) async fn backup(args: &[String]) {
    let [root, config_file, page, task] = args else {
        panic!("{args:?}")
    };
    let task = Task::from_text(task).unwrap();
    let settings = settings(Path::new(root), Path::new(config_file), task, page.parse().unwrap());
    match make(settings, std::future::pending()).await {
        Outcome::Stored(stored) => say(&json!({"bytes": stored.size, "stored": stored.stored, "rss_mb": rss_mb()})),
        Outcome::Failed { reason, message } => panic!("{reason}: {message}"),
    }
}

pub(crate) async fn pass(args: &[String]) {
    let [access, data, key] = args else { panic!("{args:?}") };
    let access = Access::read(Path::new(access)).unwrap().unwrap();
    let store = S3::new(access.store).await.unwrap();
    let (key, meter, sealing) = (Key::parse(key).unwrap(), Meter::default(), Sealing::default());
    let began = Instant::now();
    let packed = store_directory(&store, &key, Path::new(data), |_| false, &sealing, &meter).await;
    let (seconds, packed) = (began.elapsed().as_secs_f64(), packed.unwrap());
    let (bytes, stored) = (packed.content.bytes, packed.file.size);
    say(&json!({"bytes": bytes, "stored": stored, "seconds": seconds, "rss_mb": rss_mb()}));
}

pub(crate) async fn restore(args: &[String]) {
    let [orders, sum] = args else { panic!("{args:?}") };
    let mut cluster = Cluster::prepare(1);
    let node = &mut cluster.nodes[0];
    node.config.paths.recovery = orders.into();
    node.config.recovery = Some(WISH.to_owned());
    let began = Instant::now();
    let mut unpacked = None;
    node.start().await;
    loop {
        let report = node.report().await;
        assert_ne!(report.mysqld, Mysqld::Failed, "{}", report.message);
        if unpacked.is_none() && report.message.contains("starting a server") {
            unpacked = Some(began.elapsed().as_secs_f64());
        }
        if report.mysqld == Mysqld::Running {
            break;
        }
        tokio::time::sleep(crate::LOOK).await;
    }
    let (seconds, rss) = (began.elapsed().as_secs_f64(), rss_mb());
    let found = tokio::time::timeout(PATIENCE * 10, async { crate::sum(&mut node.inside().await).await })
        .await
        .unwrap();
    assert_eq!(&found, sum, "the rows are others");
    cluster.cut().await;
    say(&json!({"seconds": seconds, "unpacked_s": unpacked.unwrap(), "rss_mb": rss}));
}
