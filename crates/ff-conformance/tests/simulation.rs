//! Many seeds, no violation, and a look at what they covered.
//!
//! `FF_SIM_SEEDS` sets how many seeds are run, `FF_SIM_SEED` runs a single one.

use std::thread;
use std::time::Instant;

use ff_conformance::simulation::{Config, Report, run};

const SEEDS: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is not a number")))
}

/// Runs all seeds on all processors; the sum, and how many did too little.
fn run_all(seeds: u64, config: &Config) -> (Report, u64) {
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let part = |first: u64| {
        let (mut total, mut invalid) = (Report::default(), 0);
        for seed in (first..seeds).step_by(threads as usize) {
            let report = run(seed, config).unwrap_or_else(|violation| panic!("{violation}"));
            invalid += u64::from(!report.is_valid());
            total.add(&report);
        }
        (total, invalid)
    };
    let parts: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(move || part(first))).collect();
        running.into_iter().map(|part| part.join().expect("every seed holds")).collect()
    });
    let mut sum = (Report::default(), 0);
    for (total, invalid) in parts {
        sum.0.add(&total);
        sum.1 += invalid;
    }
    sum
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
    let (total, invalid) = run_all(seeds, &config);
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
        ("extended flows", total.extensions),
        ("waits for children", total.waits_for_children),
        ("bulk operations", total.bulks),
        ("recorded steps", total.steps_recorded),
        ("frames", total.frames),
        ("replayed flows", total.flow_replays),
        ("cancelled headers", total.headers),
        ("changed limits", total.limit_changes),
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
