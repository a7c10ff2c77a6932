//! A fluent builder for states, and plans as short texts, so that a table of decisions can be read.

pub(crate) mod backups;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use mainstay_api::backup_status::BackupReference;
use mainstay_core::GtidSet;
use mainstay_core::action::{Action, InstanceCommand, Verb, VerbKind};
use mainstay_core::analyse::{Analysis, analyse};
use mainstay_core::backup::plan::Seen;
use mainstay_core::check::check;
use mainstay_core::observed::{
    Answer, Busy, ClaimView, Disk, Heard, InstanceObserved, InstanceReport, Mysqld, ObjectKey, ObjectKind, ObjectView,
    Observed, Persisted, PodView, Reach, Recovered, Replication, SecretsView, SemiSync, StoreSecret, Told,
};
use mainstay_core::plan::{Plan, plan};
use mainstay_core::progress::Progress;
use mainstay_core::rules::{
    Change, ChangeKind, Incarnation, InstanceName, MemberId, Memory, OperatorId, Phase, Phases, PrimaryRef, Request,
    RequestState, Rules,
};
use mainstay_core::subject::Subject;
use mainstay_core::validate::ValidatedCluster;

/// The present, in every state.
pub(crate) fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

pub(crate) fn ago(seconds: u64) -> Timestamp {
    now() - SignedDuration::from_secs(i64::try_from(seconds).unwrap())
}

/// server_uuid of an instance.
pub(crate) fn uuid(ordinal: usize) -> String {
    format!("{ordinal:08x}-0000-4000-8000-000000000000")
}

/// `a:1-5 b:7` is transactions 1 to 5 of shop-0's server and 7 of shop-1's; `x` is nobody's.
pub(crate) fn set(text: &str) -> GtidSet {
    text.split_whitespace().fold(GtidSet::new(), |all, part| {
        let (server, numbers) = part.split_once(':').unwrap();
        let ordinal = match server {
            "x" => 99,
            letter => usize::from(letter.as_bytes()[0] - b'a'),
        };
        all.union(&format!("{}:{numbers}", uuid(ordinal)).parse().unwrap())
    })
}

pub(crate) fn name(ordinal: usize) -> InstanceName {
    InstanceName(format!("shop-{ordinal}"))
}

pub(crate) fn id(ordinal: usize) -> MemberId {
    MemberId {
        instance: name(ordinal),
        incarnation: Incarnation(format!("life-{ordinal}")),
    }
}

/// The members but one.
pub(crate) fn members_but(rules: &Rules, ordinal: usize) -> BTreeSet<MemberId> {
    rules
        .members
        .iter()
        .filter(|member| *member != &id(ordinal))
        .cloned()
        .collect()
}

fn host(ordinal: usize) -> String {
    format!("shop-{ordinal}.shop-instances.prod.svc")
}

/// A state of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) observed: Observed,
    pub(crate) rules: Option<Rules>,
    /// The durability of an accepted spec; without one the spec is not looked at.
    durability: Option<&'static str>,
    /// The cluster begins with recovered data.
    recovers: bool,
    /// Further fields of an accepted spec, merged over it.
    more: serde_json::Value,
}

