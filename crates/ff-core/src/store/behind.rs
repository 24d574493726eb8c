//! What stands behind executions that end, for a store that brings it along: asked for step by step
//! it would take four rounds.

use super::{Needs, Scan, World};
use crate::operations::flow::cascade;
use crate::rows::{AnyKey, AnyRow, EdgeGroupKey, EdgeGroupRow, EdgeRow, FlowKey, Record};
use crate::types::ExecutionKey;

/// The flow whose members an execution stands before, unless it has ended.
pub fn flow(world: &World, key: &ExecutionKey) -> Option<FlowKey> {
    let row = world.executions.get(key).filter(|row| !row.is_finished())?;
    cascade::flow_key(world, row)
}

/// The edges to follow, once their flows are at hand and nobody else can write these.
pub fn edges(world: &World, needs: &Needs) -> Vec<Scan> {
    let from = |key: &ExecutionKey| {
        let row = world.executions.get(key).filter(|row| world.may_write_flow_of(row))?;
        flow(world, &row.key).map(|flow| cascade::edges_from(flow, key.id, None))
    };
    let leading = needs.leading.iter().filter(|(_, flow)| world.may_write(flow));
    let mut edges: Vec<Scan> = needs.behind.iter().filter_map(from).collect();
    edges.extend(leading.map(|(scan, _)| scan.clone()));
    edges.retain(|scan| !world.has_scanned(scan));
    edges
}

/// The group that an edge leads to, if there is one.
pub fn group(edge: &AnyRow) -> Option<AnyKey> {
    let edge: EdgeRow = edge.decode().ok().flatten()?;
    let downstream = edge.dependent()?;
    Some(EdgeGroupRow::erase_key(&EdgeGroupKey { flow: edge.key.flow, downstream }))
}

/// The member of a group, as long as its parents have not decided about it.
pub fn member(group: &AnyRow) -> Option<ExecutionKey> {
    let group: EdgeGroupRow = group.decode().ok().flatten()?;
    group.is_pending().then(|| group.key.flow.member(group.key.downstream))
}
