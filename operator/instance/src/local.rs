//! What other processes of the container ask of the manager, over its own socket: `instance status` and `instance
//! pre-stop`.

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use crate::proto;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Longest answer, in bytes.
const LONGEST: usize = 1 << 20;
/// How long the pre-stop hook waits for somebody to take over (decision A13).
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks whether somebody did.
const POLL: Duration = Duration::from_millis(100);
/// How long nobody may receive who could take over, before it is not hoped for any more.
const HOPE: Duration = Duration::from_secs(2);

/// Why the manager could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It does not listen.
    #[error("failed to connect to the instance manager at {socket}")]
    Connect {
        /// Its socket.
        socket: String,
        /// Why.
        source: std::io::Error,
    },
    /// It did not answer, or not properly.
    #[error("failed to ask the instance manager for {path}: {reason}")]
    Ask {
        /// What was asked.
        path: &'static str,
        /// Why it failed.
        reason: String,
    },
}

async fn ask(socket: &Path, method: &'static str, path: &'static str) -> Result<String, LocalError> {
    let failed = |reason: String| LocalError::Ask { path, reason };
    let work = async {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|source| LocalError::Connect {
                socket: socket.display().to_string(),
                source,
            })?;
        ask_on(stream, method, path).await.map_err(failed)
    };
    timeout(ANSWER, work)
        .await
        .map_err(|_elapsed| failed(format!("no answer within {ANSWER:?}")))?
}

/// One question on a connection; the answer's text, or what is wrong with it.
pub(crate) async fn ask_on(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    method: &'static str,
    path: &'static str,
) -> Result<String, String> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = response.status();
    // Nothing that is asked for is longer.
    let body = Limited::new(response.into_body(), LONGEST).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    connection.abort();
    let text = String::from_utf8_lossy(&body).into_owned();
    if status.is_success() {
        Ok(text)
    } else {
        Err(format!("{status}: {}", text.trim()))
    }
}

/// The status of the manager behind this socket.
pub async fn status(socket: &Path) -> Result<Value, LocalError> {
    let text = ask(socket, "GET", "/status").await?;
    serde_json::from_str(&text).map_err(|error| LocalError::Ask {
        path: "/status",
        reason: error.to_string(),
    })
}

/// What a primary that is about to stop can expect.
#[derive(Debug, PartialEq, Eq)]
enum Relief {
    /// There is nothing to hand over.
    Done,
    /// Enough replicas receive for somebody to take over.
    Possible,
    /// Too few replicas receive: all pods are being stopped, or the others are lost.
    Unlikely,
}

fn relief(status: &Value) -> Relief {
    let number = |path| status.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let writable = status.get("writable").and_then(Value::as_bool).unwrap_or(false);
    let members = status.pointer("/persisted/members").and_then(Value::as_array);
    if !writable || members.is_none_or(Vec::is_empty) {
        Relief::Done
    } else if number("/semiSync/clients") < number("/persisted/acksRequired") {
        Relief::Unlikely
    } else {
        Relief::Possible
    }
}

/// Asks to be relieved, and returns when the instance is not writable any more, when nobody could take over, or when
/// `patience` is at its end. What happens then is the shutdown rule's business.
pub async fn pre_stop(socket: &Path, patience: Duration) -> Result<(), LocalError> {
    let until = Instant::now() + patience;
    ask(socket, "POST", "/leave").await?;
    let mut unlikely_since = None;
    while Instant::now() < until {
        match relief(&status(socket).await?) {
            Relief::Done => return Ok(()),
            Relief::Possible => unlikely_since = None,
            Relief::Unlikely if unlikely_since.get_or_insert_with(Instant::now).elapsed() >= HOPE => return Ok(()),
            Relief::Unlikely => {}
        }
        sleep(POLL).await;
    }
    Ok(())
}

