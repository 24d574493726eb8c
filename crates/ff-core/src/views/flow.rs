//! Flows as users see them.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::execution::{parse_list_cursor, place_cursor, unreadable_cursor};
use crate::contracts::{
    EdgeGroupSnapshot, FlowGraph, FlowGraphEdge, FlowGraphNode, FlowPage, FlowSnapshot, FlowStatus,
    FlowSummary,
};
use crate::engine_error::EngineError;
use crate::rows::{
    EdgeGroupRow, EdgeKind, EdgeRow, ExecutionRow, FlowKey, FlowRow, FlowState, Word, raw_object,
};
use crate::state::PublicState;
use crate::store::{CountRow, Damage};
use crate::types::{ExecutionId, FlowId, LaneId, Namespace, TimestampMs};

/// The stored states that a filter means.
pub fn stored_states(wanted: &[FlowStatus]) -> Vec<FlowState> {
    let mut states: Vec<_> = wanted.iter().map(|status| stored(*status)).collect();
    states.sort_unstable();
    states.dedup();
    states
}

fn stored(status: FlowStatus) -> FlowState {
    match status {
        FlowStatus::Open | FlowStatus::Running | FlowStatus::Blocked => FlowState::Open,
        FlowStatus::Completed => FlowState::Completed,
        FlowStatus::Failed => FlowState::Failed,
        FlowStatus::Cancelled => FlowState::Cancelled,
    }
}

fn told(state: FlowState) -> FlowStatus {
    match state {
        FlowState::Open => FlowStatus::Open,
        FlowState::Completed => FlowStatus::Completed,
        FlowState::Failed => FlowStatus::Failed,
        FlowState::Cancelled => FlowStatus::Cancelled,
    }
}

/// Where a living flow stands, by what its members do.
pub fn projected(state: FlowState, counts: &BTreeMap<PublicState, u64>) -> FlowStatus {
    use PublicState::{Active, Delayed, RateLimited, Suspended, Waiting, WaitingChildren};
    if state.is_finished() {
        return told(state);
    }
    let any = |states: &[PublicState]| {
        states.iter().any(|state| counts.get(state).is_some_and(|count| *count > 0))
    };
    if any(&[Active]) {
        FlowStatus::Running
    } else if any(&[Suspended, Delayed, RateLimited, WaitingChildren]) && !any(&[Waiting]) {
        FlowStatus::Blocked
    } else {
        FlowStatus::Open
    }
}

pub fn flow(row: &FlowRow, counts: &[CountRow], damage: &Damage) -> FlowSnapshot {
    let counts: BTreeMap<_, _> = counts.iter().map(|row| (row.state, row.count)).collect();
    let raw = raw_object(&row.raw_fields);
    let text = |name: &str| raw.get(name).and_then(|value| value.as_str()).map(str::to_owned);
    let tags = raw.get("tags").and_then(|tags| serde_json::from_value(tags.clone()).ok());
    let forked_from = text("forked_from").and_then(|id| Uuid::try_parse(&id).ok());
    let node = text("forked_from_execution").and_then(|id| ExecutionId::parse(&id).ok());
    FlowSnapshot {
        flow_id: row.key.flow_id(),
        namespace: Namespace::new(&*row.namespace),
        flow_kind: row.kind.to_string(),
        status: projected(row.state, &counts),
        created_at: row.created_at,
        finished_at: row.terminal_at,
        node_count: row.nodes.max(counts.values().sum()),
        edge_count: row.edges,
        graph_revision: u64::try_from(row.graph_revision).unwrap_or(0),
        counts,
        tags: tags.unwrap_or_default(),
        cancellation_policy: text("cancellation_policy"),
        cancel_reason: text("cancel_reason"),
        forked_from: forked_from.map(FlowId),
        forked_from_execution: node,
        unreadable: damage.flows.get(&row.key).cloned(),
    }
}

pub fn flow_page(rows: &[FlowRow], more: bool, damage: &Damage) -> FlowPage {
    let cursor = |row: &FlowRow| place_cursor(row.created_at, row.key.id);
    FlowPage {
        flows: rows.iter().map(|row| summary(row, damage)).collect(),
        next_cursor: rows.last().filter(|_| more).map(cursor),
    }
}

