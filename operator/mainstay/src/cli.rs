//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use mainstay_core::layout;

use crate::operator::OperatorArgs;
use crate::plugin::{About, BackupArgs, ExplainArgs, PromoteArgs, StatusArgs, Target};

/// Exit codes, printed below `--help`.
const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed, with one sentence on standard error; 2 wrong arguments.";

/// Mainstay: the operator, the instance manager and the kubectl plugin in one binary.
#[derive(Debug, Parser)]
#[command(name = "mainstay", version, about, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What to log: levels by module, for example info,mainstay_controller=debug.
    #[arg(long, global = true, env = "RUST_LOG", default_value = crate::logging::DEFAULT, value_name = "FILTER", hide_env_values = true)]
    pub(crate) log: String,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The roles of the binary.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look after the MySQLClusters of a Kubernetes cluster, until SIGTERM.
    Operator(Box<OperatorArgs>),
    /// The instance manager; run by the pods of a MySQLCluster, not by people.
    #[command(subcommand)]
    Instance(InstanceCommand),
    /// Print the custom resource definitions as YAML.
    Crd {
        /// Write one file for each definition into this folder instead.
        #[arg(long)]
        folder: Option<PathBuf>,
    },
    /// What the kubectl plugin does, too.
    #[command(flatten)]
    Plugin(PluginCommand),
}

/// What is run inside of the pods of a MySQLCluster.
#[derive(Debug, Subcommand)]
pub(crate) enum InstanceCommand {
    /// Copy this program to where the mysql container finds it (init container).
    Install {
        /// The folder.
        #[arg(default_value = layout::BIN_DIR)]
        folder: PathBuf,
    },
    /// Make, run and look after this pod's mysqld, until SIGTERM (first process of the mysql container).
    Run,
    /// Copy an instance, start the copy once and store it (container of a backup's Job), until SIGTERM.
    Backup,
    /// Restore the newest backup and the archive into a throw-away instance and read its tables (container of a verification's
    /// Job), until SIGTERM.
    Verify,
    /// Ask to be relieved as the primary, and return when that is so, or cannot be (pre-stop hook).
    PreStop,
    /// Print what this pod's manager sees.
    Status {
        /// How to print it.
        #[arg(short, long, value_enum, default_value_t = InstanceOutput::Json)]
        output: InstanceOutput,
    },
}

/// Forms in which an instance prints its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InstanceOutput {
    /// For programs.
    Json,
}

/// The kubectl plugin: what is left when the binary is called kubectl-mainstay.
#[derive(Debug, Parser)]
#[command(name = "kubectl mainstay", bin_name = "kubectl mainstay", version, about = "Look after MySQL clusters", after_help = EXIT_CODES)]
pub(crate) struct PluginCli {
    /// Before the verb, as after it: clap gives it to the verb.
    #[command(flatten)]
    _target: Target,
    #[command(subcommand)]
    pub(crate) command: PluginCommand,
}

/// The verbs of the kubectl plugin.
#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Show a cluster, its instances and what is wrong with it.
    Status(StatusArgs),
    /// Say what a cluster is doing and why, what it waits for, and what you can do.
    Explain(ExplainArgs),
    /// Make an instance the primary.
    Promote(PromoteArgs),
    /// Make a backup of a cluster now.
    Backup(BackupArgs),
    /// Keep an instance out of its cluster: read-only, without a source, behind no Service. Fencing the primary blocks writes.
    Fence(About),
    /// Let a fenced instance in again.
    Unfence(About),
    /// Replace a replica's data directory by a clone, whatever is in it. With --wait until it is a member again.
    Rebuild(About),
}

/// Whether a program of this path was called by kubectl: `kubectl-mainstay`.
pub(crate) fn is_plugin(program: &std::ffi::OsStr) -> bool {
    std::path::Path::new(program)
        .file_stem()
        .is_some_and(|name| name == "kubectl-mainstay")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        PluginCli::command().debug_assert();
    }

    #[test]
    fn the_plugin_is_known_by_its_name() {
        for (program, expected) in [
            ("/usr/local/bin/kubectl-mainstay", true),
            ("kubectl-mainstay", true),
            ("mainstay", false),
            ("/opt/mainstay/mainstay", false),
        ] {
            assert_eq!(is_plugin(program.as_ref()), expected, "{program}");
        }
    }

    #[test]
    fn the_plugin_takes_kubectls_options() {
        let line = [
            "kubectl-mainstay",
            "status",
            "shop",
            "-n",
            "db",
            "-o",
            "json",
            "--context",
            "east",
        ];
        let cli = PluginCli::try_parse_from(line).unwrap();
        let PluginCommand::Status(args) = cli.command else {
            panic!("{cli:?}")
        };
        assert!(format!("{args:?}").contains("\"db\""));
    }

    #[test]
    fn kubectls_options_may_stand_before_the_verb() {
        let target = |line: &[&str]| {
            let line = [&["kubectl-mainstay"], line].concat();
            let cli = PluginCli::try_parse_from(line).unwrap();
            match cli.command {
                PluginCommand::Status(args) => format!("{args:?}"),
                PluginCommand::Fence(about) => format!("{about:?}"),
                other => panic!("{other:?}"),
            }
        };
        for line in [
            &["-n", "db", "--context", "east", "--kubeconfig", "k", "status", "shop"][..],
            &["-n", "db", "status", "shop", "--context", "east", "--kubeconfig", "k"],
            &[
                "--kubeconfig",
                "k",
                "--context",
                "east",
                "fence",
                "shop",
                "2",
                "-n",
                "db",
            ],
        ] {
            let said = target(line);
            for word in ["Some(\"db\")", "Some(\"east\")", "Some(\"k\")"] {
                assert!(said.contains(word), "{line:?}: {said}");
            }
        }
        // What stands nearer to the verb counts.
        assert!(target(&["-n", "a", "status", "shop", "-n", "b"]).contains("Some(\"b\")"));
        assert!(target(&["status", "shop"]).contains("namespace: None"));
    }

    #[test]
    fn usage_shows_what_a_person_types() {
        for line in [&["kubectl-mainstay", "status"][..], &["kubectl-mainstay", "nonsense"]] {
            let error = PluginCli::try_parse_from(line).unwrap_err().to_string();
            assert!(error.contains("Usage: kubectl mainstay "), "{error}");
            assert!(!error.contains("kubectl-mainstay"), "{error}");
        }
    }

    #[test]
    fn what_asks_for_confirmation_is_not_confirmed_by_chance() {
        let parses = |line: &[&str]| PluginCli::try_parse_from(line).is_ok();
        let promote = ["kubectl-mainstay", "promote", "shop", "shop-2"];
        assert!(parses(&promote));
        assert!(parses(
            &[&promote[..], &["--accept-data-loss", "--yes", "--wait"]].concat()
        ));
        assert!(
            !parses(&[&promote[..], &["--yes"]].concat()),
            "there is nothing to confirm"
        );
        assert!(!parses(&promote[..3]));
        for verb in ["fence", "unfence", "rebuild"] {
            assert!(parses(&["kubectl-mainstay", verb, "shop", "2", "-w", "--timeout", "5"]));
            assert!(!parses(&["kubectl-mainstay", verb, "shop", "2", "--accept-data-loss"]));
        }
        assert!(parses(&["kubectl-mainstay", "explain", "shop"]));
        assert!(parses(&[
            "kubectl-mainstay",
            "backup",
            "shop",
            "--name",
            "before",
            "-w"
        ]));
    }
}