/// A status as JSON, for people and scripts.
#[must_use]
pub fn to_json(status: &proto::Status) -> Value {
    let mysqld = proto::status::Mysqld::try_from(status.mysqld).unwrap_or_default();
    let replication = status.replication.clone().unwrap_or_default();
    let semi_sync = status.semi_sync.clone().unwrap_or_default();
    let persisted = status.persisted.clone().unwrap_or_default();
    let disk = status.disk.unwrap_or_default();
    let now = Timestamp::now();
    json!({
        "instance": status.instance,
        "incarnation": status.incarnation,
        "persisted": {
            "epoch": persisted.epoch,
            "seq": persisted.seq,
            "primary": persisted.primary.as_ref().map(member),
            "baseline": persisted.baseline,
            "members": persisted.members.iter().map(member).collect::<Vec<_>>(),
            "acksRequired": persisted.acks_required,
        },
        "mysqld": mysqld.as_str_name().to_lowercase(),
        "message": status.message,
        "restarts": status.restarts,
        "failures": status.failures,
        "refusals": status.refusals,
        "unreadable": status.unreadable,
        "version": status.version,
        "serverUuid": status.server_uuid,
        "serverId": status.server_id,
        "writable": status.writable,
        "executed": status.executed,
        "received": status.received,
        "purged": status.purged,
        "marker": status.marker,
        "replication": {
            "sourceHost": replication.source_host,
            "receiverRunning": replication.receiver_running,
            "applierRunning": replication.applier_running,
            "applierBehind": replication.applier_behind,
            "lastHeardMs": replication.last_heard_ms,
            "lagSeconds": replication.lag_seconds,
            "receiverError": replication.receiver_error,
            "applierError": replication.applier_error,
            "applierFailingMs": replication.applier_failing_ms,
        },
        "semiSync": {
            "on": semi_sync.source_on,
            "clients": semi_sync.clients,
            "waitFor": semi_sync.wait_for,
            "waiters": semi_sync.waiters,
            "acknowledgers": semi_sync.acknowledgers,
        },
        "disk": {"usedBytes": disk.used_bytes, "sizeBytes": disk.size_bytes, "fullForMs": disk.full_for_ms},
        "standstill": status.standstill.as_ref().map(|standstill| json!({
            "cause": standstill.cause().as_str_name().to_lowercase(),
            "holder": standstill.holder,
        })),
        "configHash": status.config_hash,
        "pristine": status.pristine,
        "connections": status.connections,
        "maxConnections": status.max_connections,
        "leaving": status.leaving,
        "archive": status.archive.as_ref().map(|archive| json!({
            "behind": archive.behind,
            "missing": archive.missing,
            "error": archive.error,
            "through": through(archive).map(|through| through.to_string()),
            // By one clock: whoever asks may have another one.
            "throughAgeMs": through(archive).map(|through| now.duration_since(through).as_millis().max(0)),
        })),
    })
}

fn through(archive: &proto::Archive) -> Option<Timestamp> {
    archive
        .through_us
        .and_then(|micros| Timestamp::from_microsecond(micros).ok())
}

fn member(member: &proto::MemberRef) -> Value {
    json!({"instance": member.instance, "incarnation": member.incarnation})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_primary_with_replicas_that_receive_hopes_to_be_relieved() {
        let status = |writable: bool, members: &[&str], clients: u32| {
            json!({
                "writable": writable,
                "persisted": {"members": members, "acksRequired": 1},
                "semiSync": {"clients": clients},
            })
        };
        for (status, expected) in [
            (status(true, &["shop-1", "shop-2"], 2), Relief::Possible),
            (status(true, &["shop-1", "shop-2"], 1), Relief::Possible),
            (status(true, &["shop-1", "shop-2"], 0), Relief::Unlikely),
            (status(false, &["shop-1", "shop-2"], 0), Relief::Done),
            (status(true, &[], 0), Relief::Done),
            (json!({}), Relief::Done),
        ] {
            assert_eq!(relief(&status), expected, "{status}");
        }
    }
}
