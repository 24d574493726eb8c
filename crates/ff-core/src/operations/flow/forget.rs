//! Forgets a flow that ended long ago: its edges and groups chunk by chunk, and its header last.

use super::due::Step;
use crate::rows::{
    BacklogKey, BacklogMemberRow, BacklogRow, EdgeGroupRow, EdgeRow, FlowKey, Record, values,
};
use crate::store::{Change, Needs, Scan, World, Write};

const CHUNK: usize = 1_000;

fn some<R: Record>(flow: FlowKey) -> Scan {
    Scan::of::<R>(values![flow]).limit(CHUNK)
}

pub(super) fn more(needs: &mut Needs, flow: FlowKey) {
    needs.flows.insert(flow);
    needs.scan(&some::<EdgeRow>(flow));
    needs.scan(&some::<EdgeGroupRow>(flow));
    needs.scan(&some::<BacklogMemberRow>(flow));
    needs.record::<BacklogRow>(&BacklogKey { flow });
}

pub(super) fn is_loaded(world: &World, flow: FlowKey) -> bool {
    world.has_scanned(&some::<EdgeRow>(flow))
}

pub(super) fn step(world: &World, change: &mut Change, flow: FlowKey) -> Step {
    let Some(row) = world.flows.get(&flow) else { return Step::Done };
    // It was run again in the meantime: its next end is followed by another look.
    if !row.state.is_finished() {
        return Step::Done;
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
