//! F23: a backup that loses its pod, the power of its node or its operator, in each phase. Its state is derived, nothing waits for
//! ever, replication runs again, and the next backup is made.

use std::sync::Arc;

use mainstay_sim::Simulation;
use mainstay_sim::kubernetes::{DeleteOptions, Key, Resource};
use serde_json::{Value, json};

use crate::backups::{ask, backup, cleaned_up, phase, settled, stored, succeeded};
use crate::support::{NAME, NS, healthy_within, intact, secs, seed, sleep, write_rows};

/// What happens to a backup.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Its pod is deleted.
    Pod,
    /// Its node loses power for a minute.
    Power,
    /// Its node loses power for longer than anybody waits for a backup.
    Node,
    /// The operator dies, and another one begins ten seconds later.
    Operator,
}

/// When, in seconds after the backup was asked for: before its program runs, while it copies, just before its end, and just after it.
/// A simulated backup takes a minute.
const MOMENTS: [u64; 4] = [1, 30, 61, 64];

fn pod(sim: &Simulation) -> Option<Arc<Value>> {
    let pods = sim.server.list(Resource::find("", "pods").unwrap(), NS);
    let of_backup = |pod: &Arc<Value>| pod.pointer("/metadata/labels/mysql.mainstay.dev~1backup").is_some();
    pods.into_iter().find(of_backup)
}

fn node(pod: &Value) -> Option<String> {
    Some(pod.pointer("/spec/nodeName")?.as_str()?.to_owned())
}

fn ended(sim: &Simulation) -> bool {
    ["Succeeded", "Failed"].contains(&phase(sim, "now").as_str())
}

/// What became of the one that was interrupted is told, and blocks nothing.
async fn the_next_one_is_made(sim: &Simulation, what: &str) {
    let first = phase(sim, "now");
    ask(sim, "next");
    succeeded(sim, "next").await;
    cleaned_up(sim).await;
    // A success is one in the store, and one that failed is no success.
    let manifests = stored(sim)
        .await
        .into_iter()
        .filter(|key| key.ends_with("manifest.json"))
        .count();
    let told = if first == "Succeeded" { 2 } else { 1 };
    assert!(
        manifests == told || (first == "Failed" && manifests == 2),
        "{what}: {first}, {manifests} in the store"
    );
    let failed = backup(sim, "now").unwrap();
    if first == "Failed" {
        let message = failed
            .pointer("/status/message")
            .and_then(Value::as_str)
            .unwrap_or_default();
        assert!(!message.is_empty(), "{what}: {failed:#}");
    }
    let healthy = sim.wait(secs(30), |s| {
        crate::backups::backup_healthy(s).is_some_and(|condition| condition["status"] == "True")
    });
    assert!(healthy.await, "{what}\n{}", sim.picture(NS, NAME));
}

async fn interrupted(base: &Simulation, loss: Loss, moment: u64) {
    let what = format!("{loss:?} after {moment} s");
    let sim = base.fork(base.seed + moment);
    let mut operator = sim.start_operator("operator-1");
    let writer = sim.world.write_in_a_loop(NS, NAME, secs(1));
    // Its store is listed, and every instance is heard.
    sleep(secs(10)).await;
    ask(&sim, "now");
    sleep(secs(moment)).await;
    let lost = pod(&sim);
    let off = match (loss, &lost) {
        (Loss::Pod, Some(pod)) => {
            let key = Key::new(
                Resource::find("", "pods").unwrap(),
                NS,
                pod["metadata"]["name"].as_str().unwrap(),
            );
            sim.server.delete(&key, &DeleteOptions::default()).unwrap();
            None
        }
        (Loss::Power | Loss::Node, Some(pod)) => node(pod),
        (Loss::Operator, _) => {
            operator.crash().await;
            sleep(secs(10)).await;
            operator = sim.start_operator("operator-2");
            None
        }
        // It has ended, and was cleaned up: nothing is left to be lost.
        (_, None) => {
            assert!(moment > 60, "{what}: no pod\n{}", sim.picture(NS, NAME));
            None
        }
    };
    if let Some(node) = &off {
        sim.world.change(|w| w.power_off(node));
        sleep(secs(if matches!(loss, Loss::Node) { 1800 } else { 60 })).await;
        // What nobody can know while the node is off is not waited for without end.
        assert!(
            ended(&sim) || matches!(loss, Loss::Power),
            "{what}\n{}",
            sim.picture(NS, NAME)
        );
        sim.world.change(|w| w.power_on(node));
    }
    let told = sim.wait(secs(300), ended).await;
    assert!(told, "{what}: {:#?}\n{}", backup(&sim, "now"), sim.picture(NS, NAME));
    healthy_within(&sim, NS, NAME, secs(300)).await;

    the_next_one_is_made(&sim, &what).await;
    writer.abort();
    write_rows(&sim, 3).await;
    intact(&sim);
    drop(operator);
}

async fn in_each_phase(own: u64, loss: Loss) {
    let base = settled(seed(own), &json!([])).await;
    for moment in MOMENTS {
        interrupted(&base, loss, moment).await;
    }
}

#[tokio::test(start_paused = true)]
async fn f23_a_backup_whose_pod_is_deleted() {
    in_each_phase(3900, Loss::Pod).await;
}

#[tokio::test(start_paused = true)]
async fn f23_a_backup_whose_node_loses_power() {
    in_each_phase(3910, Loss::Power).await;
}

#[tokio::test(start_paused = true)]
async fn f23_a_backup_whose_node_does_not_come_back() {
    in_each_phase(3920, Loss::Node).await;
}

#[tokio::test(start_paused = true)]
async fn f23_a_backup_whose_operator_dies() {
    in_each_phase(3930, Loss::Operator).await;
}
