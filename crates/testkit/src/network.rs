//! A network of network namespaces, one per host, connected by a bridge (Linux, as root).
//!
//! A cut drops packets silently, like a pulled cable or a wrong firewall rule: no connection is closed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Prefix of the names of namespaces; the process id and a number follow.
const PREFIX: &str = "convoke-test";
const HOSTS_MAX: usize = 250;

/// Hosts with addresses. Dropping it removes the namespaces.
#[derive(Debug)]
pub struct NamespaceNetwork {
    name: String,
    hosts: usize,
    /// From, to.
    cuts: Mutex<BTreeSet<(usize, usize)>>,
}

/// Why the network cannot be created on this machine.
#[derive(Debug)]
pub struct NetworkUnavailable(String);

impl fmt::Display for NetworkUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no network namespaces here: {}", self.0)
    }
}

impl std::error::Error for NetworkUnavailable {}

impl NamespaceNetwork {
    /// Creates a network if the user may do so and the tools exist.
    ///
    /// # Panics
    /// If the creation fails for another reason.
    pub fn create(hosts: usize) -> Result<NamespaceNetwork, NetworkUnavailable> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        assert!(hosts <= HOSTS_MAX, "at most {HOSTS_MAX} hosts");
        sweep();
        let name = format!("{PREFIX}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Dropping it removes the namespaces created so far.
        let network = NamespaceNetwork { name, hosts, cuts: Mutex::default() };
        network.probe().map_err(NetworkUnavailable)?;
        network.build().unwrap_or_else(|error| panic!("a network can be made: {error}"));
        Ok(network)
    }

    /// Checks that the tools exist and that a namespace can be created.
    fn probe(&self) -> Result<(), String> {
        for (tool, package) in [("ip", "iproute2"), ("nft", "nftables")] {
            let found = Command::new(tool).arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).status();
            found.map_err(|error| format!("{tool} (package {package}): {error}"))?;
        }
        ip(&["netns", "add", &self.switch()])
    }

    fn build(&self) -> Result<(), String> {
        let switch = &self.switch();
        ip(&["-n", switch, "link", "add", "bridge", "type", "bridge", "forward_delay", "0"])?;
        ip(&["-n", switch, "link", "set", "bridge", "up"])?;
        let chain = "table bridge convoke { chain cuts { type filter hook forward priority 0; policy accept; }; }";
        nft(switch, chain)?;
        for host in 0..self.hosts {
            let (namespace, port) = (&self.namespace(host), &port(host));
            ip(&["netns", "add", namespace])?;
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
            ip(&["-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace])?;
            ip(&["-n", switch, "link", "set", port, "master", "bridge", "up"])?;
            let address = format!("{}/24", self.address(host));
            ip(&["-n", namespace, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", namespace, "link", "set", "eth0", "up"])?;
        }
        Ok(())
    }

    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// The address of a host, from 0. Networks use the same addresses but are isolated.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        assert!(host < self.hosts, "there are {} hosts", self.hosts);
        Ipv4Addr::new(10, 77, 0, u8::try_from(host + 1).expect("checked by create"))
    }

    /// A command that runs a program on a host. Signals reach the program.
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(program);
        command
    }

    /// Cuts both directions between two hosts.
    pub fn cut(&self, one: usize, other: usize) {
        self.change(|cuts| cuts.extend([(one, other), (other, one)]));
    }

    /// Cuts the direction from one host to another.
    pub fn cut_one_way(&self, from: usize, to: usize) {
        self.change(|cuts| cuts.extend([(from, to)]));
    }

    /// Cuts both directions between these hosts and all others.
    pub fn split(&self, side: &[usize]) {
        let others = || (0..self.hosts).filter(|host| !side.contains(host));
        self.change(|cuts| cuts.extend(side.iter().flat_map(|one| others().flat_map(|o| [(*one, o), (o, *one)]))));
    }

    /// Removes all cuts.
    pub fn heal(&self) {
        self.change(BTreeSet::clear);
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<(usize, usize)>)) {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut cuts);
        let rule = |(from, to): &(usize, usize)| {
            format!("add rule bridge convoke cuts iifname {} oifname {} drop\n", port(*from), port(*to))
        };
        // One transaction replaces the old cuts by the new ones.
        let rules: String = cuts.iter().map(rule).collect();
        nft(&self.switch(), &format!("flush chain bridge convoke cuts\n{rules}"))
            .expect("a network once made can be cut");
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    fn namespace(&self, host: usize) -> String {
        format!("{}-host{host}", self.name)
    }
}

