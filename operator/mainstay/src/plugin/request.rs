//! `kubectl mainstay promote`, `fence`, `unfence` and `rebuild`: writes the annotation, and shows what becomes of it in
//! `status.request` (decision B5: there is no other channel to the operator).

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use mainstay_api::status::{Request, RequestResult};
use mainstay_api::{MySQLCluster, MySQLClusterStatus, REQUEST_ANNOTATION};
use mainstay_core::request::{Asked, Verb};
use mainstay_core::status::{News, news};
use serde_json::json;

use super::explain::Subject;
use super::{PluginError, Target, connect, get, loss};

/// How long the operator may take to answer at all.
const ANSWER: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Arguments of `promote`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PromoteArgs {
    #[command(flatten)]
    about: About,
    /// Promote it even if acknowledged writes may be lost: only if no primary can be elected safely. What may be lost is
    /// shown before, and has to be confirmed with the cluster's name.
    #[arg(long)]
    accept_data_loss: bool,
    /// Do not ask for confirmation.
    #[arg(short, long, requires = "accept_data_loss")]
    yes: bool,
}

/// Arguments of every request.
#[derive(Args, Clone, Debug)]
pub(crate) struct About {
    /// Name of the MySQLCluster.
    cluster: String,
    /// Name of the instance (shop-1), or its number (1).
    instance: String,
    /// Wait until it is done, and show how far it is.
    #[arg(short, long)]
    wait: bool,
    /// How long to wait, in seconds.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    timeout: u64,
    #[command(flatten)]
    target: Target,
}

/// `mainstay promote CLUSTER INSTANCE`: what to print.
pub(crate) async fn promote(args: &PromoteArgs) -> Result<String, PluginError> {
    let about = &args.about;
    let (client, namespace) = connect(&about.target).await?;
    let cluster = get(&client, &namespace, &about.cluster).await?;
    let asked = Asked {
        accept_data_loss: args.accept_data_loss,
        reign: reign(&cluster),
        ..asked(Verb::Promote, &cluster, &about.instance)
    };
    if args.accept_data_loss {
        let instance = asked.instance.as_deref().unwrap_or_default();
        say(&loss::warning(&cluster, instance, Timestamp::now()));
        if !args.yes {
            confirm(&about.cluster)?;
        }
    }
    carry_out(&client, &namespace, &cluster, asked, about).await
}

/// `mainstay fence`, `unfence` and `rebuild`: what to print.
pub(crate) async fn ask(verb: Verb, about: &About) -> Result<String, PluginError> {
    let (client, namespace) = connect(&about.target).await?;
    let cluster = get(&client, &namespace, &about.cluster).await?;
    let asked = asked(verb, &cluster, &about.instance);
    carry_out(&client, &namespace, &cluster, asked, about).await
}

/// A request with an id of its own. Ids need no more than to differ from the one before.
fn asked(verb: Verb, cluster: &MySQLCluster, instance: &str) -> Asked {
    let id = format!("{:x}-{:x}", Timestamp::now().as_microsecond(), std::process::id());
    let number = instance.chars().all(|c| c.is_ascii_digit());
    let instance = if number {
        format!("{}-{instance}", cluster.name_any())
    } else {
        instance.to_owned()
    };
    Asked {
        id,
        verb,
        instance: Some(instance),
        accept_data_loss: false,
        reign: None,
    }
}

/// The reign that the person looked at.
fn reign(cluster: &MySQLCluster) -> Option<u64> {
    let primary = cluster.status.as_ref()?.primary.as_ref()?;
    u64::try_from(primary.epoch).ok()
}

