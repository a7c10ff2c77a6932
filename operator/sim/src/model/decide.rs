//! The real `analyse`, `plan` and `check`, asked about a view, and remembered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use mainstay_api::MySQLClusterStatus;
use mainstay_core::GtidSet;
use mainstay_core::action::{Action, InstanceCommand, Verb as CoreVerb, VerbKind};
use mainstay_core::analyse::analyse;
use mainstay_core::build::endpoint_slices;
use mainstay_core::check::{Violation, check};
use mainstay_core::gtid::{Gtid, ServerUuid, Tag};
use mainstay_core::names::Names;
use mainstay_core::observed::{
    Answer as CoreAnswer, Busy, ClaimView, Disk, Heard, InstanceObserved, InstanceReport, Mysqld, ObjectKey,
    ObjectKind, ObjectView, Observed, Persisted, PodView, Reach, Recovered, Replication, SecretsView, SemiSync,
};
use mainstay_core::plan::{Plan, plan};
use mainstay_core::progress::Progress;
use mainstay_core::rules::{
    Incarnation, InstanceName, MemberId, Memory, OperatorId, Phase as CorePhase, PrimaryRef, Rules,
};
use mainstay_core::status;
use mainstay_core::subject::Subject;
use mainstay_core::validate::ValidatedCluster;

use super::bounds::{Bounds, Start};
use super::defect::Defect;
use super::ids::{Id, Ids, LIVES, TXNS, Txns, UNKNOWN, txn, txns};
use super::state::{Answer, Decision, Order, Owner, Phase, Primary, Process, Status};
use super::view::{Clock, Look, Receiver, Report, Verb, View};

type Hasher = BuildHasherDefault<DefaultHasher>;
type Shard<const N: usize> = Mutex<HashMap<View<N>, Decision<N>, Hasher>>;

const SHARDS: usize = 64;
const ME: &str = "operator-0";
const ANOTHER: &str = "operator-1";

/// What does not change from pass to pass.
pub(super) struct Planner<const N: usize> {
    names: Names,
    /// A memory, for what the model does not touch.
    memory: Rules,
    specs: Vec<ValidatedCluster>,
    objects: BTreeMap<ObjectKey, ObjectView>,
    servers: Vec<(String, ServerUuid)>,
    very_long_ago: Timestamp,
    long_ago: Timestamp,
    now: Timestamp,
    decided: Vec<Shard<N>>,
    /// Invariants that a plan broke, in words.
    violations: Mutex<Vec<String>>,
    /// Views that were decided.
    views: AtomicUsize,
}

impl<const N: usize> Planner<N> {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let names = Names::new("prod", "shop");
        let spec = declared(bounds.start);
        let specs = (0..=u32::try_from(N).unwrap_or_default()).map(|replicas| ValidatedCluster {
            replicas,
            ..spec.clone()
        });
        let lives = u8::try_from(N).unwrap_or_default() * LIVES;
        let server = |number: u8| {
            let number = if bounds.has(Defect::UuidsKept) {
                number / LIVES * LIVES
            } else {
                number
            };
            let text = format!("{:08x}-0000-4000-8000-000000000000", u32::from(number) + 1);
            let uuid = text.parse().ok()?;
            Some((text, uuid))
        };
        let now = Timestamp::from_second(1_800_000_000).unwrap_or_default();
        Self {
            objects: objects(&names, &spec),
            memory: memory(),
            names,
            specs: specs.collect(),
            servers: (0..lives).filter_map(server).collect(),
            very_long_ago: now - SignedDuration::from_hours(2),
            long_ago: now - SignedDuration::from_hours(1),
            now,
            decided: (0..SHARDS).map(|_| Mutex::default()).collect(),
            violations: Mutex::default(),
            views: AtomicUsize::new(0),
        }
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn views(&self) -> usize {
        self.views.load(Ordering::Relaxed)
    }

