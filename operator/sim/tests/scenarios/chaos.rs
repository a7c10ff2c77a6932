//! Seeded random faults for a minute, then peace: everything heals, and no acknowledged row is missing.

use std::time::Duration;

use mainstay_sim::kubernetes::{DeleteOptions, Effect, Key, Resource, Rule, WatchFault};
use mainstay_sim::{Operator, Random, Simulation};

use crate::support::{NAME, NS, healthy_within, intact, secs, seed, sleep, write_rows};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Strikes at random. At most one node is without power at a time: more is an outage, not a test of failover.
struct Chaos<'a> {
    sim: &'a Simulation,
    random: Random,
    operators: Vec<Option<Operator>>,
    log: Vec<String>,
}

impl Chaos<'_> {
    fn instance(&mut self) -> String {
        format!("shop-{}", self.random.below(3))
    }

    fn node(&mut self) -> &'static str {
        NODES[usize::try_from(self.random.below(3)).unwrap()]
    }

    async fn strike(&mut self) {
        let instance = self.instance();
        let (a, b) = (self.node(), self.node());
        let world = &self.sim.world;
        let pods = Resource::find("", "pods").unwrap();
        let key = Key::new(pods, NS, &instance);
        let what = match self.random.below(14) {
            0 | 1 => {
                world.change(|w| w.kill_mysqld(NS, &instance));
                format!("kill mysqld of {instance}")
            }
            2 => {
                // The manager dies with its mysqld; the kubelet starts the container again.
                world.change(|w| w.processes.retain(|_, p| p.instance != instance));
                format!("kill container of {instance}")
            }
            3 => {
                let _ = self.sim.server.delete(
                    &key,
                    &DeleteOptions {
                        grace: Some(0),
                        ..DeleteOptions::default()
                    },
                );
                format!("force-delete {instance}")
            }
            4 => {
                let _ = self.sim.server.delete(&key, &DeleteOptions::default());
                format!("delete {instance}")
            }
            5 => {
                world.change(|w| w.network.cut(a, b));
                format!("cut {a} from {b}")
            }
            6 => {
                world.change(|w| {
                    for other in ["operator-0", "operator-1", "api"].iter().chain(&NODES) {
                        w.network.cut(a, other);
                    }
                });
                format!("isolate {a}")
            }
            7 => {
                let operator = format!("operator-{}", self.random.below(2));
                world.change(|w| w.network.cut(&operator, a));
                format!("cut {operator} from {a}")
            }
            8 => {
                let down = world.with(|w| w.nodes.values().any(|n| !n.up));
                if !down {
                    world.change(|w| w.power_off(a));
                }
                format!("power off {a}: {}", !down)
            }
            9 | 10 => self.restart_operator().await,
            11 => {
                let operator = format!("operator-{}", self.random.below(2));
                self.sim.server.set_cut(&operator, true);
                format!("cut {operator} from the API server")
            }
            12 => {
                let effect = [
                    Effect::LoseAnswer,
                    Effect::LoseRequest,
                    Effect::Refuse(500),
                    Effect::Refuse(429),
                ][usize::try_from(self.random.below(4)).unwrap()];
                let percent = 1 + self.random.below(4);
                self.sim
                    .server
                    .inject(Rule::when(effect, |r| r.mutates() && r.client.starts_with("operator")).times(percent));
                format!("{percent} requests: {effect:?}")
            }
            _ => {
                let hold = Duration::from_millis(self.random.below(3000));
                self.sim.server.inject_watch(WatchFault {
                    hold,
                    merge: true,
                    ..WatchFault::of("operator")
                });
                format!("events {hold:?} late")
            }
        };
        self.log.push(what);
    }

    async fn restart_operator(&mut self) -> String {
        let at = usize::try_from(self.random.below(2)).unwrap();
        match self.operators[at].take() {
            Some(operator) => {
                operator.crash().await;
                format!("operator-{at} crashes")
            }
            None => {
                self.operators[at] = Some(self.sim.start_operator(&format!("operator-{at}")));
                format!("operator-{at} starts")
            }
        }
    }

    fn heal_something(&mut self) {
        if self.random.percent(40) {
            self.sim.world.change(|w| w.network.heal_all());
            self.log.push("heal the network".to_owned());
        }
        if self.random.percent(30) {
            self.power();
        }
        if self.random.percent(30) {
            self.sim.server.clear_faults();
        }
        if self.random.percent(30) {
            self.join_operators();
        }
    }

    fn join_operators(&self) {
        for at in 0..2 {
            self.sim.server.set_cut(&format!("operator-{at}"), false);
        }
    }

    fn power(&mut self) {
        self.sim.world.change(|w| {
            let down: Vec<String> = w
                .nodes
                .iter()
                .filter(|(_, n)| !n.up)
                .map(|(name, _)| name.clone())
                .collect();
            for node in down {
                w.power_on(&node);
            }
        });
        self.log.push("power on".to_owned());
    }

    fn peace(&mut self) {
        self.sim.world.change(|w| w.network.heal_all());
        self.power();
        self.join_operators();
        self.sim.server.clear_faults();
        self.sim.server.compact();
        for at in 0..2 {
            self.sim.server.disconnect(&format!("operator-{at}"));
            if self.operators[at].is_none() {
                self.operators[at] = Some(self.sim.start_operator(&format!("operator-{at}")));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn random_faults_lose_nothing_and_heal() {
    let first = seed(1000);
    let rounds = std::env::var("SIM_ROUNDS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(30);
    for round in 0..rounds {
        let sim = Simulation::new(first + round);
        let operators = vec![
            Some(sim.start_operator("operator-0")),
            Some(sim.start_operator("operator-1")),
        ];
        sim.create(NS, Simulation::manifest(NAME, 3)).await.unwrap();
        healthy_within(&sim, NS, NAME, secs(180)).await;
        let writer = sim.world.write_in_a_loop(NS, NAME, Duration::from_millis(20));
        let mut chaos = Chaos {
            sim: &sim,
            random: Random::new(sim.seed),
            operators,
            log: Vec::new(),
        };
        for _ in 0..20 {
            chaos.strike().await;
            let pause = Duration::from_millis(chaos.random.below(5000));
            sleep(pause).await;
            chaos.heal_something();
        }
        chaos.peace();
        let log = std::mem::take(&mut chaos.log);
        let healthy = sim.wait(secs(400), |s| s.healthy(NS, NAME)).await;
        assert!(healthy, "not healthy after {log:#?}\n{}", sim.picture(NS, NAME));
        writer.abort();
        write_rows(&sim, 3).await;
        let wrong = sim.world.judge(NS, NAME);
        assert!(wrong.is_empty(), "{wrong:#?} after {log:#?}\n{}", sim.picture(NS, NAME));
        intact(&sim);
        println!("seed {}: {} rows", sim.seed, sim.world.acknowledged(NS, NAME));
    }
}
