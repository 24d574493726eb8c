//! The backlog of a cancelled flow: who has yet to be acknowledged, and its end if nobody does.

use std::collections::HashSet;
use std::time::Duration;

use super::due::Step;
use crate::rows::{
    BacklogKey, BacklogMemberKey, BacklogMemberRow, BacklogRow, CascadeKey, CascadeKind,
    CascadeRow, ExecutionRow, FlowKey, Word, values,
};
use crate::store::{Change, Needs, Scan, World};

/// How long members may stay unacknowledged.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How many are forgotten in one transaction once that is over.
const DRAINED: usize = 1_000;

/// Everybody whom the backlog still names. The lock of its header stands for them.
pub(crate) fn members(flow: FlowKey) -> Scan {
    Scan::of::<BacklogMemberRow>(values![flow]).limit(usize::MAX).unlocked()
}

/// Enough of them to see whether there is anybody else.
pub(super) fn a_few_members(flow: FlowKey) -> Scan {
    Scan::of::<BacklogMemberRow>(values![flow]).limit(64).unlocked()
}

fn some_members(flow: FlowKey) -> Scan {
    Scan::of::<BacklogMemberRow>(values![flow]).limit(DRAINED)
}

pub(super) fn more(needs: &mut Needs, flow: FlowKey) {
    needs.record::<BacklogRow>(&BacklogKey { flow });
}

pub(super) fn more_to_drain(needs: &mut Needs, flow: FlowKey) {
    more(needs, flow);
    needs.record::<CascadeRow>(&going_on(flow));
    needs.scan(&some_members(flow));
}

/// What is left to do while members have yet to be reached.
pub(crate) fn going_on(flow: FlowKey) -> CascadeKey {
    CascadeKey { subject: flow.id, version: 0, kind: Word(CascadeKind::Members) }
}

pub(super) fn is_loaded(world: &World, flow: FlowKey) -> bool {
    world.has_scanned(&some_members(flow))
}

/// Members of a flow whose header was cancelled wait for their acknowledgement.
pub(super) fn add(world: &World, change: &mut Change, flow: FlowKey, rows: &[&ExecutionRow]) {
    let known = world.scan::<BacklogMemberRow>(&members(flow));
    let known: HashSet<_> = known.into_iter().map(|row| row.key).collect();
    for row in rows {
        let key = BacklogMemberKey { flow, execution_id: row.key.execution_id().as_str().into() };
        if !known.contains(&key) {
            change.insert(&BacklogMemberRow { key });
        }
    }
}

/// Nobody acknowledges: the members have ended all the same, so the backlog is of no more use.
pub(super) fn drain(world: &World, change: &mut Change, row: &CascadeRow) -> Step {
    // Each chunk of members that have yet to be reached adds to the backlog.
    if world.record::<CascadeRow>(&going_on(row.flow)).is_some() {
        return Step::Waits(world.now);
    }
    let scan = some_members(row.flow);
    for member in world.scan::<BacklogMemberRow>(&scan) {
        change.delete::<BacklogMemberRow>(&member.key);
    }
    if world.scan_is_cut(&scan) {
        return Step::GoesOn(None);
    }
    let header = BacklogKey { flow: row.flow };
    if world.record::<BacklogRow>(&header).is_some() {
        change.delete::<BacklogRow>(&header);
    }
    Step::Done
}
