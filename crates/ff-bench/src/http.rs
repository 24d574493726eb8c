//! The same load on the engine itself and through a server in front of it, client, server and
//! store together on this machine: what HTTP costs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ff_core::engine_backend::EngineBackend;
use ff_core::types::Namespace;
use ff_sdk::Client;
use ff_sdk::load::Load;
use ff_sdk::transport::{Embedded, Http, HttpOptions, Transport};
use ff_server::{Auth, Bound, Config};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::measure::median;
use crate::report::{Bar, Line, Unit};
use crate::sdk;
use crate::workload::{Bed, KIND, LANE, PAYLOAD_BYTES};

const TOKEN: &str = "ff_token-of-the-benchmark-0123456789abcdef0123";

/// A server that is being measured.
struct Served {
    transport: Arc<dyn Transport>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Served {
    async fn start(backend: Arc<dyn EngineBackend>) -> Result<Self> {
        let config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            auth: Auth::Tokens,
            root_token: Some(TOKEN.to_owned()),
            drain: Duration::from_secs(5),
            ..Config::default()
        };
        let bound = Bound::bind(&config, backend).await?;
        let options = HttpOptions::new(format!("http://{}", bound.local_addr())).token(TOKEN);
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(bound.run(async {
            let _ = stopped.await;
        }));
        Ok(Self { transport: Arc::new(Http::new(options)?), stop, running })
    }

    async fn stop(self) -> Result<()> {
        let _ = self.stop.send(());
        Ok(self.running.await?)
    }
}

/// Batches of 100 from four callers, claims of 50 by four workers.
fn load(executions: usize) -> Load {
    Load {
        lane: LANE.to_owned(),
        kind: KIND.to_owned(),
        executions,
        batch: 100,
        callers: 4,
        claim: 50,
        workers: 4,
        payload: format!("{:?}", "x".repeat(PAYLOAD_BYTES - 2)).into_bytes(),
        done: std::sync::Arc::default(),
    }
}

/// All three bars of the server and the SDK, each with what it is compared with.
pub(crate) async fn measure(
    raw: &Bed,
    served: &Bed,
    rounds: usize,
    count: usize,
) -> Result<Vec<Line>> {
    let server = Served::start(served.backend()).await?;
    let embedded: Arc<dyn Transport> = Arc::new(Embedded::new(raw.backend()));
    let load = load(count);
    let slots = load.claim * load.workers;
    let mut rates: [Vec<f64>; 6] = Default::default();
    let near = Client::embedded(raw.backend());
    let far = Client::with_transport(server.transport.clone(), Namespace::new("default"));
    for _ in 0..rounds {
        rates[0].push(load.submit(&embedded).await?);
        rates[1].push(load.submit(&server.transport).await?);
        rates[2].push(load.drain(&embedded).await?);
        rates[3].push(load.drain(&server.transport).await?);
        load.submit(&embedded).await?;
        rates[4].push(sdk::drain(near.clone(), raw.backend(), slots, count).await?);
        load.submit(&server.transport).await?;
        rates[5].push(sdk::drain(far.clone(), served.backend(), slots, count).await?);
    }
    server.stop().await?;
    let [submit, http_submit, drain, http_drain, worker, http_worker] =
        rates.map(|rates| median(&rates));
    let line = |name: &str, value| Line::new(name, Unit::PerSecond, value);
    Ok(vec![
        line("submit through HTTP, batches of 100 (4 callers)", http_submit)
            .floor("submit, batches of 100 (4 callers)", submit)
            .bar(Bar::AtLeast(0.5)),
        line("drain through HTTP, claims of 50 (4 workers)", http_drain)
            .floor("drain, claims of 50 (4 workers)", drain)
            .bar(Bar::AtLeast(0.4)),
        line("drain by one SDK worker, 200 in flight", worker)
            .floor("drain, claims of 50 (4 workers)", drain)
            .bar(Bar::AtLeast(0.8)),
        line("the same through HTTP", http_worker).floor("drain, claims of 50 (4 workers)", drain),
    ])
}
