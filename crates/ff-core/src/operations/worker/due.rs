//! Looks whether a worker has been silent for too long.

use super::event;
use crate::contracts::EventType;
use crate::rows::{TimerRow, WorkerRow, values};
use crate::store::{Change, Needs, Scan, World};
use crate::types::TimestampMs;

fn watched(timer: &TimerRow) -> Scan {
    Scan::of::<WorkerRow>(values![timer.key.subject]).by(&WorkerRow::BY_WATCH).limit(1)
}

pub(crate) fn more(needs: &mut Needs, timer: &TimerRow) {
    needs.scan(&watched(timer));
}

pub(crate) fn due(world: &World, change: &mut Change, timer: &TimerRow) -> Option<TimestampMs> {
    let row = world.scan::<WorkerRow>(&watched(timer)).pop()?;
    if row.is_alive(world.now) {
        return Some(row.expires_at);
    }
    change.delete::<WorkerRow>(&row.key);
    change.events.push(event(&row, EventType::WorkerLost, world.now));
    None
}
