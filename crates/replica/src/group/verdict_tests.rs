//! Tests of the rules for creating a log.

use super::*;
use crate::status::Group;
use convoke_log::Epoch;

fn probed(node: &str, nonce: u64, join: &[&str]) -> Probed {
    Probed {
        node: node.into(),
        address: format!("{node}:1").into(),
        nonce,
        join: join.iter().map(SmolStr::new).collect(),
        expected: 0,
        sees: Vec::new(),
        log: None,
        group: Group::default(),
        available: false,
        level: convoke_log::Level::FIRST,
    }
}

/// A node `a` with nonce 1 and the given answers, one list for each entry of its join list.
struct World {
    founding: Founding,
    join: Vec<SmolStr>,
    entries: Vec<Entry>,
    replicas: Vec<Probed>,
    registered: Vec<&'static str>,
    waited: Duration,
    has_seen_log: bool,
}

impl World {
    fn new(founding: Founding, answers: Vec<(&str, Vec<Probed>)>) -> World {
        let entry =
            |(address, nodes): (&str, Vec<Probed>)| Entry { address: address.into(), nodes, error: "dead".into() };
        let join = answers.iter().map(|(address, _)| SmolStr::new(address)).collect();
        let entries = answers.into_iter().map(entry).collect();
        let (replicas, registered) = (Vec::new(), Vec::new());
        World { founding, join, entries, replicas, registered, waited: Duration::ZERO, has_seen_log: false }
    }

    fn at(&self, node: &str, nonce: u64) -> String {
        let expected = match self.founding {
            Founding::Alone { .. } => 1,
            Founding::Expected(nodes) => nodes as u64,
            _ => 0,
        };
        let address = format!("{node}:1");
        let known = KnownNodes {
            node,
            address: &address,
            nonce,
            founding: self.founding,
            expected,
            join: &self.join,
            entries: &self.entries,
            replicas: &self.replicas,
            registered: self.registered.iter().copied().collect(),
            waited: self.waited,
            has_seen_log: self.has_seen_log,
        };
        match known.judge() {
            Verdict::Exists(probed) => format!("exists at {}", probed.node),
            Verdict::BeginAlone => "begin alone".to_owned(),
            Verdict::Begin(members) => {
                let nodes: Vec<&str> = members.iter().map(|place| place.node.as_str()).collect();
                format!("begin {}", nodes.join(","))
            }
            Verdict::Wait(why) => why,
        }
    }
}

const LIST: [&str; 3] = ["a:1", "b:1", "c:1"];

fn three() -> World {
    let one = |node, nonce| vec![probed(node, nonce, &LIST)];
    World::new(Founding::Listed, vec![("a:1", one("a", 1)), ("b:1", one("b", 2)), ("c:1", one("c", 3))])
}

#[test]
fn fd2_of_agreeing_nodes_the_lowest_begins_and_the_others_wait() {
    let world = three();
    assert_eq!(world.at("a", 1), "begin a,b,c");
    assert_eq!(world.at("b", 2), "node a creates the log");
    let mut world = three();
    world.entries[1].nodes.clear();
    assert!(world.at("a", 1).starts_with("waiting for founders of the log: b:1 (dead)"));
    let mut world = three();
    world.entries[1].nodes[0].join = vec!["a:1".into()];
    assert!(
        world.at("a", 1).starts_with("node b has the join list a:1, this node has a:1,b:1,c:1;"),
        "{}",
        world.at("a", 1)
    );
    let mut world = three();
    world.entries[1].nodes[0].node = "a".into();
    assert!(world.at("a", 1).contains("two processes"), "{}", world.at("a", 1));
    let mut world = three();
    world.entries[1].nodes = world.entries[0].nodes.clone();
    assert!(world.at("a", 1).contains("occurs twice"), "{}", world.at("a", 1));
    // A node that the others do not know.
    assert!(three().at("d", 4).ends_with("`convoke log add d`"), "{}", three().at("d", 4));
}

#[test]
fn fd2_lists_of_the_other_nodes_are_one_list() {
    let b = || vec![probed("b", 2, &["a:1", "c:1"])];
    let c = |join: &[&str]| vec![probed("c", 3, join)];
    let world = |c| World::new(Founding::Listed, vec![("b:1", b()), ("c:1", c)]);
    assert_eq!(world(c(&["a:1", "b:1"])).at("a", 1), "begin a,b,c");
    // The third node has the whole list.
    assert_eq!(world(c(&LIST)).at("a", 1), "begin a,b,c");
    // It expects a fourth node, or does not know this node.
    assert!(world(c(&["a:1", "b:1", "d:1"])).at("a", 1).starts_with("node c has the join list a:1,b:1,d:1"));
    assert!(world(c(&["b:1"])).at("a", 1).starts_with("node c has the join list b:1"));
    assert!(world(vec![probed("a", 3, &["a:1", "b:1"])]).at("a", 1).contains("two processes have the node id a"));
}

