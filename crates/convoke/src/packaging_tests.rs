//! Checks the files in `packaging/` with the parser and the checks of the command line.

use crate::args::{Arguments, Command};
use crate::config::Loaded;
use crate::node::Plan;
use clap::Parser;
use convoke_cli::{CLIENT_PORT, PEER_PORT};
use std::collections::BTreeSet;
use std::path::Path;
use yaml_rust2::yaml::Hash;
use yaml_rust2::{Yaml, YamlLoader};

fn packaged(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the plan of a node with this command line and environment.
fn plan(arguments: &[&str], environment: &[(&str, &str)]) -> (Plan, Loaded) {
    let line = ["convoke"].iter().chain(arguments);
    let parsed = Arguments::try_parse_from(line).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    let Command::Start(start) = parsed.command else { panic!("{arguments:?} starts no node") };
    let mut loaded = Loaded::default();
    loaded.environment(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))).unwrap();
    loaded.flags(&start.settings.0).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    (Plan::start(&loaded).unwrap_or_else(|error| panic!("{arguments:?}: {error}")), loaded)
}

fn texts(value: &Yaml) -> Vec<&str> {
    value.as_vec().into_iter().flatten().map(|item| item.as_str().expect("a text")).collect()
}

fn table(value: &Yaml) -> &Hash {
    value.as_hash().expect("a table")
}

/// Parses a list in brackets with quoted strings, as in Dockerfiles.
fn list(line: &str) -> Vec<String> {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn the_nodes_of_the_compose_file_form_one_cluster() {
    let file = packaged("docker/compose.yaml");
    let file = &YamlLoader::load_from_str(&file).unwrap()[0];
    let services = table(&file["services"]);
    let names: BTreeSet<&str> = services.keys().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names.len(), 3);
    let mut published = BTreeSet::new();
    for (name, service) in services {
        let name = name.as_str().unwrap();
        let environment: Vec<(&str, &str)> = table(&service["environment"])
            .iter()
            .map(|(variable, value)| (variable.as_str().unwrap(), value.as_str().unwrap()))
            .collect();
        let (plan, loaded) = plan(&texts(&service["command"]), &environment);
        let settings = &loaded.settings;
        assert_eq!(
            (settings.id.as_str(), settings.advertise.as_str()),
            (name, name),
            "the network name of the container is the node id"
        );
        let join: BTreeSet<String> = plan.parts.node.join.iter().cloned().collect();
        let all: BTreeSet<String> = names.iter().map(|name| format!("{name}:{PEER_PORT}")).collect();
        assert_eq!(join, all, "the list contains all nodes, including {name}: they form one log");
        assert_eq!((settings.bind.as_str(), settings.insecure_public), ("0.0.0.0", true), "other nodes can connect");
        for port in texts(&service["ports"]) {
            let [host, outside, inside] = port.split(':').collect::<Vec<_>>()[..] else { panic!("{port}") };
            assert_eq!(host, "127.0.0.1", "only this machine can connect");
            let ours = [(settings.client_port, ""), (settings.dns_port, "/udp"), (settings.dns_port, "/tcp")];
            assert!(ours.iter().any(|(port, kind)| inside == format!("{port}{kind}")), "no listener on {port}");
            assert!(published.insert((outside, inside.rsplit('/').next())), "{outside} is published twice");
        }
        let directory = settings.data_dir.to_str().unwrap();
        for volume in texts(&service["volumes"]) {
            let (named, at) = volume.split_once(':').unwrap();
            assert_eq!(at, directory);
            assert!(!file["volumes"][named].is_badvalue(), "{named} is not a volume of the file");
        }
        assert_eq!(service["<<"]["build"]["dockerfile"].as_str(), Some("packaging/docker/Dockerfile"));
    }
}

