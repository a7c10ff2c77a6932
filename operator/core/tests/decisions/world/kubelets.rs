//! The StatefulSet controller and the kubelets.

use super::*;

impl World {
    /// The StatefulSet's and the kubelets' work.
    pub(super) fn kubelets(&mut self) {
        let wanted = self.kubernetes.set_replicas();
        let template = self.kubernetes.template();
        while self.nodes.len() < usize::try_from(wanted).unwrap() {
            let ordinal = u32::try_from(self.nodes.len()).unwrap();
            self.nodes.push(Node::new(Self::names().instance(ordinal), ordinal));
        }
        let volumes = self
            .kubernetes
            .stateful_set()
            .and_then(|set| set.pointer("/spec/template/spec/volumes"));
        let config_map = volumes.and_then(|volumes| {
            let mut names = volumes
                .as_array()?
                .iter()
                .filter_map(|volume| volume.pointer("/configMap/name")?.as_str());
            names.next().map(str::to_owned)
        });
        let (now, start) = (self.now, self.settings.start);
        for at in 0..self.nodes.len() {
            let gone = self.nodes[at].ordinal >= wanted
                || self.nodes[at]
                    .pod
                    .as_ref()
                    .is_some_and(|pod| pod.deleting.is_some_and(|end| end <= now));
            if gone {
                self.nodes[at].pod = None;
                self.nodes[at].process = None;
            }
            if self.nodes[at].ordinal < wanted && self.nodes[at].pod.is_none() {
                self.counter += 1;
                self.nodes[at].pod = Some(Pod {
                    uid: format!("pod-{}", self.counter),
                    template: template.clone(),
                    config_map: config_map.clone(),
                    deleting: None,
                    broken: false,
                    role: None,
                });
                continue;
            }
            let node = &self.nodes[at];
            let startable = node.pod.as_ref().is_some_and(|pod| !pod.broken) && node.off_until <= now;
            if startable && node.process.is_none() {
                self.ensure_volume(at);
                self.nodes[at].start(now, start);
                self.recover_if_empty(at);
            }
        }
    }

    pub(super) fn ensure_volume(&mut self, at: usize) {
        if self.nodes[at].volume.is_none() {
            let volume = self.new_volume();
            self.nodes[at].volume = Some(volume);
        }
    }

    /// The instance that recovers the data makes no empty data directory.
    fn recover_if_empty(&mut self, at: usize) {
        let (now, took) = (self.now, RECOVERY);
        let recovers = self.recovers() && self.nodes[at].ordinal == 0;
        let node = &mut self.nodes[at];
        let (Some(process), Some(volume)) = (&mut node.process, &mut node.volume) else {
            return;
        };
        if recovers && volume.pristine && volume.recovered.is_none() {
            volume.uuid.clear();
            process.mysqld = Mysqld::Initialising;
            process.until = now + took;
        }
    }

    /// A recovery ends: with data, or for want of the Secret with none. What is stored grows meanwhile.
    pub(super) fn end_recovery(&mut self, at: usize) {
        let wish = self.cluster_wish();
        let (Some(wish), true) = (wish, self.kubernetes.has_secret("shop-recovery")) else {
            self.nodes[at].process.as_mut().unwrap().mysqld = Mysqld::Failed;
            return;
        };
        let accepted = self.nodes[at].volume.as_ref().map_or((0, 0), |volume| volume.accepted);
        let grown = self.random.below(3);
        let reached = self.stored.union(&gtids(SOURCE, self.stored.count() + 1));
        let reached = if grown == 0 { reached } else { self.stored.clone() };
        self.stored = reached.clone();
        let mut volume = self.new_volume();
        volume.accepted = accepted;
        volume.pristine = false;
        volume.purged = reached.clone();
        volume.executed = reached.clone();
        volume.recovered = Some(Box::new(Recovered {
            request: wish,
            backup: "nightly-1".to_owned(),
            reached,
            time: None,
            completed_at: self.now,
        }));
        self.say(format!("{} is recovered: {}", self.nodes[at].name, volume.incarnation));
        self.nodes[at].volume = Some(volume);
        let (now, start) = (self.now, self.settings.start);
        self.nodes[at].start(now, start);
    }

    fn recovers(&self) -> bool {
        self.cluster_wish().is_some()
    }

    fn cluster_wish(&self) -> Option<String> {
        let spec = ValidatedCluster::new(&self.cluster).unwrap();
        spec.recovery.map(|wish| wish.request)
    }

    pub(super) fn new_volume(&mut self) -> Volume {
        self.counter += 1;
        let number = self.counter;
        Volume::new(
            format!("life-{number}"),
            format!("{number:08x}-0000-4000-8000-000000000000"),
        )
    }
}
