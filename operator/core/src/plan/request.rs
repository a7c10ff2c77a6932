//! Requests of people (decision B5, rule 10 of docs/failover.md): each is judged once, refused with the reason, or recorded
//! before it has any effect.

use jiff::Timestamp;

use crate::observed::{InstanceObserved, Mysqld, Observed};
use crate::plan::draft::Draft;
use crate::plan::election::{self, moment};
use crate::plan::{forced, requested, switchover, text};
use crate::request::{Asked, Malformed, Verb, read};
use crate::rules::{InstanceName, MemberId, Phase, Request, RequestState, Rules};
use crate::view::View;

/// What a request came to, when it is not refused.
enum Outcome {
    /// It was so before.
    Already(String),
    /// It is recorded in this pass.
    Recorded,
    /// It cannot be judged before this instance was asked.
    Hearing(InstanceName, std::time::Duration),
}

/// Takes up a new request. True: it is recorded in this pass, and nothing else is decided.
pub(crate) fn plan(view: &View<'_>, draft: &mut Draft) -> bool {
    let left = running(view).and_then(|running| limit(view, running).checked_sub(view.age(running.at)));
    if let Some(left) = left {
        draft.look_in(left);
    }
    let Some(asked) = new(view.observed) else { return false };
    if running(view).is_some_and(|running| is_awaited(view, running)) {
        draft.wait_briefly("request", "the end of the one before it");
        return false;
    }
    let asked = match asked {
        Ok(asked) => asked,
        Err(malformed) => {
            draft.answer(unread(&malformed, view.now));
            return false;
        }
    };
    match carry_out(view, &asked, draft) {
        Ok(Outcome::Recorded) => true,
        Ok(Outcome::Hearing(name, look_in)) => {
            draft.wait("request", format!("{name} to be heard"));
            draft.look_in(look_in);
            false
        }
        Ok(Outcome::Already(message)) => {
            draft.answer(answer(&asked, RequestState::Done, message, view.now));
            false
        }
        Err(reason) => {
            draft.answer(answer(&asked, RequestState::Refused, reason, view.now));
            false
        }
    }
}

/// Answers a new request while nothing at all can be done on request.
pub(crate) fn refuse(observed: &Observed, reason: &str, now: Timestamp, draft: &mut Draft) {
    match new(observed) {
        None => {}
        Some(Ok(asked)) => draft.answer(answer(&asked, RequestState::Refused, reason.to_owned(), now)),
        Some(Err(malformed)) => draft.answer(unread(&malformed, now)),
    }
}

/// The annotation, unless its id was answered already.
fn new(observed: &Observed) -> Option<Result<Asked, Malformed>> {
    let asked = read(observed.request.as_ref()?);
    let id = match &asked {
        Ok(asked) => &asked.id,
        Err(malformed) => &malformed.id,
    };
    (observed.told.answered.as_ref() != Some(id)).then_some(asked)
}

/// The request that is carried out at present.
pub(crate) fn running<'a>(view: &View<'a>) -> Option<&'a Request> {
    let request = view.rules.request.as_ref()?;
    (request.state == RequestState::Running).then_some(request)
}

/// What it asks for depends on its being remembered: the next one waits.
fn is_awaited(view: &View<'_>, running: &Request) -> bool {
    let rebuilds = |name| {
        view.observed
            .instance(name)
            .is_some_and(|i| requested::rebuild(view, i))
    };
    running.verb == Verb::Promote.as_str() || running.instance.as_ref().is_some_and(rebuilds)
}

fn answer(asked: &Asked, state: RequestState, message: String, now: Timestamp) -> Request {
    Request {
        id: asked.id.clone(),
        verb: asked.verb.as_str().to_owned(),
        instance: asked.name(),
        accept_data_loss: asked.accept_data_loss,
        state,
        message,
        at: moment(now),
        deadline: None,
    }
}

fn unread(malformed: &Malformed, now: Timestamp) -> Request {
    Request {
        id: malformed.id.clone(),
        verb: String::new(),
        instance: None,
        accept_data_loss: false,
        state: RequestState::Refused,
        message: malformed.to_string(),
        at: moment(now),
        deadline: None,
    }
}

fn carry_out(view: &View<'_>, asked: &Asked, draft: &mut Draft) -> Result<Outcome, String> {
    match asked.verb {
        Verb::Promote => promote(view, asked, instance(view, asked)?, draft),
        Verb::Fence => Ok(fence(view, asked, instance(view, asked)?, draft)),
        Verb::Unfence => unfence(view, asked, draft),
        Verb::Rebuild => rebuild(view, asked, instance(view, asked)?, draft),
        Verb::Pause | Verb::Resume => Err(format!(
            "this version cannot {} a cluster; to stop all changes, stop the operator: the instances go on without it",
            asked.verb.as_str()
        )),
        Verb::Abort => Err(format!(
            "there is nothing to abort: a promotion that does not succeed within {} s goes back by itself",
            view.timing.switchover.as_secs()
        )),
    }
}