    /// What an operator does that sees this.
    pub(super) fn decide(&self, view: &View<N>, bounds: &Bounds) -> Decision<N> {
        let shard = usize::try_from(Hasher::default().hash_one(view)).unwrap_or_default() % SHARDS;
        let shard = &self.decided[shard];
        if let Some(known) = shard.lock().unwrap_or_else(PoisonError::into_inner).get(view) {
            return *known;
        }
        let decision = bounds.corrupt(view, self.ask(view, bounds));
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        shard.insert(*view, decision);
        self.views.fetch_add(1, Ordering::Relaxed);
        decision
    }

    fn ask(&self, view: &View<N>, bounds: &Bounds) -> Decision<N> {
        let (plan, broken) = self.plan(view);
        if !broken.is_empty() && bounds.defect.is_none() {
            let text = format!("{broken:?} by {:#?} for {view:#?}", plan.actions);
            let mut violations = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
            violations.push(text);
            return Decision {
                flawed: true,
                ..Decision::NOTHING
            };
        }
        self.decision(view, &plan)
    }

    /// What an operator that sees this waits for.
    pub(super) fn waits(&self, view: &View<N>) -> Vec<String> {
        let (plan, _) = self.plan(view);
        let waits = plan.waiting.iter();
        waits
            .map(|wait| format!("{} waits for {}", wait.who, wait.for_what))
            .collect()
    }

    fn plan(&self, view: &View<N>) -> (Plan, Vec<Violation>) {
        let observed = self.observed(view);
        let subject = Subject {
            namespace: "prod",
            name: "shop",
            uid: "uid-shop",
            generation: 1,
            operator_image: "mainstay:model",
            spec: Ok(&self.specs[usize::from(view.replicas)]),
        };
        let analysis = analyse(&subject, &observed, self.now);
        let plan = plan(&subject, &observed, &analysis, self.now);
        let broken = check(&subject, &observed, &plan, self.now);
        (plan, broken)
    }

    /// What a plan comes to. Objects and routing are not part of the model.
    fn decision(&self, view: &View<N>, plan: &Plan) -> Decision<N> {
        let mut decision = Decision::NOTHING;
        for action in &plan.actions {
            match action {
                Action::Record(record) => decision.record = Some(self.status(view, &record.rules)),
                Action::Command(commands) => {
                    for command in commands {
                        let to = id(&command.to);
                        decision.orders[to.ordinal()] = Some((to, self.order(view, command)));
                    }
                }
                _ => {}
            }
        }
        decision
    }

    fn status(&self, view: &View<N>, rules: &Rules) -> Status {
        Status {
            epoch: small(rules.epoch),
            owner: Owner::Operator(0),
            phase: match &rules.phase {
                CorePhase::Open => Phase::Open,
                CorePhase::Electing { preferred } => Phase::Electing(preferred.as_ref().map(id)),
            },
            primary: rules.primary.as_ref().map(|primary| Primary {
                id: id(&primary.id),
                reign: small(primary.epoch),
            }),
            baseline: self.transactions(view, &rules.baseline),
            members: rules.members.iter().map(id).collect(),
            acks: small(rules.acks_required.into()),
        }
    }

    fn order(&self, view: &View<N>, command: &InstanceCommand) -> Order {
        let listed = |members: &BTreeSet<MemberId>| members.iter().map(id).collect::<Ids>();
        match &command.verb {
            CoreVerb::Fence => Order::Fence,
            CoreVerb::Attach { source } => Order::Attach(id(&source.id)),
            CoreVerb::Open {
                members,
                acks_required,
                baseline,
                ..
            } => Order::Open {
                members: listed(members),
                acks: small((*acks_required).into()),
                baseline: self.transactions(view, baseline),
            },
            CoreVerb::Allow { members, acks_required } => Order::Allow {
                members: listed(members),
                acks: small((*acks_required).into()),
            },
            CoreVerb::Mark => Order::Mark,
            CoreVerb::Clone { donor, .. } => Order::Clone(id(&donor.id)),
            // The model has neither volumes that fill up nor a store.
            CoreVerb::Restart | CoreVerb::Purge { .. } | CoreVerb::Refill { .. } => Order::Restart,
        }
    }

    fn gtid(&self, view: &View<N>, number: usize) -> Option<Gtid> {
        let (_, server) = self.servers[usize::from(view.origin[number]?.number())];
        Some(Gtid {
            server,
            tag: Tag::default(),
            number: view.number[number].into(),
        })
    }

