//! The kubectl plugin: `kubectl mainstay VERB`, and the same verbs as `mainstay VERB`.

mod backup;
mod error;
mod explain;
#[cfg(test)]
mod fixtures;
mod live;
mod loss;
mod request;
mod table;
mod view;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use mainstay_api::MySQLCluster;
use mainstay_core::names::Names;

pub(crate) use backup::{BackupArgs, backup};
pub(crate) use error::{PluginError, chain};
use live::Answers;
pub(crate) use request::{About, PromoteArgs, ask, promote};
use table::Style;
use view::View;

/// A person waits: an API server that is away is told within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Which Kubernetes cluster, and which namespace of it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// Namespace; default: the one of the kubeconfig's context.
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// kubeconfig file; default: $KUBECONFIG, then ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: its current one.
    #[arg(long, global = true)]
    context: Option<String>,
}

/// Arguments of `status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StatusArgs {
    /// Name of the MySQLCluster.
    cluster: String,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

/// Arguments of `explain`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExplainArgs {
    /// Name of the MySQLCluster.
    cluster: String,
    #[command(flatten)]
    target: Target,
}

/// `mainstay explain CLUSTER`: what to print.
pub(crate) async fn explain(args: &ExplainArgs) -> Result<String, PluginError> {
    let (client, namespace) = connect(&args.target).await?;
    let cluster = get(&client, &namespace, &args.cluster).await?;
    Ok(explain::explain(&cluster, Timestamp::now()))
}

/// Forms of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// `mainstay status CLUSTER`: what to print.
pub(crate) async fn status(args: &StatusArgs) -> Result<String, PluginError> {
    let (client, namespace) = connect(&args.target).await?;
    let cluster = get(&client, &namespace, &args.cluster).await?;
    let (answers, nodes) = instances(&client, &namespace, &args.cluster).await;
    let view = View::new(&cluster, &answers, &nodes);
    match args.output {
        Output::Table => Ok(table::render(&view, Timestamp::now(), style())),
        Output::Json => serde_json::to_string_pretty(&view)
            .map(|text| text + "\n")
            .map_err(PluginError::json),
        Output::Yaml => serde_norway::to_string(&view).map_err(PluginError::yaml),
    }
}

/// Colours only where a person looks, and does not object (no-color.org).
fn style() -> Style {
    let wanted = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted { Style::Coloured } else { Style::Plain }
}

async fn connect(target: &Target) -> Result<(Client, String), PluginError> {
    let options = KubeConfigOptions {
        context: target.context.clone(),
        ..KubeConfigOptions::default()
    };
    let mut config = match &target.kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file).map_err(PluginError::kubeconfig)?;
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(PluginError::kubeconfig)?
        }
        None => Config::from_kubeconfig(&options)
            .await
            .map_err(PluginError::kubeconfig)?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.default_retry = false;
    let namespace = target
        .namespace
        .clone()
        .unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(PluginError::client)?;
    Ok((client, namespace))
}

async fn get(client: &Client, namespace: &str, name: &str) -> Result<MySQLCluster, PluginError> {
    let clusters: Api<MySQLCluster> = Api::namespaced(client.clone(), namespace);
    let request = tokio::time::timeout(REQUEST_TIMEOUT, clusters.get(name)).await;
    match request.map_err(|_| PluginError::Slow(REQUEST_TIMEOUT.as_secs()))? {
        Ok(cluster) => Ok(cluster),
        Err(error) if error::names_an_object(&error) => {
            let others = clusters
                .list(&ListParams::default())
                .await
                .map(|list| list.items)
                .unwrap_or_default();
            Err(PluginError::NoSuchCluster {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                others: others.iter().map(ResourceExt::name_any).collect(),
            })
        }
        Err(error) => Err(PluginError::request(error, namespace)),
    }
}

/// What the instances answer, and the nodes of their pods. Without access to pods the table has status only.
async fn instances(client: &Client, namespace: &str, cluster: &str) -> (Answers, BTreeMap<String, String>) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    // Pods of backups carry the label of the cluster, too.
    let ours = Names::new(namespace, cluster).selector_text();
    let ours = ListParams::default().labels(&ours);
    let list = match tokio::time::timeout(REQUEST_TIMEOUT, pods.list(&ours)).await {
        Ok(Ok(list)) => list.items,
        Ok(Err(_)) | Err(_) => return (Answers::new(), BTreeMap::new()),
    };
    let node = |pod: &Pod| Some((pod.name_any(), pod.spec.as_ref()?.node_name.clone()?));
    let nodes = list.iter().filter_map(node).collect();
    let runs = |pod: &&Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let names: Vec<String> = list.iter().filter(runs).map(ResourceExt::name_any).collect();
    (live::ask(&pods, &names).await, nodes)
}
