//! Figures that change every second and therefore are not in `status`: asked of each instance by `pods/exec`.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use mainstay_core::layout;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

/// How long an instance may take to answer; the table does not wait longer for any of them.
const DEADLINE: Duration = Duration::from_secs(4);
/// No answer is longer than this; more is not read.
const MAX_ANSWER: u64 = 1 << 20;
/// Container of the instance manager.
const CONTAINER: &str = "mysql";

/// What one instance says of itself now: the part of `mainstay instance status -o json` that is shown.
///
/// Unknown fields are ignored and missing ones are unknown, so that a plugin reads managers of other versions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Live {
    /// State of mysqld, for example `running`.
    pub(crate) mysqld: String,
    /// Why mysqld does not run, or how far it is.
    pub(crate) message: String,
    /// super_read_only is OFF.
    pub(crate) writable: bool,
    /// Following a source.
    pub(crate) replication: Replication,
    /// Being followed.
    pub(crate) semi_sync: SemiSync,
    /// Space of the data volume.
    pub(crate) disk: Option<Disk>,
    /// Its archive of the binlog; absent when it does not archive.
    pub(crate) archive: Option<Archive>,
}

/// Replication of an instance from its source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Replication {
    /// Host that is followed; absent or empty when detached.
    pub(crate) source_host: Option<String>,
    /// The receiver is connected.
    pub(crate) receiver_running: bool,
    /// The applier runs.
    pub(crate) applier_running: bool,
    /// Seconds between the commit on the source and here.
    pub(crate) lag_seconds: Option<f64>,
    /// Last error of the receiver.
    pub(crate) receiver_error: String,
    /// Last error of the applier.
    pub(crate) applier_error: String,
}

/// Semi-synchronous replication of an instance to its replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SemiSync {
    /// Sessions that wait for an acknowledgement.
    pub(crate) waiters: u32,
    /// Instances that are connected and may acknowledge.
    pub(crate) acknowledgers: Vec<String>,
}

/// Archive of the binlog by an open primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Archive {
    /// Milliseconds since the time up to which everything is stored; absent when that is not known.
    pub(crate) through_age_ms: Option<u64>,
}

/// Space of a data volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Disk {
    /// Bytes in use.
    pub(crate) used_bytes: u64,
    /// Bytes in all.
    pub(crate) size_bytes: u64,
}

/// The answer of each instance that was asked, or why there is none.
pub(crate) type Answers = BTreeMap<String, Result<Live, String>>;

/// Asks every pod that runs, at the same time, and waits for the slowest at most [`DEADLINE`].
pub(crate) async fn ask(pods: &Api<Pod>, names: &[String]) -> Answers {
    let questions = names.iter().map(|name| async {
        let answer = match tokio::time::timeout(DEADLINE, ask_one(pods, name)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        };
        (name.clone(), answer)
    });
    join_all(questions).await.into_iter().collect()
}

async fn ask_one(pods: &Api<Pod>, name: &str) -> Result<Live, String> {
    let command = [layout::BINARY, "instance", "status", "-o", "json"];
    let streams = AttachParams::default().container(CONTAINER).stdout(true).stderr(true);
    let mut process = pods
        .exec(name, command, &streams)
        .await
        .map_err(|error| reason(&error))?;
    let (stdout, stderr) = (read(process.stdout()), read(process.stderr()));
    let (stdout, stderr) = tokio::join!(stdout, stderr);
    decode(&stdout?, &stderr?)
}

async fn read(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> Result<String, String> {
    let mut text = String::new();
    if let Some(stream) = stream {
        let read = stream.take(MAX_ANSWER).read_to_string(&mut text).await;
        read.map_err(|error| format!("failed to read the answer: {error}"))?;
    }
    Ok(text)
}

/// The answer in `stdout`; an instance that has none explains itself in `stderr`.
fn decode(stdout: &str, stderr: &str) -> Result<Live, String> {
    if stdout.trim().is_empty() {
        let said = stderr.lines().next().unwrap_or("it said nothing");
        return Err(said.to_owned());
    }
    serde_json::from_str(stdout).map_err(|error| format!("failed to understand the answer: {error}"))
}

/// One line for a remark: what the API server says, without the wrapping of the client's error.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => "you may not use pods/exec here".to_owned(),
        kube::Error::Api(status) => status.message.clone(),
        other => super::error::reached(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_a_newer_manager_is_understood() {
        let text = r#"{"mysqld":"running","writable":true,"shiny":{"new":1},
            "semiSync":{"waiters":0,"acknowledgers":["shop-0"]},"disk":{"usedBytes":1,"sizeBytes":2}}"#;
        let live = decode(text, "").unwrap();
        assert!(live.writable);
        assert_eq!(live.semi_sync.acknowledgers, ["shop-0"]);
        assert_eq!(
            live.disk,
            Some(Disk {
                used_bytes: 1,
                size_bytes: 2
            })
        );
        assert_eq!(live.replication.lag_seconds, None);
    }

    #[test]
    fn an_instance_without_an_answer_explains_itself() {
        assert_eq!(
            decode("", "failed to reach the manager\nmore\n"),
            Err("failed to reach the manager".to_owned())
        );
        assert_eq!(decode(" \n", ""), Err("it said nothing".to_owned()));
        assert!(
            decode("{", "")
                .unwrap_err()
                .starts_with("failed to understand the answer")
        );
    }
}
