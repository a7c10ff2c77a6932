//! What can happen next.

use super::bounds::Bounds;
use super::decide::Planner;
use super::state::{Process, Snapshot, State, has};
use super::view::Clock;

/// One thing that happens. Numbers are ordinals of instances, and of the two operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A client writes to an instance that accepts writes.
    Write(usize),
    /// A replica receives, or acknowledges, one transaction.
    Receive(usize),
    /// A replica applies its relay log.
    Apply(usize),
    /// A commit that has its acknowledgements returns to its client.
    Acknowledge(usize),
    /// A command that waited for replicas has them.
    Finish(usize),
    /// A command that waited for replicas has waited too long.
    Expire(usize),
    /// A clone ends.
    EndClone(usize),
    /// Pod or node go off.
    Crash(usize),
    /// mysqld is killed; its manager lives.
    Kill(usize),
    /// It starts again.
    Start(usize),
    /// The volume is lost.
    LoseVolume(usize),
    /// Its pod is to end, and asks to be relieved.
    Leave(usize),
    /// The first operator and an instance do not reach each other any more.
    Cut(usize),
    /// They do again.
    Join(usize),
    /// An instance and all others do not reach each other any more.
    Part(usize),
    /// They do again.
    Meet(usize),
    /// An operator looks, and decides.
    Pass(usize, Clock),
    /// Its write of status arrives, and its commands go out.
    Commit(usize),
    /// Its write of status arrives, and it never learns of it.
    CommitUnheard(usize),
    /// A command arrives.
    Deliver(usize, usize),
    /// A command is lost, because its instance cannot be reached, or ended or was interrupted in the middle of it.
    Lose(usize, usize),
    /// A command is given up, and may arrive later.
    GiveUp(usize, usize),
    /// A command arrives that was given up.
    DeliverLate(usize),
    /// The first operator hears how an instance is.
    Hear(usize),
    /// It reads status.
    Read,
    /// The first operator ends, and another one begins in its place.
    RestartOperator,
    /// `spec.replicas` changes.
    Scale,
    /// The StatefulSet makes a pod.
    MakePod,
    /// The StatefulSet ends a pod.
    RemovePod,
    /// Status is copied.
    BackUp,
    /// Status becomes the copy, or is lost if there is none.
    Restore,
}

impl<const N: usize> State<N> {
    /// What may be possible; what turns out not to be is no step.
    pub(super) fn steps(&self, bounds: &Bounds, steps: &mut Vec<Step>) {
        if self.flaw.is_some() {
            return;
        }
        for ordinal in 0..N {
            self.steps_of_replication(ordinal, bounds, steps);
            self.steps_of_faults(ordinal, bounds, steps);
        }
        for operator in 0..self.operators.len() {
            self.steps_of_operator(operator, bounds, steps);
        }
        for slot in 0..self.strays.len() {
            if let Some(message) = self.strays[slot]
                && self.nodes[message.to.ordinal()].process.answers()
            {
                steps.push(Step::DeliverLate(slot));
            }
        }
        if self.used.restarts < bounds.restarts {
            steps.push(Step::RestartOperator);
        }
        self.steps_of_kubernetes(bounds, steps);
    }

    fn steps_of_replication(&self, ordinal: usize, bounds: &Bounds, steps: &mut Vec<Step>) {
        let node = &self.nodes[ordinal];
        if let Process::Cloning(_) = node.process {
            steps.push(Step::EndClone(ordinal));
        }
        if !node.up() {
            return;
        }
        if node.writable && self.written < bounds.transactions {
            steps.push(Step::Write(ordinal));
        }
        if node.receiver {
            steps.push(Step::Receive(ordinal));
        }
        if node.applier && node.relay != 0 {
            steps.push(Step::Apply(ordinal));
        }
        if node.waiting != 0 {
            steps.push(Step::Acknowledge(ordinal));
        }
        if node.progress.is_some() {
            steps.push(if self.can_finish(ordinal, bounds) {
                Step::Finish(ordinal)
            } else {
                Step::Expire(ordinal)
            });
        }
    }