    fn gtids(&self, view: &View<N>, set: Txns) -> GtidSet {
        txns(set).filter_map(|number| self.gtid(view, number)).collect()
    }

    fn transactions(&self, view: &View<N>, set: &GtidSet) -> Txns {
        let contained = |number: &usize| self.gtid(view, *number).is_some_and(|gtid| set.contains_gtid(&gtid));
        (0..TXNS).filter(contained).fold(0, |all, number| all | txn(number))
    }

    fn observed(&self, view: &View<N>) -> Observed {
        let instance = |(ordinal, look): (usize, &Look)| self.instance(view, ordinal, look);
        let wanted = |instance: &InstanceObserved| {
            instance.ordinal < u32::from(view.replicas) || instance.pod.is_some() || instance.claim.is_some()
        };
        Observed {
            operator: OperatorId(ME.to_owned()),
            memory: view.status.as_ref().map_or(Memory::Absent, |status| {
                Memory::Known(Box::new(self.rules(view, status)))
            }),
            instances: view.looks.iter().enumerate().map(instance).filter(wanted).collect(),
            objects: self.objects.clone(),
            secrets: SecretsView::default(),
            warnings: Vec::new(),
            request: None,
            told: mainstay_core::observed::Told::default(),
            progress: Progress::default(),
            backups: mainstay_core::backup::plan::Seen::default(),
        }
    }

    /// When it began: the clock is nobody's.
    fn since(&self, view: &View<N>) -> Timestamp {
        match view.clock {
            Clock::Early | Clock::Soon => self.now,
            Clock::Late | Clock::Gone | Clock::Flapping => self.long_ago,
        }
    }

    fn reign_since(&self, view: &View<N>) -> Timestamp {
        match view.clock {
            Clock::Early => self.now,
            Clock::Flapping => self.long_ago,
            Clock::Soon | Clock::Late | Clock::Gone => self.very_long_ago,
        }
    }

    fn rules(&self, view: &View<N>, status: &Status) -> Rules {
        let since = self.since(view);
        Rules {
            epoch: status.epoch.into(),
            owner: OperatorId(
                if status.owner == Owner::Operator(0) {
                    ME
                } else {
                    ANOTHER
                }
                .to_owned(),
            ),
            phase: match status.phase {
                Phase::Open => CorePhase::Open,
                Phase::Electing(preferred) => CorePhase::Electing {
                    preferred: preferred.map(|id| self.member(id)),
                },
            },
            phase_since: since,
            primary: status.primary.map(|primary| PrimaryRef {
                id: self.member(primary.id),
                server_uuid: self.servers[usize::from(primary.id.number())].0.clone(),
                epoch: primary.reign.into(),
                since: self.reign_since(view),
            }),
            baseline: self.gtids(view, status.baseline),
            members: status.members.iter().map(|id| self.member(id)).collect(),
            acks_required: status.acks.into(),
            ..self.memory.clone()
        }
    }

    fn member(&self, id: Id) -> MemberId {
        MemberId {
            instance: self.names.instance(u32::try_from(id.ordinal()).unwrap_or_default()),
            incarnation: Incarnation(incarnation(id.life())),
        }
    }

    fn instance(&self, view: &View<N>, ordinal: usize, look: &Look) -> InstanceObserved {
        let reach = match look {
            Look::Heard {
                report,
                settled,
                busy,
                answer,
            } => Reach::Heard(Box::new(Heard {
                report: self.report(view, ordinal, report),
                at: self.now,
                settled: *settled,
                busy: busy.map(|(verb, epoch)| Busy {
                    verb: match verb {
                        Verb::Open => VerbKind::Open,
                        Verb::Another => VerbKind::Attach,
                    },
                    epoch: epoch.into(),
                }),
                answer: answer.map(|answer| self.answer(answer)),
            })),
            Look::Nothing | Look::Claim | Look::Silent => Reach::Silent {
                since: self.since(view),
                reason: "no message".to_owned(),
                last: None,
            },
        };
        let heard = matches!(look, Look::Heard { .. });
        let pod = heard || (*look == Look::Silent && view.clock != Clock::Gone);
        let ordinal_u32 = u32::try_from(ordinal).unwrap_or_default();
        InstanceObserved {
            name: self.names.instance(ordinal_u32),
            ordinal: ordinal_u32,
            pod: pod.then(|| pod_view(ordinal, heard)),
            claim: (*look != Look::Nothing).then(claim_view),
            reach,
        }
    }

