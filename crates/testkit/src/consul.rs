//! A real Consul, to compare answers with and to import from.

use crate::free_address;
use crate::process::Process;
use std::path::PathBuf;
use std::process::Command;

/// A Consul agent in memory, node `alpha` of the datacenter `dc1`. Dropping it kills it.
#[derive(Debug)]
pub struct ConsulAgent {
    _process: Process,
    /// Address of its HTTP API.
    pub address: String,
    /// Address of its DNS.
    pub dns: String,
}

/// Returns the program `consul` of `CONVOKE_CONSUL` or `PATH` if its version is 1.8, which answers were recorded of.
pub fn consul_program() -> Option<PathBuf> {
    let program = PathBuf::from(std::env::var_os("CONVOKE_CONSUL").unwrap_or("consul".into()));
    let version = Command::new(&program).arg("version").output().ok()?;
    String::from_utf8_lossy(&version.stdout).contains("1.8.").then_some(program)
}

impl ConsulAgent {
    /// Starts it and waits until its catalog has its own node; `None` without the program.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn start() -> Option<ConsulAgent> {
        let mut command = Command::new(consul_program()?);
        command.args(["agent", "-dev", "-node=alpha", "-datacenter=dc1", "-bind=127.0.0.1", "-grpc-port=-1"]);
        let names = ["-http-port", "-dns-port", "-server-port", "-serf-lan-port", "-serf-wan-port"];
        let addresses = names.map(|name| {
            let address = free_address();
            let port = address.rsplit_once(':').map_or("", |(_, port)| port);
            command.arg(format!("{name}={port}"));
            address
        });
        let process = Process::spawn(&mut command);
        process.line("of its own node", |line| line.contains("Synced node info"));
        let [address, dns, ..] = addresses;
        Some(ConsulAgent { _process: process, address, dns })
    }
}
