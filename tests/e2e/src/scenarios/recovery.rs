//! New clusters from what another one has stored, end to end: a mistake that is undone, and a cluster that is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use mainstay_api::status::{RecoveryPhase, RecoveryStatus};
use serde_json::json;
use tokio::time::sleep;

use super::backups::succeeded;
use crate::cluster::{CREATE, Cluster, HEAL};
use crate::history::History;
use crate::placement::{leaders_node, place};
use crate::runner::Context;
use crate::sql::Login;
use crate::testbed::S3Server;
use crate::wait;
use crate::writer::Writer;

/// How long a small cluster may take to come up with recovered data.
const RECOVER: Duration = Duration::from_mins(3);
/// How long writes may be away when the primary is cut off.
const AWAY: Duration = Duration::from_mins(1);
/// How long the archive may take to hold everything.
const STORED: Duration = Duration::from_secs(30);
/// How long it may take until the backup was verified: two minutes of the schedule, one of which a fault may spoil.
const VERIFIED: Duration = Duration::from_mins(3);
/// How long the last write of the primary works before it commits: meanwhile its node is cut off. Less than the time after which
/// an isolated primary ends itself.
const WORKS: u32 = 5;
/// Folder in the bucket.
const PREFIX: &str = "e2e-recovery";
/// The backup.
const BACKUP: &str = "first";

/// A backup is made under load; the primary is cut off with a commit that nobody else has; a table is dropped. From the backup
/// and the archive one cluster gets everything up to right before the mistake; then the source is deleted with all that it had,
/// and another one, elsewhere and under another name, gets everything from the bucket.
pub(super) async fn from_a_backup_and_from_the_bucket(context: Arc<Context>) -> Result<()> {
    let s3 = context.env.testbed()?.s3().await?;
    let namespace = context.namespace().await?;
    let elsewhere = context.namespace_for("recovered").await?;
    let source = create(&context, &namespace, &s3).await?;
    let (written, before) = live(&context, &source).await?;
    let mistake = Timestamp::now();
    sleep(Duration::from_millis(100)).await;
    let mut app = source.app().await?.connect().await?;
    for statement in [
        "DROP TABLE orders",
        "CREATE TABLE later (id INT PRIMARY KEY)",
        "INSERT INTO later VALUES (1)",
    ] {
        app.execute(statement).await?;
    }
    let last = Cluster::content(&source.privileged().await?).await?;
    source.archived(STORED).await?;

    let undone = undo(&context, &source, mistake).await?;
    let recovered = content(&undone).await?;
    equal(&before, &recovered).context("what was recovered to the moment before the mistake")?;
    ensure!(
        written.check(&ids(&undone).await?).is_clean(),
        "acknowledged rows are missing"
    );
    passwords_follow_the_new_secret(&source, &undone).await?;
    undone.delete(HEAL).await?;
    verified(&source).await?;

    let uid = source.get().await?.metadata.uid;
    context.env.end_namespace(&namespace, HEAL).await?;
    s3.create_secret(&Cluster::at(&context.env, &elsewhere, "phoenix").of())
        .await?;
    let recovery = json!({"source": {
        "store": s3.declared(PREFIX),
        "cluster": {"namespace": namespace, "name": "shop", "uid": uid},
    }});
    let phoenix = recover(&context, &elsewhere, "phoenix", 3, recovery).await?;
    equal(&last, &content(&phoenix).await?).context("what was recovered from the bucket alone")?;
    // Its replicas were cloned from it.
    let login = dba(&phoenix).await?;
    for replica in phoenix.replicas().await? {
        let login = login.at(phoenix.pod_address(&replica).await?);
        equal(&last, &Cluster::content(&login).await?).with_context(|| format!("what {replica} holds"))?;
    }
    Ok(())
}

async fn create(context: &Context, namespace: &str, s3: &S3Server) -> Result<Cluster> {
    let shop = Cluster::at(&context.env, namespace, "shop");
    s3.create_secret(&shop.of()).await?;
    let backup = json!({"store": s3.declared(PREFIX), "verification": {"schedule": "* * * * *"}});
    let manifest = context.manifest("shop", 3).with_app().with("backup", backup);
    let shop = Cluster::create(&context.env, namespace, &manifest).await?;
    shop.condition("BinlogArchived", "True", CREATE).await?;
    Ok(shop)
}

