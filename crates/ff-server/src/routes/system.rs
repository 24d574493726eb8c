//! What the server says about itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use axum::http::Method;
use ff_api::{Health, Scope, Version};

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{Access, Nothing, Reach, Route};

/// How long the store may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(2);
/// So that whoever invents lanes cannot make the answer large.
const LANES: usize = 100;

pub fn routes() -> Vec<Route> {
    vec![
        Route::new((Method::GET, "/livez"), ("livez", "The process runs."), Scope::Read, livez)
            .access(Access::Public)
            .reach(Reach::Nothing)
            .probes(),
        Route::new((Method::GET, "/readyz"), ("readyz", "The store answers."), Scope::Read, readyz)
            .access(Access::Public)
            .reach(Reach::Nothing)
            .probes(),
        Route::new(
            (Method::GET, "/version"),
            ("version", "What runs here, and what it promises."),
            Scope::Read,
            version,
        )
        .access(Access::Known)
        .reach(Reach::Nothing),
        Route::new(
            (Method::GET, "/openapi.json"),
            ("openapi", "This API as an OpenAPI 3.1 document."),
            Scope::Read,
            openapi,
        )
        .access(Access::Known)
        .reach(Reach::Nothing)
        .content("application/openapi+json"),
        Route::new(
            (Method::GET, "/metrics"),
            ("metrics", "Counters in Prometheus' text form."),
            Scope::Read,
            metrics,
        )
        .reach(Reach::Everything)
        .probes()
        .content("text/plain"),
    ]
}

async fn livez(_: Call<Nothing, Nothing>) -> Answered<Answer<Health>> {
    std::future::ready(Ok(Answer::json(Health { status: "ok".to_owned() }))).await
}

async fn readyz(call: Call<Nothing, Nothing>) -> Answered<Answer<Health>> {
    if call.state.closing.is_cancelled() {
        return Err(Refusal::new("closing", "the server is about to stop"));
    }
    let not_ready = || Refusal::new("not_ready", "the store does not answer");
    let ping = async {
        let _turn = call.state.pings.acquire().await;
        call.state.gate.ping().await
    };
    let ping = tokio::time::timeout(PATIENCE, ping).await;
    ping.map_err(|_| not_ready())?.map_err(|_| not_ready())?;
    Ok(Answer::json(Health { status: "ok".to_owned() }))
}

async fn version(call: Call<Nothing, Nothing>) -> Answered<Answer<Version>> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: call.state.store_name.to_owned(),
        durability: call.state.durability,
    };
    std::future::ready(Ok(Answer::json(version))).await
}

async fn openapi(call: Call<Nothing, Nothing>) -> Answered<Answer<Nothing>> {
    let text = String::from_utf8_lossy(&call.state.openapi).into_owned();
    std::future::ready(Ok(Answer::text("application/openapi+json", text))).await
}

async fn metrics(call: Call<Nothing, Nothing>) -> Answered<Answer<Nothing>> {
    let mut text = call.state.metrics.render();
    let streams = call.state.open_streams();
    let _ = write!(text, "# TYPE ff_http_streams gauge\nff_http_streams {streams}\n");
    text.push_str(&call.state.webhooks.render());
    let mut executions: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for counted in call.door.backend().counts().await? {
        for (state, count) in counted.counts {
            let key = (counted.lane_id.0.clone(), state.as_str());
            *executions.entry(key).or_default() += count;
        }
    }
    text.push_str("# HELP ff_executions Executions by lane and state.\n");
    text.push_str("# TYPE ff_executions gauge\n");
    let mut lanes: Vec<&str> = executions.keys().map(|(lane, _)| lane.as_str()).collect();
    lanes.dedup();
    let last = lanes.get(LANES - 1).copied().unwrap_or("\u{7f}").to_owned();
    for ((lane, state), count) in executions.iter().filter(|((lane, _), _)| *lane <= last) {
        let lane = lane.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(text, "ff_executions{{lane=\"{lane}\",state=\"{state}\"}} {count}");
    }
    Ok(Answer::text("text/plain; version=0.0.4", text))
}
