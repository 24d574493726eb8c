//! `flowfabric dev`: an engine, its server and a demo worker, ready to play with.

mod worker;

use clap::Args;
use ff_server::Bound;
use tokio_util::sync::CancellationToken;

use super::serve::{Settings, failed, stopped};
use crate::failure::{Exit, Failure};
use crate::log::Style;
use crate::output::say;

#[derive(Args)]
pub struct Dev {
    #[command(flatten)]
    settings: Settings,
    /// Without the worker that serves the lane `demo`.
    #[arg(long)]
    no_worker: bool,
}

const FOLDER: &str = ".flowfabric";
const DRAIN: std::time::Duration = std::time::Duration::from_secs(5);

impl Dev {
    pub async fn run(mut self) -> Result<(), Failure> {
        self.settings.data.get_or_insert_with(|| FOLDER.to_owned());
        // The greeting stands in the middle of it.
        let mut config = self.settings.begin(Style::Text)?;
        if config.root_token.is_none() {
            let token = ff_server::mint_token();
            let token = token.map_err(|error| Failure::new(Exit::Failure, error.to_string()))?;
            config.root_token = Some(token);
        }
        let token = config.root_token.clone().unwrap_or_default();
        let backend = ff_server::open(&config).await.map_err(|error| failed(&error))?;
        let bound = match Bound::bind(&config, backend.engine()).await {
            Ok(bound) => bound,
            Err(error) => {
                backend.close().await;
                return Err(failed(&error));
            }
        };
        let stop = CancellationToken::new();
        let worker =
            (!self.no_worker).then(|| tokio::spawn(worker::work(backend.engine(), stop.clone())));
        greet(&bound, &token, worker.is_some());
        bound.run(stopped()).await;
        stop.cancel();
        if let Some(worker) = worker {
            let _ = tokio::time::timeout(DRAIN, worker).await;
        }
        backend.close().await;
        Ok(())
    }
}

fn greet(bound: &Bound, token: &str, worker: bool) {
    let url = format!("http://{}", bound.local_addr());
    say(&format!("FlowFabric runs at {url}; Ctrl-C ends it. In another terminal:\n"));
    say(&format!("  export FF_URL={url} FF_TOKEN={token}"));
    if worker {
        say("  flowfabric run start echo --lane demo --input '{\"hello\":\"world\"}' --wait");
    } else {
        say("  flowfabric run start echo --lane demo --input '{\"hello\":\"world\"}'");
    }
    say("  flowfabric run ls\n");
}