/// A healthy, settled cluster of that size in epoch 5: shop-0 is open since long, the others follow it, everybody is
/// confirmed, and this process is the owner.
pub(crate) fn healthy(replicas: usize) -> State {
    let acks = u32::try_from(replicas / 2).unwrap();
    let members: Vec<_> = (1..replicas).map(id).collect();
    let rules = Rules {
        epoch: 5,
        owner: OperatorId("me".to_owned()),
        phase: Phase::Open,
        phase_since: ago(1000),
        primary: Some(PrimaryRef {
            id: id(0),
            server_uuid: uuid(0),
            epoch: 5,
            since: ago(1000),
        }),
        baseline: set("a:1-50"),
        members: members.iter().cloned().collect(),
        acks_required: acks,
        server_id_base: 100,
        rebuilds: BTreeMap::new(),
        began: None,
        fences: BTreeMap::new(),
        request: None,
        data_loss: None,
        last_change: Some(Change {
            kind: ChangeKind::Bootstrap,
            from: None,
            to: name(0),
            began: ago(1001),
            recorded: ago(1000),
            opened: Some(ago(1000)),
            phases: Phases::default(),
        }),
    };
    let instances = (0..replicas).map(instance).collect();
    let mut state = State {
        observed: observed(instances, replicas),
        rules: Some(rules),
        durability: None,
        recovers: false,
        more: serde_json::Value::Null,
    };
    state = state.with(0, |i| i.writable().told(&members, acks).set("a:1-100"));
    (1..replicas).fold(state, |state, ordinal| {
        state.with(ordinal, |i| i.set("a:1-100").follows(0))
    })
}

/// The same cluster while it elects in epoch 6, begun three tenths of a second ago: everybody who can be heard is fenced
/// under it.
pub(crate) fn electing(replicas: usize) -> State {
    let state = healthy(replicas).rules(|rules| {
        rules.epoch = 6;
        rules.phase = Phase::Electing { preferred: None };
        rules.phase_since = now() - SignedDuration::from_millis(300);
    });
    (0..replicas).fold(state, |state, ordinal| state.with(ordinal, |i| i.fenced().epoch(6)))
}

/// A cluster that was just made: no memory, every instance pristine.
pub(crate) fn fresh(replicas: usize) -> State {
    let instances = (0..replicas).map(instance).collect();
    let state = State {
        observed: observed(instances, replicas),
        rules: None,
        durability: None,
        recovers: false,
        more: serde_json::Value::Null,
    };
    (0..replicas).fold(state, |state, ordinal| state.with(ordinal, Instance::pristine))
}

fn observed(instances: Vec<InstanceObserved>, replicas: usize) -> Observed {
    let key = ObjectKey {
        kind: ObjectKind::StatefulSet,
        name: "shop".to_owned(),
    };
    let view = ObjectView {
        uid: "set".to_owned(),
        resource_version: "1".to_owned(),
        ours: true,
        value: serde_json::json!({"spec": {
            "replicas": replicas,
            "template": {"metadata": {"annotations": {"mysql.mainstay.dev/template": "t1"}}},
        }}),
        contested: false,
    };
    Observed {
        operator: OperatorId("me".to_owned()),
        memory: Memory::Absent,
        instances,
        objects: BTreeMap::from([(key, view)]),
        secrets: SecretsView {
            keys: BTreeMap::from([
                (
                    "shop-system".to_owned(),
                    ["manager", "replication", "clone", "monitor"].map(str::to_owned).into(),
                ),
                (
                    "shop-root".to_owned(),
                    ["password", "uri", "username", "host", "port"]
                        .map(str::to_owned)
                        .into(),
                ),
            ]),
            ..SecretsView::default()
        },
        warnings: Vec::new(),
        request: None,
        told: Told::default(),
        progress: Progress::default(),
        backups: Seen::default(),
    }
}

fn instance(ordinal: usize) -> InstanceObserved {
    let report = InstanceReport {
        incarnation: id(ordinal).incarnation,
        persisted: Persisted {
            epoch: 5,
            seq: 1,
            ..Persisted::default()
        },
        mysqld: Mysqld::Running,
        message: String::new(),
        restarts: 0,
        failures: 0,
        refusals: 0,
        unreadable: false,
        standstill: None,
        version: "9.7.4".to_owned(),
        server_uuid: uuid(ordinal),
        writable: false,
        executed: GtidSet::new(),
        received: GtidSet::new(),
        purged: GtidSet::new(),
        replication: Replication {
            applier_running: true,
            lag: Some(Duration::ZERO),
            ..Replication::default()
        },
        semi_sync: SemiSync::default(),
        disk: Disk {
            used: 1 << 30,
            size: 10 << 30,
            full_for: None,
        },
        marker: None,
        config_hash: String::new(),
        pristine: false,
        list_uncertain: false,
        history_reset: false,
        archive: None,
        leaving: false,
        recovered: None,
    };
    let heard = Heard {
        report,
        at: now(),
        settled: true,
        busy: None,
        answer: None,
    };
    InstanceObserved {
        name: name(ordinal),
        ordinal: u32::try_from(ordinal).unwrap(),
        pod: Some(pod(ordinal)),
        claim: Some(Instance::new_claim(&format!("claim-{ordinal}"))),
        reach: Reach::Heard(Box::new(heard)),
    }
}

