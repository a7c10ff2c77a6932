//! Receivers, appliers, acknowledgements, and the clients that write.

use super::*;

impl World {
    pub(crate) fn is_apart(&self, one: &InstanceName, other: &InstanceName) -> bool {
        self.apart.contains(&(one.clone(), other.clone())) || self.apart.contains(&(other.clone(), one.clone()))
    }

    /// Instances that are connected to this one.
    pub(super) fn clients_of(&self, source: &InstanceName) -> Vec<InstanceName> {
        let connected = self.nodes.iter().filter(|node| {
            node.running()
                && node
                    .process
                    .as_ref()
                    .is_some_and(|process| process.receiver && process.connected)
                && node
                    .volume
                    .as_ref()
                    .is_some_and(|volume| volume.source.as_ref() == Some(&source.0))
        });
        connected.map(|node| node.name.clone()).collect()
    }

    pub(super) fn replicate(&mut self) {
        for at in 0..self.nodes.len() {
            if self.random.chance(self.settings.pace) {
                self.receive(at);
            }
            if self.random.chance(self.settings.pace) {
                let node = &mut self.nodes[at];
                let now = self.now;
                if node.running() {
                    node.apply(now);
                }
            }
        }
        for at in 0..self.nodes.len() {
            self.release(at);
        }
    }

    pub(super) fn receive(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(source) = node.volume.as_ref().and_then(|volume| volume.source.clone()) else {
            return;
        };
        if !node.running() || !node.process.as_ref().is_some_and(|process| process.receiver) {
            return;
        }
        let name = node.name.clone();
        let from = self.nodes.iter().position(|other| {
            let listed = other
                .process
                .as_ref()
                .is_some_and(|process| process.allowed.as_ref().is_none_or(|allowed| allowed.contains(&name)));
            other.name.0 == source && other.running() && listed && !self.is_apart(&other.name, &name)
        });
        let Some(from) = from else {
            self.nodes[at].process.as_mut().unwrap().connected = false;
            return;
        };
        let offered = self.nodes[from].volume.as_ref().unwrap().offers();
        let lost = self.nodes[from].volume.as_ref().unwrap().purged.clone();
        let node = &mut self.nodes[at];
        let (process, volume) = (node.process.as_mut().unwrap(), node.volume.as_mut().unwrap());
        let has = volume.executed.union(&volume.relay);
        if !has.contains(&lost) {
            process.connected = false;
            return;
        }
        process.connected = true;
        process.last_heard = Some(self.now);
        volume.relay = volume.relay.union(&offered.subtract(&has));
        let has = volume.executed.union(&volume.relay);
        // Acknowledges what waits.
        let uuid = self.nodes[from].volume.as_ref().unwrap().uuid.clone();
        let source = self.nodes[from].process.as_mut().unwrap();
        for (number, by) in &mut source.waiting {
            if has.contains(&gtids(&uuid, *number)) {
                by.insert(name.clone());
            }
        }
    }

    /// Commits that have their acknowledgements return to their clients, in the order of the binlog.
    pub(super) fn release(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let (Some(process), Some(volume)) = (&mut node.process, &mut node.volume) else {
            return;
        };
        if process.mysqld != Mysqld::Running {
            return;
        }
        let needed = usize::try_from(process.wait_for.unwrap_or(0)).unwrap();
        while let Some((number, by)) = process.waiting.first_key_value() {
            if by.len() < needed {
                break;
            }
            let gtid = gtids(&volume.uuid, *number);
            volume.executed = volume.executed.union(&gtid);
            self.acked = self.acked.union(&gtid);
            let number = *number;
            process.waiting.remove(&number);
        }
    }

    /// Writes a transaction into the binlog of an instance.
    pub(super) fn commit(&mut self, at: usize) -> u64 {
        let node = &mut self.nodes[at];
        node.next_gtid += 1;
        let number = node.next_gtid;
        let (process, volume) = (node.process.as_mut().unwrap(), node.volume.as_mut().unwrap());
        volume.binlog = volume.binlog.union(&gtids(&volume.uuid, number));
        process.waiting.insert(number, BTreeSet::new());
        number
    }

    pub(super) fn clients(&mut self) {
        for at in 0..self.nodes.len() {
            let closing = self.nodes[at].process.as_ref().is_some_and(|process| process.closing);
            if self.nodes[at].writable() && !closing && self.random.chance(self.settings.writes) {
                self.commit(at);
            }
            self.release(at);
        }
    }

    /// A transaction that came from nowhere.
    pub(crate) fn write_errant(&mut self, ordinal: usize) {
        let volume = self.nodes[ordinal].volume.as_mut().unwrap();
        let gtid = gtids(&volume.uuid, 999_999);
        volume.binlog = volume.binlog.union(&gtid);
        volume.executed = volume.executed.union(&gtid);
    }
}
