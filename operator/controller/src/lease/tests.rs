use std::sync::Mutex;

use super::*;
use crate::testing::{Fake, FixedClock, requests};

fn lease(fake: &Fake, identity: &str) -> Lease {
    let timings = LeaseTimings::default();
    Lease::new(
        requests(fake),
        "ops".to_owned(),
        identity.to_owned(),
        timings,
        Arc::new(FixedClock::default()),
    )
}

/// An API server that holds one Lease.
fn server() -> Fake {
    let stored: Arc<Mutex<Option<serde_json::Value>>> = Arc::default();
    Fake::new(move |method, _path, body| {
        let mut stored = stored.lock().unwrap();
        let version = stored.as_ref().map(|v| v["metadata"]["resourceVersion"].clone());
        match method {
            "GET" => stored.clone().map_or_else(|| Fake::failure(404), |v| (200, v)),
            "POST" if version.is_some() => Fake::failure(409),
            "PUT" if version.as_ref() != Some(&body["metadata"]["resourceVersion"]) => Fake::failure(409),
            "POST" | "PUT" => {
                let next: u64 = version.map_or(1, |v| v.as_str().unwrap().parse::<u64>().unwrap() + 1);
                let mut object = body;
                object["metadata"]["resourceVersion"] = next.to_string().into();
                *stored = Some(object.clone());
                (200, object)
            }
            other => panic!("unexpected {other}"),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_after_the_duration_and_not_before() {
    let fake = server();
    let (mut first, mut second) = (lease(&fake, "a"), lease(&fake, "b"));
    first.acquire().await;
    let start = Instant::now();
    second.acquire().await;
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(6), "{waited:?}");
    assert!(waited <= Duration::from_secs(8), "{waited:?}");
    // The first one wakes up again and learns it at its next renewal.
    let reason = first.hold().await;
    assert!(reason.contains("another process"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_the_next_look() {
    let fake = server();
    let (mut first, mut second) = (lease(&fake, "a"), lease(&fake, "b"));
    first.acquire().await;
    assert_eq!(second.attempt().await.unwrap(), Try::Foreign);
    first.release().await;
    let start = Instant::now();
    second.acquire().await;
    assert!(start.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_holder_without_api_server_stops_before_the_lease_ends() {
    let fake = server();
    let mut holder = lease(&fake, "a");
    holder.acquire().await;
    fake.break_connections();
    let start = Instant::now();
    let reason = holder.hold().await;
    assert!(reason.contains("not renewed"), "{reason}");
    assert!(start.elapsed() <= Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn the_holder_keeps_it_while_it_renews() {
    let fake = server();
    let (mut first, mut second) = (lease(&fake, "a"), lease(&fake, "b"));
    first.acquire().await;
    let lost = tokio::time::timeout(Duration::from_mins(1), first.hold());
    let taken = tokio::time::timeout(Duration::from_mins(1), second.acquire());
    let (lost, taken) = tokio::join!(lost, taken);
    assert!(lost.is_err() && taken.is_err());
}