fn pod(ordinal: usize) -> PodView {
    PodView {
        uid: format!("pod-{ordinal}"),
        ip: Some(format!("10.0.0.{}", ordinal + 1)),
        node: Some(format!("node-{ordinal}")),
        zone: None,
        phase: "Running".to_owned(),
        ready: true,
        deleting: false,
        evicted: false,
        template: Some("t1".to_owned()),
        config_map: None,
        image: None,
        trouble: None,
        restarts: 0,
        role: Some(if ordinal == 0 { "primary" } else { "replica" }.to_owned()),
    }
}

impl State {
    /// Changes one instance.
    pub(crate) fn with(mut self, ordinal: usize, change: impl FnOnce(Instance) -> Instance) -> Self {
        let at = self
            .observed
            .instances
            .iter()
            .position(|i| i.name == name(ordinal))
            .unwrap();
        let before = self.observed.instances[at].clone();
        self.observed.instances[at] = change(Instance(before)).0;
        self
    }

    /// Changes the rules' memory.
    pub(crate) fn rules(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(self.rules.as_mut().unwrap());
        self
    }

    /// An instance beyond those that exist, new, with a pod.
    pub(crate) fn grown(mut self, replicas: usize) -> Self {
        for ordinal in self.observed.instances.len()..replicas {
            self.observed.instances.push(instance(ordinal));
            self = self.with(ordinal, Instance::pristine);
        }
        self.declared(replicas)
    }

    fn stateful_set(&mut self) -> &mut serde_json::Value {
        let mut objects = self.observed.objects.values_mut();
        &mut objects.find(|object| object.uid == "set").unwrap().value
    }

    /// The declared number of instances.
    pub(crate) fn declared(mut self, replicas: usize) -> Self {
        self.stateful_set()["spec"]["replicas"] = serde_json::json!(replicas);
        self
    }

    /// The template of the StatefulSet is another one.
    pub(crate) fn template(mut self, hash: &str) -> Self {
        self.stateful_set()["spec"]["template"]["metadata"]["annotations"]["mysql.mainstay.dev/template"] = hash.into();
        self
    }

    /// Its spec was accepted, so objects are made from it.
    pub(crate) fn accepted(mut self) -> Self {
        self.durability = Some("strict");
        self
    }

    /// Commits go on with fewer acknowledgements (spec.failover.durability), and wait since that time.
    pub(crate) fn preferring(mut self, blocked_since: Timestamp) -> Self {
        self.observed.told.blocked_since = Some(blocked_since);
        self.durability = Some("preferred");
        self
    }

    /// Its spec was accepted, and it begins with recovered data.
    pub(crate) fn recovering(mut self) -> Self {
        self.recovers = true;
        self.accepted()
    }

    /// Digest of what is to be recovered, as an instance reports it.
    pub(crate) fn wish() -> String {
        let none = serde_json::Value::Null;
        accepted("strict", true, 3, &none).recovery.unwrap().request
    }

    /// The Secret with which the data are recovered is there.
    pub(crate) fn with_recovery_secret(mut self) -> Self {
        let key = ObjectKey {
            kind: ObjectKind::Secret,
            name: "shop-recovery".to_owned(),
        };
        let view = ObjectView {
            uid: "recovery".to_owned(),
            resource_version: "7".to_owned(),
            ours: true,
            value: serde_json::json!({}),
            contested: false,
        };
        self.observed.objects.insert(key, view);
        self
    }

