//! `flowfabric top`: what happens, drawn again and again.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Instant;

use clap::Args;
use ff_api::Span;
use ff_core::state::PublicState;
use serde_json::{Value, json};

use super::Session;
use super::worker::workers;
use crate::cli::span;
use crate::failure::Failure;
use crate::output::{Format, line};

#[derive(Args)]
pub struct Top {
    /// How often it is drawn.
    #[arg(long, value_parser = span, default_value = "2s")]
    interval: Span,
    /// Ends after so many drawings.
    #[arg(long, value_name = "COUNT")]
    take: Option<usize>,
}

/// Clears the screen and goes to its corner.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";
const STATES: [PublicState; 12] = PublicState::ALL;
/// These have a column even if nothing is in them.
const ALWAYS: [PublicState; 6] = [
    PublicState::Waiting,
    PublicState::Delayed,
    PublicState::Active,
    PublicState::Suspended,
    PublicState::Completed,
    PublicState::Failed,
];
/// How many lanes and failures fit on a screen.
const LANES: usize = 20;
const FAILURES: usize = 5;

/// How many are in each of the states.
type Counts = [u64; STATES.len()];

fn count(counts: &Counts, state: PublicState) -> u64 {
    let found = STATES.iter().zip(counts).find(|(one, _)| **one == state);
    found.map_or(0, |(_, count)| *count)
}

/// What is known at one moment.
struct Look {
    at: Instant,
    lanes: Vec<(String, Counts)>,
    paused: usize,
    workers: usize,
    waitpoints: usize,
    failures: Vec<Value>,
}

impl Top {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let mut before: Option<Look> = None;
        let mut left = self.take.unwrap_or(usize::MAX);
        while left > 0 {
            let look = look(session).await?;
            match session.output.format {
                Format::Table => draw(&look, before.as_ref())?,
                Format::Json | Format::Jsonl => line(&look.json(before.as_ref()).to_string())?,
            }
            before = Some(look);
            left -= 1;
            if left == 0 {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(self.interval.0) => {}
                _ = tokio::signal::ctrl_c() => break,
            }
        }
        Ok(())
    }
}

async fn look(session: &Session) -> Result<Look, Failure> {
    let client = &session.client;
    let counts = client.get("/v1/counts", &[]).await?;
    let mut lanes: Vec<(String, Counts)> = Vec::new();
    for item in items(&counts["counts"]) {
        let name = item["lane_id"].as_str().unwrap_or_default();
        let of = STATES.map(|state| item["counts"][state.as_str()].as_u64().unwrap_or_default());
        match lanes.iter_mut().find(|(lane, _)| lane == name) {
            // A lane stands once for each namespace.
            Some((_, sums)) => sums.iter_mut().zip(of).for_each(|(sum, more)| *sum += more),
            None => lanes.push((name.to_owned(), of)),
        }
    }
    // Where most is to be done comes first.
    lanes.sort_by_key(|(_, of)| {
        std::cmp::Reverse(count(of, PublicState::Waiting) + count(of, PublicState::Active))
    });
    let known = client.get("/v1/lanes", &[]).await?;
    let paused = items(&known["lanes"]).iter().filter(|lane| lane["state"] == "paused").count();
    let open = client.get("/v1/waitpoints", &[("limit", "1000".to_owned())]).await?;
    let query = [("states", "failed".to_owned()), ("limit", FAILURES.to_string())];
    let failed = client.get("/v1/executions", &query).await?;
    Ok(Look {
        at: Instant::now(),
        lanes,
        paused,
        workers: workers(session, None).await?.len(),
        waitpoints: items(&open["waitpoints"]).len(),
        failures: items(&failed["executions"]).to_vec(),
    })
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl Look {
    fn total(&self, state: PublicState) -> u64 {
        self.lanes.iter().map(|(_, of)| count(of, state)).sum()
    }

    /// How many have completed and failed since then, per second.
    fn rates(&self, before: Option<&Self>) -> [f64; 2] {
        let Some(before) = before else { return [0.0; 2] };
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        [PublicState::Completed, PublicState::Failed]
            .map(|state| self.total(state).saturating_sub(before.total(state)) as f64 / seconds)
    }

    fn json(&self, before: Option<&Self>) -> Value {
        let [completed, failed] = self.rates(before);
        let lane = |(lane, of): &(String, Counts)| {
            let named = STATES.iter().zip(of);
            let counts: serde_json::Map<_, _> =
                named.map(|(state, n)| (state.as_str().to_owned(), json!(n))).collect();
            json!({ "lane_id": lane, "counts": counts })
        };
        json!({
            "completed_per_second": completed,
            "failed_per_second": failed,
            "workers": self.workers,
            "open_waitpoints": self.waitpoints,
            "paused_lanes": self.paused,
            "lanes": self.lanes.iter().map(lane).collect::<Vec<_>>(),
            "failures": self.failures,
        })
    }

    fn text(&self, before: Option<&Self>) -> String {
        let [completed, failed] = self.rates(before);
        let mut text = format!(
            "{completed:.0}/s completed, {failed:.0}/s failed; {} workers, {} open waitpoints, \
             {} paused lanes\n\n{:<24}",
            self.workers, self.waitpoints, self.paused, "LANE"
        );
        let shown = |state: &PublicState| ALWAYS.contains(state) || self.total(*state) > 0;
        let shown: Vec<PublicState> = STATES.into_iter().filter(shown).collect();
        for state in &shown {
            let _ = write!(text, "  {:>9}", state.as_str().to_uppercase());
        }
        text.push('\n');
        for (lane, of) in self.lanes.iter().take(LANES) {
            let _ = write!(text, "{lane:<24}");
            for state in &shown {
                let width = state.as_str().len().max(9);
                let _ = write!(text, "  {:>width$}", count(of, *state));
            }
            text.push('\n');
        }
        if !self.failures.is_empty() {
            text += "\nLAST FAILED\n";
        }
        for failure in &self.failures {
            let of = |name: &str| failure[name].as_str().unwrap_or("-").to_owned();
            let (id, kind) = (of("execution_id"), of("execution_kind"));
            let _ = writeln!(text, "{id}  {}  {kind}", of("finished_at"));
        }
        text
    }
}

/// On a terminal each drawing takes the place of the one before.
fn draw(look: &Look, before: Option<&Look>) -> Result<(), Failure> {
    let text: String = look
        .text(before)
        .chars()
        .map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c })
        .collect();
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        out.write_all(CLEAR.as_bytes())?;
    }
    drop(out);
    line(text.trim_end())
}
