//! The `convoke` binary: nodes, and the command line for those who look after them.

mod args;
mod bench;
mod client;
mod cluster;
mod config;
mod demo;
#[cfg(test)]
mod docs;
mod failure;
mod http;
mod log_group;
mod node;
mod output;
#[cfg(test)]
mod packaging;
mod signals;
mod top;

use args::{Arguments, Command, ConfigCommand, NodesCommand, PrintArgs};
use clap::{CommandFactory, Parser};
use config::Loaded;
use convoke_otlp::Exporter;
use failure::{Failure, Outcome};
use std::future::Future;
use std::path::Path;
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};

/// See docs/decisions/0009-allocator.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("convoke: {failure}");
            }
            failure.exit.into()
        }
    }
}

fn run(command: Command) -> Outcome<ExitCode> {
    let done = match command {
        Command::Dev(arguments) => serve(node::Plan::dev(&Loaded::effective(None, &arguments.flags())?)?),
        Command::Start(arguments) => {
            arguments.end_with.map_or(Ok(()), node::end_with)?;
            serve(node::Plan::start(&Loaded::effective(arguments.config.as_deref(), &arguments.flags())?)?)
        }
        Command::Demo(arguments) => ask(demo::run(&arguments)),
        Command::Status(inspect) => ask(client::status(&inspect)),
        Command::Nodes(arguments) => match &arguments.command {
            None => ask(client::nodes(&arguments.inspect)),
            Some(NodesCommand::Forget { id }) => ask(client::forget(&arguments.inspect, id)),
        },
        Command::Services(inspect) => ask(client::services(&inspect)),
        Command::Members(arguments) => ask(client::members(&arguments)),
        Command::Member(arguments) => ask(client::member(&arguments)),
        Command::Explain(arguments) => ask(client::explain(&arguments)),
        Command::Watch(arguments) => ask(client::watch(&arguments)),
        Command::Register(arguments) => return ask(client::register(&arguments)).map(ExitCode::from),
        Command::Drain(arguments) => ask(client::drain(&arguments)),
        Command::Undrain(arguments) => ask(client::undrain(&arguments)),
        Command::Kv(arguments) => ask(client::kv(&arguments)),
        Command::Log(arguments) => ask(client::log(&arguments)),
        Command::Bench(arguments) => runtime(Builder::new_multi_thread())?.block_on(bench::bench(&arguments)),
        Command::Top(arguments) => ask(top::run(&arguments)),
        Command::Cluster(arguments) => return ask(cluster::run(arguments)).map(ExitCode::from),
        Command::Config(ConfigCommand::Check { file, json }) => check(&file, json),
        Command::Config(ConfigCommand::Print(arguments)) => print(&arguments),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "convoke", &mut std::io::stdout());
            Ok(())
        }
        Command::Man { directory } => manual(&directory),
        Command::Version { json } => version(json),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs a node until it ends.
fn serve(plan: node::Plan) -> Outcome {
    let exporter = node::observe(&plan)?;
    runtime(Builder::new_multi_thread())?.block_on(async {
        let exporting = exporter.map(Exporter::spawn);
        let ended = node::run(plan).await;
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
        ended
    })
}

fn ask<T>(command: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    runtime(Builder::new_current_thread())?.block_on(command)
}

fn runtime(mut builder: Builder) -> Outcome<Runtime> {
    builder.enable_all().build().map_err(|error| Failure::failed(format!("cannot start: {error}")))
}

fn check(file: &Path, json: bool) -> Outcome {
    let mut loaded = Loaded::default();
    loaded.file(file)?;
    node::Plan::start(&loaded)?;
    if json {
        return output::print_json(&serde_json::json!({ "file": file, "fine": true }));
    }
    output::print(&format!("{} is fine\n", file.display()))
}

fn print(arguments: &PrintArgs) -> Outcome {
    if arguments.defaults {
        return if arguments.json {
            output::print_json(&config::print::defaults_json())
        } else {
            output::print(&config::print::defaults())
        };
    }
    let loaded = Loaded::effective(arguments.config.as_deref(), &[])?;
    for doubt in &loaded.doubts {
        eprintln!("convoke: {doubt}");
    }
    if arguments.json {
        output::print_json(&config::print::effective_json(&loaded))
    } else {
        output::print(&config::print::effective(&loaded))
    }
}

fn manual(directory: &Path) -> Outcome {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
        .map_err(|error| Failure::failed(format!("cannot write manual pages to {}: {error}", directory.display())))
}

fn version(json: bool) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    if json {
        output::print_json(&serde_json::json!({ "version": version }))
    } else {
        output::print(&format!("convoke {version}\n"))
    }
}
