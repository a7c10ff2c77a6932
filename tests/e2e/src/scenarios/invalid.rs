//! Wrong manifests: each is refused by the API server with its reason, or explained in a condition within two seconds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::DeleteParams;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::runner::Context;

/// Folder of the wrong manifests. Each begins with comment lines `# expect: WORDS`, all of which must be in the reason.
const FOLDER: &str = "tests/fixtures/invalid";
/// How long a condition may take (feature A2).
const SOON: Duration = Duration::from_secs(2);
/// Fewer would say that the folder is not the one that was meant.
const LEAST: usize = 20;

/// Applies every manifest of the folder.
pub(super) async fn refused(context: Arc<Context>) -> Result<()> {
    let namespace = context.namespace().await?;
    let files = files(&context.env.root.join(FOLDER))?;
    ensure!(
        files.len() >= LEAST,
        "there are only {} manifests in {FOLDER}",
        files.len()
    );
    let mut wrong = Vec::new();
    let mut slowest = Duration::ZERO;
    let mut conditions = 0;
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match one(&context, &namespace, file).await {
            Ok(Refusal::ByServer) => {}
            Ok(Refusal::InCondition(after)) => {
                conditions += 1;
                slowest = slowest.max(after);
            }
            Err(error) => wrong.push(format!("{name}: {error:#}")),
        }
    }
    context.note(format!(
        "{} manifests: {} refused by the API server, {conditions} explained in a condition, at the latest after {} ms",
        files.len(),
        files.len() - conditions - wrong.len(),
        slowest.as_millis()
    ));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n           "));
    Ok(())
}

enum Refusal {
    ByServer,
    InCondition(Duration),
}

async fn one(context: &Context, namespace: &str, file: &Path) -> Result<Refusal> {
    let text = std::fs::read_to_string(file).context("failed to read it")?;
    let words: Vec<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("# expect:"))
        .map(str::trim)
        .collect();
    ensure!(!words.is_empty(), "it has no line '# expect: …'");
    let value: Value = serde_norway::from_str(&text).context("failed to parse it")?;
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // kubectl, because it reads YAML as users' tools do (an unquoted ON is a boolean) and asks for strict validation.
    let path = file.to_str().context("its path is not UTF-8")?;
    let began = Instant::now();
    if let Err(error) = context.env.kubectl(&["-n", namespace, "create", "-f", path]).await {
        let reason = format!("{error:#}");
        ensure!(
            words.iter().all(|w| reason.contains(w)),
            "expected {words:?}, refused with: {reason}"
        );
        return Ok(Refusal::ByServer);
    }
    let cluster = Cluster::at(&context.env, namespace, name);
    let said = cluster
        .wait(&format!("expecting a condition that says {words:?}"), SOON, |c| {
            let conditions = &c.status.as_ref()?.conditions;
            conditions
                .iter()
                .any(|c| words.iter().all(|w| c.message.contains(w)))
                .then(|| began.elapsed())
        })
        .await;
    let deleted = cluster.api().delete(&cluster.name, &DeleteParams::background()).await;
    deleted.context("failed to delete it")?;
    Ok(Refusal::InCondition(said?))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let shown = folder.display();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("failed to read {shown}"))? {
        let path = entry.with_context(|| format!("failed to read {shown}"))?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("there is no manifest in {shown}");
    }
    files.sort();
    Ok(files)
}
