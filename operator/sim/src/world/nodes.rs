//! Nodes: power, and what the node controller says about them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::Inner;
use crate::kubernetes::{DeleteOptions, Key, Resource};

/// After this time without a sign of life a node counts as not ready.
const GRACE: Duration = Duration::from_secs(40);
/// Then pods that tolerate it no longer are deleted. Those of instances belong to a StatefulSet and come back to the same volume:
/// nothing is changed by it, and it is left out.
const TOLERATED: Duration = Duration::from_mins(5);

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Has power.
    pub up: bool,
    /// Accepts new pods.
    pub schedulable: bool,
    /// Since when it is down or up.
    since: Instant,
    /// What the API server was told last.
    ready: bool,
    /// When pods are deleted that do not tolerate that it is not ready.
    evicts_at: Option<Instant>,
}

impl Inner {
    pub(super) fn add_node(&mut self, name: &str) {
        let Some(resource) = Resource::find("", "nodes") else {
            return;
        };
        let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{name}")});
        // A node of that name may be there already.
        let _ = self
            .server
            .create(resource, "", json!({"metadata": {"name": name, "labels": labels}}));
        let node = Node {
            up: true,
            schedulable: true,
            since: Instant::now(),
            ready: false,
            evicts_at: None,
        };
        self.nodes.insert(name.to_owned(), node);
    }

    /// Cuts the power: processes end, volumes stay.
    pub fn power_off(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name) {
            (node.up, node.since) = (false, Instant::now());
        }
        self.processes.retain(|_, p| p.node != name);
        self.end_backups_on(name);
        self.dirty = true;
    }

    /// Switches the power on: the kubelet starts its pods again.
    pub fn power_on(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name) {
            (node.up, node.since) = (true, Instant::now());
        }
        self.kubelet.reboot(name);
        self.dirty = true;
    }

    /// The node controller.
    pub(super) fn step_nodes(&mut self, now: Instant) -> Option<Instant> {
        let mut next = None;
        let mut news = BTreeMap::new();
        for (name, node) in &mut self.nodes {
            let heard = node.up && self.network.connected(name, super::network::API);
            if heard != node.up {
                node.since = node.since.max(now.checked_sub(GRACE).unwrap_or(node.since));
            }
            let due = node.since + GRACE;
            if node.ready && !heard && due > now {
                next = Some(next.map_or(due, |n: Instant| n.min(due)));
            } else if node.ready != heard {
                node.ready = heard;
                node.evicts_at = (!heard).then(|| now + TOLERATED);
                news.insert(name.clone(), heard);
            }
        }
        next = [next, self.evict(now)].into_iter().flatten().min();
        for (name, ready) in news {
            self.tell_node(&name, ready);
        }
        next
    }

    /// Deletes the pods of backups on nodes that are not ready for too long; returns when to look again.
    fn evict(&mut self, now: Instant) -> Option<Instant> {
        let due: Vec<String> = self
            .nodes
            .iter_mut()
            .filter(|(_, node)| node.evicts_at.is_some_and(|at| at <= now))
            .map(|(name, node)| {
                node.evicts_at = None;
                name.clone()
            })
            .collect();
        let pods = Resource::find("", "pods")?;
        for pod in self.server.list(pods, "") {
            let there = due
                .iter()
                .any(|name| super::kubelet::text(&pod, "/spec/nodeName") == name);
            if there && super::jobs::is_backup(&pod) {
                // It may be deleted already.
                let _ = self
                    .server
                    .delete(&super::kubelet::key_of(pods, &pod), &DeleteOptions::default());
            }
        }
        self.nodes.values().filter_map(|node| node.evicts_at).min()
    }

    fn tell_node(&mut self, name: &str, ready: bool) {
        let Some(resource) = Resource::find("", "nodes") else {
            return;
        };
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "Unknown" }});
        let key = Key::new(resource, "", name);
        // The node may have been deleted.
        let _ = self
            .server
            .patch(&key, Some("status"), json!({"status": {"conditions": [condition]}}));
        if ready {
            self.kubelet.tell_again(name);
            return;
        }
        let Some(pods) = Resource::find("", "pods") else { return };
        for pod in self.server.list(pods, "") {
            if super::kubelet::text(&pod, "/spec/nodeName") == name {
                let key = super::kubelet::key_of(pods, &pod);
                let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
                let _ = self.server.patch(&key, Some("status"), not_ready);
            }
        }
    }

    /// Whether new pods may be put on a node.
    pub(super) fn accepts_pods(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|n| n.schedulable && n.ready)
    }
}
