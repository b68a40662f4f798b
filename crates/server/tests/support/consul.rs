//! The real Consul, for comparisons.

use super::http::{answer, open, request};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A real Consul. It ends with the value.
#[derive(Debug)]
pub struct Consul(Child);

impl Drop for Consul {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program, and returns its addresses of HTTP and DNS. `None` without the program.
pub async fn start_consul() -> Option<(Consul, SocketAddr, SocketAddr)> {
    let program = std::env::var("CONVOKE_CONSUL").unwrap_or("consul".to_owned());
    let version = Command::new(&program).arg("version").output().ok()?;
    if !String::from_utf8_lossy(&version.stdout).contains("1.8.") {
        return None;
    }
    let held: Vec<TcpListener> = (0..5).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = held.iter().map(|held| held.local_addr().unwrap().port()).collect();
    drop(held);
    let mut command = Command::new(program);
    command.args(["agent", "-dev", "-node=alpha", "-datacenter=dc1", "-bind=127.0.0.1", "-grpc-port=-1"]);
    let names = ["-http-port", "-server-port", "-serf-lan-port", "-serf-wan-port", "-dns-port"];
    command.args(names.iter().zip(&ports).map(|(name, port)| format!("{name}={port}")));
    let consul = Consul(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let [address, dns] = [ports[0], ports[4]].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    // It is complete when it has registered itself.
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if tokio::net::TcpStream::connect(address).await.is_err() {
            continue;
        }
        let mut sender = open(address).await;
        let sent = sender.send_request(request("GET", "/v1/health/state/passing", &[], "")).await.unwrap();
        let found = answer(sent).await;
        if found.body_text().contains("serfHealth") {
            // Its addresses follow a moment later.
            tokio::time::sleep(Duration::from_secs(2)).await;
            return Some((consul, address, dns));
        }
    }
    panic!("consul does not start at {address}");
}