    fn answer(&self, answer: Answer) -> CoreAnswer {
        let (verb, epoch, failed) = match answer {
            Answer::Fenced => (VerbKind::Fence, 0, false),
            Answer::NotFenced => (VerbKind::Fence, 0, true),
            Answer::NotOpened(epoch) => (VerbKind::Open, epoch, true),
        };
        CoreAnswer {
            verb,
            epoch: epoch.into(),
            // Long enough that whatever did not help may be tried again.
            at: self.long_ago,
            failure: failed.then(|| "refused".to_owned()),
        }
    }

    fn report(&self, view: &View<N>, ordinal: usize, report: &Report) -> InstanceReport {
        let up = report.process == Process::Up;
        let told = &report.told;
        InstanceReport {
            incarnation: Incarnation(incarnation(report.life)),
            persisted: Persisted {
                epoch: report.ended.epoch.into(),
                seq: report.ended.seq.into(),
                told_epoch: told.epoch.into(),
                primary: told.primary.map(|id| self.member(id)),
                baseline: self.gtids(view, told.baseline),
                members: told.members.iter().map(|id| self.member(id)).collect(),
                acks_required: told.acks.into(),
            },
            mysqld: match report.process {
                Process::Up => Mysqld::Running,
                Process::Cloning(_) => Mysqld::Cloning,
                Process::Failed => Mysqld::Failed,
                Process::Absent | Process::Off | Process::Down => Mysqld::Down,
            },
            message: String::new(),
            restarts: 0,
            failures: 0,
            refusals: 0,
            unreadable: false,
            standstill: None,
            version: "9.7.4".to_owned(),
            // A directory into which a clone did not succeed was never a server's.
            server_uuid: match report.process {
                Process::Cloning(_) | Process::Failed => String::new(),
                Process::Absent | Process::Off | Process::Down | Process::Up => self.servers
                    [usize::from(Id::new(ordinal, report.life).number())]
                .0
                .clone(),
            },
            writable: report.writable,
            executed: self.gtids(view, report.executed),
            received: self.gtids(view, report.relay),
            purged: self.gtids(view, report.purged),
            replication: self.replication(report),
            semi_sync: SemiSync {
                on: report.writable,
                wait_for: told.acks.into(),
                waiters: 0,
                acknowledgers: Vec::new(),
            },
            disk: Disk {
                used: 10,
                size: 100,
                full_for: None,
            },
            marker: report.marker.map(|set| self.gtids(view, set)),
            config_hash: String::new(),
            list_uncertain: false,
            history_reset: false,
            archive: None,
            pristine: up && report.ended.epoch == 0 && report.executed | report.relay == 0,
            leaving: report.leaving,
            recovered: report.recovered.then(|| Box::new(self.recovered(view))),
        }
    }

    /// What the first instance has recovered: the first transaction.
    fn recovered(&self, view: &View<N>) -> Recovered {
        let wish = self.specs.first().and_then(|spec| spec.recovery.as_ref());
        Recovered {
            request: wish.map(|wish| wish.request.clone()).unwrap_or_default(),
            backup: String::new(),
            reached: self.gtids(view, txn(0)),
            time: None,
            completed_at: self.very_long_ago,
        }
    }

    fn replication(&self, report: &Report) -> Replication {
        let (source, connected) = match report.receiver {
            Receiver::Detached => (None, false),
            Receiver::Deaf(source) => (Some(source), false),
            Receiver::Connected(source) => (Some(source), true),
        };
        let host = |ordinal: u8| self.names.instance_host(&self.names.instance(ordinal.into()));
        let lag = Duration::from_secs(if report.relay == 0 { 0 } else { 5 });
        Replication {
            source_host: source.map(host),
            receiver_running: connected,
            applier_running: report.applier,
            last_heard: source.map(|_| Duration::from_secs(if connected { 0 } else { 3600 })),
            lag: (report.process == Process::Up).then_some(lag),
            receiver_error: String::new(),
            applier_error: String::new(),
            applier_failing: None,
        }
    }
}