    /// A person replaces volumes.
    pub(crate) fn keeping_volumes(mut self) -> Self {
        self.more = serde_json::json!({"healing": {"volumes": "Keep"}});
        self.accepted()
    }

    /// The sizes of volumes, as declared.
    pub(crate) fn growing(mut self, size: &str, most: &str) -> Self {
        self.more = serde_json::json!({"storage": {"size": size, "maxSize": most}});
        self.accepted()
    }

    /// The binlog is archived, as declared.
    pub(crate) fn archiving(mut self) -> Self {
        self.more = serde_json::json!({"backup": {"store": {
            "bucket": "backups", "endpoint": "https://s3.example", "credentialsSecret": {"name": "s3"},
        }}});
        self.accepted()
    }

    /// The annotation of a person.
    /// A backup is in its store.
    pub(crate) fn backed_up(mut self) -> Self {
        self.observed.backups.told.last_successful = Some(BackupReference {
            name: "nightly".to_owned(),
            completed_at: MicroTime(ago(3600)),
            message: None,
        });
        self
    }

    /// The access to its store is not what is declared.
    pub(crate) fn without_access(mut self) -> Self {
        self.observed.secrets.store = StoreSecret::Outdated;
        self
    }

    pub(crate) fn asks(mut self, request: &str) -> Self {
        self.observed.request = Some(request.to_owned());
        self
    }

    /// One instance, to be put into another state.
    pub(crate) fn instance(&self, ordinal: usize) -> Instance {
        Instance(self.observed.instances[ordinal].clone())
    }

    pub(crate) fn without_memory(mut self) -> Self {
        self.rules = None;
        self
    }

    pub(crate) fn observation(&self) -> Observed {
        let memory = self
            .rules
            .clone()
            .map_or(Memory::Absent, |rules| Memory::Known(Box::new(rules)));
        let answered = self
            .rules
            .as_ref()
            .and_then(|rules| Some(rules.request.as_ref()?.id.clone()));
        Observed {
            memory,
            told: Told {
                answered: answered.or_else(|| self.observed.told.answered.clone()),
                ..self.observed.told.clone()
            },
            ..self.observed.clone()
        }
    }

    /// The plan, which breaks no invariant.
    pub(crate) fn plan(&self) -> Plan {
        let observed = self.observation();
        let subject = self.subject();
        let plan = plan(&subject, &observed, &Analysis::default(), now());
        let violations = check(&subject, &observed, &plan, now());
        assert!(violations.is_empty(), "{violations:?}\n{plan:#?}");
        plan
    }

    pub(crate) fn analysis(&self) -> Analysis {
        analyse(&self.subject(), &self.observation(), now())
    }

    /// Whose state it is: only a spec that asks for something is looked at.
    pub(crate) fn subject(&self) -> Subject<'static> {
        let spec = self
            .durability
            .map(|durability| accepted(durability, self.recovers, self.observed.instances.len(), &self.more));
        Subject {
            spec: spec.map_or(Err(&[]), |spec| Ok(&*Box::leak(Box::new(spec)))),
            ..subject()
        }
    }

    /// What the rules of failover do: the record and the commands, as a text of one line each.
    pub(crate) fn does(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for action in self.plan().actions {
            match action {
                Action::Record(record) => lines.push(record_text(&record.rules)),
                Action::Command(mut commands) => {
                    commands.sort_by(|a, b| a.to.cmp(&b.to));
                    lines.extend(commands.iter().map(command_text));
                }
                Action::DeletePod { instance, .. } => lines.push(format!("delete {instance}")),
                Action::DeleteClaim { instance, .. } => lines.push(format!("delete the claim of {instance}")),
                Action::GrowClaim { instance, bytes, .. } => {
                    lines.push(format!("grow {instance} to {}", mainstay_core::quantity::binary(bytes)));
                }
                _ => {}
            }
        }
        lines
    }

    /// The memory that is recorded.
    pub(crate) fn plan_record(&self) -> Rules {
        let Some(Action::Record(record)) = self.plan().actions.into_iter().next() else {
            panic!("no record: {}", self.waits())
        };
        record.rules
    }

    /// What is waited for.
    pub(crate) fn waits(&self) -> String {
        let waiting = self.plan().waiting;
        let waits = waiting.iter().filter(|wait| wait.who != "building");
        waits
            .map(|wait| format!("{} waits for {}", wait.who, wait.for_what))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// The spec is not looked at: what the rules do must not depend on whether it is valid.
pub(crate) fn subject() -> Subject<'static> {
    Subject {
        namespace: "prod",
        name: "shop",
        uid: "uid-shop",
        generation: 1,
        operator_image: "mainstay:test",
        spec: Err(&[]),
    }
}

