//! What is cut, held or slow between hosts. Several faults may be on one link at once; it is whole again when the last one is over.

use std::collections::BTreeMap;
use std::time::Duration;
use turmoil::Sim;

/// Faults on the link between two hosts, the first of which has the lower name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Link {
    /// Messages are lost, from the first to the second and back. Connections do not recover from that: TCP is not simulated that far.
    cut: [u32; 2],
    /// Messages are late.
    held: u32,
}

/// What the simulator was told of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Whole,
    Cut([bool; 2]),
    Held,
}

impl Link {
    fn wanted(self) -> Told {
        match (self.cut.map(|count| count > 0), self.held > 0) {
            ([false, false], false) => Told::Whole,
            ([false, false], true) => Told::Held,
            (cut, _) => Told::Cut(cut),
        }
    }
}

/// One fault on links, to be undone as it was done.
#[derive(Clone, Debug)]
pub(crate) enum LinkFault {
    /// From the first to the second of each pair.
    Cut(Vec<(String, String)>),
    Held(Vec<(String, String)>),
}

#[derive(Debug, Default)]
pub(crate) struct Links {
    links: BTreeMap<(String, String), (Link, Told)>,
}

impl Links {
    pub(crate) fn begin(&mut self, sim: &Sim<'_>, fault: &LinkFault) {
        self.change(sim, fault, |count| *count += 1);
    }

    pub(crate) fn end(&mut self, sim: &Sim<'_>, fault: &LinkFault) {
        self.change(sim, fault, |count| *count -= 1);
    }

    fn change(&mut self, sim: &Sim<'_>, fault: &LinkFault, change: impl Fn(&mut u32)) {
        let (LinkFault::Cut(pairs) | LinkFault::Held(pairs)) = fault;
        for (from, to) in pairs {
            let forward = from < to;
            let pair = if forward { (from.clone(), to.clone()) } else { (to.clone(), from.clone()) };
            let (link, told) = self.links.entry(pair.clone()).or_default();
            match fault {
                LinkFault::Cut(_) => change(&mut link.cut[usize::from(!forward)]),
                LinkFault::Held(_) => change(&mut link.held),
            }
            let wanted = link.wanted();
            if wanted != *told {
                tell(sim, &pair, *told, wanted);
                *told = wanted;
            }
        }
    }
}

fn tell(sim: &Sim<'_>, (a, b): &(String, String), before: Told, now: Told) {
    let (a, b) = (a.as_str(), b.as_str());
    match before {
        Told::Whole => {}
        Told::Cut(_) => sim.repair(a, b),
        Told::Held => sim.release(a, b),
    }
    match now {
        Told::Whole => {}
        Told::Held => sim.hold(a, b),
        Told::Cut([true, true]) => sim.partition(a, b),
        Told::Cut([forth, _]) => {
            let (from, to) = if forth { (a, b) } else { (b, a) };
            sim.partition_oneway(from, to);
        }
    }
}

/// How slow a link is.
pub(crate) fn set_latency(sim: &Sim<'_>, pairs: &[(String, String)], latency: Duration) {
    for (a, b) in pairs {
        sim.set_link_max_message_latency(a.as_str(), b.as_str(), latency);
    }
}
