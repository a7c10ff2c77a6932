//! The scheduler and the kubelets: pods become processes, and processes the status of pods.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::claims::claims_of;
use super::jobs::is_backup;
use super::network::API;
use super::process::{INITIALISE, Phase, Process, RECOVER, START};
use super::{Flaw, Inner};
use crate::kubernetes::{DeleteOptions, Key, Resource};

/// From the moment that a pod is on its node until its manager runs.
const CONTAINER_START: Duration = Duration::from_secs(1);
/// What a pre-stop hook may take.
const PRE_STOP: Duration = Duration::from_secs(20);
/// How often a kubelet looks again at what it waits for.
const POLL: Duration = Duration::from_millis(250);

/// What the kubelets know.
#[derive(Clone, Debug, Default)]
pub(super) struct Kubelets {
    pods: BTreeMap<String, Run>,
}

impl Kubelets {
    /// A node that was off starts its pods from the beginning.
    pub(super) fn reboot(&mut self, node: &str) {
        for run in self.pods.values_mut().filter(|r| r.node == node) {
            run.start_at = Instant::now() + CONTAINER_START;
            run.process = None;
            run.restarts += 1;
        }
    }
}

impl Kubelets {
    /// A node that was not heard of tells everything anew.
    pub(super) fn tell_again(&mut self, node: &str) {
        for run in self.pods.values_mut().filter(|r| r.node == node) {
            run.told = None;
        }
    }
}

/// A pod on a node.
#[derive(Clone, Debug)]
struct Run {
    node: String,
    ip: IpAddr,
    start_at: Instant,
    process: Option<u64>,
    restarts: u32,
    stop_by: Option<Instant>,
    told: Option<(bool, u32, bool)>,
}

/// Text at a JSON pointer, empty when there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Key of an object.
pub(super) fn key_of(resource: &'static Resource, object: &Value) -> Key {
    Key::new(
        resource,
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    )
}

impl Inner {
    /// One pass of the scheduler and of all kubelets; returns when to look again.
    pub(super) fn step_kubelets(&mut self, now: Instant) -> Option<Instant> {
        let pods_resource = Resource::find("", "pods")?;
        let pods = self.server.list(pods_resource, "");
        self.in_dns = pods.iter().map(|p| text(p, "/metadata/uid").to_owned()).collect();
        let mut next: Option<Instant> = None;
        for pod in &pods {
            let node = text(pod, "/spec/nodeName");
            let due = if node.is_empty() {
                self.schedule(pods_resource, pod).then_some(now)
            } else if self.is_up(node) && self.network.connected(node, API) {
                if is_backup(pod) {
                    self.sync_backup(pods_resource, pod, now)
                } else {
                    self.sync_pod(pods_resource, pod, now)
                }
            } else {
                None
            };
            next = [next, due].into_iter().flatten().min();
        }
        self.end_orphans(&pods);
        next
    }

    /// Puts a pod on a node: the one of its volume, or the one with the fewest pods.
    fn schedule(&mut self, resource: &'static Resource, pod: &Arc<Value>) -> bool {
        if !text(pod, "/metadata/deletionTimestamp").is_empty() || self.waits_for_lost_volume(pod) {
            return false;
        }
        let pods = self.server.list(resource, "");
        let load = |node: &str| pods.iter().filter(|p| text(p, "/spec/nodeName") == node).count();
        let node = match self.node_of_volumes(pod) {
            Some(node) => Some(node).filter(|n| self.accepts_pods(n)),
            None => self
                .nodes
                .keys()
                .filter(|n| self.accepts_pods(n))
                .min_by_key(|n| (load(n), (*n).clone()))
                .cloned(),
        };
        let Some(node) = node else { return false };
        self.bind_claims(pod, &node);
        let key = key_of(resource, pod);
        self.server
            .patch(&key, None, json!({"spec": {"nodeName": node}}))
            .is_ok()
    }