    fn steps_of_faults(&self, ordinal: usize, bounds: &Bounds, steps: &mut Vec<Step>) {
        let node = &self.nodes[ordinal];
        let more = self.used.faults < bounds.faults;
        let answers = node.process.answers();
        let present = node.process != Process::Absent;
        let possible = [
            (
                answers && (node.leaving || more && bounds.crashes),
                Step::Crash(ordinal),
            ),
            (node.up() && more && bounds.kills, Step::Kill(ordinal)),
            (
                matches!(node.process, Process::Off | Process::Down),
                Step::Start(ordinal),
            ),
            (present && self.used.volumes < bounds.volumes, Step::LoseVolume(ordinal)),
            (
                node.up() && !node.leaving && node.writable && self.used.departures < bounds.departures,
                Step::Leave(ordinal),
            ),
            (
                present && more && bounds.cuts && !has(self.cut, ordinal),
                Step::Cut(ordinal),
            ),
            (has(self.cut, ordinal), Step::Join(ordinal)),
            (
                present && more && bounds.partitions && !has(self.apart, ordinal),
                Step::Part(ordinal),
            ),
            (has(self.apart, ordinal), Step::Meet(ordinal)),
        ];
        steps.extend(possible.iter().filter(|(possible, _)| *possible).map(|(_, step)| *step));
    }

    fn steps_of_operator(&self, operator: usize, bounds: &Bounds, steps: &mut Vec<Step>) {
        let this = &self.operators[operator];
        if this.pending.is_some() {
            steps.push(Step::Commit(operator));
            if self.used.late < bounds.late {
                steps.push(Step::CommitUnheard(operator));
            }
        } else if operator == 0 || self.used.passes < bounds.passes {
            steps.extend(self.clocks(operator, bounds).map(|clock| Step::Pass(operator, clock)));
        }
        for (ordinal, desk) in this.desks.iter().enumerate() {
            let Some(flight) = desk.flight else { continue };
            if !self.reach(operator, ordinal) || self.is_forgotten(flight) {
                steps.push(Step::Lose(operator, ordinal));
                continue;
            }
            if !flight.begun {
                steps.push(Step::Deliver(operator, ordinal));
            }
            if self.used.late < bounds.late {
                steps.push(Step::GiveUp(operator, ordinal));
            }
        }
        if operator == 0 && bounds.streams {
            steps.push(Step::Read);
            steps.extend((0..N).map(Step::Hear));
        }
    }

    fn steps_of_kubernetes(&self, bounds: &Bounds, steps: &mut Vec<Step>) {
        if usize::from(self.used.scalings) < bounds.scale.len() {
            steps.push(Step::Scale);
        }
        if !bounds.scale.is_empty() {
            steps.extend([Step::MakePod, Step::RemovePod]);
        }
        if self.used.restores < bounds.restores {
            if self.backup.is_none() {
                steps.push(Step::BackUp);
            }
            steps.push(Step::Restore);
        }
    }

