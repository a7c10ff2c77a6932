use std::collections::VecDeque;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use mainstay_core::GtidSet;
use mainstay_core::action::Verb;
use mainstay_core::observed::{Disk, InstanceReport, Mysqld, Persisted, Replication, SemiSync};
use mainstay_core::rules::{Incarnation, MemberId};
use mainstay_instance::convert::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::*;
use crate::testing::FixedClock;

const HOUR: Duration = Duration::from_hours(1);

fn shop() -> ClusterName {
    ClusterName::new("db", "shop")
}

fn instance() -> InstanceName {
    InstanceName("shop-0".to_owned())
}

fn report(epoch: u64, seq: u64) -> InstanceReport {
    InstanceReport {
        incarnation: Incarnation("life".to_owned()),
        persisted: Persisted {
            epoch,
            seq,
            ..Persisted::default()
        },
        mysqld: Mysqld::Running,
        message: String::new(),
        restarts: 0,
        failures: 0,
        refusals: 0,
        unreadable: false,
        standstill: None,
        version: "9.7.4".to_owned(),
        server_uuid: String::new(),
        writable: false,
        executed: GtidSet::default(),
        received: GtidSet::default(),
        purged: GtidSet::default(),
        replication: Replication::default(),
        semi_sync: SemiSync::default(),
        disk: Disk::default(),
        marker: None,
        config_hash: String::new(),
        pristine: false,
        list_uncertain: false,
        history_reset: false,
        archive: None,
        leaving: false,
        recovered: None,
    }
}

/// Gives out one prepared connection for each dial; without one the dial never ends.
#[derive(Default)]
struct FakeDialler {
    connections: Mutex<VecDeque<FakeLink>>,
    dials: Mutex<Vec<(Instant, String)>>,
}

impl FakeDialler {
    fn prepare(&self, replies: Vec<Result<Reply, ClientError>>) -> mpsc::UnboundedSender<Result<Message, ClientError>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let link = FakeLink {
            messages: Mutex::new(Some(receiver)),
            replies: Mutex::new(replies.into()),
        };
        self.connections.lock().unwrap().push_back(link);
        sender
    }
}

impl Dialler for FakeDialler {
    fn dial(&self, target: Target) -> BoxFuture<'static, Result<Arc<dyn Link>, ClientError>> {
        self.dials.lock().unwrap().push((Instant::now(), target.server_name()));
        match self.connections.lock().unwrap().pop_front() {
            Some(link) => std::future::ready(Ok(Arc::new(link) as Arc<dyn Link>)).boxed(),
            None => std::future::pending().boxed(),
        }
    }
}

struct FakeLink {
    messages: Mutex<Option<mpsc::UnboundedReceiver<Result<Message, ClientError>>>>,
    replies: Mutex<VecDeque<Result<Reply, ClientError>>>,
}

impl Link for FakeLink {
    fn watch(&self) -> BoxFuture<'static, Result<Messages, ClientError>> {
        let receiver = self.messages.lock().unwrap().take().unwrap();
        let stream = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
        std::future::ready(Ok(stream.boxed())).boxed()
    }

    fn command(&self, _: InstanceCommand, _: u64) -> BoxFuture<'static, Result<Reply, ClientError>> {
        match self.replies.lock().unwrap().pop_front() {
            Some(reply) => std::future::ready(reply).boxed(),
            None => std::future::pending().boxed(),
        }
    }
}

struct World {
    pool: Pool,
    dialler: Arc<FakeDialler>,
    triggers: Triggers,
}

impl World {
    fn new() -> Self {
        let dialler = Arc::new(FakeDialler::default());
        let triggers = Triggers::default();
        let pool = Pool::new(
            Arc::clone(&dialler) as _,
            Arc::new(FixedClock::default()),
            triggers.clone(),
        );
        Self {
            pool,
            dialler,
            triggers,
        }
    }

    fn pod(&self, uid: &str) {
        let address = PodAddress {
            uid: uid.to_owned(),
            ip: "fd00::7".parse().unwrap(),
        };
        self.pool.set_pods(&shop(), &HashMap::from([(instance(), address)]));
    }

    fn reach(&self) -> Reach {
        self.pool.reach(&shop(), "uid", &instance())
    }

    async fn called(&self) -> bool {
        timeout(Duration::from_secs(1), self.triggers.next()).await.is_ok()
    }
}

