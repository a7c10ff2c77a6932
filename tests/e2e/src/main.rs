//! `mainstay-e2e`: end-to-end tests and benches on the testbed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use mainstay_e2e::env::{Env, Settings};
use mainstay_e2e::runner::{self, Options, Scenario, Suite, say};
use mainstay_e2e::{bench, operator, scenarios};

/// End-to-end tests and benches of Mainstay.
#[derive(Debug, Parser)]
#[command(name = "mainstay-e2e")]
struct Arguments {
    /// kubeconfig of another Kubernetes than the testbed.
    #[arg(long, env = "KUBECONFIG", global = true)]
    kubeconfig: Option<PathBuf>,
    /// Name of the testbed, when it is not the default one.
    #[arg(long, env = "TESTBED_NAME", global = true)]
    testbed: Option<String>,
    /// Image of the MySQL server.
    #[arg(long, env = "MAINSTAY_MYSQL_IMAGE", default_value = "mysql:9.7.4", global = true)]
    mysql_image: String,
    /// The `mainstay` binary; default: the one beside this program.
    #[arg(long, env = "MAINSTAY_BINARY", global = true)]
    mainstay: Option<PathBuf>,
    /// Image of the operator (`name:tag`), on all nodes already; default: one packed from the binary.
    #[arg(long, env = "MAINSTAY_IMAGE", global = true)]
    operator_image: Option<String>,
    /// Values for the chart (`name=value`).
    #[arg(long = "set", global = true)]
    values: Vec<String>,
    /// Use the operator that is installed instead of installing the chart.
    #[arg(long, global = true)]
    installed: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs scenarios.
    Run {
        /// Scenarios by name or the beginning of one; default: all of the suite.
        names: Vec<String>,
        /// `ci` is what every change must pass; `all` has the long ones, too.
        #[arg(long, value_enum, default_value = "ci")]
        suite: SuiteName,
        /// Stop at the first failure.
        #[arg(long)]
        fail_fast: bool,
        /// Keep the namespaces of what failed.
        #[arg(long)]
        keep: bool,
    },
    /// Lists the scenarios.
    List,
    /// Runs a bench; its last line is one JSON object. RUNS and QUICK set the repetitions.
    Bench {
        /// Which one.
        #[arg(value_enum)]
        name: bench::Name,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SuiteName {
    Ci,
    All,
}

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(execute(Arguments::parse())).await {
        Ok(code) => code,
        Err(error) => {
            say(&format!("mainstay-e2e: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn execute(arguments: Arguments) -> Result<ExitCode> {
    let (suite, names, options) = match &arguments.command {
        Command::List => {
            for scenario in scenarios::ALL {
                let long = if scenario.suite == Suite::Long { "long" } else { "ci" };
                say(&format!("{:<24} {long:<5} {}", scenario.name, scenario.shows));
            }
            return Ok(ExitCode::SUCCESS);
        }
        Command::Bench { name } => {
            let env = prepare(&arguments).await?;
            bench::run(&env, *name).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Run {
            names,
            suite,
            fail_fast,
            keep,
        } => (
            *suite,
            names,
            Options {
                fail_fast: *fail_fast,
                keep: *keep,
            },
        ),
    };
    let chosen = choose(names, suite)?;
    let began = Instant::now();
    let env = prepare(&arguments).await?;
    let summary = runner::run(&env, chosen, options).await;
    say(&format!("took {:.0} s", began.elapsed().as_secs_f64()));
    for name in &summary.failed {
        say(&format!("failed: {name}"));
    }
    say(&format!(
        "{} passed, {} failed, {} skipped",
        summary.passed,
        summary.failed.len(),
        summary.skipped
    ));
    Ok(if summary.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Connects and installs the operator.
async fn prepare(arguments: &Arguments) -> Result<Env> {
    let mainstay = match &arguments.mainstay {
        Some(path) => path.clone(),
        None => std::env::current_exe()
            .context("failed to find this program")?
            .with_file_name("mainstay"),
    };
    ensure!(
        mainstay.is_file(),
        "there is no {}: build it with cargo build --workspace",
        mainstay.display()
    );
    let env = Env::connect(Settings {
        kubeconfig: arguments.kubeconfig.clone(),
        testbed: arguments.testbed.clone(),
        mysql_image: arguments.mysql_image.clone(),
        mainstay,
        operator_image: arguments.operator_image.clone(),
    })
    .await?;
    if arguments.installed {
        operator::ready(&env).await?;
    } else {
        operator::install(&env, &arguments.values).await?;
    }
    Ok(env)
}

fn choose(names: &[String], suite: SuiteName) -> Result<Vec<&'static Scenario>> {
    if names.is_empty() {
        return Ok(scenarios::ALL
            .iter()
            .filter(|s| suite == SuiteName::All || s.suite == Suite::Ci)
            .collect());
    }
    let mut chosen: Vec<&'static Scenario> = Vec::new();
    for name in names {
        let exact = scenarios::ALL.iter().filter(|s| s.name == name);
        let mut matching: Vec<_> = exact.collect();
        if matching.is_empty() {
            matching = scenarios::ALL
                .iter()
                .filter(|s| s.name.starts_with(name.as_str()))
                .collect();
        }
        if matching.is_empty() {
            bail!("there is no scenario {name}: see mainstay-e2e list");
        }
        chosen.extend(
            matching
                .into_iter()
                .filter(|s| !chosen.iter().any(|c| c.name == s.name))
                .collect::<Vec<_>>(),
        );
    }
    Ok(chosen)
}
