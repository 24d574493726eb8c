//! `flowfabric run ls`: executions that match, page by page.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::commands::Session;
use crate::failure::Failure;
use crate::output::{Column, Format, column};

/// What executions must match; everything that is given must hold.
#[derive(Args, Clone, Default)]
pub struct Filter {
    #[arg(long)]
    pub lane: Option<String>,
    /// One or more states, separated by commas.
    #[arg(long = "state", value_name = "STATES")]
    pub states: Option<String>,
    #[arg(long)]
    pub kind: Option<String>,
    #[arg(long, value_name = "FLOW_ID")]
    pub flow: Option<String>,
    /// `key=value`.
    #[arg(long, value_parser = crate::cli::pair)]
    pub tag: Option<(String, String)>,
    /// Not created before this instant, in RFC 3339.
    #[arg(long, value_name = "INSTANT")]
    pub created_from: Option<String>,
    #[arg(long, value_name = "INSTANT")]
    pub created_before: Option<String>,
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    filter: Filter,
    #[arg(long)]
    oldest_first: bool,
    /// At most so many; 0 means all.
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

/// As many as one page has.
const PAGE: usize = 1000;

const COLUMNS: [Column; 7] = [
    column("EXECUTION", "execution_id"),
    column("STATE", "public_state"),
    column("KIND", "execution_kind"),
    column("LANE", "lane_id"),
    column("PRIORITY", "priority"),
    column("CREATED", "created_at"),
    column("FINISHED", "finished_at"),
];

impl Filter {
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let tag = self.tag.as_ref().map(|(key, value)| format!("{key}:{value}"));
        let parts = [
            ("lane_id", self.lane.clone()),
            ("states", self.states.clone()),
            ("execution_kind", self.kind.clone()),
            ("flow_id", self.flow.clone()),
            ("tag", tag),
            ("created_from", self.created_from.clone()),
            ("created_before", self.created_before.clone()),
        ];
        parts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The same as a body has it.
    pub fn json(&self) -> Value {
        let mut filter = Map::new();
        for (name, value) in self.query() {
            let value = match name {
                "states" => json!(value.split(',').collect::<Vec<_>>()),
                _ => json!(value),
            };
            filter.insert(name.to_owned(), value);
        }
        Value::Object(filter)
    }
}

impl List {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let mut left = if self.limit == 0 { usize::MAX } else { self.limit };
        let mut found: Vec<Value> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut query = self.filter.query();
            query.push(("limit", PAGE.min(left).to_string()));
            if self.oldest_first {
                query.push(("order", "oldest".to_owned()));
            }
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let mut page = session.client.get("/v1/executions", &query).await?;
            if let Value::Array(items) = page["executions"].take() {
                left = left.saturating_sub(items.len());
                found.extend(items);
            }
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            // What comes line by line need not wait for the last page.
            if session.output.format == Format::Jsonl {
                for item in found.drain(..) {
                    session.output.each(&item, &COLUMNS)?;
                }
            }
            if cursor.is_none() || left == 0 {
                break;
            }
        }
        if session.output.format == Format::Jsonl {
            return Ok(());
        }
        if session.output.format == Format::Table {
            found.iter_mut().for_each(mark_unreadable);
        }
        let answer = json!({ "executions": found, "next_cursor": cursor });
        session.output.list(&answer, "executions", &COLUMNS)
    }
}

/// A row that cannot be read has no state that could be relied on; `run show` says why.
fn mark_unreadable(item: &mut Value) {
    if !item["unreadable"].is_null() {
        item["public_state"] = "unreadable".into();
    }
}
