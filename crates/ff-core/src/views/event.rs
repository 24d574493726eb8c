//! An entry of the log as subscribers see it.

use crate::contracts::{Event, take_actor};
use crate::rows::EventRow;
use crate::types::{FlowId, LaneId, Namespace};

pub fn event(row: &EventRow, cursor: String) -> Event {
    let details = row.details.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let mut details = details.unwrap_or(serde_json::Value::Null);
    let actor = take_actor(&mut details);
    Event {
        cursor,
        at: row.at,
        event_type: row.event_type,
        namespace: Namespace::new(&*row.namespace),
        lane_id: row.lane.as_deref().map(LaneId::new),
        execution_kind: row.kind.as_deref().map(str::to_owned),
        execution_id: row.execution.map(|key| key.execution_id()),
        flow_id: row.flow_id.map(FlowId),
        from: row.from,
        to: row.to,
        version: row.version,
        attempt_index: row.attempt_index,
        lease_epoch: row.lease_epoch,
        by: row.by.as_deref().map(str::to_owned),
        actor,
        details,
    }
}
