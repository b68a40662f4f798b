use convoke_core::{Mutant, Mutation};
use convoke_sim::{Kind, run_plan, scenarios};
// one <mutant> scenario <name> | one <mutant> focused <from> <to> <step>
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let m = Mutant::ALL.iter().copied().find(|m| m.name() == a[1]).unwrap();
    if a[2] == "scenario" {
        let s = scenarios::find(&a[3]).unwrap();
        for seed in 1..=s.seeds {
            println!("{:?}", scenarios::run_mutated(s, seed, Mutation::of(m), false).violation);
        }
        return;
    }
    let (from, to, step): (u64, u64, usize) = (a[3].parse().unwrap(), a[4].parse().unwrap(), a[5].parse().unwrap());
    for seed in (from..to).step_by(step) {
        if let Some(v) = run_plan(&Kind::Focused.plan(seed).with_mutation(Mutation::of(m)), false).violation {
            println!("{seed} {} {:.150}", v.invariant, v.message);
        }
    }
}
