//! Runs a model, and says what came of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stateright::{Checker as _, HasDiscoveries, Model as Stateright, Property};

use super::bounds::Bounds;
use super::decide::Planner;
use super::liveness::{Future, Memory};
use super::properties::{MILESTONES, Milestone};
use super::state::{Flaw, State};
use super::steps::Step;

struct Model<const N: usize> {
    bounds: Bounds,
    planner: Planner<N>,
    memory: Memory,
    reached: AtomicU8,
    beyond: AtomicUsize,
}

impl<const N: usize> Model<N> {
    fn new(bounds: Bounds) -> Self {
        Self {
            planner: Planner::new(&bounds),
            bounds,
            memory: Memory::default(),
            reached: AtomicU8::new(0),
            beyond: AtomicUsize::new(0),
        }
    }

    fn note(&self, state: &State<N>) {
        let reached = state
            .milestones(&self.bounds)
            .fold(0, |all, milestone| all | 1 << milestone as u8);
        if reached & !self.reached.load(Ordering::Relaxed) != 0 {
            self.reached.fetch_or(reached, Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Stateright for Model<N> {
    type State = State<N>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N>> {
        vec![State::first(&self.bounds)]
    }

    fn actions(&self, state: &State<N>, steps: &mut Vec<Step>) {
        state.steps(&self.bounds, steps);
    }

    fn next_state(&self, state: &State<N>, step: Step) -> Option<State<N>> {
        let mut next = *state;
        if !next.take(step, &self.planner, &self.bounds) {
            return None;
        }
        next.canonical(&self.bounds);
        (next != *state).then_some(next)
    }

    fn within_boundary(&self, state: &State<N>) -> bool {
        if state.beyond {
            self.beyond.fetch_add(1, Ordering::Relaxed);
        }
        !state.beyond
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always("nothing acknowledged is lost", |model, state| {
                model.note(state);
                state.nothing_is_lost()
            }),
            Property::<Self>::always("whoever can acknowledge has everything", |model, state| {
                state.whoever_can_acknowledge_has_everything(&model.bounds)
            }),
            Property::<Self>::always("at most one can acknowledge", |model, state| {
                state.at_most_one_can_acknowledge(&model.bounds)
            }),
            Property::<Self>::always("the open primary enforces what status says", |_, state| {
                state.the_open_primary_enforces_status()
            }),
            Property::<Self>::always("no plan breaks an invariant", |_, state| {
                state.flaw != Some(Flaw::Invariant)
            }),
            Property::<Self>::always("no plan is made twice", |_, state| {
                state.flaw != Some(Flaw::NotIdempotent)
            }),
        ];
        if self.bounds.liveness {
            properties.push(Property::<Self>::always(
                "it serves again when faults stop",
                |model, state| {
                    let future = Future {
                        planner: &model.planner,
                        bounds: &model.bounds,
                        memory: &model.memory,
                    };
                    future.heals(state)
                },
            ));
        }
        properties
    }
}

/// A property that does not hold, and how that came about.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// Which.
    pub property: String,
    /// The steps, in order.
    pub steps: Vec<String>,
    /// Where they lead.
    pub state: String,
    /// What comes after it without faults, when that is not as it should be.
    pub future: Vec<String>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of the bounds.
    pub name: &'static str,
    /// Different states.
    pub states: usize,
    /// Steps taken.
    pub steps: usize,
    /// Longest path.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// Nothing within the bounds is left.
    pub exhausted: bool,
    /// Steps that led beyond a limit of the model itself, and were not followed.
    pub beyond: usize,
    /// Views that were decided.
    pub views: usize,
    /// Continuations without faults.
    pub continuations: usize,
    /// What was reached.
    pub reached: BTreeSet<Milestone>,
    /// What does not hold.
    pub counterexamples: Vec<Counterexample>,
    /// Invariants that plans broke, in words.
    pub violations: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.exhausted { "exhausted" } else { "NOT exhausted" };
        write!(
            f,
            "{}: {} states, {} steps, depth {}, {} views, {} continuations, {:.1} s, {end}",
            self.name,
            self.states,
            self.steps,
            self.depth,
            self.views,
            self.continuations,
            self.time.as_secs_f64()
        )?;
        if self.beyond > 0 {
            write!(f, ", {} steps beyond the model", self.beyond)?;
        }
        write!(f, ", reached {:?}", self.reached)?;
        for counterexample in &self.counterexamples {
            let Counterexample {
                property,
                steps,
                state,
                future,
            } = counterexample;
            write!(f, "\n  NOT: {property}; {} steps:", steps.len())?;
            for step in steps {
                write!(f, "\n    {step}")?;
            }
            write!(f, "\n  {state}")?;
            for round in future {
                write!(f, "\n    {round}")?;
            }
        }
        for violation in self.violations.iter().take(1) {
            write!(f, "\n  {violation}")?;
        }
        Ok(())
    }
}

fn future<const N: usize>(model: &Model<N>, state: &State<N>) -> Vec<String> {
    if !model.bounds.liveness {
        return Vec::new();
    }
    let (planner, bounds, memory) = (&model.planner, &model.bounds, &model.memory);
    Future {
        planner,
        bounds,
        memory,
    }
    .explain(state)
}

/// Explores everything within these bounds, breadth first.
#[must_use]
pub fn check(bounds: &Bounds) -> Outcome {
    let most = bounds.scale.iter().copied().chain([bounds.replicas]).max().unwrap_or(3);
    match most {
        0..=3 => run::<3>(bounds),
        4..=5 => run::<5>(bounds),
        _ => unreachable!("no more than five instances"),
    }
}

fn run<const N: usize>(bounds: &Bounds) -> Outcome {
    let begun = Instant::now();
    let checker = Model::<N>::new(bounds.clone())
        .checker()
        .threads(bounds.threads)
        .timeout(bounds.limit)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let time = begun.elapsed();
    let model = checker.model();
    let reached = model.reached.load(Ordering::Relaxed);
    let counterexamples: Vec<_> = checker
        .discoveries()
        .into_iter()
        .map(|(property, path)| Counterexample {
            property: property.to_owned(),
            state: path.last_state().to_string(),
            future: future(model, path.last_state()),
            steps: path.into_actions().iter().map(|step| format!("{step:?}")).collect(),
        })
        .collect();
    Outcome {
        name: bounds.name,
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        time,
        exhausted: counterexamples.is_empty() && time < bounds.limit,
        beyond: model.beyond.load(Ordering::Relaxed),
        views: model.planner.views(),
        continuations: model.memory.len(),
        reached: MILESTONES
            .into_iter()
            .filter(|milestone| reached >> *milestone as u8 & 1 == 1)
            .collect(),
        counterexamples,
        violations: model.planner.violations(),
    }
}
