//! What is wrong, as a table of problems (docs/failover.md, "Problems").

mod problem;

use jiff::Timestamp;

pub use problem::{Blocks, ConditionType, PROBLEMS, Problem, ProblemCode, ProblemKind, Severity};

use crate::observed::Observed;
use crate::subject::Subject;

/// What is wrong with a cluster at present.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Analysis {
    /// The problems, most severe first, then by instance.
    pub problems: Vec<Problem>,
}

impl Analysis {
    /// The problem that stands in the way of `what`, if any.
    #[must_use]
    pub fn blocking(&self, what: Blocks) -> Option<&Problem> {
        self.problems.iter().find(|problem| problem.code.kind().blocks.covers(what))
    }

    /// The problems of that code.
    pub fn of(&self, code: ProblemCode) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| problem.code == code)
    }
}

/// Compares what was seen with what the rules expect.
#[must_use]
pub fn analyse(_subject: &Subject<'_>, _observed: &Observed, _now: Timestamp) -> Analysis {
    Analysis::default()
}
