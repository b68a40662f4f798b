//! `convoke bench`: a load generator with a report.
//!
//! By default the nodes are processes of this binary, started and ended here, so that their resource use can be
//! distinguished from that of the load generator. One file per kind of load.

mod cluster;
mod etcd;
mod heartbeat;
mod histogram;
mod http;
mod join;
mod key_watch;
mod leases;
mod load;
mod locks;
mod log;
mod members;
mod propagate;
mod report;
mod streams;
mod target;
mod tls;
mod usage;
mod watch;
mod writes;

use crate::args::{BenchArgs, BenchCommand, BenchCommon};
use convoke_cli::output::{Palette, print, print_json};
use convoke_cli::{CommandError, Result, Signals};
use report::Report;

/// Runs until it is complete or a signal arrives. In both cases no process and no directory remains.
pub(crate) async fn bench(arguments: &BenchArgs) -> Result {
    let mut signals = Signals::listen()?;
    convoke_cli::raise_open_files();
    let report = tokio::select! {
        report = run(&arguments.command, &arguments.common) => report?,
        signal = signals.next() => return Err(CommandError::failed(format!("{signal}: stopped before there was a result"))),
    };
    if arguments.common.json { print_json(&report) } else { print(&report.render(Palette::of_stdout())) }
}

async fn run(command: &BenchCommand, common: &BenchCommon) -> Result<Report> {
    match command {
        BenchCommand::Register(load) => writes::register(common, load).await,
        BenchCommand::Update(load) => writes::update(common, load).await,
        BenchCommand::Heartbeat(load) => heartbeat::heartbeat(common, load).await,
        BenchCommand::Propagate(load) => propagate::propagate(common, load).await,
        BenchCommand::Watch(load) => match load.idle {
            None => watch::fan_out(common, load).await,
            Some(count) => watch::idle(common, load, count).await,
        },
        BenchCommand::Join(load) => join::join(common, load).await,
        BenchCommand::Log(load) => log::log(common, load).await,
        BenchCommand::Txn(load) => log::txn(common, load).await,
        BenchCommand::KeyWatch(load) => key_watch::fan_out(common, load).await,
        BenchCommand::Lock(load) => locks::locks(common, load).await,
        BenchCommand::Lease(load) => leases::keep_alive(common, load).await,
        BenchCommand::HttpRegister(load) => http::register(common, load).await,
        BenchCommand::HttpLookup(load) => http::lookup(common, load).await,
        BenchCommand::HttpWatch(load) => http::fan_out(common, load).await,
        BenchCommand::HttpKv(load) => http::put_keys(common, load).await,
        BenchCommand::ConsulRegister(load) => http::consul::register(common, load).await,
        BenchCommand::ConsulLookup(load) => http::consul::lookup(common, load).await,
        BenchCommand::ConsulWait(load) => http::consul::wake(common, load).await,
        BenchCommand::Checks(load) => http::consul::run_checks(common, load).await,
    }
}