/// A spec that was accepted.
fn accepted(durability: &str, recovers: bool, replicas: usize, more: &serde_json::Value) -> ValidatedCluster {
    let recovery = serde_json::json!({"recovery": {
        "source": {
            "store": {"bucket": "backups", "endpoint": "https://s3.example", "credentialsSecret": {"name": "s3"}},
            "cluster": {"namespace": "prod", "name": "shop"},
        },
        "target": {"time": "2026-11-29T11:00:00Z"},
    }});
    let mut cluster = serde_json::json!({
        "apiVersion": "mysql.mainstay.dev/v1",
        "kind": "MySQLCluster",
        "metadata": {"name": "shop", "namespace": "prod", "uid": "uid-shop", "generation": 1},
        "spec": {"replicas": replicas, "image": "mysql:9.7.4", "storage": {"size": "1Gi"},
            "failover": {"durability": durability}, "bootstrap": if recovers { recovery } else { serde_json::Value::Null }}
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        cluster["spec"][field] = value.clone();
    }
    ValidatedCluster::new(&serde_json::from_value(cluster).unwrap()).unwrap()
}

fn record_text(rules: &Rules) -> String {
    let members: Vec<_> = rules.members.iter().map(|member| member.instance.0.clone()).collect();
    let phase = match &rules.phase {
        Phase::Open => format!("open {}", rules.primary.as_ref().unwrap().id.instance),
        Phase::Electing {
            preferred: Some(preferred),
        } => format!("electing, {} preferred", preferred.instance),
        Phase::Electing { preferred: None } => "electing".to_owned(),
    };
    format!(
        "record epoch {}: {phase}, members {}, k {}",
        rules.epoch,
        members.join(" "),
        rules.acks_required
    )
}

fn command_text(command: &InstanceCommand) -> String {
    let to = &command.to.instance;
    match &command.verb {
        Verb::Attach { source } => format!("attach {to} to {}", source.id.instance),
        Verb::Clone { donor, .. } => format!("clone {to} from {}", donor.id.instance),
        Verb::Refill { at_least, .. } => format!("refill {to} with at least {at_least}"),
        Verb::Open {
            members, acks_required, ..
        } => format!("open {to} [{}] k {acks_required}", names(members)),
        Verb::Allow { members, acks_required } => format!("allow {to} [{}] k {acks_required}", names(members)),
        Verb::Fence => format!("fence {to}"),
        Verb::Mark => format!("mark {to}"),
        Verb::Restart => format!("restart {to}"),
        Verb::Purge { stored } => format!("purge {to} {stored}"),
    }
}

fn names(members: &BTreeSet<MemberId>) -> String {
    members
        .iter()
        .map(|member| member.instance.0.clone())
        .collect::<Vec<_>>()
        .join(" ")
}

/// One instance, to be changed.
pub(crate) struct Instance(pub(crate) InstanceObserved);

impl Instance {
    pub(crate) fn heard(mut self, change: impl FnOnce(&mut Heard)) -> Self {
        if let Reach::Heard(heard) = &mut self.0.reach {
            change(heard);
        }
        self
    }

    pub(crate) fn report(self, change: impl FnOnce(&mut InstanceReport)) -> Self {
        self.heard(|heard| change(&mut heard.report))
    }

    pub(crate) fn pod(mut self, change: impl FnOnce(&mut PodView)) -> Self {
        if let Some(pod) = &mut self.0.pod {
            change(pod);
        }
        self
    }

    pub(crate) fn claim(mut self, change: impl FnOnce(&mut ClaimView)) -> Self {
        if let Some(claim) = &mut self.0.claim {
            change(claim);
        }
        self
    }

    /// A claim that is bound.
    pub(crate) fn new_claim(uid: &str) -> ClaimView {
        ClaimView {
            uid: uid.to_owned(),
            resource_version: "1".to_owned(),
            phase: "Bound".to_owned(),
            requested: None,
            capacity: None,
            class: None,
            node: None,
            deleting: false,
        }
    }

    /// Heard again, in a pod of its own.
    pub(crate) fn returned(mut self) -> Self {
        let ordinal = usize::try_from(self.0.ordinal).unwrap();
        let Instance(fresh) = Instance(instance(ordinal));
        self.0.reach = fresh.reach;
        self.0.pod = fresh.pod;
        self
    }

    /// Not heard for that many seconds.
    pub(crate) fn silent(mut self, seconds: u64) -> Self {
        self.0.reach = Reach::Silent {
            since: ago(seconds),
            reason: "no route".to_owned(),
            last: None,
        };
        self
    }

    /// Not heard, and its pod does not exist.
    pub(crate) fn gone(mut self) -> Self {
        self.0.pod = None;
        self.silent(60)
    }

    pub(crate) fn mysqld(self, mysqld: Mysqld) -> Self {
        self.report(|report| {
            report.mysqld = mysqld;
            report.writable = false;
            report.executed = GtidSet::new();
            report.received = GtidSet::new();
            report.replication = Replication::default();
        })
    }

    /// Everything that it executed.
    pub(crate) fn set(self, text: &str) -> Self {
        self.report(|report| report.executed = set(text))
    }

    /// Its applier stopped with an error that many seconds ago, with these transactions behind it.
    pub(crate) fn stuck(self, received: &str, seconds: u64) -> Self {
        self.received(received).report(|report| {
            report.replication.applier_running = false;
            "duplicate key (MySQL error 1062)".clone_into(&mut report.replication.applier_error);
            report.replication.applier_failing = Some(Duration::from_secs(seconds));
            report.replication.lag = None;
        })
    }

    /// What is in its relay log.
    pub(crate) fn received(self, text: &str) -> Self {
        self.report(|report| report.received = set(text))
    }

    pub(crate) fn purged(self, text: &str) -> Self {
        self.report(|report| report.purged = set(text))
    }

    pub(crate) fn writable(self) -> Self {
        self.report(|report| {
            report.writable = true;
            report.replication = Replication::default();
        })
    }

    /// Connected to that instance, with a fresh heartbeat.
    pub(crate) fn follows(self, source: usize) -> Self {
        self.report(|report| {
            report.replication.source_host = Some(host(source));
            report.replication.receiver_running = true;
            report.replication.applier_running = true;
            report.replication.last_heard = Some(Duration::from_millis(200));
            report.replication.lag = Some(Duration::ZERO);
        })
    }

    /// Its source says nothing any more.
    pub(crate) fn deaf(self) -> Self {
        self.report(|report| report.replication.last_heard = Some(Duration::from_secs(3)))
    }

    /// Its receiver has not connected yet.
    pub(crate) fn connecting(self) -> Self {
        self.report(|report| {
            report.replication.receiver_running = false;
            report.replication.last_heard = None;
        })
    }

    /// Read-only, and no receiver.
    pub(crate) fn fenced(self) -> Self {
        self.report(|report| {
            report.writable = false;
            report.replication = Replication {
                applier_running: true,
                lag: Some(Duration::ZERO),
                ..Replication::default()
            };
        })
    }

    /// Its report is of that epoch.
    pub(crate) fn epoch(self, epoch: u64) -> Self {
        self.report(|report| report.persisted.epoch = epoch)
    }

    /// A command is on its way to it.
    pub(crate) fn unsettled(self) -> Self {
        self.heard(|heard| heard.settled = false)
    }

    pub(crate) fn busy(self, verb: VerbKind, epoch: u64) -> Self {
        self.heard(|heard| {
            heard.settled = false;
            heard.busy = Some(Busy { verb, epoch });
        })
    }

    /// The newest command was answered so.
    pub(crate) fn answered(self, verb: VerbKind, epoch: u64, failure: Option<&str>) -> Self {
        self.heard(|heard| {
            let failure = failure.map(str::to_owned);
            heard.answer = Some(Answer {
                verb,
                epoch,
                at: now(),
                failure,
            });
        })
    }

    /// It was told who may acknowledge.
    pub(crate) fn told(self, members: &[MemberId], acks_required: u32) -> Self {
        self.report(|report| {
            let epoch = report.persisted.epoch;
            report.persisted.told_epoch = epoch;
            report.persisted.primary = None;
            report.persisted.members = members.to_vec();
            report.persisted.acks_required = acks_required;
        })
        .told_itself()
    }

    fn told_itself(mut self) -> Self {
        let name = self.0.name.clone();
        if let Reach::Heard(heard) = &mut self.0.reach {
            let incarnation = heard.report.incarnation.clone();
            heard.report.persisted.primary = Some(MemberId {
                instance: name,
                incarnation,
            });
        }
        self
    }

    pub(crate) fn marker(self, text: &str) -> Self {
        self.report(|report| report.marker = Some(set(text)))
    }

    /// Another data directory.
    pub(crate) fn reborn(self) -> Self {
        self.report(|report| report.incarnation = Incarnation("another-life".to_owned()))
    }

    pub(crate) fn pristine(self) -> Self {
        self.fenced().report(|report| {
            report.pristine = true;
            report.persisted = Persisted::default();
            report.executed = GtidSet::new();
            report.received = GtidSet::new();
        })
    }

    pub(crate) fn leaving(self) -> Self {
        self.report(|report| report.leaving = true)
    }

    /// New, with data that were recovered for the present wish.
    pub(crate) fn recovered(self, text: &str) -> Self {
        self.pristine().set(text).purged(text).report(|report| {
            report.pristine = false;
            report.recovered = Some(Box::new(Recovered {
                request: State::wish(),
                backup: "nightly-1".to_owned(),
                reached: set(text),
                time: None,
                completed_at: now(),
            }));
        })
    }

    /// It has no data directory, because what it should recover cannot be had.
    pub(crate) fn without_data(self, why: &str) -> Self {
        let why = why.to_owned();
        self.pristine().mysqld(Mysqld::Failed).report(|report| {
            report.pristine = false;
            report.server_uuid = String::new();
            report.message = why;
        })
    }
}

/// What is done in that state, and no more.
#[track_caller]
pub(crate) fn does(state: &State, expected: &[&str]) {
    assert_eq!(state.does(), expected, "waits: {}", state.waits());
}

/// Nothing is done, and what is waited for is said with these words.
#[track_caller]
pub(crate) fn waits(state: &State, words: &str) {
    does(state, &[]);
    let waits = state.waits();
    assert!(waits.contains(words), "{waits}");
}

/// Not heard for an hour.
pub(crate) fn dead(i: Instance) -> Instance {
    i.silent(3600)
}

/// The word of a person for that instance was recorded, and everybody had the time to answer.
pub(crate) fn requests_forced(state: &State, ordinal: usize) -> State {
    state.clone().rules(|rules| {
        rules.request = Some(Request {
            id: "r1".to_owned(),
            verb: "promote".to_owned(),
            instance: Some(name(ordinal)),
            accept_data_loss: true,
            state: RequestState::Running,
            message: String::new(),
            at: ago(60),
            deadline: None,
        });
    })
}
