//! Several regions (P9).

use super::log::Log;
use super::support::ScenarioResult;
use crate::network::{Kind, MINUTE, SECOND, Site};
use crate::world::{Crash, Setup, Topology, World};
use convoke_core::member::{Liveness, Status};

/// Nine nodes, three in each of three regions: host i is in region i mod 3.
pub(super) fn three_regions() -> Setup {
    Setup { nodes: 9, regions: 3, ..Setup::default() }
}

pub(super) fn two_large_regions() -> Setup {
    Setup { nodes: 20, regions: 2, ..Setup::default() }
}

/// Three nodes in each of two regions: host i is in region i mod 2.
pub(super) fn two_regions_of_three() -> Setup {
    Setup { nodes: 6, regions: 2, ..Setup::default() }
}

/// Two regions of one node; the first has no seeds.
pub(super) fn two_regions_with_one_seed() -> Setup {
    Setup { topology: Topology::Star, ..two_regions() }
}

pub(super) fn two_regions() -> Setup {
    Setup { nodes: 2, regions: 2, ..Setup::default() }
}

/// Two regions of two nodes; hosts 0 and 1 are linked, and hosts 2 and 3.
pub(super) fn two_regions_of_two() -> Setup {
    Setup { nodes: 4, regions: 2, ..Setup::default() }
}

/// Three regions of one node each.
pub(super) fn three_single_nodes() -> Setup {
    Setup { nodes: 3, regions: 3, ..Setup::default() }
}

/// The same between regions: the node that connects the two is in a third one.
pub(super) fn fast_client_moves_where_regions_have_no_link(world: &mut World) -> ScenarioResult {
    super::sessions::fast_client_moves(world, 0, 1)
}

/// The same within a region that is split: two nodes of the other region connect its parts.
pub(super) fn fast_client_moves_in_a_split_region(world: &mut World) -> ScenarioResult {
    super::sessions::fast_client_moves(world, 3, 1)
}

/// A client with `fast` liveness loses its connection and attaches in another region just before the deadline. The
/// write arrives too late, so its member is down until it arrives, and up then (C6).
pub(super) fn fast_client_returns_at_the_deadline(world: &mut World) -> ScenarioResult {
    world.begin()?;
    // The node that started alone has met the other since.
    world.reset_between(0, 1);
    world.pass(10 * SECOND)?;
    let client = world.add_client_at("fast", &["fast"], 0);
    world.clients[client].liveness = Liveness::Fast;
    world.clients[client].region = 0;
    world.up(&["fast"])?;
    world.pass(2 * MINUTE)?;
    world.client_move(client, Some(1));
    // Its own attempts are delayed; it attaches in the other region first.
    world.clients[client].paused = true;
    world.pass(SECOND / 1000)?;
    world.clients[client].region = 1;
    world.pass(745 * SECOND / 1000)?;
    world.client_resume(client);
    let log = Log::on(world);
    world.pass(SECOND / 10)?;
    let down = log.of("fast").into_iter().any(|seen| seen.shown().is_some_and(|(_, status)| status == Status::Down));
    world.require(down, "the write arrived in time")?;
    world.require(world.shown_everywhere("fast", Status::Up), "it is not up after the write arrived")?;
    world.settle()
}

/// Connections between different regions.
fn region_links(world: &World) -> usize {
    let between = |one: Site, other: Site| match (one, other) {
        (Site::Host(one), Site::Host(other)) => world.hosts[one].region != world.hosts[other].region,
        _ => false,
    };
    let links =
        world.network.connections.values().filter(|c| c.kind == Kind::Peer && c.ends.iter().all(|end| end.open));
    links.filter(|c| between(c.ends[0].place, c.ends[1].place)).count()
}

/// Three regions converge with two links between each pair, and a change crosses them at once.
pub(super) fn three_regions_converge_with_few_links(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let clients: Vec<usize> =
        (0..9).map(|host| world.add_client_fixed(&format!("c{host}"), &[&format!("m{host}")], host)).collect();
    let ids: Vec<String> = (0..9).map(|host| format!("m{host}")).collect();
    world.up(&ids.iter().map(String::as_str).collect::<Vec<_>>())?;
    let log = Log::on(world);
    world.pass(MINUTE)?;
    let links = region_links(world);
    world.require((3..=6).contains(&links), &format!("{links} links between three regions"))?;
    for value in 0..10 {
        for (host, client) in clients.iter().enumerate() {
            world.set(*client, &ids[host], &value);
        }
        let shown = Some(value.to_string());
        let everywhere = |w: &World| (0..9).all(|host| ids.iter().all(|id| w.value(host, id) == shown));
        world.run_until(everywhere, SECOND)?;
        world.pass(10 * SECOND)?;
    }
    log.never(world, Status::Down)?;
    world.settle()
}

