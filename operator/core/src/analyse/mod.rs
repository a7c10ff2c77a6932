//! What is wrong, as a table of problems (docs/failover.md, "Problems").

mod archive;
mod backups;
mod healing;
mod instances;
mod memory;
mod problem;
mod recovery;
mod resources;

use jiff::Timestamp;

pub use problem::{Blocks, ConditionType, PROBLEMS, Problem, ProblemCode, ProblemKind, Severity};
pub use recovery::RECOVERY_SOURCE;

use crate::observed::Observed;
use crate::rules::{InstanceName, Memory};
use crate::subject::Subject;
use crate::view::View;

/// What is wrong with a cluster at present.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Analysis {
    /// The problems in the order of the table, then by instance.
    pub problems: Vec<Problem>,
}

impl Analysis {
    /// The problem that stands in the way of `what`, if any.
    #[must_use]
    pub fn blocking(&self, what: Blocks) -> Option<&Problem> {
        self.problems
            .iter()
            .find(|problem| problem.code.kind().blocks.covers(what))
    }

    /// The problems of that code.
    pub fn of(&self, code: ProblemCode) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| problem.code == code)
    }

    /// The problems that are told in that condition.
    pub fn told_in(&self, condition: ConditionType) -> impl Iterator<Item = &Problem> {
        self.problems
            .iter()
            .filter(move |problem| problem.code.kind().condition == condition)
    }

    fn found(&mut self, code: ProblemCode, message: impl Into<String>) {
        self.add(code, None, message.into(), code.kind().remedy);
    }

    fn found_with(&mut self, code: ProblemCode, message: impl Into<String>, remedy: &str) {
        self.add(code, None, message.into(), remedy);
    }

    fn found_on(&mut self, code: ProblemCode, instance: &InstanceName, message: impl Into<String>) {
        self.add(code, Some(instance.clone()), message.into(), code.kind().remedy);
    }

    fn found_on_with(
        &mut self,
        code: ProblemCode,
        instance: &InstanceName,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(code, Some(instance.clone()), message.into(), &remedy.into());
    }

    fn add(&mut self, code: ProblemCode, instance: Option<InstanceName>, message: String, remedy: &str) {
        self.problems.push(Problem {
            code,
            instance,
            message,
            remedy: remedy.to_owned(),
        });
    }
}

/// Compares what was seen with what the rules and the spec expect.
#[must_use]
pub fn analyse(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> Analysis {
    let mut analysis = Analysis::default();
    resources::spec(subject, observed, &mut analysis);
    resources::objects(subject, observed, &mut analysis);
    resources::pods(subject, observed, now, &mut analysis);
    healing::growth(subject, observed, &mut analysis);
    resources::secrets(subject, observed, now, &mut analysis);
    backups::find(subject, observed, now, &mut analysis);
    recovery::failed(subject, observed, &mut analysis);
    match &observed.memory {
        Memory::Unreadable { reason } => analysis.found(ProblemCode::StatusUnreadable, reason.clone()),
        Memory::Absent => {
            instances::made(subject, observed, &mut analysis);
            memory::absent(subject, observed, &mut analysis);
        }
        Memory::Known(rules) => {
            let view = View::new(subject, observed, rules, now);
            memory::known(&view, &mut analysis);
            instances::all(&view, &mut analysis);
            archive::primary(&view, &mut analysis);
        }
    }
    for problem in &mut analysis.problems {
        problem.remedy = problem.typed(subject);
    }
    analysis
        .problems
        .sort_by(|a, b| (a.code, &a.instance).cmp(&(b.code, &b.instance)));
    analysis
}

/// The table as Markdown, for docs/failover.md.
#[must_use]
pub fn table() -> String {
    let mut text = String::from("| problem | when | blocks | told in | what to do |\n|---|---|---|---|---|\n");
    for code in PROBLEMS {
        let kind = code.kind();
        let blocks = match kind.blocks {
            Blocks::Nothing => "",
            Blocks::Building => "building",
            Blocks::Everything => "everything",
        };
        let cells = [kind.name, kind.predicate, blocks, kind.condition.as_str(), kind.remedy];
        text.push_str("| ");
        text.push_str(&cells.join(" | "));
        text.push_str(" |\n");
    }
    text
}
