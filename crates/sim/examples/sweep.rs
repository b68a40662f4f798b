use convoke_core::{Mutant, Mutation};
use convoke_sim::scenarios;
fn main() {
    for m in Mutant::ALL {
        let mut by = Vec::new();
        for s in scenarios::ALL {
            for seed in 1..=s.seeds {
                if let Some(v) = scenarios::run_mutated(s, seed, Mutation::of(*m), false).violation {
                    by.push(format!("{}:{}", s.name, v.invariant));
                    break;
                }
            }
        }
        println!("{:<32} {:?}", m.name(), by);
    }
}