    /// Takes a step; false when it is none.
    pub(super) fn take(&mut self, step: Step, planner: &Planner<N>, bounds: &Bounds) -> bool {
        match step {
            Step::Write(ordinal) => self.write(ordinal, bounds),
            Step::Receive(ordinal) => return self.receive(ordinal, bounds),
            Step::Apply(ordinal) => self.apply(ordinal),
            Step::Acknowledge(ordinal) => return self.acknowledge(ordinal),
            Step::Finish(ordinal) => self.end_progress(ordinal, true, bounds),
            Step::Expire(ordinal) => self.end_progress(ordinal, false, bounds),
            Step::EndClone(ordinal) => {
                if let Process::Cloning(donor) = self.nodes[ordinal].process {
                    self.end_clone(ordinal, donor);
                }
            }
            Step::Crash(_)
            | Step::Kill(_)
            | Step::Start(_)
            | Step::LoseVolume(_)
            | Step::Leave(_)
            | Step::Cut(_)
            | Step::Join(_)
            | Step::Part(_)
            | Step::Meet(_) => self.suffer(step, bounds),
            Step::Pass(operator, clock) => {
                self.used.passes += u8::from(operator == 1);
                return self.pass(operator, clock, planner, bounds);
            }
            Step::Commit(operator) => return self.commit(operator, true, bounds),
            Step::CommitUnheard(operator) => {
                self.used.late += 1;
                return self.commit(operator, false, bounds);
            }
            Step::Deliver(..) | Step::Lose(..) | Step::GiveUp(..) | Step::DeliverLate(_) => self.convey(step, bounds),
            Step::Hear(ordinal) => return self.hear(ordinal, bounds),
            Step::Read => self.operators[0].cache = Some(Snapshot(self.status)),
            Step::RestartOperator => {
                self.used.restarts += 1;
                self.restart_operator(0);
            }
            Step::Scale => {
                self.replicas = bounds.scale[usize::from(self.used.scalings)];
                self.used.scalings += 1;
            }
            Step::MakePod => return self.make_pod(),
            Step::RemovePod => return self.remove_pod(),
            Step::BackUp => self.backup = Some(Snapshot(self.status)),
            Step::Restore => {
                self.used.restores += 1;
                self.status = self.backup.take().and_then(|backup| backup.0);
                self.operators.iter_mut().for_each(|operator| operator.pending = None);
            }
        }
        true
    }

    fn suffer(&mut self, step: Step, bounds: &Bounds) {
        match step {
            Step::Crash(ordinal) => {
                self.used.faults += u8::from(!self.nodes[ordinal].leaving);
                self.crash(ordinal);
            }
            Step::Kill(ordinal) => {
                self.used.faults += 1;
                self.stop(ordinal);
                if self.nodes[ordinal].progress.is_some() {
                    self.end_progress(ordinal, false, bounds);
                }
            }
            Step::Start(ordinal) => self.start(ordinal),
            Step::LoseVolume(ordinal) => {
                self.used.volumes += 1;
                self.lose_volume(ordinal);
            }
            Step::Leave(ordinal) => {
                self.used.departures += 1;
                self.nodes[ordinal].leaving = true;
            }
            Step::Cut(ordinal) => {
                self.used.faults += 1;
                self.cut |= 1 << ordinal;
            }
            Step::Join(ordinal) => self.cut &= !(1 << ordinal),
            Step::Part(ordinal) => {
                self.used.faults += 1;
                self.apart |= 1 << ordinal;
            }
            Step::Meet(ordinal) => self.apart &= !(1 << ordinal),
            _ => {}
        }
    }

    fn convey(&mut self, step: Step, bounds: &Bounds) {
        match step {
            Step::Deliver(operator, ordinal) => {
                if let Some(flight) = self.operators[operator].desks[ordinal].flight {
                    self.deliver(flight.message, Some(operator), bounds);
                }
            }
            Step::Lose(operator, ordinal) => self.give_up(operator, ordinal),
            Step::GiveUp(operator, ordinal) => {
                self.used.late += 1;
                let flight = self.operators[operator].desks[ordinal].flight;
                if let Some(flight) = flight.filter(|flight| !flight.begun) {
                    self.stray(flight.message);
                }
                self.give_up(operator, ordinal);
            }
            Step::DeliverLate(slot) => {
                if let Some(message) = self.strays[slot].take() {
                    self.deliver(message, None, bounds);
                }
            }
            _ => {}
        }
    }

    fn hear(&mut self, ordinal: usize, bounds: &Bounds) -> bool {
        let reached = self.reach(0, ordinal);
        let report = reached.then(|| self.report(ordinal, bounds));
        let heard = &mut self.operators[0].desks[ordinal].heard;
        let news = *heard != report;
        *heard = report;
        news
    }
}