fn fence() -> InstanceCommand {
    InstanceCommand {
        to: MemberId {
            instance: instance(),
            incarnation: Incarnation("life".to_owned()),
        },
        epoch: 7,
        deadline: Duration::from_secs(1),
        verb: Verb::Fence,
        why: String::new(),
    }
}

fn message(sequence: u64, report: InstanceReport) -> Message {
    Message { sequence, report }
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_heard_once_its_ca_is_known_and_silent_two_seconds_after_its_last_message() {
    let world = World::new();
    let messages = world.dialler.prepare(Vec::new());
    world.pod("a");
    tokio::time::sleep(HOUR).await;
    assert!(world.dialler.dials.lock().unwrap().is_empty(), "nobody to trust yet");
    assert!(matches!(world.reach(), Reach::Unknown { .. }));

    world.pool.trust(&shop(), Some("CA"));
    messages.send(Ok(message(1, report(0, 0)))).unwrap();
    assert!(world.called().await);
    assert!(matches!(world.reach(), Reach::Heard(heard) if heard.settled));
    assert_eq!(world.dialler.dials.lock().unwrap()[0].1, "shop-0.shop-instances.db.svc");

    let start = Instant::now();
    world.triggers.next().await;
    assert!(start.elapsed() <= SILENT_AFTER);
    assert!(matches!(world.reach(), Reach::Silent { last: Some(_), .. }));
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_is_made_anew_at_once_and_a_black_hole_is_not_hammered() {
    let world = World::new();
    drop(world.dialler.prepare(Vec::new()));
    let second = world.dialler.prepare(Vec::new());
    world.pool.trust(&shop(), Some("CA"));
    world.pod("a");
    second.send(Ok(message(1, report(0, 0)))).unwrap();
    assert!(world.called().await);
    drop(second);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let dials = world.dialler.dials.lock().unwrap();
    assert!(dials[1].0 - dials[0].0 <= Duration::from_millis(250), "{dials:?}");
    assert!(
        dials.len() <= 16,
        "a dial into a black hole every 4 to 5 s: {}",
        dials.len()
    );
}

#[tokio::test(start_paused = true)]
async fn heartbeats_call_nobody_and_progress_only_those_who_wait() {
    let world = World::new();
    let messages = world.dialler.prepare(Vec::new());
    world.pool.trust(&shop(), Some("CA"));
    world.pod("a");
    messages.send(Ok(message(1, report(0, 0)))).unwrap();
    assert!(world.called().await);
    let growing = |n: u64| {
        let set = format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-{n}").parse().unwrap();
        InstanceReport {
            executed: set,
            ..report(0, 0)
        }
    };
    world.pool.attend(&shop(), false);
    for n in 1..5 {
        messages.send(Ok(message(1 + n, growing(n)))).unwrap();
        assert!(!world.called().await);
    }
    world.pool.attend(&shop(), true);
    messages.send(Ok(message(10, growing(4)))).unwrap();
    assert!(!world.called().await, "the same set again");
    messages.send(Ok(message(11, growing(6)))).unwrap();
    assert!(world.called().await);
    world.pool.attend(&shop(), false);
    for (n, age, called) in [(12, 1, true), (13, 2, false), (14, 3, true), (15, 4, false)] {
        let mut report = growing(6);
        report.replication.last_heard = Some(Duration::from_secs(age));
        messages.send(Ok(message(n, report))).unwrap();
        assert_eq!(world.called().await, called, "its source was heard {age} s ago");
    }
    messages
        .send(Ok(message(
            16,
            InstanceReport {
                writable: true,
                ..growing(6)
            },
        )))
        .unwrap();
    assert!(world.called().await, "a change of state");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_fills_up_calls_at_the_marks_and_when_it_is_full() {
    let world = World::new();
    let messages = world.dialler.prepare(Vec::new());
    world.pool.trust(&shop(), Some("CA"));
    world.pod("a");
    messages.send(Ok(message(1, report(0, 0)))).unwrap();
    assert!(world.called().await);
    world.pool.attend(&shop(), false);
    let seconds = |full: u64| Some(Duration::from_secs(full));
    let filled = [
        (60, None, false),
        (74, None, false),
        (79, None, true),
        (80, None, true),
        (84, None, false),
        (100, None, true),
        (100, seconds(1), true),
        (100, seconds(2), false),
        (50, None, true),
    ];
    for (n, (used, full_for, called)) in (2..).zip(filled) {
        let disk = Disk {
            used,
            size: 100,
            full_for,
        };
        let report = InstanceReport { disk, ..report(0, 0) };
        messages.send(Ok(message(n, report))).unwrap();
        assert_eq!(world.called().await, called, "{used} %, full for {full_for:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_counts_at_once_and_a_message_that_it_overtook_does_not() {
    let world = World::new();
    let fenced = Reply {
        outcome: Outcome::Applied,
        epoch: 7,
        seq: 1,
        report: Some(report(7, 1)),
        sequence: 5,
    };
    let messages = world.dialler.prepare(vec![Ok(fenced)]);
    world.pool.trust(&shop(), Some("CA"));
    world.pod("a");
    messages.send(Ok(message(1, report(0, 0)))).unwrap();
    assert!(world.called().await);

    world.pool.command(&shop(), "uid", fence()).await.unwrap();
    assert!(world.called().await);
    messages.send(Ok(message(4, report(0, 0)))).unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let Reach::Heard(heard) = world.reach() else {
        panic!("not heard")
    };
    assert_eq!((heard.report.persisted.epoch, heard.settled), (7, true));
    assert_eq!(heard.answer.map(|answer| answer.failure), Some(None));
}

#[tokio::test(start_paused = true)]
async fn a_command_without_an_answer_leaves_the_instance_unsettled_until_a_report_has_the_pair() {
    let world = World::new();
    let messages = world.dialler.prepare(Vec::new());
    world.pool.trust(&shop(), Some("CA"));
    world.pod("a");
    messages.send(Ok(message(1, report(0, 0)))).unwrap();
    assert!(world.called().await);
    let beat = tokio::spawn(async move {
        for sequence in 2.. {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let persisted = if sequence < 20 { report(0, 0) } else { report(7, 1) };
            if messages.send(Ok(message(sequence, persisted))).is_err() {
                return;
            }
        }
    });
    let pool = world.pool.clone();
    let command = tokio::spawn(async move { pool.command(&shop(), "uid", fence()).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let busy = |reach| matches!(reach, Reach::Heard(heard) if heard.busy.is_some() && !heard.settled);
    assert!(busy(world.reach()));
    let error = command.await.unwrap().unwrap_err();
    assert!(matches!(error, CommandError::Unanswered { .. }), "{error}");
    let Reach::Heard(heard) = world.reach() else {
        panic!("not heard")
    };
    assert!(!heard.settled && heard.busy.is_none() && heard.answer.is_some_and(|a| a.failure.is_some()));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(matches!(world.reach(), Reach::Heard(heard) if heard.settled));
    beat.abort();
}

#[tokio::test(start_paused = true)]
async fn another_pod_is_another_instance_and_a_gone_one_is_unknown() {
    let world = World::new();
    let first = world.dialler.prepare(Vec::new());
    world.pool.trust(&shop(), Some("CA"));
    world.pod("a");
    first.send(Ok(message(9, report(3, 3)))).unwrap();
    assert!(world.called().await);
    world.pod("b");
    assert!(
        matches!(world.reach(), Reach::Unknown { .. }),
        "nothing is carried over from another pod"
    );
    world.pool.set_pods(&shop(), &HashMap::new());
    assert!(matches!(world.reach(), Reach::Unknown { .. }));
    let error = world.pool.command(&shop(), "uid", fence()).await.unwrap_err();
    assert!(matches!(error, CommandError::NotConnected { .. }));
}

/// What is on its way in a connection that ended says nothing of the one after it.
#[tokio::test]
async fn rule_0_a_message_of_an_ended_session_is_no_news() {
    let link = || {
        Arc::new(FakeLink {
            messages: Mutex::default(),
            replies: Mutex::default(),
        })
    };
    let now = FixedClock::default().0;
    let slot = Slot::new(now);
    let first = slot.connected(link());
    slot.replied(first, 1, &report(7, 1), now);
    slot.lost("no route");
    let second = slot.connected(link());
    slot.replied(second, 1, &report(8, 1), now);
    slot.replied(first, 9, &report(7, 2), now);
    let Reach::Heard(heard) = slot.reach() else {
        panic!("it is heard")
    };
    assert_eq!(heard.report.persisted.epoch, 8);
}
