//! Faults stop, everything restarts: an open primary with k followers, and nothing lost. Also with any one instance gone.
//!
//! Not a proof for every schedule: a deterministic, fair one, from every state that is reached. What leads from a state is
//! remembered without what does not matter any more (limits, the other operator, messages), so that most states are
//! answered from memory.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Mutex, PoisonError};

use super::bounds::Bounds;
use super::decide::Planner;
use super::ids::TXNS;
use super::state::{Operator, Phase, Process, STRAYS, Snapshot, State, Status, Used};
use super::view::Clock;

type Hasher = BuildHasherDefault<DefaultHasher>;

/// Rounds after which a run is taken for one that does not end.
const ROUNDS: usize = 60;

/// Runs whose end is known.
#[derive(Default)]
pub(super) struct Memory(Mutex<HashMap<u64, bool, Hasher>>);

impl Memory {
    fn get(&self, key: u64) -> Option<bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied()
    }

    fn put(&self, keys: &[u64], heals: bool) {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.extend(keys.iter().map(|key| (*key, heals)));
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl<const N: usize> State<N> {
    /// An election waits for a member that lacks what the only one who could give it has purged. Nobody is dropped in an
    /// election, and a member is never replaced: a person has to decide.
    fn asks_a_person(&self) -> bool {
        let Some(status) = self.status.filter(|status| status.phase != Phase::Open) else {
            return false;
        };
        let up = |ordinal: &usize| self.nodes[*ordinal].up();
        let members = || {
            (0..N)
                .filter(up)
                .filter(|ordinal| status.members.contains(self.id(*ordinal)))
        };
        members().any(|member| {
            let others = (0..N).filter(up);
            let purged = others.fold(0, |all, other| all | self.nodes[other].purged);
            purged & !self.held(self.nodes[member].set()) != 0
        })
    }
}

/// What is given up for good, and whether the reign was young when it ended: neither changes in a continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Case {
    gone: Option<usize>,
    young: bool,
}

impl Case {
    const fn early(self) -> Clock {
        if self.young { Clock::Early } else { Clock::Soon }
    }

    const fn late(self) -> Clock {
        if self.young { Clock::Flapping } else { Clock::Late }
    }
}

/// Time passes when nothing new happens.
fn clock(keys: &[u64], key: u64, case: Case) -> Clock {
    if keys.contains(&key) { case.late() } else { case.early() }
}

/// With whom gone for good it has to serve again: nobody, and any one instance if nothing else was lost.
fn cases<const N: usize>(state: &State<N>) -> impl Iterator<Item = Case> {
    // A lost status and a lost volume together are for a person to judge.
    let sound = state.flaw.is_none() && state.used.volumes + state.used.restores <= 1;
    // Recovered data exist once until a primary is recorded.
    let spare = |status: Status| status.acks > 0 && (status.primary.is_some() || status.baseline == 0);
    let spare = state.used.volumes == 0 && state.used.restores == 0 && state.status.is_some_and(spare);
    let there = state.nodes.map(|node| node.process != Process::Absent);
    let wanted = usize::from(state.replicas);
    let enough = there.iter().take(wanted).filter(|there| **there).count() > 1 + wanted / 2;
    let one = (0..N)
        .filter(move |ordinal| spare && enough && there[*ordinal])
        .map(Some);
    let gone = std::iter::once(None).chain(one).filter(move |_| sound);
    gone.flat_map(|gone| [false, true].map(|young| Case { gone, young }))
}

/// What a continuation needs.
pub(super) struct Future<'a, const N: usize> {
    pub(super) planner: &'a Planner<N>,
    pub(super) bounds: &'a Bounds,
    pub(super) memory: &'a Memory,
}

