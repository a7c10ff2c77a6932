//! Rules that are broken on purpose: a model that does not find what they lose would prove nothing.

use super::bounds::Bounds;
use super::ids::{Id, Ids};
use super::state::{Decision, Order, Owner, Phase, Primary, Status};
use super::view::{Look, View};

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Members that are not heard count as fenced (C5).
    DeadAreFenced,
    /// What is in a relay log does not count (C6).
    RelayLogsIgnored,
    /// A winner is recorded before anybody follows it (L3).
    RecordedFirst,
    /// A member is dropped without a marker (C1, C2).
    NoMarker,
    /// Facts count that are older than the epoch (C12).
    OldFacts,
    /// An operator commands under an epoch that another one wrote (C4).
    ForeignEpochs,
    /// The primary does not enforce who may acknowledge (C14).
    AnyoneAcknowledges,
    /// An instance takes commands that are not newer than the last one (C8).
    OldCommands,
    /// What is received counts as applied, so that an instance is attached with a relay log, which drops it (C3). (Either of
    /// the two, operator and instance, is enough to keep it.)
    RelayLogsDropped,
    /// A new data directory keeps its server_uuid (C11).
    UuidsKept,
    /// Status is written whatever was written meanwhile.
    BlindWrites,
    /// An election knows of no baseline, so that what is older than the reign looks errant. (That a winner has to contain it
    /// follows, while nobody's data directory is lost, from what it has to contain of the others.)
    NoBaseline,
}

impl Bounds {
    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// What a defective operator takes for what it sees.
    pub(super) fn distort<const N: usize>(&self, view: &mut View<N>) {
        match self.defect {
            Some(Defect::DeadAreFenced) => {
                let silent = |id: &Id| !matches!(view.looks[id.ordinal()], Look::Heard { .. });
                if let Some(status) = &mut view.status
                    && matches!(status.phase, Phase::Electing(_))
                {
                    status.members = status.members.iter().filter(|id| !silent(id)).collect();
                }
            }
            Some(Defect::NoBaseline) => {
                if let Some(status) = &mut view.status
                    && matches!(status.phase, Phase::Electing(_))
                {
                    status.baseline = 0;
                }
            }
            Some(Defect::RelayLogsDropped) => each(view, |_, report, _| {
                report.executed |= report.relay;
                report.relay = 0;
            }),
            Some(Defect::RelayLogsIgnored) => each(view, |_, report, _| report.relay = 0),
            Some(Defect::NoMarker) => each(view, |_, report, _| report.marker = Some(report.marker.unwrap_or(0))),
            Some(Defect::OldFacts) => each(view, |epoch, report, settled| {
                report.ended.epoch = report.ended.epoch.max(epoch);
                *settled = true;
            }),
            _ => {}
        }
    }

    /// What a defective operator decides instead.
    pub(super) fn corrupt<const N: usize>(&self, view: &View<N>, decision: Decision<N>) -> Decision<N> {
        if self.defect != Some(Defect::RecordedFirst) {
            return decision;
        }
        let winner = decision.orders.iter().flatten().find_map(|(_, order)| match order {
            Order::Attach(source) => Some(*source),
            _ => None,
        });
        match (view.status, winner) {
            (Some(status), Some(winner)) if matches!(status.phase, Phase::Electing(_)) => {
                recorded_first(view, &status, winner)
            }
            _ => decision,
        }
    }
}

fn each<const N: usize>(view: &mut View<N>, mut change: impl FnMut(u8, &mut super::view::Report, &mut bool)) {
    let epoch = view.status.map_or(0, |status| status.epoch);
    for look in &mut view.looks {
        if let Look::Heard { report, settled, .. } = look {
            change(epoch, report, settled);
        }
    }
}

fn recorded_first<const N: usize>(view: &View<N>, status: &Status, winner: Id) -> Decision<N> {
    let everybody = status.members.iter().chain(status.primary.map(|primary| primary.id));
    let members: Ids = everybody.filter(|id| *id != winner).collect();
    let baseline = match view.looks[winner.ordinal()] {
        Look::Heard { report, .. } => report.executed | report.relay,
        _ => 0,
    };
    let record = Status {
        phase: Phase::Open,
        primary: Some(Primary {
            id: winner,
            reign: status.epoch,
        }),
        baseline,
        members,
        owner: Owner::Operator(0),
        ..*status
    };
    let mut orders = [None; N];
    let acks = status.acks;
    orders[winner.ordinal()] = Some((
        winner,
        Order::Open {
            members,
            acks,
            baseline,
        },
    ));
    Decision {
        record: Some(record),
        orders,
        flawed: false,
    }
}
