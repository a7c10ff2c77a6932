//! Case F11: passwords.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, HEAL};
use crate::pods;
use crate::runner::Context;
use crate::wait;

/// Everything that has ever been quoted wrongly, at each end.
const ODD: &str = r#"'"\$#<>%@:/?& ;*odd*; &?/:@%><#$\"'"#;

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
    let labels = BTreeMap::from([("mysql.mainstay.dev/cluster".to_owned(), cluster.name.clone())]);
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

/// On a live cluster each Secret is edited, emptied and deleted: nobody is locked out, not even by a restart of a pod.
async fn live(cluster: &Cluster) -> Result<()> {
    let login = cluster.app().await?;
    let secrets = cluster.of::<Secret>();
    for suffix in ["system", "root", "app"] {
        let name = format!("{}-{suffix}", cluster.name);
        let before = secrets.get(&name).await.context("failed to get the Secret")?;
        let key = if suffix == "system" { "manager" } else { "password" };
        for value in [Some("edited by hand"), Some(""), None] {
            let patch = match value {
                Some(value) => json!({"stringData": {key: value}}),
                None => json!({"data": null}),
            };
            secrets
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .context("failed to edit")?;
            writes(&login)
                .await
                .with_context(|| format!("{name} edited to {value:?}"))?;
        }
        secrets
            .delete(&name, &DeleteParams::default())
            .await
            .context("failed to delete the Secret")?;
        writes(&login).await.with_context(|| format!("{name} deleted"))?;
        restore(cluster, &name, before).await?;
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

/// Puts the Secret back as the person who deleted it does.
async fn restore(cluster: &Cluster, name: &str, before: Secret) -> Result<()> {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
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
        .patch(name, &parameters, &Patch::Apply(&secret))
        .await
        .context("failed to put it back")?;
    Ok(())
}

async fn writes(login: &crate::sql::Login) -> Result<()> {
    wait::eventually("writing", Duration::from_secs(15), || async move {
        let mut client = login.connect().await?;
        client.execute("CREATE TABLE IF NOT EXISTS live (id INT)").await?;
        client.execute("INSERT INTO live VALUES (1)").await
    })
    .await
}