fn pod_view(ordinal: usize, ready: bool) -> PodView {
    PodView {
        uid: format!("pod-{ordinal}"),
        // Routing is not part of the model: nobody has an address.
        ip: None,
        node: Some(format!("node-{ordinal}")),
        zone: None,
        phase: "Running".to_owned(),
        ready,
        deleting: false,
        evicted: false,
        template: None,
        config_map: None,
        image: None,
        role: None,
        trouble: None,
        restarts: 0,
    }
}

fn claim_view() -> ClaimView {
    ClaimView {
        uid: "claim".to_owned(),
        resource_version: "1".to_owned(),
        phase: "Bound".to_owned(),
        requested: None,
        capacity: None,
        class: None,
        node: None,
        deleting: false,
    }
}

fn id(member: &MemberId) -> Id {
    let InstanceName(name) = &member.instance;
    let ordinal = name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok());
    Id::new(
        ordinal.unwrap_or_default(),
        member.incarnation.0.parse().unwrap_or(UNKNOWN),
    )
}

fn incarnation(life: u8) -> String {
    if life == UNKNOWN {
        "unknown".to_owned()
    } else {
        life.to_string()
    }
}

fn small(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// The cluster as it was declared.
fn declared(start: Start) -> ValidatedCluster {
    let mut cluster = serde_json::json!({
        "apiVersion": "mysql.mainstay.dev/v1",
        "kind": "MySQLCluster",
        "metadata": {"name": "shop", "namespace": "prod", "uid": "uid-shop", "generation": 1},
        "spec": {"replicas": 3, "image": "mysql:9.7.4", "storage": {"size": "1Gi"}}
    });
    if start == Start::Recovered {
        cluster["spec"]["bootstrap"] = serde_json::json!({"recovery": {"source": {
            "store": {"bucket": "backups", "endpoint": "https://s3.example", "identity": "pod"},
            "cluster": {"namespace": "prod", "name": "old"},
        }}});
    }
    let cluster = serde_json::from_value(cluster).unwrap_or_else(|error| unreachable!("{error}"));
    ValidatedCluster::new(&cluster).unwrap_or_else(|problems| unreachable!("{problems:?}"))
}

fn memory() -> Rules {
    let status = serde_json::json!({
        "epoch": 1, "owner": ME, "election": {"phase": "Electing", "since": "2026-01-01T00:00:00.000000Z"},
        "baseline": "", "acksRequired": 1, "serverIdBase": 100
    });
    let status: MySQLClusterStatus = serde_json::from_value(status).unwrap_or_default();
    match status::memory(Some(&status)) {
        Memory::Known(rules) => *rules,
        memory @ (Memory::Absent | Memory::Unreadable { .. }) => unreachable!("{memory:?}"),
    }
}

/// Objects that keep everything but the rules quiet: a foreign one, because of which nothing is built, and slices that are
/// contested, because of which nothing is routed.
fn objects(names: &Names, spec: &ValidatedCluster) -> BTreeMap<ObjectKey, ObjectView> {
    let subject = Subject {
        namespace: "prod",
        name: "shop",
        uid: "uid-shop",
        generation: 1,
        operator_image: "mainstay:model",
        spec: Ok(spec),
    };
    let view = |value, ours| ObjectView {
        uid: "uid".to_owned(),
        resource_version: "1".to_owned(),
        ours,
        value,
        contested: ours,
    };
    let services = [names.primary_service(), names.replicas_service()];
    let slices = services
        .iter()
        .flat_map(|service| endpoint_slices(&subject, service, &[]));
    let mut objects: BTreeMap<_, _> = slices.map(|slice| (slice.key, view(slice.value, true))).collect();
    let foreign = ObjectKey {
        kind: ObjectKind::Service,
        name: names.primary_service(),
    };
    objects.insert(foreign, view(serde_json::json!({}), false));
    objects
}