#[test]
fn the_image_starts_the_binary_from_its_path() {
    let file = packaged("docker/Dockerfile");
    let line = |word: &str| {
        let found = file.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        found.collect::<Vec<_>>()
    };
    let entry = list(line("ENTRYPOINT")[0]);
    let copied = line("COPY").into_iter().find(|line| line.starts_with("--from=build")).unwrap();
    assert_eq!(copied.split(' ').nth(2), Some(entry[0].as_str()));
    assert_eq!(
        line("RUN")[0],
        "cargo build --release --locked --no-default-features",
        "the default member is the binary"
    );
    let command = list(line("CMD")[0]);
    let (_, loaded) = plan(&command.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    assert_eq!(line("VOLUME"), [loaded.settings.data_dir.to_str().unwrap()]);
    let dns = loaded.settings.dns_port;
    let ports = format!("{CLIENT_PORT} {PEER_PORT} {dns}/udp {dns}/tcp");
    assert_eq!(line("EXPOSE"), [ports]);
    assert_eq!(line("USER").len(), 1, "not root");
    let check = list(line("HEALTHCHECK")[0].split_once("CMD ").unwrap().1);
    assert_eq!(check[0], entry[0]);
    let parsed = Arguments::try_parse_from(&check).unwrap();
    assert!(matches!(parsed.command, Command::Status(_)));
}

#[test]
fn the_unit_starts_a_node() {
    let file = packaged("systemd/convoke.service");
    let value = |name: &str| file.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap();
    let line: Vec<&str> = value("ExecStart").split(' ').skip(1).collect();
    let (_, loaded) = plan(&line, &[]);
    assert_eq!(loaded.settings.data_dir, Path::new("/var/lib").join(value("StateDirectory")));
    assert_eq!(value("Type"), "notify", "the node notifies systemd when it is ready");
    let stop: u64 = value("TimeoutStopSec").parse().unwrap();
    let handover = std::time::Duration::from(loaded.settings.timers.handover_timeout);
    assert!(stop > handover.as_secs(), "the node hands its clients over before systemd kills it");
}

#[test]
fn the_pods_of_the_stateful_set_find_each_other_before_they_are_ready() {
    let documents = YamlLoader::load_from_str(&packaged("kubernetes/convoke.yaml")).unwrap();
    let of_kind = |kind: &str, name: &str| {
        let found = documents.iter().find(|document| {
            (document["kind"].as_str(), document["metadata"]["name"].as_str()) == (Some(kind), Some(name))
        });
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let set = &of_kind("StatefulSet", "convoke")["spec"];
    let governing = set["serviceName"].as_str().unwrap();
    let nodes = &of_kind("Service", governing)["spec"];
    assert_eq!(nodes["clusterIP"].as_str(), Some("None"), "every pod has a name of its own");
    assert_eq!(nodes["publishNotReadyAddresses"].as_bool(), Some(true), "also before it is ready");
    let clients = &of_kind("Service", "convoke")["spec"];
    assert!(clients["publishNotReadyAddresses"].is_badvalue(), "clients reach ready nodes only");
    assert_eq!(set["podManagementPolicy"].as_str(), Some("Parallel"), "no pod waits for a ready one");
    let pod = &set["template"];
    for selector in [&nodes["selector"], &clients["selector"], &set["selector"]["matchLabels"]] {
        assert_eq!(selector, &pod["metadata"]["labels"]);
    }
    let container = &pod["spec"]["containers"][0];
    let replicas = set["replicas"].as_i64().unwrap();
    let pods: Vec<String> = (0..replicas).map(|index| format!("convoke-{index}")).collect();
    let all: BTreeSet<String> = pods.iter().map(|pod| format!("{pod}.{governing}:{PEER_PORT}")).collect();
    for name in &pods {
        let arguments: Vec<String> =
            texts(&container["args"]).into_iter().map(|text| text.replace("$(POD_NAME)", name)).collect();
        let (plan, loaded) = plan(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        let settings = &loaded.settings;
        assert_eq!(settings.id.as_str(), name);
        assert_eq!(settings.advertise.as_str(), format!("{name}.{governing}"), "its name in the headless service");
        assert_eq!(plan.parts.node.join.iter().cloned().collect::<BTreeSet<_>>(), all);
        assert_eq!((settings.bind.as_str(), settings.insecure_public), ("0.0.0.0", true), "other pods can connect");
        let mount = &container["volumeMounts"][0];
        assert_eq!(mount["mountPath"].as_str(), settings.data_dir.to_str());
        assert_eq!(mount["name"], set["volumeClaimTemplates"][0]["metadata"]["name"]);
        let grace = u64::try_from(pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap()).unwrap();
        assert!(grace > std::time::Duration::from(settings.timers.handover_timeout).as_secs());
    }
    let probe = |kind: &str| (container[kind]["httpGet"]["path"].as_str(), container[kind]["httpGet"]["port"].as_str());
    assert_eq!(probe("readinessProbe"), (Some("/readyz"), Some("clients")));
    assert_eq!(
        probe("livenessProbe"),
        (Some("/healthz"), Some("clients")),
        "waiting for seeds is no reason to restart"
    );
    let port = |name: &str| {
        let ports = container["ports"].as_vec().unwrap();
        ports.iter().find(|port| port["name"].as_str() == Some(name)).and_then(|port| port["containerPort"].as_i64())
    };
    assert_eq!((port("clients"), port("peers")), (Some(CLIENT_PORT.into()), Some(PEER_PORT.into())));
}
