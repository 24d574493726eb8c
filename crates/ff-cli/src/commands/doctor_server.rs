//! `flowfabric doctor` through a server: what can be told without touching its store.

use std::time::{Duration, Instant};

use ff_core::types::{TimestampMs, duration_in_words};
use serde_json::Value;

use super::Session;
use super::doctor::{SLOW, finding, paused_lanes};
use crate::failure::Failure;
use crate::output::say;

/// Each check with what it found. Waiting longer than `old` counts as a finding.
pub async fn look(session: &Session, old: Duration) -> Result<Vec<Value>, Failure> {
    let client = &session.client;
    let mut findings = vec![ready(session).await?];
    let version = client.get("/version", &[]).await?;
    let text = |name: &str| version[name].as_str().unwrap_or_default();
    let running = format!("{} on {}", text("version"), text("store"));
    findings.push(finding("version", true, &running));
    let durability = text("durability");
    findings.push(finding("durability", durability == "power_loss", durability));

    let asked = Instant::now();
    let counts = client.get("/v1/counts", &[]).await?;
    let took = asked.elapsed();
    findings.push(finding("read", took < SLOW, &format!("{} ms", took.as_millis())));
    let lanes = counts["counts"].as_array().map_or(&[][..], Vec::as_slice);
    let count = |state: &str| -> u64 {
        lanes.iter().filter_map(|lane| lane["counts"][state].as_u64()).sum()
    };
    let backlog = format!("{} waiting, {} active", count("waiting"), count("active"));
    findings.push(finding("backlog", true, &backlog));
    findings.push(oldest(session, old).await?);

    let lanes = client.get("/v1/lanes", &[]).await?;
    let lanes = lanes["lanes"].as_array().map_or(&[][..], Vec::as_slice);
    let paused = lanes.iter().filter(|lane| lane["state"] == "paused");
    let paused: Vec<_> = paused.filter_map(|lane| lane["lane_id"].as_str()).collect();
    findings.push(paused_lanes(&paused));
    say("timers, leases and counters are checked on the store itself, with --data or --backend");
    Ok(findings)
}

/// A server that is there and not ready is a finding; one that is not there is an error.
async fn ready(session: &Session) -> Result<Value, Failure> {
    match session.client.get("/readyz", &[]).await {
        Ok(_) => Ok(finding("ready", true, "ok")),
        Err(failure) if failure.refused => Ok(finding("ready", false, &failure.message)),
        Err(failure) => Err(failure),
    }
}

/// How long the oldest execution has been waiting for a worker, by this machine's clock.
async fn oldest(session: &Session, old: Duration) -> Result<Value, Failure> {
    let of = |name, value: &str| (name, value.to_owned());
    let query = [of("states", "waiting"), of("order", "oldest"), of("limit", "1")];
    let page = session.client.get("/v1/executions", &query).await?;
    let first = &page["executions"][0];
    let created = first["created_at"].as_str().and_then(TimestampMs::parse_rfc3339);
    let Some(created) = created else { return Ok(finding("oldest waiting", true, "none")) };
    let age = TimestampMs::now().since(created);
    let text = |name: &str| first[name].as_str().unwrap_or_default();
    let (id, lane) = (text("execution_id"), text("lane_id"));
    let found = format!("{}: {id} in lane {lane}", duration_in_words(age));
    Ok(finding("oldest waiting", age <= old, &found))
}
