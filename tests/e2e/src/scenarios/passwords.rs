//! Case F11: passwords.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, HEAL};
use crate::pods;
use crate::promote;
use crate::runner::Context;
use crate::sql::Login;
use crate::wait;

/// Everything that has ever been quoted wrongly, at each end; as long as MySQL allows a replica's password to be.
const ODD: &str = r#"'"\$#<>%@:/?& ;**; &?/:@%><#$\"'"#;

/// What a person types in.
const EDITED: &str = r#"it's "new": \$5 & 100% #1"#;

/// Secrets made by the user with odd passwords are used as they are; edited, emptied or deleted ones lock nobody out.
pub(super) async fn odd(context: Arc<Context>) -> Result<()> {
    let namespace = context.namespace().await?;
    let cluster = Cluster::at(&context.env, &namespace, "odd");
    for (suffix, keys) in [
        ("system", &mainstay_core::layout::SYSTEM_ACCOUNTS[..]),
        ("root", &["password"][..]),
        ("app", &["password"][..]),
    ] {
        create(&cluster, suffix, keys).await?;
    }
    Cluster::create(&context.env, &namespace, &context.manifest("odd", 3).with_app()).await?;
    cluster.serves(HEAL).await.context("odd passwords")?;
    ensure!(
        cluster.root().await?.password == ODD,
        "the password of root was changed"
    );
    cluster
        .root()
        .await?
        .connect()
        .await
        .context("root with an odd password")?;
    let app = cluster.secret("app").await?;
    let uri = app.get("uri").context("Secret -app has no uri")?;
    let uri = mysql_async::Opts::from_url(uri).context("failed to parse the URI")?;
    ensure!(uri.pass() == Some(ODD), "the URI says {:?}", uri.pass());
    live(&cluster).await
}

async fn create(cluster: &Cluster, suffix: &str, keys: &[&str]) -> Result<()> {
    // The labels by which Mainstay knows its own objects: with them a user's Secret is taken, as after a deletion.
    let labels = BTreeMap::from([
        ("app.kubernetes.io/managed-by".to_owned(), "mainstay".to_owned()),
        ("mysql.mainstay.dev/cluster".to_owned(), cluster.name.clone()),
    ]);
    let data = keys
        .iter()
        .map(|k| ((*k).to_owned(), ByteString(ODD.as_bytes().to_vec())))
        .collect();
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(format!("{}-{suffix}", cluster.name)),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..Secret::default()
    };
    cluster
        .of::<Secret>()
        .create(&PostParams::default(), &secret)
        .await
        .context("failed to create the Secret")?;
    Ok(())
}

/// The Secrets and the keys that are tampered with.
const SECRETS: [(&str, &str); 3] = [("system", "manager"), ("root", "password"), ("app", "password")];

/// On a live cluster the Secrets are edited, emptied and deleted: a new password comes into force, a missing one changes
/// nothing, and nobody is locked out, not even by a restart of a pod.
async fn live(cluster: &Cluster) -> Result<()> {
    let secrets = cluster.of::<Secret>();
    edited(cluster).await?;
    let app = Login {
        password: EDITED.to_owned(),
        ..cluster.app().await?
    };
    writes(&app).await.context("the edited password of the application")?;
    let root = Login {
        password: EDITED.to_owned(),
        ..cluster.root().await?
    };
    wait::eventually("logging in as root with the edited password", HEAL, || async {
        root.connect().await.map(drop)
    })
    .await?;

    for (suffix, key) in SECRETS {
        edit(cluster, suffix, &json!({"stringData": {key: ""}})).await?;
    }
    poke(cluster).await?;
    let file = format!("{}/password", mainstay_core::layout::APP_SECRET_DIR);
    let (pod, file) = (&cluster.primary().await?, file.as_str());
    wait::eventually("waiting for the emptied file", HEAL, || async move {
        pods::exec(&cluster.pods(), pod, pods::MYSQL, &["test", "!", "-s", file]).await
    })
    .await?;
    writes(&app).await.context("emptied passwords")?;

    let mut kept = Vec::new();
    for (suffix, key) in SECRETS {
        edit(cluster, suffix, &json!({"stringData": {key: EDITED}})).await?;
        let name = format!("{}-{suffix}", cluster.name);
        kept.push(secrets.get(&name).await.context("failed to get the Secret")?);
        secrets
            .delete(&name, &DeleteParams::default())
            .await
            .context("failed to delete the Secret")?;
    }
    poke(cluster).await?;
    writes(&app).await.context("deleted Secrets")?;
    for secret in kept {
        restore(cluster, secret).await?;
    }
    let replica = cluster
        .replicas()
        .await?
        .into_iter()
        .next()
        .context("there is no replica")?;
    pods::delete(&cluster.pods(), &replica, false).await?;
    cluster
        .serves(HEAL)
        .await
        .context("a pod restarted after the Secrets came back")
}

/// A new password in each Secret, under another primary than the one that made the accounts: every one looks after them.
async fn edited(cluster: &Cluster) -> Result<()> {
    let next = cluster
        .replicas()
        .await?
        .into_iter()
        .next()
        .context("there is no replica")?;
    promote::eventually(cluster, &next, HEAL).await?;
    for (suffix, key) in SECRETS {
        edit(cluster, suffix, &json!({"stringData": {key: EDITED}})).await?;
    }
    poke(cluster).await?;
    wait::eventually("waiting for the URI with the edited password", HEAL, || async {
        let app = cluster.secret("app").await?;
        let uri = mysql_async::Opts::from_url(app.get("uri").context("Secret -app has no uri")?)?;
        ensure!(uri.pass() == Some(EDITED), "the URI has another password");
        Ok(())
    })
    .await
}

async fn edit(cluster: &Cluster, suffix: &str, patch: &serde_json::Value) -> Result<()> {
    let name = format!("{}-{suffix}", cluster.name);
    let patched = cluster
        .of::<Secret>()
        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.with_context(|| format!("failed to edit {name}"))?;
    Ok(())
}

/// A changed pod makes its kubelet look at the Secrets at once instead of within a minute or two.
async fn poke(cluster: &Cluster) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"e2e.mainstay.dev/poked": jiff::Timestamp::now().to_string()}}});
    for ordinal in 0..3 {
        let pod = cluster.instance(ordinal);
        cluster
            .pods()
            .patch(&pod, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("failed to annotate {pod}"))?;
    }
    Ok(())
}

/// Puts a Secret back, as the person who deleted it does.
async fn restore(cluster: &Cluster, before: Secret) -> Result<()> {
    let name = before.metadata.name.clone().context("the Secret has no name")?;
    let metadata = ObjectMeta {
        name: before.metadata.name,
        labels: before.metadata.labels,
        annotations: before.metadata.annotations,
        owner_references: before.metadata.owner_references,
        ..ObjectMeta::default()
    };
    let secret = Secret {
        metadata,
        data: before.data,
        type_: before.type_,
        ..Secret::default()
    };
    let parameters = PatchParams::apply("e2e").force();
    cluster
        .of::<Secret>()
        .patch(&name, &parameters, &Patch::Apply(&secret))
        .await
        .context("failed to put it back")?;
    Ok(())
}

async fn writes(login: &Login) -> Result<()> {
    wait::eventually("writing", HEAL, || async move {
        let mut client = login.connect().await?;
        client.execute("CREATE TABLE IF NOT EXISTS live (id INT)").await?;
        client.execute("INSERT INTO live VALUES (1)").await
    })
    .await
}
