//! Commands of the host, with a deadline.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

/// Runs a command to its end; its output, whatever the exit code was.
pub async fn output(program: &Path, args: &[&str], envs: &[(&str, &Path)], limit: Duration) -> Result<Output> {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for (name, value) in envs {
        command.env(name, value);
    }
    let shown = shown(program, args);
    tokio::time::timeout(limit, command.output())
        .await
        .with_context(|| format!("{shown} did not end within {limit:?}"))?
        .with_context(|| format!("failed to run {shown}"))
}

/// Runs a command that must succeed; its standard output.
pub async fn run(program: &Path, args: &[&str], envs: &[(&str, &Path)], limit: Duration) -> Result<String> {
    let output = output(program, args, envs, limit).await?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} failed ({}): {}{}",
            shown(program, args),
            output.status,
            stdout,
            stderr
        );
    }
    Ok(stdout)
}

fn shown(program: &Path, args: &[&str]) -> String {
    format!("{} {}", program.display(), args.join(" "))
}