fn instance<'a>(view: &View<'a>, asked: &Asked) -> Result<&'a InstanceObserved, String> {
    let name = asked
        .name()
        .ok_or_else(|| format!("{} needs an instance", asked.verb.as_str()))?;
    let exists = |i: &&InstanceObserved| view.wanted(i) || i.pod.is_some();
    let found = view.observed.instance(&name).filter(exists);
    found.ok_or_else(|| {
        // What is left of the others are their claims.
        let instances = view.observed.instances.iter().filter(exists);
        let names: Vec<_> = instances.map(|i| i.name.to_string()).collect();
        let are = if names.len() == 1 { "is" } else { "are" };
        format!("there is no instance {name}; there {are} {}", names.join(", "))
    })
}

/// The person looked at this reign, and not at an earlier one.
fn same_reign(view: &View<'_>, asked: &Asked) -> Result<(), String> {
    let now = view.rules.primary.as_ref().map(|primary| primary.epoch);
    match asked.reign {
        Some(seen) if Some(seen) != now => Err(format!(
            "the cluster is not as it was when this was asked for: another primary was recorded since epoch {seen}"
        )),
        Some(_) | None => Ok(()),
    }
}

fn promote(view: &View<'_>, asked: &Asked, instance: &InstanceObserved, draft: &mut Draft) -> Result<Outcome, String> {
    same_reign(view, asked)?;
    let name = &instance.name;
    let Some(primary) = &view.rules.primary else {
        return Err("no primary was recorded yet: the first one is elected as soon as all instances answer".to_owned());
    };
    if view.rules.keeps_out(name) {
        return Err(text::kept_out(view, name));
    }
    if let Some(outcome) = hearing(view, &primary.id.instance, instance) {
        return Ok(outcome);
    }
    if let Some(open) = view.open_primary() {
        if &open.instance.name == name {
            return Ok(Outcome::Already(format!("{name} is the primary")));
        }
        let candidate = switchover::fit(view, instance)?;
        return Ok(move_to(view, asked, candidate, draft));
    }
    if view.closed_on_request() && &primary.id.instance != name {
        let candidate = forced::able(view, instance)?;
        return Ok(move_to(view, asked, candidate, draft));
    }
    if !asked.accept_data_loss {
        return Err(format!(
            "no primary is open that could hand over to {name}; another one is elected by itself as soon as that is safe"
        ));
    }
    forced::able(view, instance)?;
    forced::begin(view, running_request(view, asked), draft);
    Ok(Outcome::Recorded)
}

/// An operator that has just begun has heard neither of the two yet: it cannot judge what an open primary is asked for.
fn hearing(view: &View<'_>, primary: &InstanceName, instance: &InstanceObserved) -> Option<Outcome> {
    if view.rules.phase != Phase::Open {
        return None;
    }
    let both = [view.observed.instance(primary), Some(instance)];
    both.into_iter().flatten().find_map(|instance| {
        let silent = view.age(View::silent_since(instance)?);
        let left = view.timing.silence.checked_sub(silent)?;
        (!left.is_zero()).then(|| Outcome::Hearing(instance.name.clone(), left))
    })
}

/// A switchover to that candidate: rule 8.
fn move_to(view: &View<'_>, asked: &Asked, candidate: MemberId, draft: &mut Draft) -> Outcome {
    let message = format!("{} is to take over on request", candidate.instance);
    let rules = Rules {
        request: Some(running_request(view, asked)),
        ..view.rules.clone()
    };
    election::begin_with(view, draft, rules, Some(candidate), "Switchover", message);
    Outcome::Recorded
}

fn running_request(view: &View<'_>, asked: &Asked) -> Request {
    let given_up = if asked.accept_data_loss {
        view.timing.forced
    } else {
        view.timing.switchover
    };
    Request {
        deadline: moment(view.now).checked_add(given_up).ok(),
        ..answer(asked, RequestState::Running, String::new(), view.now)
    }
}