/// A life with a backup and a failover under a writer; what the writer was told, and everything that is there in the end.
async fn live(context: &Context, shop: &Cluster) -> Result<(History, BTreeMap<String, String>)> {
    let testbed = context.env.testbed()?;
    place(shop, &leaders_node(&context.env).await?, false, (AWAY, HEAL)).await?;
    let mut app = shop.app().await?.connect().await?;
    app.execute("CREATE TABLE never (id INT PRIMARY KEY)").await?;
    let mut writer = Writer::start(shop.app().await?, "orders").await?;
    let asked = ["backup", "shop", "--name", BACKUP, "-n", &shop.namespace];
    context.env.mainstay(&asked).await?;
    succeeded(shop, BACKUP).await?;

    let primary = shop.primary().await?;
    let node = shop.node_of(&primary).await?;
    let commit = tokio::spawn(async move {
        let statement = format!("INSERT INTO never SELECT 1 FROM (SELECT SLEEP({WORKS})) AS work");
        app.execute_within(&statement, AWAY).await
    });
    // It works already when its node is cut off.
    sleep(Duration::from_millis(500)).await;
    testbed.on_node("cut", &node).await?;
    let went_on = writer.progress(50, AWAY).await;
    testbed.on_node("heal", &node).await?;
    went_on.context("while the primary was cut off")?;
    ensure!(commit.await?.is_err(), "a commit was acknowledged that no replica has");
    ensure!(shop.primary().await? != primary, "the primary was not replaced");
    shop.serves(HEAL).await.context("after the failover")?;
    writer.progress(50, AWAY).await?;
    let history = writer.finish().await?;
    shop.check(&history, "orders").await?;
    context.note(format!("gap of {} ms", history.gap_ms()));
    let mut app = shop.app().await?.connect().await?;
    ensure!(
        app.ids("never").await?.is_empty(),
        "the cluster has what only the lost primary had"
    );
    Ok((history, Cluster::content(&shop.privileged().await?).await?))
}

/// The backup was restored into a throw-away instance, by the schedule and without anybody's doing.
async fn verified(source: &Cluster) -> Result<()> {
    source.condition("BackupVerified", "True", VERIFIED).await?;
    let status = source.get().await?.status.unwrap_or_default();
    let told = status.backup.and_then(|backup| backup.verification);
    let told = told.context("the verification is not told")?;
    ensure!(
        told.backup.as_deref() == Some(BACKUP) && told.tables.is_some_and(|tables| tables > 0),
        "{told:?}"
    );
    Ok(())
}

/// A small cluster beside the source, from the backup, up to right before the mistake.
async fn undo(context: &Context, source: &Cluster, mistake: Timestamp) -> Result<Cluster> {
    let recovery = json!({"source": {"backup": BACKUP}, "target": {"time": mistake.to_string()}});
    let undone = recover(context, &source.namespace, "undone", 1, recovery).await?;
    let told = told(&undone).await?;
    let reached = told.reached_time.context("the reached time is not told")?.0;
    ensure!(reached <= mistake, "{reached} is later than {mistake}");
    Ok(undone)
}

async fn recover(
    context: &Context,
    namespace: &str,
    name: &str,
    replicas: i32,
    recovery: serde_json::Value,
) -> Result<Cluster> {
    let began = std::time::Instant::now();
    let manifest = context.manifest(name, replicas);
    let manifest = manifest.with("bootstrap", json!({"recovery": recovery}));
    let cluster = Cluster::apply(&context.env, namespace, &manifest).await?;
    cluster.healthy(RECOVER).await?;
    context.note(format!("{name}: {:.0} s", began.elapsed().as_secs_f64()));
    let told = told(&cluster).await?;
    ensure!(told.phase == RecoveryPhase::Done && told.message.is_none(), "{told:?}");
    ensure!(told.backup.is_some() && told.completed_at.is_some(), "{told:?}");
    let executed: mainstay_core::GtidSet = dba(&cluster)
        .await?
        .connect()
        .await?
        .variable("gtid_executed")
        .await?
        .parse()?;
    let reached = told.reached_gtid.context("the reached point is not told")?.parse()?;
    ensure!(executed.contains(&reached), "{executed} is less than {reached}");
    Ok(cluster)
}

async fn told(cluster: &Cluster) -> Result<RecoveryStatus> {
    let status = cluster.get().await?.status.unwrap_or_default();
    Ok(*status.recovery.context("the recovery is not told")?)
}

/// The DBA of a cluster without a database of the application's own.
async fn dba(cluster: &Cluster) -> Result<Login> {
    wait::eventually("waiting for the DBA's Secret", HEAL, || cluster.root()).await
}

async fn content(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    Cluster::content(&dba(cluster).await?).await
}

async fn ids(cluster: &Cluster) -> Result<BTreeSet<u64>> {
    dba(cluster).await?.connect().await?.ids("app.orders").await
}

/// The DBA's password is the one of the new cluster, and the source's is worth nothing.
async fn passwords_follow_the_new_secret(source: &Cluster, recovered: &Cluster) -> Result<()> {
    let (old, new) = (source.root().await?, dba(recovered).await?);
    ensure!(old.password != new.password, "two clusters have one password");
    new.connect().await?;
    let former = Login {
        password: old.password,
        ..new
    };
    let refused = former
        .connect()
        .await
        .err()
        .context("the source's password is still valid")?;
    ensure!(format!("{refused:#}").contains("denied"), "{refused:#}");
    Ok(())
}

/// Names the first table that differs.
fn equal(expected: &BTreeMap<String, String>, found: &BTreeMap<String, String>) -> Result<()> {
    for (table, expected) in expected {
        let found = found.get(table).with_context(|| format!("{table} is missing"))?;
        let line = expected.lines().zip(found.lines()).find(|(a, b)| a != b);
        ensure!(
            expected == found,
            "{table} differs: {line:?}, {} lines instead of {}",
            found.lines().count(),
            expected.lines().count()
        );
    }
    let more: Vec<_> = found.keys().filter(|table| !expected.contains_key(*table)).collect();
    ensure!(more.is_empty(), "there is more than there was: {more:?}");
    Ok(())
}
