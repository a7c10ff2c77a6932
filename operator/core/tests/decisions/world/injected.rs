//! Faults.

use mainstay_api::status::{Request, RequestResult};

use super::*;

impl World {
    /// Node and pod die; they start again after `time`.
    pub(crate) fn crash(&mut self, ordinal: usize, time: Duration) {
        self.say(format!("crash of {ordinal} for {time:?}"));
        let end = self.now + time;
        let node = &mut self.nodes[ordinal];
        node.process = None;
        node.off_until = end;
    }

    pub(crate) fn kill_mysqld(&mut self, ordinal: usize) {
        self.say(format!("mysqld of {ordinal} is killed"));
        let (now, start) = (self.now, self.settings.start);
        self.nodes[ordinal].kill_mysqld(now, start);
    }

    /// From now on the applier of an instance stops with an error, as long as it has these data.
    pub(crate) fn break_applier(&mut self, ordinal: usize) {
        self.say(format!("the applier of {ordinal} is broken"));
        if let Some(volume) = &mut self.nodes[ordinal].volume {
            volume.poisoned = true;
        }
    }

    /// The volume is lost with the pod.
    pub(crate) fn lose_volume(&mut self, ordinal: usize) {
        self.say(format!("volume of {ordinal} is lost"));
        let node = &mut self.nodes[ordinal];
        node.process = None;
        node.volume = None;
        node.pod = None;
    }

    /// Cuts an instance from every operator.
    pub(crate) fn cut_from_operators(&mut self, ordinal: usize) {
        for number in 0..self.operators.len() {
            self.cut.insert((number, self.nodes[ordinal].name.clone()));
        }
    }

    /// Cuts an instance from every other one.
    pub(crate) fn cut_from_instances(&mut self, ordinal: usize) {
        let name = self.nodes[ordinal].name.clone();
        for node in &self.nodes {
            if node.name != name {
                self.apart.insert((name.clone(), node.name.clone()));
            }
        }
    }

    pub(crate) fn heal_network(&mut self) {
        self.cut.clear();
        self.apart.clear();
    }

    /// A person writes a request; its id.
    pub(crate) fn ask(&mut self, verb: &str, ordinal: usize, accept_data_loss: bool) -> String {
        self.counter += 1;
        let (id, instance) = (format!("r{}", self.counter), &self.nodes[ordinal].name);
        self.request = Some(format!(
            r#"{{"id":"{id}","verb":"{verb}","instance":"{instance}","acceptDataLoss":{accept_data_loss}}}"#
        ));
        self.say(format!("asks to {verb} {instance} ({id})"));
        id
    }

    /// The id of the newest request, answered or not.
    pub(crate) fn asked(&self) -> Option<String> {
        let request: serde_json::Value = serde_json::from_str(self.request.as_ref()?).unwrap();
        Some(request["id"].as_str().unwrap().to_owned())
    }

    /// What became of the newest request, if it has this id and has ended.
    pub(crate) fn answered(&self, id: &str) -> Option<Request> {
        let request = self.kubernetes.status.request.clone()?;
        (request.id == id && request.result != RequestResult::Running).then_some(request)
    }

    /// A pod is deleted with its grace: it asks to be relieved first.
    pub(crate) fn delete_pod(&mut self, ordinal: usize, grace: Duration) {
        self.say(format!("the pod of {ordinal} is deleted"));
        let end = self.now + grace;
        let node = &mut self.nodes[ordinal];
        if let Some(pod) = &mut node.pod {
            pod.deleting = Some(end);
        }
        if let Some(process) = &mut node.process {
            process.leaving = true;
        }
    }
}
