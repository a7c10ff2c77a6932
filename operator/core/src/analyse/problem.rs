//! The table: each problem once, with everything that is said of it.

use crate::rules::InstanceName;

/// A problem that exists at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which.
    pub code: ProblemCode,
    /// The instance it is about, if it is about one.
    pub instance: Option<InstanceName>,
    /// What, why and what to do, with names and figures.
    pub message: String,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A person should know.
    Notice,
    /// The cluster serves, with less to spare.
    Degraded,
    /// Writes are not accepted, or data is at risk.
    Critical,
}

/// What must not be done while a problem exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Nothing.
    Nothing,
    /// Building objects from the spec.
    Building,
    /// Deleting a pod to give it a new template.
    Rolling,
    /// Everything: not one action is planned.
    Everything,
}

impl Blocks {
    /// Whether a problem that blocks this blocks `what`, too.
    #[must_use]
    pub fn covers(self, what: Self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Building => what == Self::Building,
            Self::Rolling => what == Self::Rolling,
            Self::Everything => what != Self::Nothing,
        }
    }
}

/// The condition of the `MySQLCluster` in which a problem is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// `Available`
    Available,
    /// `Degraded`
    Degraded,
    /// `SpecAccepted`
    SpecAccepted,
}

/// What is said of a problem, whenever it occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemKind {
    /// Which.
    pub code: ProblemCode,
    /// Its name: reason of conditions and events, label of metrics.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What must not be done while it exists.
    pub blocks: Blocks,
    /// Where it is told.
    pub condition: ConditionType,
    /// When it exists, in one line.
    pub predicate: &'static str,
}

/// The problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemCode {
    /// The spec contradicts itself.
    SpecInvalid,
}

impl ProblemCode {
    /// What is said of it.
    #[must_use]
    pub const fn kind(self) -> &'static ProblemKind {
        match self {
            Self::SpecInvalid => &SPEC_INVALID,
        }
    }
}

const SPEC_INVALID: ProblemKind = ProblemKind {
    code: ProblemCode::SpecInvalid,
    name: "SpecInvalid",
    severity: Severity::Degraded,
    blocks: Blocks::Building,
    condition: ConditionType::SpecAccepted,
    predicate: "a field of the spec cannot be accepted",
};

/// Every problem there is.
pub static PROBLEMS: &[&ProblemKind] = &[&SPEC_INVALID];
