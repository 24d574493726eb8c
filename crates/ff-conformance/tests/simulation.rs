//! Many seeds, no violation, and a look at what they covered.
//!
//! `FF_SIM_SEEDS` sets how many seeds are run, `FF_SIM_SEED` runs a single one.

use std::time::Instant;

use ff_conformance::simulation::{Config, Report, run};

const SEEDS: u64 = 3_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is not a number")))
}

#[test]
fn every_seed_keeps_every_promise() {
    let config = Config::default();
    if let Some(seed) = number("FF_SIM_SEED") {
        let report = run(seed, &config).unwrap_or_else(|violation| panic!("{violation}"));
        println!("seed {seed}: {report:#?}");
        return;
    }
    let seeds = number("FF_SIM_SEEDS").unwrap_or(SEEDS);
    let started = Instant::now();
    let mut total = Report::default();
    let mut invalid = 0;
    for seed in 0..seeds {
        let report = run(seed, &config).unwrap_or_else(|violation| panic!("{violation}"));
        invalid += u64::from(!report.is_valid());
        total.add(&report);
    }
    println!("{seeds} seeds in {:?}, {invalid} invalid: {total:#?}", started.elapsed());
    assert!(invalid * 100 <= seeds, "{invalid} of {seeds} runs did too little to say anything");
    for (what, count) in [
        ("server crashes", total.server_crashes),
        ("worker crashes", total.worker_crashes),
        ("pauses", total.pauses),
        ("zombies", total.zombies),
        ("lost messages", total.drops),
        ("doubled messages", total.duplicates),
        ("clock faults", total.clock_faults),
        ("expired leases", total.expiries),
        ("retries", total.retries),
        ("revoked leases", total.revocations),
        ("cancellations", total.cancels),
        ("replays", total.replays),
        ("waits for limits", total.limited),
        ("skipped members", total.skips),
        ("cancelled flows", total.cancelled_flows),
        ("suspensions", total.suspensions),
        ("signals", total.signals),
        ("resumptions", total.resumptions),
        ("scheduled runs", total.scheduled),
    ] {
        assert!(count * 10 >= seeds, "only {count} {what} in {seeds} runs");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let once = run(seed, &Config::default()).unwrap_or_else(|violation| panic!("{violation}"));
        let again = run(seed, &Config::default()).unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(once, again);
    }
}