/// Two regions lose each other: the third relays everything. Then one region is alone, and returns.
pub(super) fn region_link_partition_heals(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let zero = world.add_client_fixed("c0", &["m0"], 6);
    let one = world.add_client_fixed("c1", &["m1"], 7);
    world.up(&["m0", "m1"])?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    let (first, second, third) = ([0, 3, 6], [1, 4, 7], [2, 5, 8]);
    let cuts = world.partition(&first, &second);
    for value in 0..12 {
        world.set(zero, "m0", &value);
        world.set(one, "m1", &value);
        let shown = Some(value.to_string());
        world.run_until(
            |w| (0..9).all(|host| w.value(host, "m0") == shown && w.value(host, "m1") == shown),
            10 * SECOND,
        )?;
        world.pass(15 * SECOND)?;
    }
    log.never(world, Status::Down)?;
    let alone = world.partition(&first, &third);
    world.run_until(|w| w.status(0, "m1") == Some(Status::Down) && w.status(8, "m0") == Some(Status::Down), MINUTE)?;
    world.set(zero, "m0", &"alone");
    world.pass(MINUTE)?;
    world.require(
        first.iter().all(|host| world.status(*host, "m0") == Some(Status::Up)),
        "an isolated region lost its own member",
    )?;
    world.rejoin(cuts);
    world.rejoin(alone);
    world.run_until(|w| (0..9).all(|host| w.value(host, "m0").as_deref() == Some("alone")), 20 * SECOND)?;
    world.up(&["m0", "m1"])?;
    world.run_until(|w| region_links(w) <= 6, 2 * MINUTE)?;
    world.settle()
}

/// Of two large regions, one node of each is left, and one more that linked them. When that one dies, the other two
/// find each other at the first attempt, although most of the nodes they know are gone.
pub(super) fn region_links_skip_dead_nodes(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let hosts = world.hosts.len();
    let (survivor, border, last) = (0, 1, hosts - 1);
    for host in (2..last).rev() {
        world.crash(host, Crash::Process);
    }
    // The other nodes no longer consider them alive.
    world.pass(5 * MINUTE)?;
    world.add_client_fixed("c", &["m"], survivor);
    world.up(&["m"])?;
    let log = Log::on(world);
    world.crash(border, Crash::Process);
    // One retry interval until they try another path, and the connection.
    world.run_until(|w| region_links(w) > 0, 7 * SECOND)?;
    world.pass(MINUTE)?;
    log.never(world, Status::Down)
}

/// A partition leaves one pair of nodes that can link two large regions. They find each other before members of the other
/// region are `down`.
pub(super) fn last_pair_links_two_regions(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.add_client_fixed("c0", &["m0"], 0);
    world.add_client_fixed("c1", &["m1"], 1);
    world.up(&["m0", "m1"])?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    let pairs = [(18, 19), (8, 9), (2, 17), (16, 1)];
    let (one, other) = pairs[world.setup.seed as usize % pairs.len()];
    let nodes = |region: usize, except: usize| -> Vec<usize> {
        (0..20).filter(|host| host % 2 == region && *host != except).collect()
    };
    world.partition(&nodes(0, one), &nodes(1, usize::MAX));
    world.partition(&[one], &nodes(1, other));
    world.pass(2 * MINUTE)?;
    log.never(world, Status::Down)?;
    world.require(region_links(world) > 0, "no link")?;
    world.settle()
}

/// A partition cuts a node off from its own region. Only a node of the other region that has no region link can reach it.
/// Its members stay `up`, and its writes arrive.
pub(super) fn node_cut_off_from_its_region(world: &mut World) -> ScenarioResult {
    world.begin()?;
    let near = world.add_client_fixed("near", &["near"], 1);
    let far = world.add_client_fixed("far", &["far"], 5);
    world.up(&["near", "far"])?;
    world.pass(MINUTE)?;
    let log = Log::on(world);
    let cuts = world.partition(&[5], &[0, 1, 2, 3]);
    world.run_until(|w| !w.connections_between(4, 5).is_empty(), 15 * SECOND)?;
    world.pass(5 * SECOND)?;
    let link = world.connections_between(4, 5);
    for value in 0..30 {
        world.set(near, "near", &value);
        world.set(far, "far", &value);
        let shown = Some(value.to_string());
        let everywhere = |w: &World| (0..6).all(|host| ["near", "far"].iter().all(|id| w.value(host, id) == shown));
        world.run_until(everywhere, 15 * SECOND)?;
        world.pass(5 * SECOND)?;
    }
    log.never(world, Status::Down)?;
    world.require(!link.is_empty() && world.connections_between(4, 5) == link, "the only link was closed")?;
    world.rejoin(cuts);
    world.run_until(|w| region_links(w) <= 2, MINUTE)?;
    world.settle()
}

/// The only node of a region leaves and returns without seeds, so it cannot find the other region. That region dials it,
/// although it has left.
pub(super) fn left_node_of_another_region_returns(world: &mut World) -> ScenarioResult {
    world.begin()?;
    world.add_client_fixed("c", &["m"], 0);
    world.up(&["m"])?;
    world.stop(1);
    world.run_until(|w| !w.hosts[1].running(), MINUTE)?;
    world.pass(MINUTE)?;
    world.hosts[1].config.seeds.clear();
    world.start(1);
    world.run_until(|w| region_links(w) > 0, 10 * SECOND)?;
    world.up(&["m"])?;
    world.settle()
}