/// Keeps an instance out. The primary is fenced by an election that goes on only when it is let in again, or another one
/// is promoted.
fn fence(view: &View<'_>, asked: &Asked, instance: &InstanceObserved, draft: &mut Draft) -> Outcome {
    let name = &instance.name;
    if view.rules.keeps_out(name) {
        return Outcome::Already(format!("{name} is fenced already"));
    }
    let mut rules = view.rules.clone();
    rules.fences.insert(name.clone(), moment(view.now));
    rules.request = Some(answer(asked, RequestState::Running, String::new(), view.now));
    let primary = view
        .rules
        .primary
        .as_ref()
        .filter(|primary| &primary.id.instance == name);
    if let (Phase::Open, Some(primary)) = (&view.rules.phase, primary) {
        let message = format!("{name}, the primary, is fenced on request: no writes are accepted");
        election::begin_with(view, draft, rules, Some(primary.id.clone()), "PrimaryFenced", message);
    } else {
        draft.record(view, rules, "InstanceFenced", format!("{name} is fenced on request"));
        if let Some(seen) = view.heard().find(|seen| &seen.instance.name == name) {
            election::fence(view, seen, draft);
        }
    }
    Outcome::Recorded
}

fn unfence(view: &View<'_>, asked: &Asked, draft: &mut Draft) -> Result<Outcome, String> {
    let name = asked.name().ok_or("unfence needs an instance")?;
    let mut rules = view.rules.clone();
    if rules.fences.remove(&name).is_none() {
        instance(view, asked)?;
        return Ok(Outcome::Already(format!("{name} is not fenced")));
    }
    let message = format!("{name} is let in again");
    rules.request = Some(answer(asked, RequestState::Done, message.clone(), view.now));
    draft.record(view, rules, "InstanceUnfenced", message);
    Ok(Outcome::Recorded)
}

/// Records that an instance is to be rebuilt; the steady plan gives it up as it does a broken one.
fn rebuild(view: &View<'_>, asked: &Asked, instance: &InstanceObserved, draft: &mut Draft) -> Result<Outcome, String> {
    let name = &instance.name;
    if let Some(primary) = &view.rules.primary
        && let Some(outcome) = hearing(view, &primary.id.instance, instance)
    {
        return Ok(outcome);
    }
    if instance.report().is_some_and(|report| report.mysqld == Mysqld::Cloning) {
        return Ok(Outcome::Already(format!("{name} is being cloned")));
    }
    requested::may_be_rebuilt(view, instance)?;
    let rules = Rules {
        request: Some(answer(asked, RequestState::Running, String::new(), view.now)),
        ..view.rules.clone()
    };
    let message = format!("{name} is to be rebuilt on request");
    draft.record(view, rules, "RebuildRequested", message);
    Ok(Outcome::Recorded)
}

/// How long a promotion may run before it counts as failed, whatever becomes of the election; and how long a rebuild may
/// take to begin.
fn limit(view: &View<'_>, request: &Request) -> std::time::Duration {
    if request.accept_data_loss {
        view.timing.forced
    } else {
        view.timing.request
    }
}

/// The request as it is after what was seen in this pass.
pub(crate) fn progressed(view: &View<'_>) -> Option<Request> {
    let Some(request) = running(view) else {
        return view.rules.request.clone();
    };
    let ended = match (request.verb.as_str(), &request.instance) {
        ("fence", Some(name)) => fenced(view, name).map(|message| (RequestState::Done, message)),
        ("promote", Some(name)) => promoted(view, request, &name.0),
        ("rebuild", Some(name)) => requested::rebuilt(view, request, name, limit(view, request)),
        _ => None,
    };
    let (state, message) = ended.unwrap_or_else(|| (request.state, request.message.clone()));
    Some(Request {
        state,
        message,
        ..request.clone()
    })
}

/// What a fence came to, once it is confirmed.
fn fenced(view: &View<'_>, name: &InstanceName) -> Option<String> {
    let seen = view.heard().find(|seen| &seen.instance.name == name)?;
    if !view.fenced(seen) {
        return None;
    }
    let primary = view.is_primary(seen);
    Some(if primary {
        format!(
            "{name}, the primary, is read-only; no writes are accepted until it is let in or another one is promoted"
        )
    } else {
        format!("{name} is read-only, follows nobody and is behind no Service")
    })
}

fn promoted(view: &View<'_>, request: &Request, name: &str) -> Option<(RequestState, String)> {
    match (&view.rules.phase, view.open_primary()) {
        (Phase::Open, Some(open)) if open.instance.name.0 == name => {
            Some((RequestState::Done, text::promoted(view.rules)))
        }
        (Phase::Open, Some(open)) => {
            let why = if request.message.is_empty() {
                format!("{name} could not take over")
            } else {
                request.message.clone()
            };
            Some((
                RequestState::Failed,
                format!("{why}; {} is the primary", open.instance.name),
            ))
        }
        (Phase::Open | Phase::Electing { .. }, _) => {
            let limit = limit(view, request);
            (view.age(request.at) >= limit).then(|| {
                let message = format!(
                    "no primary is open after {} s; the election goes on by itself",
                    limit.as_secs()
                );
                (RequestState::Failed, message)
            })
        }
    }
}
