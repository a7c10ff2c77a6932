//! The main job: a cluster comes up and an application can use it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use mysql_async::Opts;

use crate::cluster::{Cluster, condition};
use crate::runner::Context;
use crate::sql::Login;
use crate::wait::eventually;

const SOON: Duration = Duration::from_secs(10);

/// A cluster of three comes up, a row goes in through the primary Service and comes out of the replicas Service.
pub(super) async fn smoke(context: Arc<Context>) -> Result<()> {
    let began = Instant::now();
    let cluster = context.shared().await?;
    context.note(format!("healthy after {:.1} s", began.elapsed().as_secs_f64()));
    let login = cluster.app().await?;
    let mut primary = login.connect().await?;
    primary
        .execute("CREATE TABLE IF NOT EXISTS smoke (id INT PRIMARY KEY, word VARCHAR(20))")
        .await?;
    primary.execute("REPLACE INTO smoke VALUES (1, 'stay')").await?;
    let replicas = &through_replicas(&cluster, &login).await?;
    let (host, word) = eventually("reading the row through the replicas Service", SOON, || async move {
        replicas
            .connect()
            .await?
            .row::<(String, String)>("SELECT @@hostname, word FROM smoke WHERE id = 1")
            .await
    })
    .await?;
    ensure!(word == "stay", "the row reads {word:?}");
    ensure!(
        cluster.replicas().await?.contains(&host),
        "the replicas Service led to {host}"
    );
    Ok(())
}

/// What an application and a DBA rely on.
pub(super) async fn all_of_it(context: Arc<Context>) -> Result<()> {
    let cluster = context.shared().await?;
    let login = cluster.app().await?;
    time_zones(&login).await?;
    replicas_refuse_writes(&cluster, &login).await?;
    certificates(&cluster, &login).await?;
    connection_secret(&cluster).await?;
    accounts(&cluster).await?;
    semi_sync(&cluster).await?;
    shown(&cluster).await
}

async fn through_replicas(cluster: &Cluster, login: &Login) -> Result<Login> {
    let mut login = login.at(cluster.service("replicas").await?);
    if let Some((_, name)) = login.tls.as_mut() {
        *name = format!("{}-replicas.{}.svc", cluster.name, cluster.namespace);
    }
    Ok(login)
}

async fn time_zones(login: &Login) -> Result<()> {
    let mut client = login.connect().await?;
    let there: Option<String> = client
        .row("SELECT CAST(CONVERT_TZ('2026-01-01 12:00:00', 'UTC', 'Europe/Berlin') AS CHAR)")
        .await?;
    ensure!(
        there.as_deref() == Some("2026-01-01 13:00:00"),
        "CONVERT_TZ gives {there:?}"
    );
    Ok(())
}

async fn replicas_refuse_writes(cluster: &Cluster, login: &Login) -> Result<()> {
    let root = cluster.root().await?;
    for replica in cluster.replicas().await? {
        let address = cluster.pod_address(&replica).await?;
        let mut client = login.at(address).connect().await?;
        let refused = client.execute("CREATE TABLE never (id INT)").await;
        ensure!(refused.is_err(), "{replica} accepted a write");
        let mut client = root.at(address).connect().await?;
        let refused = client.execute("CREATE DATABASE never").await;
        ensure!(refused.is_err(), "{replica} accepted a write of root");
    }
    Ok(())
}

/// Every name that clients use is in the certificate; other names and other authorities are refused.
async fn certificates(cluster: &Cluster, login: &Login) -> Result<()> {
    let (ca, _) = login.tls.clone().context("the login has no CA")?;
    let (name, namespace) = (&cluster.name, &cluster.namespace);
    for good in [
        format!("{name}-primary"),
        format!("{name}-primary.{namespace}"),
        format!("{name}-primary.{namespace}.svc"),
        format!("{name}-replicas.{namespace}.svc"),
        format!("{name}-0.{name}-instances.{namespace}.svc"),
    ] {
        let login = Login {
            tls: Some((ca.clone(), good.clone())),
            ..login.clone()
        };
        login
            .connect()
            .await
            .with_context(|| format!("the certificate does not carry {good}"))?;
    }
    let wrong = Login {
        tls: Some((ca, "elsewhere.example".to_owned())),
        ..login.clone()
    };
    ensure!(
        wrong.connect().await.is_err(),
        "the certificate is taken for elsewhere.example"
    );
    let operator_ca = cluster
        .secret("client-ca")
        .await?
        .remove("ca.crt")
        .context("no ca.crt in Secret -client-ca")?;
    let first = operator_ca
        .split_inclusive("-----END CERTIFICATE-----")
        .next()
        .unwrap_or_default()
        .to_owned();
    let mine = cluster.secret("server-tls").await?.remove("ca.crt").unwrap_or_default();
    if !mine.contains(first.trim()) {
        let name = format!("{name}-primary.{namespace}.svc");
        let other = Login {
            tls: Some((first.into_bytes(), name)),
            ..login.clone()
        };
        ensure!(
            other.connect().await.is_err(),
            "the certificate is taken as another authority's"
        );
    }
    Ok(())
}

