//! `flowfabric config`: what a server would run with, and who said so.

use clap::Subcommand;
use serde_json::json;

use super::serve::Settings;
use crate::failure::Failure;
use crate::output::{Output, column};

#[derive(Subcommand)]
pub enum Config {
    /// Every setting and its value; secrets are not shown.
    Show {
        /// Where each value came from.
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        settings: Settings,
    },
}

impl Config {
    pub fn run(self, output: Output) -> Result<(), Failure> {
        let Self::Show { origin, settings } = self;
        let config = settings.load()?;
        let settings: Vec<_> = config
            .shown()
            .into_iter()
            .map(|shown| {
                json!({
                    "key": shown.key,
                    "value": shown.value,
                    "origin": shown.origin.to_string(),
                    "about": shown.about,
                })
            })
            .collect();
        let answer = json!({ "settings": settings });
        let (key, value) = (column("KEY", "key"), column("VALUE", "value"));
        match origin {
            true => output.list(&answer, "settings", &[key, value, column("ORIGIN", "origin")]),
            false => output.list(&answer, "settings", &[key, value, column("ABOUT", "about")]),
        }
    }
}