impl Drop for NamespaceNetwork {
    fn drop(&mut self) {
        // Devices are removed with their namespaces. Namespaces that were never created cause errors, which are ignored.
        for namespace in (0..self.hosts).map(|host| self.namespace(host)).chain([self.switch()]) {
            let _ = ip(&["netns", "del", &namespace]);
        }
    }
}

fn port(host: usize) -> String {
    format!("port{host}")
}

/// Removes namespaces of killed processes.
fn sweep() {
    let Ok(namespaces) = std::fs::read_dir("/run/netns") else { return };
    for name in namespaces.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        if maker(&name).is_some_and(|maker| !Path::new("/proc").join(maker).exists()) {
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

/// The process that created a namespace of this kit.
fn maker(namespace: &str) -> Option<&str> {
    let (maker, _) = namespace.strip_prefix(PREFIX)?.strip_prefix('-')?.split_once('-')?;
    (!maker.is_empty() && maker.bytes().all(|byte| byte.is_ascii_digit())).then_some(maker)
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    run(Command::new("ip").args(arguments), "")
}

fn nft(namespace: &str, script: &str) -> Result<(), String> {
    run(Command::new("ip").args(["netns", "exec", namespace, "nft", "-f", "-"]), script)
}

fn run(command: &mut Command, input: &str) -> Result<(), String> {
    let failed = |error: &dyn fmt::Display| {
        let line: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
        format!("`ip {}`: {error}", line.join(" "))
    };
    let mut child = Command::new(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    // A program that ends without reading its input reports the reason on stderr.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(&String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip;

    fn reaches(network: &NamespaceNetwork, from: usize, to: usize) -> bool {
        // A refused connection proves that packets pass in both directions.
        let script = format!("exec 2>&1; timeout 1 bash -c '</dev/tcp/{}/1' || true", network.address(to));
        let output = network.command(from, "bash").args(["-c", &script]).output().expect("bash runs");
        String::from_utf8_lossy(&output.stdout).contains("refused")
    }

    #[test]
    fn directions_are_cut_and_healed() {
        let network = match NamespaceNetwork::create(3) {
            Ok(network) => network,
            Err(why) => return skip("directions_are_cut_and_healed", why),
        };
        let all = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
        let open = || all.into_iter().filter(|(from, to)| reaches(&network, *from, *to)).collect::<Vec<_>>();
        assert_eq!(open(), all);
        network.cut(0, 1);
        assert_eq!(open(), [(0, 2), (1, 2), (2, 0), (2, 1)]);
        network.heal();
        network.split(&[2]);
        assert_eq!(open(), [(0, 1), (1, 0)]);
        network.heal();
        assert_eq!(open(), all);
        let names: Vec<String> = (0..3).map(|host| network.namespace(host)).chain([network.switch()]).collect();
        let there = |name: &String| Path::new("/run/netns").join(name).exists();
        assert!(names.iter().all(there));
        drop(network);
        assert!(!names.iter().any(there), "it is removed");
    }

    #[test]
    fn only_namespaces_of_this_kit_are_removed() {
        assert_eq!(maker("convoke-test-123-0-host1"), Some("123"));
        assert_eq!(maker("convoke-test-123-0-switch"), Some("123"));
        for name in ["convoke-test", "convoke-test-x-0", "other-123-0-switch", "convoke-test--0"] {
            assert_eq!(maker(name), None);
        }
    }
}
