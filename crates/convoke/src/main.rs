//! The `convoke` binary: nodes and the client command line.

mod access;
mod args;
mod client;
mod config;
#[cfg(all(test, feature = "tools"))]
mod docs_tests;
mod grants;
mod node;
#[cfg(test)]
mod packaging_tests;
mod security;
#[cfg(all(test, feature = "tools"))]
mod tools_tests;

use args::{Arguments, Command, ConfigCommand, NodesCommand, PrintArgs};
use clap::{CommandFactory, Parser};
use config::Loaded;
use convoke_cli::{CommandError, Result, block_on, block_on_all_cores, output};
use convoke_otlp::Exporter;
use std::path::Path;
use std::process::ExitCode;

/// See docs/decisions/0009-allocator.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            if !error.message.is_empty() {
                eprintln!("convoke: {error}");
            }
            error.exit.into()
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let done = match command {
        Command::Dev(arguments) => serve(node::Plan::dev(&Loaded::effective(None, &arguments.settings.0)?)?),
        Command::Start(arguments) => {
            arguments.end_with.map_or(Ok(()), node::end_with)?;
            serve(node::Plan::start(&Loaded::effective(arguments.config.as_deref(), &arguments.settings.0)?)?)
        }
        Command::Status(inspect) => block_on(client::status(&inspect)),
        Command::Nodes(arguments) => match &arguments.command {
            None => block_on(client::nodes(&arguments.inspect)),
            Some(NodesCommand::Forget { id }) => block_on(client::forget(&arguments.inspect, id)),
            Some(NodesCommand::DeclareFirst) => block_on(client::declare_first(&arguments.inspect)),
        },
        Command::Services(inspect) => block_on(client::services(&inspect)),
        Command::Members(arguments) => block_on(client::members(&arguments)),
        Command::Member(arguments) => block_on(client::member(&arguments)),
        Command::Explain(arguments) => block_on(client::explain(&arguments)),
        Command::Watch(arguments) => block_on(client::watch(&arguments)),
        Command::Register(arguments) => return block_on(client::register(&arguments)).map(ExitCode::from),
        Command::Service(command) => block_on(client::service(&command)),
        Command::Import(command) => block_on(client::import(&command)),
        Command::Drain(arguments) => block_on(client::drain(&arguments)),
        Command::Undrain(arguments) => block_on(client::undrain(&arguments)),
        Command::Kv(arguments) => block_on(client::kv(&arguments)),
        Command::Lease(arguments) => block_on(client::lease(&arguments)),
        Command::Lock(arguments) => return block_on(client::lock(&arguments)).map(ExitCode::from),
        Command::Elect(arguments) => return block_on(client::elect(&arguments)).map(ExitCode::from),
        Command::Log(arguments) => block_on(client::log(&arguments)),
        Command::Token(command) => access::token(&command),
        Command::Context(command) => access::context(&command),
        #[cfg(feature = "tools")]
        Command::Tool(tool) => return convoke_tools::run(tool, config::keys::variable_of).map(ExitCode::from),
        Command::Init(arguments) => security::init(&arguments),
        Command::Tls(command) => security::tls(&command),
        Command::Config(ConfigCommand::Check { file, json }) => check(&file, json),
        Command::Config(ConfigCommand::Print(arguments)) => print(&arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "convoke", &mut script);
            output::print_bytes(&script)
        }
        Command::Man { directory } => manual(&directory),
        Command::Version { json } => version(json),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs a node until it ends.
fn serve(plan: node::Plan) -> Result {
    // Files of a node are for its user only (TS11).
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let exporter = node::observe(&plan)?;
    block_on_all_cores(async {
        let exporting = exporter.map(Exporter::spawn);
        let ended = node::run(plan).await;
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
        ended
    })
}

fn check(file: &Path, json: bool) -> Result {
    let mut loaded = Loaded::default();
    loaded.file(file)?;
    let plan = node::Plan::start(&loaded)?;
    if let Some(tls) = plan.parts.tls {
        convoke_tls::NodeTls::load(tls).map_err(|error| CommandError::usage(error.to_string()))?;
    }
    if json {
        return output::print_json(&serde_json::json!({ "file": file, "valid": true }));
    }
    output::print(&format!("{} is valid\n", file.display()))
}

fn print(arguments: &PrintArgs) -> Result {
    if arguments.defaults {
        return if arguments.json {
            output::print_json(&config::print::defaults_json())
        } else {
            output::print(&config::print::defaults())
        };
    }
    let loaded = Loaded::effective(arguments.config.as_deref(), &[])?;
    for warning in &loaded.warnings {
        eprintln!("convoke: {warning}");
    }
    if arguments.json {
        output::print_json(&config::print::effective_json(&loaded))
    } else {
        output::print(&config::print::effective(&loaded))
    }
}

fn manual(directory: &Path) -> Result {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
        .map_err(|error| CommandError::failed(format!("cannot write manual pages to {}: {error}", directory.display())))
}

fn version(json: bool) -> Result {
    let version = env!("CARGO_PKG_VERSION");
    if json {
        output::print_json(&serde_json::json!({ "version": version }))
    } else {
        output::print(&format!("convoke {version}\n"))
    }
}
