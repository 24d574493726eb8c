//! `flowfabric migrate`: brings a database's schema up to date.

use clap::Args;
use serde_json::json;

use super::serve::{Settings, failed};
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;

#[derive(Args)]
pub struct Migrate {
    #[command(flatten)]
    settings: Settings,
}

impl Migrate {
    pub async fn run(self, output: Output) -> Result<(), Failure> {
        let config = self.settings.load()?;
        // Opening a store applies what is missing, in one transaction, and refuses what is newer.
        let progress = Progress::spinner("bringing the schema up to date");
        let backend = progress.spin(ff_server::open(&config)).await;
        drop(progress);
        let backend = backend.map_err(|error| failed(&error))?;
        let store = backend.engine().engine().store().name();
        backend.close().await;
        output.one(&json!({ "store": store, "schema": "up to date" }))
    }
}
