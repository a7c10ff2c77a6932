//! The model of MySQL shows the facts that real servers show (`operator/instance/tests/mysqld/conformance.rs`).

#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod script;

use std::net::IpAddr;
use std::time::Duration;

use mainstay_sim::Simulation;
use mainstay_sim::world::process::{Channel, Process};
use mainstay_sim::world::{Inner, data::DataDir};
use script::{Answer, Servers, State, play};
use tokio::sync::oneshot;
use tokio::time::timeout;

const SOURCE: &str = "shop-0";
const REPLICA: &str = "shop-1";
/// As long as a client waits on a real server, too.
const PATIENCE: Duration = Duration::from_secs(4);

/// Two of the instances of a cluster that nobody operates.
struct Model {
    sim: Simulation,
    address: IpAddr,
    /// Transactions of before the script.
    base: u64,
    commits: Vec<oneshot::Receiver<()>>,
    muted: bool,
}

impl Model {
    async fn start() -> Self {
        let sim = Simulation::new(77);
        let operator = sim.start_operator("operator-1");
        sim.create("shop", Simulation::manifest("shop", 3)).await.unwrap();
        assert!(sim.wait(Duration::from_mins(1), |s| s.healthy("shop", "shop")).await);
        tokio::time::sleep(Duration::from_secs(10)).await;
        operator.stop().await;
        sim.world
            .change(|w| w.process_mut("shop", "shop-2").unwrap().channel = None);
        assert_eq!(
            sim.world.with(|w| w.open("shop", "shop").unwrap().instance.clone()),
            SOURCE
        );
        let address = sim.world.with(|w| w.open("shop", "shop").map(|p| p.ip)).unwrap();
        let base = sim.world.with(|w| data(w, SOURCE).executed.count());
        Self {
            sim,
            address,
            base,
            commits: Vec::new(),
            muted: false,
        }
    }

    fn process(&self, instance: &str, change: impl FnOnce(&mut Process)) {
        self.sim
            .world
            .change(|w| change(w.process_mut("shop", instance).unwrap()));
    }

    async fn moment(&self) {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

fn data<'a>(w: &'a mut Inner, instance: &str) -> &'a mut DataDir {
    let claim = w.process("shop", instance).unwrap().claim.clone();
    w.volumes.get_mut(&claim).unwrap().data.as_mut().unwrap()
}

impl Servers for Model {
    async fn begin(&mut self) {
        let (_, committed) = self.sim.world.begin_at(self.address).unwrap();
        self.commits.push(committed);
        if self.muted {
            self.sim.world.change(|w| {
                let news = data(w, SOURCE).binlog.last().cloned().unwrap();
                data(w, REPLICA).relay.push_back(news);
            });
        }
    }

    async fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        for mut commit in std::mem::take(&mut self.commits) {
            answers.push(match timeout(PATIENCE, &mut commit).await {
                Ok(Ok(())) => Answer::Committed,
                Ok(Err(_)) => Answer::Lost,
                Err(_) => {
                    self.commits.push(commit);
                    Answer::Nothing
                }
            });
        }
        answers
    }

    async fn stop_receiver(&mut self) {
        self.process(REPLICA, |p| p.channel = None);
        self.muted = false;
    }

    async fn start_receiver(&mut self) {
        self.process(REPLICA, |p| {
            p.channel = Some(Channel::new("shop-0.shop-instances.shop.svc"));
        });
        self.moment().await;
    }

    async fn stop_applier(&mut self) {
        self.process(REPLICA, |p| p.applier_running = false);
    }

    async fn start_applier(&mut self) {
        self.process(REPLICA, |p| p.applier_running = true);
    }

    async fn mute_replica(&mut self) {
        self.process(REPLICA, |p| p.channel = None);
        self.muted = true;
    }

    async fn crash_source(&mut self) {
        self.sim.world.change(|w| w.kill_mysqld("shop", SOURCE));
        self.moment().await;
        self.process(SOURCE, |p| (p.writable, p.semi_sync) = (true, Some(1)));
    }

    async fn crash_replica(&mut self) {
        self.sim.world.change(|w| w.kill_mysqld("shop", REPLICA));
        self.stop_applier().await;
        self.moment().await;
    }

    async fn state(&mut self) -> State {
        self.moment().await;
        self.sim.world.with(|w| {
            let source = data(w, SOURCE).executed.count() - self.base;
            let replica = data(w, REPLICA);
            State {
                source,
                replica: replica.executed.count() - self.base,
                relay: replica.received().subtract(&replica.executed).count(),
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_shows_what_real_servers_show() {
    play(&mut Model::start().await).await;
}
