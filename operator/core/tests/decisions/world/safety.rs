//! What must never happen, looked for after every tick.

use super::*;

impl World {
    pub(super) fn check_safety(&self) {
        if let Some(primary) = self.open_primary() {
            let lost = self
                .acked
                .subtract(&self.nodes[primary].volume.as_ref().unwrap().offers());
            if !lost.is_empty() {
                self.fail(&format!("{} is open and lost {lost}", self.nodes[primary].name));
            }
            self.check_recovered(primary);
        }
        let mut acknowledged = 0;
        for node in self.nodes.iter().filter(|node| node.writable()) {
            let process = node.process.as_ref().unwrap();
            let needed = usize::try_from(process.wait_for.unwrap_or(0)).unwrap();
            let clients = self.clients_of(&node.name);
            let can = clients.iter().filter(|client| {
                let at = self.nodes.iter().find(|other| &&other.name == client).unwrap();
                let listed = process.allowed.as_ref().is_none_or(|allowed| allowed.contains(client));
                listed && !self.is_apart(&node.name, &at.name)
            });
            if can.count() >= needed {
                acknowledged += 1;
                let lost = self.acked.subtract(&node.volume.as_ref().unwrap().offers());
                if !lost.is_empty() {
                    self.fail(&format!("{} can have commits acknowledged and lacks {lost}", node.name));
                }
            }
        }
        if acknowledged > 1 {
            self.fail("two instances can have commits acknowledged");
        }
    }

    /// A cluster that begins with recovered data never begins without them.
    fn check_recovered(&self, primary: usize) {
        if self
            .cluster
            .spec
            .bootstrap
            .as_ref()
            .is_none_or(|bootstrap| bootstrap.recovery.is_none())
        {
            return;
        }
        let least = format!("{SOURCE}:1-40").parse().unwrap();
        if !self.nodes[primary].volume.as_ref().unwrap().offers().contains(&least) {
            self.fail(&format!(
                "{} is open without the recovered data",
                self.nodes[primary].name
            ));
        }
    }
}
