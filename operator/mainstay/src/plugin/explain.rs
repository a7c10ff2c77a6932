//! `kubectl mainstay explain`: what a cluster is doing and why, what is waited for, and what a person can do. A pure function
//! of the object and the time, so it works as long as the API server answers, with or without operator and instances.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use mainstay_api::status::{DataLoss, ElectionPhase, InstanceStatus, Phase, Rebuild, Request, RequestResult, Role};
use mainstay_api::{MySQLCluster, MySQLClusterStatus};
use mainstay_core::GtidSet;

use super::request::pending;
use super::table::{self, age};
use super::view::{change, wrong};

/// A cluster, read for explanation.
pub(crate) struct Subject<'a> {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) status: &'a MySQLClusterStatus,
    pub(crate) now: Timestamp,
}

/// The whole page, with a newline at the end.
pub(crate) fn explain(cluster: &MySQLCluster, now: Timestamp) -> String {
    let name = cluster.name_any();
    let Some(status) = cluster
        .status
        .as_ref()
        .filter(|status| status.observed_generation.is_some())
    else {
        return format!(
            "{name} was not looked at yet. Is the operator running, and does it watch this namespace?\n  \
             kubectl get deployments -A -l app.kubernetes.io/name=mainstay\n"
        );
    };
    let subject = Subject {
        name,
        namespace: cluster.namespace().unwrap_or_default(),
        status,
        now,
    };
    let mut out = String::new();
    subject.headline(&mut out);
    subject.election(&mut out);
    subject.conditions(&mut out, cluster.metadata.generation);
    if let Some(pending) = pending(cluster) {
        let _ = writeln!(out, "\n{pending}");
    }
    subject.people(&mut out);
    subject.rebuilds(&mut out);
    subject.last_change(&mut out);
    out
}