#[test]
fn fd2_one_name_is_not_a_list_of_founders() {
    let own = vec![probed("a", 1, &["all:1"])];
    let world = World::new(Founding::Listed, vec![("all:1", own)]);
    assert!(world.at("a", 1).contains("has only all:1; set --bootstrap=NODES"), "{}", world.at("a", 1));
    // Two names that lead to several nodes each.
    let join = ["all:1", "any:1"];
    let both = || vec![probed("a", 1, &join), probed("b", 2, &join)];
    let world = World::new(Founding::Listed, vec![("all:1", both()), ("any:1", both())]);
    assert!(world.at("a", 1).starts_with("all:1 leads to 2 nodes"), "{}", world.at("a", 1));
    assert!(World::new(Founding::Listed, vec![]).at("a", 1).contains("--bootstrap"));
}

#[test]
fn fd3_an_expected_number_of_nodes_behind_one_name_creates_one_log() {
    let node = |node, nonce, sees: &[&str]| Probed {
        expected: 3,
        sees: sees.iter().map(SmolStr::new).collect(),
        ..probed(node, nonce, &["all:1"])
    };
    let all = ["a", "b", "c"];
    let behind = |nodes: Vec<Probed>| World::new(Founding::Expected(3), vec![("all:1", nodes)]);
    let world = behind(vec![node("a", 1, &[]), node("b", 2, &all), node("c", 3, &all)]);
    assert_eq!(world.at("a", 1), "begin a,b,c");
    let world = behind(vec![node("a", 1, &[]), node("b", 2, &["b", "c", "d"]), node("c", 3, &all)]);
    assert_eq!(world.at("a", 1), "node b does not find the same nodes yet");
    let world = behind(vec![node("a", 1, &all), node("b", 2, &all)]);
    assert_eq!(world.at("a", 1), "found 2 of 3 expected nodes (a, b)");
    let world = behind(vec![node("a", 1, &all), node("b", 2, &all), node("c", 3, &all), node("d", 4, &all)]);
    assert_eq!(world.at("a", 1), "found 4 of 3 expected nodes (a, b, c, d)");
    let mut other = node("c", 3, &all);
    other.expected = 2;
    let world = behind(vec![node("a", 1, &all), node("b", 2, &all), other]);
    assert!(world.at("a", 1).contains("bootstrap number"), "{}", world.at("a", 1));
}

#[test]
fn fd4_a_node_creates_a_log_alone_only_if_nobody_has_one_for_a_while() {
    let founding = Founding::Alone { after: Duration::from_secs(10) };
    let mut world = World::new(founding, vec![]);
    world.waited = Duration::from_secs(9);
    assert!(world.at("a", 1).starts_with("this node creates a log alone"), "{}", world.at("a", 1));
    world.waited = Duration::from_secs(10);
    assert_eq!(world.at("a", 1), "begin alone");
    world.has_seen_log = true;
    assert!(world.at("a", 1).starts_with("a log exists"));
    world.has_seen_log = false;
    world.registered = vec!["n2"];
    assert_eq!(world.at("a", 1), "a log exists on n2; add this node with `convoke log add a`");
    // The same flag on two nodes: the lower id creates the log.
    let second = Probed { expected: 1, ..probed("b", 2, &["b:1"]) };
    let mut world = World::new(founding, vec![("b:1", vec![second])]);
    world.waited = Duration::from_secs(10);
    assert_eq!(world.at("a", 1), "begin alone");
    assert_eq!(world.at("c", 3), "node b creates the log: it has bootstrap = 1, too");
}

#[test]
fn fd5_a_log_that_exists_is_not_created_again() {
    let mut world = three();
    world.entries[2].nodes[0].log = Some(7);
    assert_eq!(world.at("a", 1), "exists at c");
    world.entries[1].nodes[0].log = Some(7);
    world.entries[1].nodes[0].group.epoch = Some(Epoch::new(4, 2));
    assert_eq!(world.at("a", 1), "exists at b", "the newest leader's");
    let mut world = three();
    world.registered = vec!["z"];
    assert!(world.at("a", 1).starts_with("a log exists on z"));
    world.replicas = vec![Probed { log: Some(7), ..probed("z", 9, &[]) }];
    assert_eq!(world.at("a", 1), "exists at z");
}