async fn carry_out(
    client: &Client,
    namespace: &str,
    cluster: &MySQLCluster,
    asked: Asked,
    about: &About,
) -> Result<String, PluginError> {
    if let Some(other) = unanswered(cluster) {
        say(&format!(
            "The operator has not answered the request before this one, which is void now: {other}\n"
        ));
    }
    let clusters: Api<MySQLCluster> = Api::namespaced(client.clone(), namespace);
    let text = asked.annotation().map_err(PluginError::json)?;
    let patch = json!({"metadata": {"annotations": {REQUEST_ANNOTATION: text}}});
    let params = PatchParams {
        field_manager: Some("kubectl-mainstay".to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(patch);
    tokio::time::timeout(super::REQUEST_TIMEOUT, clusters.patch(&about.cluster, &params, &patch))
        .await
        .map_err(|_| PluginError::Slow(super::REQUEST_TIMEOUT.as_secs()))?
        .map_err(|error| PluginError::patch(error, namespace))?;
    follow(client, namespace, cluster, &asked, about).await
}

/// An annotation that status does not answer.
fn unanswered(cluster: &MySQLCluster) -> Option<&String> {
    let text = cluster.annotations().get(REQUEST_ANNOTATION)?;
    let asked = mainstay_core::request::read(text);
    let id = asked.map_or_else(|malformed| malformed.id, |asked| asked.id);
    let answered = cluster.status.as_ref().and_then(|status| status.request.as_ref());
    answered.is_none_or(|request| request.id != id).then_some(text)
}

/// What a person is told of an annotation that status does not answer.
pub(crate) fn pending(cluster: &MySQLCluster) -> Option<String> {
    let what = match mainstay_core::request::read(unanswered(cluster)?) {
        Ok(asked) => match asked.name() {
            Some(instance) => format!("{} {instance}", asked.verb.as_str()),
            None => asked.verb.as_str().to_owned(),
        },
        Err(_) => format!("something (annotation {REQUEST_ANNOTATION})"),
    };
    Some(format!(
        "{what} was asked for and is not answered yet. When that lasts for more than a few seconds, does the operator run? \
         kubectl get pods -A -l app.kubernetes.io/name=mainstay"
    ))
}

/// Waits for the operator's answer, and with `--wait` for the end; says what changes meanwhile.
async fn follow(
    client: &Client,
    namespace: &str,
    before: &MySQLCluster,
    asked: &Asked,
    about: &About,
) -> Result<String, PluginError> {
    let (began, limit) = (Instant::now(), Duration::from_secs(about.timeout));
    let mut told = String::new();
    loop {
        let cluster = get(client, namespace, &about.cluster).await?;
        let empty = MySQLClusterStatus::default();
        let status = cluster.status.as_ref().unwrap_or(&empty);
        let answer = status.request.as_ref().filter(|request| request.id == asked.id);
        match answer {
            Some(request) if request.result != RequestResult::Running => return conclude(before, &cluster, request),
            Some(_) if !about.wait => return Ok(accepted(asked, &about.cluster, namespace)),
            None if began.elapsed() >= ANSWER => {
                return Err(unanswered_within(ANSWER.as_secs(), about, namespace));
            }
            Some(_) | None => {}
        }
        if began.elapsed() >= limit {
            return Err(match answer {
                Some(_) => PluginError::Unfinished {
                    waited: about.timeout,
                    cluster: about.cluster.clone(),
                    namespace: namespace.to_owned(),
                },
                None => unanswered_within(about.timeout, about, namespace),
            });
        }
        let progress = progress(status, answer.is_some());
        if about.wait && progress != told {
            say(&format!("{:>6.1} s  {progress}\n", began.elapsed().as_secs_f64()));
            told = progress;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Where it is, as one line.
fn progress(status: &MySQLClusterStatus, accepted: bool) -> String {
    if !accepted {
        return "waiting for the operator".to_owned();
    }
    let phase = status.phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
    let waits = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Progressing");
    match waits.filter(|condition| condition.status == "True" && !condition.message.is_empty()) {
        Some(condition) => format!("{phase}: {}", condition.message),
        None => phase,
    }
}

fn unanswered_within(waited: u64, about: &About, namespace: &str) -> PluginError {
    PluginError::Unanswered {
        waited,
        cluster: about.cluster.clone(),
        namespace: namespace.to_owned(),
    }
}

fn accepted(asked: &Asked, cluster: &str, namespace: &str) -> String {
    format!(
        "{} {}: accepted. Follow it with --wait, or: kubectl mainstay explain {cluster} -n {namespace}\n",
        asked.verb.as_str(),
        asked.instance.as_deref().unwrap_or_default(),
    )
}

/// What became of it.
fn conclude(before: &MySQLCluster, cluster: &MySQLCluster, request: &Request) -> Result<String, PluginError> {
    match request.result {
        RequestResult::Refused => Err(PluginError::RequestRefused(request.message.clone())),
        RequestResult::Failed => Err(PluginError::RequestFailed(request.message.clone())),
        RequestResult::Done | RequestResult::Running => Ok(done(before, cluster, request)),
    }
}

fn done(before: &MySQLCluster, cluster: &MySQLCluster, request: &Request) -> String {
    let empty = MySQLClusterStatus::default();
    let (old, new) = (
        before.status.as_ref().unwrap_or(&empty),
        cluster.status.as_ref().unwrap_or(&empty),
    );
    let mut text = format!("{}\n", request.message);
    for news in news(old, new).iter().filter(|news| matches!(news, News::Changed(_))) {
        text.push_str(&news.sentence());
        text.push('\n');
    }
    if let Some(loss) = new
        .data_loss
        .as_ref()
        .filter(|loss| old.data_loss.as_ref() != Some(loss))
    {
        let subject = Subject {
            name: cluster.name_any(),
            namespace: cluster.namespace().unwrap_or_default(),
            status: new,
            now: Timestamp::now(),
        };
        text.push_str(&subject.loss(loss));
        text.push('\n');
    }
    text
}

/// To standard error: what is not the result.
pub(super) fn say(text: &str) {
    // Nothing is left to do when standard error is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The person types the name of the cluster.
fn confirm(cluster: &str) -> Result<(), PluginError> {
    if !std::io::stdin().is_terminal() {
        return Err(PluginError::NotConfirmed(
            "standard input is no terminal: confirm with --yes".to_owned(),
        ));
    }
    say("Type the name of the cluster to go on: ");
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| PluginError::NotConfirmed(format!("failed to read the answer: {error}")))?;
    if line.trim() == cluster {
        Ok(())
    } else {
        Err(PluginError::NotConfirmed(format!(
            "{:?} is not {cluster}; nothing was done",
            line.trim()
        )))
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