impl Subject<'_> {
    fn ago(&self, at: Timestamp) -> String {
        format!("{} ago", age(at, self.now))
    }

    /// "since 12:03:11 (4m)"
    fn since(&self, at: Timestamp) -> String {
        let at = Timestamp::from_second(at.as_second()).unwrap_or(at);
        format!("since {at} ({})", age(at, self.now))
    }

    /// A command that can be typed as it is.
    fn command(&self, verb: &str, instance: &str) -> String {
        format!("kubectl mainstay {verb} {} {instance} -n {}", self.name, self.namespace)
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }

    pub(crate) fn electing(&self) -> bool {
        let election = self.status.election.as_ref();
        election.is_some_and(|election| election.phase == ElectionPhase::Electing)
    }

    fn is_fenced(&self, instance: &str) -> bool {
        self.status.fences.iter().any(|fence| fence.instance == instance)
    }

    /// What is so, and since when.
    fn headline(&self, out: &mut String) {
        let (name, status) = (&self.name, self.status);
        let health = status.health.map(|health| format!(", {health:?}")).unwrap_or_default();
        let phase = status
            .phase
            .map_or_else(|| "Pending".to_owned(), |phase| format!("{phase:?}"));
        let _ = writeln!(out, "{name} is {phase}{health}.");
        let Some(primary) = &status.primary else {
            let _ = writeln!(out, "{}", self.without_primary());
            return;
        };
        let is = |type_: &str| self.has(type_, "True");
        if self.electing() || !(is("Available") || is("WritesBlocked")) {
            return;
        }
        let since = primary.since.as_ref().map(|since| format!(" {}", self.since(since.0)));
        let acks = match (self.status.acks_required.unwrap_or_default(), self.status.members.len()) {
            (0, _) => "A commit waits for nobody.".to_owned(),
            (acks, members) => format!("A commit returns when {acks} of {members} members have it."),
        };
        let writes = if is("WritesBlocked") {
            "is open, but its commits wait"
        } else {
            "accepts writes"
        };
        let _ = writeln!(
            out,
            "{} {writes}; it is the primary{}. {acks}",
            primary.instance,
            since.unwrap_or_default()
        );
    }

    fn has(&self, type_: &str, status: &str) -> bool {
        self.condition(type_)
            .is_some_and(|condition| condition.status == status)
    }

    /// It is new: nothing else is wrong with it than what keeps its first instances from coming up.
    fn is_new(&self) -> bool {
        let pending = |condition: &Condition| condition.reason == "FirstPrimaryPending";
        self.status.primary.is_none() && self.condition("Available").is_none_or(pending)
    }

    /// mysqld of an instance does not start.
    fn fails(&self) -> bool {
        self.condition("Degraded")
            .is_some_and(|condition| condition.reason == "MysqldFailing")
    }

    /// Why none was ever recorded.
    fn without_primary(&self) -> &'static str {
        if !self.is_new() {
            "No primary is recorded."
        } else if self.has("SpecAccepted", "False") && self.status.phase == Some(Phase::Blocked) {
            "It has no primary yet: its spec cannot be accepted, and nothing is made before."
        } else if self.has("ResourcesReady", "False") || self.fails() {
            "It has no primary yet: the first one is elected when every instance answers, and not every one comes up."
        } else {
            "It has no primary yet: the first one is elected when every instance has answered."
        }
    }

    /// Why there is no primary, who is missing, and what a person can do.
    fn election(&self, out: &mut String) {
        let (Some(election), Some(primary)) = (&self.status.election, &self.status.primary) else {
            return;
        };
        if !self.electing() {
            return;
        }
        let began = election.began.as_ref().or(election.since.as_ref());
        let since = began.map(|began| self.since(began.0)).unwrap_or_default();
        let old = &primary.instance;
        let why = match (self.status.phase, &election.preferred) {
            (Some(Phase::Blocked), _) if self.is_fenced(old) => format!("{old}, the primary, is fenced on request"),
            (_, Some(preferred)) if &preferred.instance != old => {
                format!("the primary is being moved from {old} to {}", preferred.instance)
            }
            _ => format!("a primary is being elected in place of {old}"),
        };
        let _ = writeln!(out, "No writes are accepted {since}: {why}.");
        for instance in &self.status.instances {
            let _ = writeln!(out, "  {:<12} {}", instance.name, self.taking_part(instance));
        }
        if self.is_fenced(old) && election.preferred.as_ref().is_some_and(|p| &p.instance == old) {
            let _ = writeln!(
                out,
                "It goes on when a person decides:\n  {}   lets {old} in again; it is opened if nothing speaks against it\n  \
                 {}   makes another one the primary",
                self.command("unfence", old),
                self.command("promote", "ANOTHER")
            );
            return;
        }
        self.way_out(out);
    }

    /// "replica, holds …" or "the recorded primary, unreachable since …".
    fn taking_part(&self, instance: &InstanceStatus) -> String {
        let mut said = vec![part(instance).to_owned()];
        if let Some(since) = &instance.unreachable_since {
            said.push(format!("not heard {}", self.since(since.0)));
            said.extend(instance.node.as_ref().map(|node| format!("last on {node}")));
        } else {
            match &instance.holds {
                Some(set) => said.push(format!("fenced, holds {}", shown(set))),
                None => said.push("not fenced yet".to_owned()),
            }
        }
        if self.is_fenced(&instance.name) {
            said.push("fenced on request".to_owned());
        }
        said.join(", ")
    }

    /// Who is missing: those that have to be fenced, and are not.
    pub(crate) fn missing(&self) -> Vec<&InstanceStatus> {
        let takes_part = |instance: &&InstanceStatus| instance.role.is_some() && instance.holds.is_none();
        self.status.instances.iter().filter(takes_part).collect()
    }

    /// The one with the most, of those that could be promoted by a person's word.
    fn survivor(&self) -> Option<&InstanceStatus> {
        let fit = |i: &&InstanceStatus| i.role.is_some() && i.holds.is_some() && !self.is_fenced(&i.name);
        let size = |i: &&InstanceStatus| set(i.holds.as_deref().unwrap_or_default()).count();
        self.status.instances.iter().filter(fit).max_by_key(size)
    }

    fn way_out(&self, out: &mut String) {
        if let Some(progressing) = self.condition("Progressing").filter(|c| !c.message.is_empty()) {
            let _ = writeln!(
                out,
                "What is waited for: {}.",
                progressing.message.replace("election waits for ", "")
            );
        }
        let missing: Vec<_> = self.missing().iter().map(|instance| instance.name.as_str()).collect();
        let Some(survivor) = self.survivor().filter(|_| !missing.is_empty()) else {
            return;
        };
        let _ = writeln!(
            out,
            "It goes on by itself when {} answers. If none of them ever will, a person can give up what only they have:\n  \
             {} --accept-data-loss",
            either(&missing),
            self.command("promote", &survivor.name)
        );
        let baseline = set(self.status.baseline.as_deref().unwrap_or_default());
        let lacks = baseline.subtract(&set(survivor.holds.as_deref().unwrap_or_default()));
        if !lacks.is_empty() {
            let _ = writeln!(out, "  (known to be missing on {}: {lacks})", survivor.name);
        }
    }

    /// One paragraph for each condition that is not as it should be.
    fn conditions(&self, out: &mut String, generation: Option<i64>) {
        let seen = self.status.observed_generation;
        if let (Some(seen), Some(generation)) = (seen, generation)
            && seen < generation
        {
            let _ = writeln!(
                out,
                "\nThe newest change of the spec (generation {generation}) was not looked at yet. Is the operator running?"
            );
        }
        let mut conditions: Vec<_> = wrong(&self.status.conditions).collect();
        if self.is_new() {
            // What keeps it from coming up before what comes of that.
            let causes = ["SpecAccepted", "ResourcesReady", "Degraded"];
            conditions.sort_by_key(|condition| !causes.contains(&condition.type_.as_str()));
        }
        for condition in conditions {
            // Told above, and below, with more.
            let told = match condition.type_.as_str() {
                "Available" => self.electing() || self.is_new(),
                "Progressing" => self.electing() && !self.is_new(),
                "Fenced" => true,
                _ => false,
            };
            if told {
                continue;
            }
            let _ = writeln!(
                out,
                "\n{} is {} {} ({}).",
                condition.type_,
                condition.status,
                self.since(condition.last_transition_time.0),
                condition.reason
            );
            let message = condition.message.trim_end_matches('.');
            if !message.is_empty() {
                let _ = writeln!(out, "  {message}.");
            }
        }
        for (instance, errant) in self.errant() {
            let _ = writeln!(
                out,
                "\n{instance} has transactions that came from no primary: {errant}."
            );
            let _ = writeln!(
                out,
                "  It is isolated and rebuilt as a clone. To keep them, take a dump of {instance} before it is: {}",
                self.command("fence", instance)
            );
        }
    }

    fn errant(&self) -> impl Iterator<Item = (&str, &str)> {
        let errant = |i: &'_ InstanceStatus| i.errant.is_some();
        let instances = self.status.instances.iter().filter(move |i| errant(i));
        instances.map(|i| (i.name.as_str(), i.errant.as_deref().unwrap_or_default()))
    }

    /// What people asked for, keep out, and gave up.
    fn people(&self, out: &mut String) {
        for fence in &self.status.fences {
            let _ = writeln!(
                out,
                "\n{} is kept out on request {}.\n  {}",
                fence.instance,
                self.since(fence.since.0),
                self.command("unfence", &fence.instance)
            );
        }
        if let Some(request) = &self.status.request {
            let _ = writeln!(out, "\n{}", self.request(request));
        }
        if let Some(loss) = &self.status.data_loss {
            let _ = writeln!(out, "\n{}", self.loss(loss));
        }
    }

    fn request(&self, request: &Request) -> String {
        let result = match request.result {
            RequestResult::Refused => "was refused",
            RequestResult::Running => "is being carried out",
            RequestResult::Done => "was carried out",
            RequestResult::Failed => "did not succeed",
        };
        let verb = if request.verb.is_empty() {
            "(unreadable)"
        } else {
            &request.verb
        };
        let about = request.instance.as_ref().map(|i| format!(" {i}")).unwrap_or_default();
        let silent = |name: &&String| {
            let mut instances = self.status.instances.iter().filter(|i| &i.name == *name);
            instances.any(|i| i.unreachable_since.is_some())
        };
        let waited_for = request.instance.as_ref().filter(silent);
        let message = match (request.message.as_str(), request.result, waited_for) {
            ("", RequestResult::Running, Some(name)) => format!(": {name} has to answer first."),
            ("", _, _) => ".".to_owned(),
            (message, _, _) => format!(": {message}."),
        };
        format!(
            "The last request, {verb}{about}, {}, {result}{message}",
            self.ago(request.at.0)
        )
    }

    pub(crate) fn loss(&self, loss: &DataLoss) -> String {
        let unheard = if loss.unheard.is_empty() {
            String::new()
        } else {
            format!("\n  What only {} had is missing, too.", loss.unheard.join(", "))
        };
        format!(
            "Acknowledged writes were given up when {} was promoted on request in epoch {}, {}.\n  Known to be missing: {}.{unheard}",
            loss.instance,
            loss.epoch,
            self.ago(loss.at.0),
            shown(&loss.missing)
        )
    }

    /// Rebuilds that are going on.
    fn rebuilds(&self, out: &mut String) {
        let unfinished = |rebuild: &&Rebuild| {
            let exists = self.status.instances.iter().any(|i| i.name == rebuild.instance);
            exists && rebuild.ended.is_none() && !self.is_fenced(&rebuild.instance)
        };
        for rebuild in self.status.rebuilds.iter().filter(unfinished) {
            let origin = rebuild.donor.as_ref().map_or_else(
                || "from the newest backup and the archive behind it".to_owned(),
                |donor| format!("as a clone of {}", donor.instance),
            );
            let _ = writeln!(
                out,
                "\n{} is rebuilt {origin} {}.\n  Why: {}.",
                rebuild.instance,
                self.since(rebuild.at.0),
                rebuild.reason
            );
        }
    }

    fn last_change(&self, out: &mut String) {
        if let Some(last) = &self.status.last_change {
            let _ = writeln!(out, "\n{}.", table::last_change(&change(last), self.now));
        }
    }
}

/// What an instance is to the failover rules.
pub(crate) fn part(instance: &InstanceStatus) -> &'static str {
    match instance.role {
        Some(Role::Primary) => "the recorded primary",
        Some(Role::Replica) => "member",
        None => "no member",
    }
}

pub(crate) fn set(text: &str) -> GtidSet {
    text.parse().unwrap_or_default()
}

fn shown(set: &str) -> &str {
    if set.is_empty() { "nothing" } else { set }
}

/// "a", "a or b", "a, b or c"
fn either(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
