//! Cut, held and slow links between hosts. Several faults may affect one link; it works again when the last one has
//! ended.

use std::collections::BTreeMap;
use std::time::Duration;
use turmoil::Sim;

/// Faults on the link between two hosts, the first of which has the lower name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Link {
    /// Messages are lost, from the first to the second and back. Connections do not recover: TCP is not simulated in
    /// that detail.
    cut: [u32; 2],
    /// Messages are delayed.
    held: u32,
}

/// The link state last set in the simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Applied {
    #[default]
    Whole,
    Cut([bool; 2]),
    Held,
}

impl Link {
    fn wanted(self) -> Applied {
        match (self.cut.map(|count| count > 0), self.held > 0) {
            ([false, false], false) => Applied::Whole,
            ([false, false], true) => Applied::Held,
            (cut, _) => Applied::Cut(cut),
        }
    }
}

/// One fault on links, to be undone in the same way.
#[derive(Clone, Debug)]
pub(crate) enum LinkFault {
    /// From the first to the second of each pair.
    Cut(Vec<(String, String)>),
    Held(Vec<(String, String)>),
}

#[derive(Debug, Default)]
pub(crate) struct Links {
    links: BTreeMap<(String, String), (Link, Applied)>,
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
            let (link, applied) = self.links.entry(pair.clone()).or_default();
            match fault {
                LinkFault::Cut(_) => change(&mut link.cut[usize::from(!forward)]),
                LinkFault::Held(_) => change(&mut link.held),
            }
            let wanted = link.wanted();
            if wanted != *applied {
                apply(sim, &pair, *applied, wanted);
                *applied = wanted;
            }
        }
    }
}

fn apply(sim: &Sim<'_>, (a, b): &(String, String), before: Applied, now: Applied) {
    let (a, b) = (a.as_str(), b.as_str());
    match before {
        Applied::Whole => {}
        Applied::Cut(_) => sim.repair(a, b),
        Applied::Held => sim.release(a, b),
    }
    match now {
        Applied::Whole => {}
        Applied::Held => sim.hold(a, b),
        Applied::Cut([true, true]) => sim.partition(a, b),
        Applied::Cut([forth, _]) => {
            let (from, to) = if forth { (a, b) } else { (b, a) };
            sim.partition_oneway(from, to);
        }
    }
}

/// Sets the latency of links.
pub(crate) fn set_latency(sim: &Sim<'_>, pairs: &[(String, String)], latency: Duration) {
    for (a, b) in pairs {
        sim.set_link_max_message_latency(a.as_str(), b.as_str(), latency);
    }
}
