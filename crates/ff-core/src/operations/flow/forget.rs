//! Forgets a flow that ended long ago: its members, edges and groups chunk by chunk, and its header
//! last. A flow that somebody has yet to end in is left alone, for that one brings it here again.

use super::due::Step;
use crate::operations::timer::retain::{forget_execution, idempotency_key};
use crate::rows::{
    BacklogKey, BacklogMemberRow, BacklogRow, CascadeRow, EdgeGroupRow, EdgeRow, ExecutionRow,
    FlowKey, Record, values,
};
use crate::store::{Change, MemberScan, Needs, Scan, World, Write};

const CHUNK: usize = 500;

fn some<R: Record>(flow: FlowKey) -> Scan {
    Scan::of::<R>(values![flow]).limit(CHUNK)
}

fn some_members(row: &CascadeRow) -> MemberScan {
    MemberScan { flow: row.flow, after: row.after, limit: CHUNK }
}

pub(super) fn more(world: &World, needs: &mut Needs, row: &CascadeRow) {
    let flow = row.flow;
    needs.flows.insert(flow);
    needs.members.insert(some_members(row));
    for member in world.members(&some_members(row)) {
        needs.idempotency.extend(idempotency_key(member));
    }
    needs.scan(&some::<EdgeRow>(flow));
    needs.scan(&some::<EdgeGroupRow>(flow));
    needs.scan(&some::<BacklogMemberRow>(flow));
    needs.record::<BacklogRow>(&BacklogKey { flow });
}

pub(super) fn is_loaded(world: &World, row: &CascadeRow) -> bool {
    world.members.contains_key(&some_members(row)) && world.has_scanned(&some::<EdgeRow>(row.flow))
}

pub(super) fn step(world: &World, change: &mut Change, row: &CascadeRow) -> Step {
    let flow = row.flow;
    // It was run again in the meantime: its next end is followed by another look.
    if !world.flows.get(&flow).is_some_and(|flow| flow.state.is_finished()) {
        return Step::Done;
    }
    let scan = some_members(row);
    let members = world.members(&scan);
    let is_over = |member: &ExecutionRow| {
        let has_ended = member.is_finished() && member.terminal_at.is_none_or(|at| at <= row.at);
        has_ended || member.is_held()
    };
    for member in members.iter().filter(|member| is_over(member)) {
        forget_execution(world, change, member);
    }
    if !members.iter().all(|member| is_over(member)) {
        return Step::Done;
    }
    if let Some(last) = world.members_cut(&scan) {
        return Step::GoesOn(Some(last));
    }
    let cut = [
        forget::<EdgeRow>(world, change, flow),
        forget::<EdgeGroupRow>(world, change, flow),
        forget::<BacklogMemberRow>(world, change, flow),
    ];
    if cut.contains(&true) {
        return Step::GoesOn(None);
    }
    let backlog = BacklogKey { flow };
    if world.record::<BacklogRow>(&backlog).is_some() {
        change.delete::<BacklogRow>(&backlog);
    }
    change.flows.push(Write::Delete(flow));
    Step::Done
}

/// Whether there is more.
fn forget<R: Record>(world: &World, change: &mut Change, flow: FlowKey) -> bool {
    let scan = some::<R>(flow);
    for row in world.scan::<R>(&scan) {
        change.delete::<R>(&row.key());
    }
    world.scan_is_cut(&scan)
}