    fn sync_pod(&mut self, resource: &'static Resource, pod: &Arc<Value>, now: Instant) -> Option<Instant> {
        let uid = text(pod, "/metadata/uid").to_owned();
        let key = key_of(resource, pod);
        if !self.kubelet.pods.contains_key(&uid) {
            self.next_ip = self.next_ip.wrapping_add(1).max(1);
            let third = u8::try_from(self.next_process / 250 % 250).unwrap_or(0);
            let ip = IpAddr::V4(Ipv4Addr::new(10, 244, third, self.next_ip));
            let node = text(pod, "/spec/nodeName").to_owned();
            let run = Run {
                node,
                ip,
                start_at: now + CONTAINER_START,
                process: None,
                restarts: 0,
                stop_by: None,
                told: None,
            };
            self.kubelet.pods.insert(uid.clone(), run);
        }
        let mut run = self.kubelet.pods.get(&uid)?.clone();
        let due = if text(pod, "/metadata/deletionTimestamp").is_empty() {
            self.run_pod(pod, &mut run, now)
        } else {
            self.stop_pod(&key, pod, &mut run, now)
        };
        self.tell_pod(&key, pod, &mut run);
        self.kubelet.pods.insert(uid, run);
        due
    }

    fn run_pod(&mut self, pod: &Arc<Value>, run: &mut Run, now: Instant) -> Option<Instant> {
        let alive = run.process.is_some_and(|id| self.processes.contains_key(&id));
        if alive {
            return None;
        }
        if run.process.take().is_some() {
            // The manager died: the container is started again in its pod.
            run.restarts += 1;
            run.start_at = now + CONTAINER_START;
        }
        if !self.mounts_exist(pod) {
            return Some(now + POLL);
        }
        if run.start_at > now {
            return Some(run.start_at);
        }
        run.process = self.spawn(pod, run, now);
        self.dirty = true;
        None
    }

    /// Secrets, ConfigMaps and claims must exist before a container starts.
    pub(super) fn mounts_exist(&self, pod: &Value) -> bool {
        let namespace = text(pod, "/metadata/namespace");
        let exists = |plural: &str, name: &str| {
            Resource::find("", plural).is_some_and(|r| self.server.get(&Key::new(r, namespace, name)).is_some())
        };
        let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
        volumes.into_iter().flatten().all(|volume| {
            let optional = |kind: &str| volume.pointer(&format!("/{kind}/optional")) == Some(&json!(true));
            let secret = text(volume, "/secret/secretName");
            let map = text(volume, "/configMap/name");
            (secret.is_empty() || optional("secret") || exists("secrets", secret))
                && (map.is_empty() || optional("configMap") || exists("configmaps", map))
        }) && claims_of(pod).iter().all(|c| exists("persistentvolumeclaims", c))
    }

    /// Starts the manager of a pod.
    fn spawn(&mut self, pod: &Value, run: &Run, now: Instant) -> Option<u64> {
        let namespace = text(pod, "/metadata/namespace");
        let claim = claims_of(pod).first().and_then(|c| self.claim_uid(namespace, c))?;
        let incarnation = self.random.uuid();
        let container = pod.pointer("/spec/containers").and_then(Value::as_array)?;
        let mysql = container.iter().find(|c| text(c, "/name") == "mysql")?;
        let variable = |name: &str| {
            let env = mysql.get("env").and_then(Value::as_array);
            let found = env.into_iter().flatten().find(|e| text(e, "/name") == name);
            found.map(|e| text(e, "/value").to_owned())
        };
        let instance = text(pod, "/metadata/name");
        let recovery = variable("MAINSTAY_RECOVERY").filter(|_| instance.ends_with("-0"));
        let volume = self.volumes.get_mut(&claim)?;
        // An instance without a data directory is somebody, too.
        if recovery.is_some() && volume.incarnation.is_empty() {
            volume.incarnation = incarnation;
        }
        // Read-write once: the volume is still attached to a process that did not end.
        if self.processes.values().any(|p| p.claim == claim) {
            return None;
        }
        let phase = if volume.data.is_some() {
            Phase::Starting { until: now + START }
        } else {
            Phase::Initialising {
                until: now + if recovery.is_some() { RECOVER } else { INITIALISE },
            }
        };
        let id = self.next_process;
        self.next_process += 1;
        let process = Process {
            id,
            namespace: namespace.to_owned(),
            instance: instance.to_owned(),
            cluster: instance.rsplit_once('-').map_or(instance, |(c, _)| c).to_owned(),
            pod_uid: text(pod, "/metadata/uid").to_owned(),
            node: run.node.clone(),
            ip: run.ip,
            ended: (volume.state.epoch, volume.state.seq),
            claim,
            config_hash: variable("MAINSTAY_CONFIG_HASH").unwrap_or_default(),
            version: text(mysql, "/image")
                .rsplit_once(':')
                .map_or("9.7.4", |(_, tag)| tag)
                .to_owned(),
            phase,
            restarts: 0,
            refusals: 0,
            writable: false,
            closing: false,
            semi_sync: None,
            channel: None,
            waiting: Vec::new(),
            marker: None,
            applier_running: true,
            applier_stuck: false,
            failing_since: None,
            leaving: false,
            recovery,
            retry: None,
            sequence: 0,
        };
        self.processes.insert(id, process);
        Some(id)
    }

