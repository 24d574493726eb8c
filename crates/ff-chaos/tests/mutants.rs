//! Known bugs are built in one by one, and the crash test must find each that can be seen from
//! outside a process. `cargo xtask chaos mutants` runs this.
#![cfg(feature = "mutants")]

use std::process::Command;

use ff_core::mutants::Mutant;

/// Fewer than the test command has.
const KILLS: &str = "60";

/// What each of them makes the checker say.
const FOUND: [(Mutant, &str); 7] = [
    (Mutant::BudgetOverspent, "a limit stood at"),
    (Mutant::DueTimeLost, "due times have no run"),
    (Mutant::NoFence, "is not in the log"),
    (Mutant::AckBeforeCommit, "was acknowledged and is not there"),
    (Mutant::StaleRescue, "a lease expired before its time"),
    (Mutant::StepTwice, "was told in two ways"),
    (Mutant::BulkTwice, "and changed"),
];

#[test]
fn the_crash_test_finds_known_bugs() {
    for (mutant, words) in FOUND {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ff-chaos"));
        command.args(["run", "--kills", KILLS, "--dir"]).arg(folder.path());
        let output = command.env("FF_CHAOS_MUTANT", format!("{mutant:?}")).output();
        let output = output.expect("the harness starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{mutant:?} survives {KILLS} kills:\n{said}");
        let line = said.lines().find(|line| line.contains(words));
        println!("{mutant:?}: {}", line.unwrap_or_else(|| panic!("{mutant:?}: {said}")));
    }
}
