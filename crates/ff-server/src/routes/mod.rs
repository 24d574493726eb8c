//! The table of routes. Whatever is not in it does not exist.

mod approve;
mod bulk;
mod claims;
mod events;
mod executions;
mod flows;
mod lanes;
mod leases;
mod limits;
mod operate;
mod schedules;
mod steps;
mod streams;
mod suspension;
mod system;
mod tokens;
mod waitpoint_keys;
mod webhooks;
mod workers;

use crate::route::Route;

/// Every route of the server.
pub fn table() -> Vec<Route> {
    let mut table = executions::routes();
    table.extend(operate::routes());
    table.extend(claims::routes());
    table.extend(leases::routes());
    table.extend(steps::routes());
    table.extend(streams::routes());
    table.extend(workers::routes());
    table.extend(suspension::routes());
    table.extend(approve::routes());
    table.extend(lanes::routes());
    table.extend(flows::routes());
    table.extend(limits::routes());
    table.extend(waitpoint_keys::routes());
    table.extend(webhooks::routes());
    table.extend(schedules::routes());
    table.extend(bulk::routes());
    table.extend(events::routes());
    table.extend(tokens::routes());
    table.extend(system::routes());
    table
}