    /// Stops a pod: pre-stop hook, then the shutdown rule of the manager, then the object goes.
    fn stop_pod(&mut self, key: &Key, pod: &Value, run: &mut Run, now: Instant) -> Option<Instant> {
        let grace = pod
            .pointer("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_u64)
            .unwrap_or(30);
        let limit = PRE_STOP.min(Duration::from_secs(grace));
        let stop_by = *run.stop_by.get_or_insert(now + limit);
        if let Some(process) = run.process.and_then(|id| self.processes.get_mut(&id)) {
            if !process.leaving {
                process.leaving = true;
                self.dirty = true;
            }
            let relieved = !process.writable && process.waiting.is_empty();
            if !relieved && now < stop_by {
                return Some(stop_by);
            }
        }
        // Never a clean stop of a writable server: what waits is not acknowledged.
        if let Some(id) = run.process.take() {
            if self.flaw == Some(Flaw::CleanStop) {
                self.acknowledge_all(id);
            }
            self.dirty |= self.processes.remove(&id).is_some();
        }
        let uid = Some(text(pod, "/metadata/uid").to_owned());
        // It may have been force-deleted meanwhile.
        let _ = self.server.delete(
            key,
            &DeleteOptions {
                uid,
                grace: Some(0),
                ..DeleteOptions::default()
            },
        );
        None
    }

    /// What a clean stop of mysqld does to commits that wait.
    fn acknowledge_all(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        let data = self.volumes.get_mut(&process.claim).and_then(|v| v.data.as_mut());
        let Some(data) = data else { return };
        for waiting in process.waiting.drain(..) {
            data.commit(waiting.index);
            // The client may have given up.
            let _ = waiting.done.send(());
        }
    }

    fn tell_pod(&self, key: &Key, pod: &Value, run: &mut Run) {
        let process = run.process.and_then(|id| self.processes.get(&id));
        let told = (process.is_some(), run.restarts, process.is_some_and(Process::ready));
        if run.told == Some(told) {
            return;
        }
        run.told = Some(told);
        let (started, restarts, ready) = told;
        let word = |yes: bool| if yes { "True" } else { "False" };
        let state = if started {
            json!({"running": {}})
        } else {
            json!({"waiting": {"reason": "ContainerCreating"}})
        };
        let image = pod.pointer("/spec/containers/0/image").cloned().unwrap_or_default();
        let conditions: Vec<Value> = [
            ("PodScheduled", true),
            ("Initialized", started),
            ("ContainersReady", ready),
            ("Ready", ready),
        ]
        .iter()
        .map(|(kind, yes)| json!({"type": kind, "status": word(*yes)}))
        .collect();
        let status = json!({"status": {
            "phase": if started || restarts > 0 { "Running" } else { "Pending" },
            "conditions": conditions,
            "podIP": run.ip.to_string(), "podIPs": [{"ip": run.ip.to_string()}], "hostIP": "192.0.2.1",
            "containerStatuses": [{"name": "mysql", "ready": ready, "started": started, "restartCount": restarts,
                "image": image, "imageID": "sha256:0", "state": state}],
        }});
        // It may just have been deleted.
        let _ = self.server.patch(key, Some("status"), status);
    }

    /// Ends processes whose pod is gone from the API server, once their kubelet can know.
    fn end_orphans(&mut self, pods: &[Arc<Value>]) {
        let known = |uid: &str| pods.iter().any(|p| text(p, "/metadata/uid") == uid);
        let doomed: Vec<u64> = self
            .processes
            .values()
            .filter(|p| !known(&p.pod_uid) && self.is_up(&p.node) && self.network.connected(&p.node, API))
            .map(|p| p.id)
            .collect();
        for id in doomed {
            self.processes.remove(&id);
            self.dirty = true;
        }
        self.kubelet
            .pods
            .retain(|uid, run| known(uid) || run.process.is_some_and(|id| self.processes.contains_key(&id)));
    }
}
