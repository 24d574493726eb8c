//! Known bugs are switched on one by one, and the simulation must find each of them.
#![cfg(feature = "mutants")]

use ff_conformance::simulation::{Config, run};
use ff_core::mutants::{Mutant, activate};

/// A bug that hides for longer than this would be found too late.
const SEEDS: u64 = 300;

#[test]
fn the_simulation_finds_every_known_bug() {
    let config = Config::default();
    for mutant in Mutant::ALL {
        activate(Some(mutant));
        let found = (0..SEEDS).find_map(|seed| run(seed, &config).err());
        activate(None);
        let violation = found.unwrap_or_else(|| panic!("{mutant:?} survives {SEEDS} seeds"));
        println!("{mutant:?}: {violation}\n");
        for seed in 0..=violation.seed {
            if let Err(violation) = run(seed, &config) {
                panic!("without a bug: {violation}");
            }
        }
    }
}
