//! Rows as an operation has left them so far. One operation may end many members of one flow, and
//! each of them must see what the ones before it have counted.

use crate::rows::{
    AnyRow, EdgeGroupRow, EdgeRow, ExecutionRow, Field, FlowKey, FlowRow, Record, Row,
};
use crate::store::{Change, World, Write};
use crate::types::ExecutionKey;

/// What this operation has written for a key: a row, or nothing because it was deleted.
fn draft<'c, R: Row>(writes: &'c [Write<R>], key: &R::Key) -> Option<Option<&'c R>> {
    writes.iter().rev().find_map(|write| match write {
        Write::Insert(row) | Write::Update(row) => (row.key() == *key).then_some(Some(row)),
        Write::Delete(gone) => (gone == key).then_some(None),
    })
}

/// A record as this operation has left it.
pub(crate) fn latest<R: Record>(world: &World, change: &Change, key: &R::Key) -> Option<R> {
    if change.records.is_empty() {
        return world.record(key);
    }
    match change.records.last_of(&R::erase_key(key)) {
        Some(Write::Insert(row) | Write::Update(row)) => row.decode().ok().flatten(),
        Some(Write::Delete(_)) => None,
        None => world.record(key),
    }
}

pub(super) fn latest_execution(
    world: &World,
    change: &Change,
    key: ExecutionKey,
) -> Option<ExecutionRow> {
    draft(&change.executions, &key).unwrap_or_else(|| world.executions.get(&key)).cloned()
}

pub(super) fn latest_flow(world: &World, change: &Change, key: FlowKey) -> Option<FlowRow> {
    draft(&change.flows, &key).unwrap_or_else(|| world.flows.get(&key)).cloned()
}

/// Writes a flow once, however often the operation counts in it.
pub(super) fn put_flow(change: &mut Change, flow: FlowRow) {
    let known = change.flows.iter_mut().rev().find_map(|write| match write {
        Write::Insert(row) | Write::Update(row) if row.key == flow.key => Some(row),
        _ => None,
    });
    match known {
        Some(row) => *row = flow,
        None => change.flows.push(Write::Update(flow)),
    }
}

/// Whoever writes a part of a graph writes its flow too: whoever holds the graph then sees by the
/// flow that it is another one.
pub(crate) fn touch_flows(world: &World, change: &mut Change) {
    let (mut touched, mut last) = (Vec::new(), None);
    for write in change.records.iter() {
        let Some(key) = flow_of_part(write).filter(|key| last != Some(*key)) else { continue };
        last = Some(key);
        let flow = world.flows.get(&key).filter(|_| world.may_write(&key));
        if let Some(flow) = flow
            && draft(&change.flows, &key).is_none()
            && draft(&touched, &key).is_none()
        {
            touched.push(Write::Update(flow.clone()));
        }
    }
    change.flows.extend(touched);
}

fn flow_of_part(write: &Write<AnyRow>) -> Option<FlowKey> {
    let (spec, key) = match write {
        Write::Insert(row) | Write::Update(row) => (row.spec, &row.values[..]),
        Write::Delete(key) => (key.spec, &key.values[..]),
    };
    let is_part = spec == EdgeRow::SPEC || spec == EdgeGroupRow::SPEC;
    is_part.then(|| FlowKey::take(&mut key.iter()).ok()).flatten()
}
