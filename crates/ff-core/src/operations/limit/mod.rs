//! Budgets and quotas: what may run now, and what it costs.
//!
//! Claims ask the `gate`. What a lease holds is given back by `settle` in the change that ends it,
//! whatever ends it. Who has to wait leaves the claim index and is let go by `due`.

mod approve_budget;
mod delete_limit;
mod drafts;
pub(crate) mod due;
pub(crate) mod gate;
mod put_budget;
mod put_quota;
mod recount_limit;
mod report_usage;
mod reset_budget;
pub(crate) mod settle;
mod spread;
mod turns;

pub use approve_budget::ApproveBudget;
pub use delete_limit::DeleteLimit;
pub(crate) use gate::estimate;
pub use put_budget::PutBudget;
pub use put_quota::PutQuota;
pub use recount_limit::{Counted, RecountLimit};
pub use report_usage::ReportUsage;
pub use reset_budget::{ReleaseBudget, ResetBudget};

use std::sync::Arc;

use serde_json::{Value, json};

use crate::contracts::EventType;
use crate::rows::{EventRow, LaneRow, LimitRow};
use crate::store::{Change, World, Write};
use crate::types::TimestampMs;

/// Says to claims of a lane that they must look at limits; the empty name says it to all claims.
fn mark_lane(world: &World, change: &mut Change, lane: &Arc<str>) {
    let known = world.lanes.get(lane);
    if known.is_some_and(|known| known.limited) {
        return;
    }
    let before = known.cloned().unwrap_or_else(|| LaneRow::active(lane.clone()));
    let put = if known.is_some() { Write::Update } else { Write::Insert };
    change.lanes.push(put(LaneRow { limited: true, ..before }));
}

fn declared(change: &mut Change, namespace: Arc<str>, now: TimestampMs, details: &Value) {
    let event = EventRow::bare(EventType::LimitDeclared, namespace, now);
    change.events.push(event.details(details));
}

/// An event about a budget.
fn budget_event(
    limit: &LimitRow,
    event_type: EventType,
    now: TimestampMs,
    mut details: Value,
) -> EventRow {
    details["budget_id"] = json!(&*limit.name);
    EventRow::bare(event_type, limit.namespace.clone(), now).details(&details)
}
