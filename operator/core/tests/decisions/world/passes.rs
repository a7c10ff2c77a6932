//! Operators: streams, observations, and passes carried out action by action.

use super::*;

impl World {
    pub(super) fn stream(&mut self) {
        let names = Self::names();
        for number in 0..self.operators.len() {
            for at in 0..self.nodes.len() {
                let name = self.nodes[at].name.clone();
                if self.cut.contains(&(number, name.clone())) || self.random.chance(self.settings.stale) {
                    continue;
                }
                let host = |name: &str| names.instance_host(&InstanceName(name.to_owned()));
                if let Some(report) = self.nodes[at].report(self.now, host) {
                    self.operators[number].streams.insert(name, (report, self.now));
                }
            }
            self.operators[number].give_up(self.now);
        }
    }

    pub(crate) fn observe(&self, number: usize) -> Observed {
        let operator = &self.operators[number];
        let mut instances = Vec::new();
        for ordinal in 0..self.replicas().max(u32::try_from(self.nodes.len()).unwrap()) {
            let name = Self::names().instance(ordinal);
            let node = self.nodes.iter().find(|node| node.name == name);
            let pod = node.and_then(|node| {
                let pod = node.pod.as_ref()?;
                let ready = node.running();
                Some(PodView {
                    uid: pod.uid.clone(),
                    ip: Some(format!("10.0.0.{}", ordinal + 1)),
                    node: Some(format!("node-{ordinal}")),
                    zone: None,
                    phase: "Running".to_owned(),
                    ready,
                    deleting: pod.deleting.is_some(),
                    evicted: false,
                    template: pod.template.clone(),
                    config_map: pod.config_map.clone(),
                    image: None,
                    trouble: pod.broken.then(|| "mysql: CrashLoopBackOff".to_owned()),
                    restarts: 0,
                    role: pod.role.clone(),
                })
            });
            let claim = node.and_then(|node| node.volume.as_ref()).map(|_| ClaimView {
                uid: format!("claim-{ordinal}"),
                resource_version: "1".to_owned(),
                phase: "Bound".to_owned(),
                requested: None,
                capacity: None,
                class: None,
                node: None,
                deleting: false,
            });
            let reach = operator.reach(&name, self.now);
            instances.push(InstanceObserved {
                name,
                ordinal,
                pod,
                claim,
                reach,
            });
        }
        Observed {
            operator: operator.id.clone(),
            memory: status::memory(Some(&self.kubernetes.status)),
            instances,
            objects: self.kubernetes.objects.clone(),
            secrets: self.kubernetes.secrets.clone(),
            warnings: Vec::new(),
            request: self.request.clone(),
            told: status::told(Some(&self.kubernetes.status)),
            progress: Progress::default(),
            backups: mainstay_core::backup::plan::Seen::default(),
        }
    }

    /// One step of an operator: an action of its plan, or a new pass.
    pub(super) fn operate(&mut self, number: usize) {
        if self.operators[number].blind {
            return;
        }
        match self.operators[number].pending.pop_front() {
            Some(action) => self.act(number, &action),
            None if self.is_called(number) => self.pass(number),
            None => {}
        }
    }

    /// Something changed, or the time has come that the last plan named.
    pub(super) fn is_called(&mut self, number: usize) -> bool {
        let operator = &self.operators[number];
        let instances = (0..self.replicas().max(u32::try_from(self.nodes.len()).unwrap())).map(|ordinal| {
            let name = Self::names().instance(ordinal);
            let node = self.nodes.iter().find(|node| node.name == name);
            let pod = node.and_then(|node| node.pod.clone());
            (operator.outline(&name, self.now), pod, node.is_some_and(Node::running))
        });
        let seen = Some(Seen {
            version: self.kubernetes.version,
            writes: self.kubernetes.writes,
            generation: self.cluster.metadata.generation,
            request: self.request.clone(),
            instances: instances.collect(),
        });
        let due = operator.look_at.is_some_and(|at| at <= self.now);
        let called = due || seen != operator.seen;
        self.operators[number].seen = seen;
        called
    }