/// The application's Secret holds all that a client needs, and its URI says the same.
async fn connection_secret(cluster: &Cluster) -> Result<()> {
    let secret = cluster.secret("app").await?;
    let value = |key: &str| {
        secret
            .get(key)
            .cloned()
            .with_context(|| format!("Secret -app has no {key}"))
    };
    let host = format!("{}-primary.{}.svc", cluster.name, cluster.namespace);
    ensure!(value("host")? == host, "host is {}", value("host")?);
    ensure!(value("port")? == "3306", "port is {}", value("port")?);
    let uri = Opts::from_url(&value("uri")?).context("failed to parse the URI")?;
    ensure!(
        uri.ip_or_hostname() == host && uri.tcp_port() == 3306,
        "the URI leads to {}",
        uri.ip_or_hostname()
    );
    ensure!(
        uri.user() == Some(value("username")?.as_str()),
        "the URI's user is {:?}",
        uri.user()
    );
    ensure!(
        uri.pass() == Some(value("password")?.as_str()),
        "the URI has another password"
    );
    ensure!(
        uri.db_name() == Some("app"),
        "the URI's database is {:?}",
        uri.db_name()
    );
    Ok(())
}

/// Exactly the accounts of decision B7 exist, and nobody may shut a server down (A1).
async fn accounts(cluster: &Cluster) -> Result<()> {
    let mut client = cluster.root().await?.connect().await?;
    let found: Vec<(String, String)> = client
        .rows("SELECT user, host FROM mysql.user WHERE user NOT LIKE 'mysql.%' ORDER BY user, host")
        .await?;
    let mut expected = vec![
        ("app".to_owned(), "%".to_owned()),
        ("mainstay".to_owned(), "localhost".to_owned()),
    ];
    expected.push(("mainstay_clone".to_owned(), "%".to_owned()));
    expected.push(("mainstay_monitor".to_owned(), "localhost".to_owned()));
    expected.extend((0..7).map(|n| (format!("mainstay_repl_{n}"), "%".to_owned())));
    expected.push(("root".to_owned(), "%".to_owned()));
    ensure!(found == expected, "the accounts are {found:?}");
    let mighty: Vec<String> = client
        .rows("SELECT user FROM mysql.user WHERE Shutdown_priv = 'Y'")
        .await?;
    let mighty: Vec<_> = mighty.into_iter().filter(|u| u != "mysql.session").collect();
    ensure!(mighty.is_empty(), "{mighty:?} may shut the server down");
    Ok(())
}

async fn semi_sync(cluster: &Cluster) -> Result<()> {
    let mut client = cluster.root().await?.connect().await?;
    let status = "SELECT variable_name, variable_value FROM performance_schema.global_status \
                  WHERE variable_name IN ('Rpl_semi_sync_source_clients', 'Rpl_semi_sync_source_status') ORDER BY 1";
    let seen: Vec<(String, String)> = client.rows(status).await?;
    let values: Vec<&str> = seen.iter().map(|(_, v)| v.as_str()).collect();
    ensure!(values == ["2", "ON"], "semi-sync on the primary: {seen:?}");
    for (name, wanted) in [
        ("rpl_semi_sync_source_wait_for_replica_count", "1"),
        ("rpl_semi_sync_source_timeout", "1000000000000000000"),
        ("rpl_semi_sync_source_wait_point", "AFTER_SYNC"),
        ("sync_binlog", "1"),
        ("innodb_flush_log_at_trx_commit", "1"),
    ] {
        let value = client.variable(name).await?;
        ensure!(value == wanted, "{name} is {value}, not {wanted}");
    }
    Ok(())
}

/// What `kubectl get` shows.
async fn shown(cluster: &Cluster) -> Result<()> {
    let table = cluster
        .env
        .kubectl(&["-n", &cluster.namespace, "get", "myc", &cluster.name])
        .await?;
    let mut lines = table.lines();
    let header = lines.next().unwrap_or_default();
    let columns: Vec<&str> = header.split_whitespace().collect();
    ensure!(
        columns == ["NAME", "PHASE", "HEALTH", "PRIMARY", "READY", "WHY", "SPEC", "AGE"],
        "kubectl get shows {header}"
    );
    let row: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let primary = cluster.primary().await?;
    ensure!(
        row.get(..5) == Some(&[&cluster.name, "Running", "Healthy", &primary, "3/3"]),
        "kubectl get shows {row:?}"
    );
    let object = cluster.get().await?;
    for (type_, status) in [("Available", "True"), ("Progressing", "False"), ("Degraded", "False")] {
        let found = condition(&object, type_).with_context(|| format!("there is no condition {type_}"))?;
        ensure!(found.status == status, "{type_} is {}: {}", found.status, found.message);
    }
    Ok(())
}

/// Every pod carries its role as a label, for people and for budgets.
pub(super) async fn role_labels(context: Arc<Context>) -> Result<()> {
    let cluster = context.shared().await?;
    let labels = format!("{},mysql.mainstay.dev/role=primary", cluster.selector());
    let found = cluster.of::<Pod>().list(&ListParams::default().labels(&labels)).await?;
    let names: Vec<_> = found.items.iter().filter_map(|p| p.metadata.name.clone()).collect();
    ensure!(
        names == [cluster.primary().await?],
        "the pods labelled as primary are {names:?}"
    );
    Ok(())
}