impl<const N: usize> Future<'_, N> {
    /// The cluster serves again, with everything back, and with any one instance gone for good.
    pub(super) fn heals(&self, state: &State<N>) -> bool {
        cases(state).all(|case| self.run(state, case))
    }

    /// How the first continuation went that does not end well.
    pub(super) fn explain(&self, state: &State<N>) -> Vec<String> {
        let Some(case) = cases(state).find(|case| !self.run(state, *case)) else {
            return Vec::new();
        };
        let mut lines = vec![format!("without faults, {case:?}:")];
        let mut state = self.faults_stop(state, case.gone);
        let mut keys = Vec::new();
        for _ in 0..ROUNDS {
            lines.push(state.to_string());
            let key = Hasher::default().hash_one((&state, case));
            if !self.round(&mut state, clock(&keys, key, case), case.late()) {
                break;
            }
            keys.push(key);
            state.canonical(self.bounds);
        }
        lines.extend(self.planner.waits(&state.view(0, case.late(), self.bounds)));
        lines
    }

    fn run(&self, state: &State<N>, case: Case) -> bool {
        let mut state = self.faults_stop(state, case.gone);
        let mut keys = Vec::new();
        let mut heals = false;
        for _ in 0..ROUNDS {
            let key = Hasher::default().hash_one((&state, case));
            if let Some(known) = self.memory.get(key) {
                heals = known;
                break;
            }
            let acted = self.round(&mut state, clock(&keys, key, case), case.late());
            keys.push(key);
            if !acted {
                heals = self.serves(&state, case.gone) || state.asks_a_person();
                break;
            }
            state.canonical(self.bounds);
        }
        self.memory.put(&keys, heals);
        heals
    }

    /// Everything starts, all links work, nothing is on its way, and one operator is left.
    fn faults_stop(&self, state: &State<N>, gone: Option<usize>) -> State<N> {
        let mut state = *state;
        let cache = state.operators[0].cache.map(|_| Snapshot(state.status));
        state.restart_operator(1);
        state.operators[1] = Operator::new(None);
        state.operators[0].pending = None;
        state.operators[0].cache = cache;
        state.strays = [None; STRAYS];
        state.backup = None;
        (state.cut, state.apart, state.used) = (0, 0, Used::default());
        for ordinal in 0..N {
            if gone == Some(ordinal) {
                state.crash(ordinal);
            } else if matches!(state.nodes[ordinal].process, Process::Off | Process::Down) {
                state.start(ordinal);
            }
            state.nodes[ordinal].leaving = false;
        }
        debug_assert!(state.origin.len() == TXNS);
        state.canonical(self.bounds);
        state
    }

    /// Whatever is on its way arrives, whatever can be replicated is, and the operator looks. False: nothing happened.
    fn round(&self, state: &mut State<N>, clock: Clock, late: Clock) -> bool {
        let before = *state;
        for ordinal in 0..N {
            while let Some(flight) = state.operators[0].desks[ordinal].flight {
                if !state.reach(0, ordinal) || state.is_forgotten(flight) {
                    state.give_up(0, ordinal);
                } else if !flight.begun {
                    state.deliver(flight.message, Some(0), self.bounds);
                } else {
                    break;
                }
            }
        }
        while state.make_pod() || state.remove_pod() {}
        self.replicate(state);
        for ordinal in 0..N {
            if state.nodes[ordinal].progress.is_some() {
                let done = state.can_finish(ordinal, self.bounds);
                state.end_progress(ordinal, done, self.bounds);
            }
            if let Process::Cloning(donor) = state.nodes[ordinal].process {
                state.end_clone(ordinal, donor);
            }
            if state.operators[0].cache.is_some() {
                let heard = state.reach(0, ordinal).then(|| state.report(ordinal, self.bounds));
                state.operators[0].desks[ordinal].heard = heard;
            }
        }
        if state.operators[0].cache.is_some() {
            state.operators[0].cache = Some(Snapshot(state.status));
        }
        let passed = [clock, late]
            .into_iter()
            .any(|clock| state.pass(0, clock, self.planner, self.bounds));
        state.commit(0, true, self.bounds);
        passed || *state != before
    }

    fn replicate(&self, state: &mut State<N>) {
        let mut moved = true;
        while moved {
            moved = false;
            for ordinal in 0..N {
                moved |= state.receive(ordinal, self.bounds);
                if state.nodes[ordinal].up() && state.nodes[ordinal].applier && state.nodes[ordinal].relay != 0 {
                    state.apply(ordinal);
                    moved = true;
                }
                moved |= state.acknowledge(ordinal);
            }
        }
    }

    /// An open primary with k followers and everything; with nobody gone, all others are members and follow it, too.
    fn serves(&self, state: &State<N>, gone: Option<usize>) -> bool {
        let (Some(primary), Some(status)) = (state.open_primary(), state.status) else {
            return false;
        };
        let complete = state.acked & !state.nodes[primary].executed == 0;
        let links = state.links(primary, self.bounds);
        let wanted = (0..usize::from(state.replicas)).filter(|ordinal| *ordinal != primary);
        let all_follow = wanted
            .into_iter()
            .all(|ordinal| status.members.contains(state.id(ordinal)) && state.link(ordinal, primary, self.bounds));
        let everybody = all_follow && primary < usize::from(state.replicas) && status.acks == state.replicas / 2;
        complete && links >= u32::from(status.acks) && (gone.is_some() || everybody)
    }
}