    /// What would be done about this observation.
    pub(crate) fn plan_of(&self, observed: &Observed) -> Plan {
        let spec = ValidatedCluster::new(&self.cluster);
        let subject = Subject {
            namespace: "prod",
            name: "shop",
            uid: "uid-shop",
            generation: 1,
            operator_image: "mainstay:test",
            spec: spec.as_ref().map_err(Vec::as_slice),
        };
        let analysis = analyse(&subject, observed, self.now);
        plan(&subject, observed, &analysis, self.now)
    }

    pub(super) fn pass(&mut self, number: usize) {
        self.passes += 1;
        let observed = self.observe(number);
        let spec = ValidatedCluster::new(&self.cluster);
        let subject = Subject {
            namespace: "prod",
            name: "shop",
            uid: "uid-shop",
            generation: self.cluster.metadata.generation.unwrap(),
            operator_image: "mainstay:test",
            spec: spec.as_ref().map_err(Vec::as_slice),
        };
        let analysis = analyse(&subject, &observed, self.now);
        let plan = plan(&subject, &observed, &analysis, self.now);
        let violations = check(&subject, &observed, &plan, self.now);
        let acts = !plan.actions.is_empty();
        let read = self.kubernetes.version;
        self.last_plan = plan.clone();
        if !violations.is_empty() {
            self.fail(&format!("operator {number} breaks {violations:?}"));
        }
        self.operators[number].look_at = plan.look_again.map(|after| self.now + after);
        self.operators[number].attends = acts || !plan.waiting.is_empty();
        self.operators[number].read = read;
        self.operators[number].pending = plan.actions.iter().cloned().collect();
        if !acts {
            let previous = self.kubernetes.status.clone();
            let status = status::status(&subject, &observed, &analysis, &plan, &previous, self.now);
            if status != previous {
                self.kubernetes.put_status(read, &status);
            }
        }
        // The first action is carried out at once: what lies between two others is up to the other operator.
        if let Some(action) = self.operators[number].pending.pop_front() {
            self.act(number, &action);
        }
    }

    pub(super) fn act(&mut self, number: usize, action: &Action) {
        match action {
            Action::Record(record) => self.record(number, record),
            Action::Command(commands) => {
                for command in commands {
                    let seq = self.operators[number].send(command, self.now);
                    let late = self.random.chance(self.settings.late);
                    let delay = if late {
                        self.random.below(10_000)
                    } else {
                        self.random.below(40)
                    };
                    self.messages.push(Message {
                        operator: number,
                        to: command.to.instance.clone(),
                        command: command.clone(),
                        seq,
                        arrives: self.now + Duration::from_millis(delay),
                    });
                }
            }
            Action::DeletePod { instance, uid, .. } => {
                let end = self.now + SignedDuration::from_secs(1);
                let node = self.nodes.iter_mut().find(|node| &node.name == instance).unwrap();
                if let Some(pod) = node.pod.as_mut().filter(|pod| &pod.uid == uid) {
                    pod.deleting = Some(end);
                }
                self.say(format!("delete {instance}"));
                self.kubernetes.writes += 1;
            }
            Action::LabelPod { instance, uid, role } => {
                let node = self.nodes.iter_mut().find(|node| &node.name == instance).unwrap();
                if let Some(pod) = node.pod.as_mut().filter(|pod| &pod.uid == uid) {
                    pod.role = role.map(str::to_owned);
                }
                self.kubernetes.writes += 1;
            }
            other => self.kubernetes.execute(other, self.now),
        }
    }

    pub(super) fn record(&mut self, number: usize, record: &Record) {
        let read = self.operators[number].read;
        let status = status::record(&self.kubernetes.status, &record.rules);
        let done = self.kubernetes.put_status(read, &status);
        let members: Vec<_> = record
            .rules
            .members
            .iter()
            .map(|member| member.instance.to_string())
            .collect();
        self.say(format!(
            "{number} records epoch {} {:?} members {members:?} k {}: {} {}: {done}",
            record.rules.epoch, record.rules.phase, record.rules.acks_required, record.reason, record.message
        ));
        if done {
            if record.gives_up() {
                // What a person gave up is owed to nobody any more.
                self.acked = self.acked.intersect(&record.rules.baseline);
            }
            self.operators[number].read = self.kubernetes.version;
        } else {
            self.operators[number].pending.clear();
        }
    }
}
