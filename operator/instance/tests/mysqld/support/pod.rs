//! The pod of a backup's Job.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_core::backup::BackupId;
use mainstay_core::backup::manifest::Method;
use mainstay_core::backup::plan::BackupStep;
use mainstay_core::backup::wire::{Donor, Task};
use mainstay_instance::backup::{Settings, read_page, temporary};
use mainstay_instance::config::Paths;
use mainstay_store::{ACCESS_FILE, Access};
use secrecy::ExposeSecret as _;
use tokio::task::JoinHandle;

use super::files::programs;
use super::{CLONE, Cluster, fast_directory, free_port, write};

/// Under which name it stores.
pub(crate) const ID: &str = "20261130t030000z-57bcae98";

/// The pod of a Job: of the cluster it is given the access to the store, the clone account's password and the CA's certificate.
pub(crate) struct Pod {
    pub(crate) files: tempfile::TempDir,
    pub(crate) settings: Settings,
}

impl Pod {
    pub(crate) fn new(cluster: &Cluster, donor: usize, access: &Access) -> Self {
        let files = tempfile::tempdir_in(fast_directory()).unwrap();
        let root = files.path();
        let node = &cluster.nodes[donor].config;
        write(&root.join("store").join(ACCESS_FILE), access.to_json().expose_secret());
        write(&root.join("system/clone"), CLONE);
        let ca = std::fs::read_to_string(node.paths.server_tls.join("ca.crt")).unwrap();
        write(&root.join("tls/ca.crt"), &ca);
        std::fs::create_dir(root.join("volume")).unwrap();
        let task = Task {
            id: BackupId::parse(ID).unwrap(),
            name: "shop-nightly-57bcae98-29933460".to_owned(),
            schedule: Some("nightly".to_owned()),
            donor: Donor {
                instance: node.instance.0.clone(),
                server_uuid: "3e11fa47-71ca-11e1-9e33-c80aa9429562".to_owned(),
                host: "localhost".to_owned(),
                port: node.ports.admin,
            },
            epoch: cluster.epoch,
            method: Method::Physical,
        };
        let mut settings = settings(root, &node.paths.config_file, task, free_port());
        settings.server.programs = node.programs.clone();
        Self { files, settings }
    }

    /// No process of it is left.
    pub(crate) fn is_still(&self) -> bool {
        let own = self.files.path().to_str().unwrap().to_owned();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        !lines.any(|line| String::from_utf8_lossy(&line).contains(&own))
    }
}

/// Where the program of a Job finds what is mounted, and keeps its files, below `root`.
pub(crate) fn paths(root: &Path, config_file: &Path) -> Paths {
    let none = || root.join("none");
    Paths {
        volume: root.join("volume"),
        run: root.join("run"),
        config_file: config_file.to_owned(),
        system_secret: root.join("system"),
        root_secret: none(),
        app_secret: none(),
        server_tls: root.join("tls"),
        client_ca: none(),
        recovery: none(),
        store: root.join("store"),
    }
}

/// The steps that a page shows, each once, as it comes; until the task is aborted.
pub(crate) fn watch_steps(page: SocketAddr) -> (Arc<Mutex<Vec<BackupStep>>>, JoinHandle<()>) {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&steps);
    let watching = tokio::spawn(async move {
        loop {
            if let Ok(progress) = read_page(page).await {
                let mut seen = seen.lock().unwrap();
                if seen.last() != Some(&progress.step) {
                    seen.push(progress.step);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    (steps, watching)
}

/// What the program is told, whose files are below `root`.
pub(crate) fn settings(root: &Path, config_file: &Path, task: Task, page: u16) -> Settings {
    let mut server = temporary(paths(root, config_file), programs());
    server.pod_ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Settings {
        task,
        store: root.join("store"),
        last_words: root.join("last-words"),
        page: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), page),
        stall: Duration::from_mins(2),
        server,
    }
}
