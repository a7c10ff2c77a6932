//! Mainstay's one binary: the operator, the instance manager and the kubectl plugin.

mod cli;
mod crd;
mod instance;
mod logging;
mod operator;
mod plugin;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use mainstay_core::request::Verb;

use crate::cli::{Cli, Command, PluginCli, PluginCommand};

fn main() -> ExitCode {
    let called_by_kubectl = std::env::args_os()
        .next()
        .is_some_and(|program| cli::is_plugin(&program));
    let result = install_tls().and_then(|()| {
        if called_by_kubectl {
            run_plugin(&PluginCli::parse().command)
        } else {
            run(Cli::parse())
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            // Nothing is left to do when standard error is gone.
            let _ = writeln!(std::io::stderr(), "error: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// One TLS provider for every connection; some dependency brings another along, so none is chosen by default.
fn install_tls() -> Result<(), String> {
    let installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    installed.map_err(|_| "failed to install the TLS provider: another one is there already".to_owned())
}

fn run(cli: Cli) -> Result<(), String> {
    match cli.command {
        Command::Operator(args) => {
            logging::start(&cli.log)?;
            runtime(None)?.block_on(operator::run(*args))
        }
        Command::Instance(command) => {
            logging::start(&cli.log)?;
            let runtime = runtime(Some(2))?;
            let done = runtime.block_on(instance::run(command));
            // What waits for a disk that does not answer is not waited for.
            runtime.shutdown_background();
            done.and_then(|text| print(&text))
        }
        Command::Crd { folder } => {
            let text = folder.map_or_else(crd::yaml, |folder| crd::write(&folder));
            print(&text.map_err(|error| error.to_string())?)
        }
        Command::Plugin(command) => run_plugin(&command),
    }
}

fn run_plugin(command: &PluginCommand) -> Result<(), String> {
    let runtime = runtime(Some(1))?;
    let text = match command {
        PluginCommand::Status(args) => runtime.block_on(plugin::status(args)),
        PluginCommand::Explain(args) => runtime.block_on(plugin::explain(args)),
        PluginCommand::Promote(args) => runtime.block_on(plugin::promote(args)),
        PluginCommand::Backup(args) => runtime.block_on(plugin::backup(args)),
        PluginCommand::Fence(about) => runtime.block_on(plugin::ask(Verb::Fence, about)),
        PluginCommand::Unfence(about) => runtime.block_on(plugin::ask(Verb::Unfence, about)),
        PluginCommand::Rebuild(about) => runtime.block_on(plugin::ask(Verb::Rebuild, about)),
    };
    print(&text.map_err(|error| error.to_string())?)
}

/// A runtime with so many threads; by default one for each core. An instance manager shares its cores with mysqld.
fn runtime(threads: Option<usize>) -> Result<tokio::runtime::Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    builder
        .enable_all()
        .build()
        .map_err(|error| format!("failed to start the runtime: {error}"))
}

/// Prints to standard output. A reader that went away (`| head`) is no failure.
fn print(text: &str) -> Result<(), String> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("failed to print: {error}")),
        Ok(()) | Err(_) => Ok(()),
    }
}