fn summary(row: &FlowRow, damage: &Damage) -> FlowSummary {
    let ended = row.ended;
    let all = [
        (PublicState::Completed, ended.completed),
        (PublicState::Failed, ended.failed),
        (PublicState::Cancelled, ended.cancelled + ended.spared),
        (PublicState::Expired, ended.expired),
        (PublicState::Skipped, ended.skipped),
    ];
    FlowSummary {
        flow_id: row.key.flow_id(),
        namespace: Namespace::new(&*row.namespace),
        flow_kind: row.kind.to_string(),
        status: told(row.state),
        created_at: row.created_at,
        finished_at: row.terminal_at,
        node_count: row.nodes,
        edge_count: row.edges,
        ended: all.into_iter().filter(|(_, count)| *count > 0).collect(),
        unreadable: damage.flows.get(&row.key).cloned(),
    }
}

pub fn flow_graph(
    flow: FlowKey,
    nodes: &[ExecutionRow],
    groups: &[EdgeGroupRow],
    edges: &[EdgeRow],
    next: Option<GraphCursor>,
    damage: &Damage,
) -> FlowGraph {
    let groups: HashMap<Uuid, &EdgeGroupRow> =
        groups.iter().map(|group| (group.key.downstream, group)).collect();
    let edge = |edge: &EdgeRow| FlowGraphEdge {
        from: flow.member(edge.upstream).execution_id(),
        to: flow.member(edge.downstream).execution_id(),
    };
    let depends = edges.iter().filter(|edge| edge.kind == Word(EdgeKind::Depends));
    let shown = |row: &ExecutionRow| FlowGraphNode {
        unreadable: damage.executions.get(&row.key).cloned(),
        ..node(row, groups.get(&row.key.id).copied())
    };
    FlowGraph {
        nodes: nodes.iter().map(shown).collect(),
        edges: depends.map(edge).collect(),
        next_cursor: next.map(GraphCursor::text),
        unreadable: Vec::new(),
    }
}

/// Where a page of a graph ended: behind a node, or behind one of the edges into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphCursor {
    pub place: (TimestampMs, Uuid),
    pub edge: Option<Uuid>,
}

impl GraphCursor {
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        match text.split_once('~') {
            None => Ok(Self { place: parse_list_cursor(text)?, edge: None }),
            Some((place, edge)) => {
                let edge = Uuid::try_parse(edge).map_err(|_| unreadable_cursor())?;
                Ok(Self { place: parse_list_cursor(place)?, edge: Some(edge) })
            }
        }
    }

    fn text(self) -> String {
        let place = place_cursor(self.place.0, self.place.1);
        self.edge.map_or(place.clone(), |edge| format!("{place}~{}", edge.simple()))
    }
}

fn node(row: &ExecutionRow, group: Option<&EdgeGroupRow>) -> FlowGraphNode {
    FlowGraphNode {
        execution_id: row.key.execution_id(),
        name: row.node_name(),
        lane_id: LaneId::new(&*row.lane),
        execution_kind: row.kind.to_string(),
        public_state: row.public_state,
        attempt_index: row.attempt_index,
        started_at: row.started_at,
        finished_at: row.terminal_at,
        group: group.map(group_snapshot),
        unreadable: None,
    }
}

pub(super) fn group_snapshot(group: &EdgeGroupRow) -> EdgeGroupSnapshot {
    let whole = |number: i64| u64::try_from(number).unwrap_or(0);
    EdgeGroupSnapshot {
        policy: group.policy(),
        state: group.state.0,
        parents: whole(group.all_parents()),
        succeeded: whole(group.succeeded),
        failed: whole(group.failed),
        skipped: whole(group.skipped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn living_flows_are_projected() {
        use PublicState::{Active, Completed, Delayed, Waiting, WaitingChildren};
        for (states, expected) in [
            (&[][..], FlowStatus::Open),
            (&[Waiting, WaitingChildren], FlowStatus::Open),
            (&[Active, Waiting, Completed], FlowStatus::Running),
            (&[Delayed, WaitingChildren], FlowStatus::Blocked),
            (&[Completed, WaitingChildren], FlowStatus::Blocked),
        ] {
            let counts = states.iter().map(|state| (*state, 1)).collect();
            assert_eq!(projected(FlowState::Open, &counts), expected, "{states:?}");
        }
        let counts = [(Active, 1)].into();
        assert_eq!(projected(FlowState::Cancelled, &counts), FlowStatus::Cancelled);
    }
}
