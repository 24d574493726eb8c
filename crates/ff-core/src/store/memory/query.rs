//! Reads outside transactions.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::Tables;
use crate::contracts::ListOrder;
use crate::rows::{AttemptKey, Blob, EventRow, ExecutionRow, FlowKey, FlowRow, TimerKey, TimerRow};
use crate::state::BlockingReason;
use crate::store::{
    CountRow, FlowListQuery, ListQuery, LogBounds, Query, RetentionScan, Rows, ShardBounds,
};
use crate::types::{ExecutionKey, TimestampMs};

impl Tables {
    pub(super) fn query(&self, query: Query, now: TimestampMs) -> Rows {
        let mut rows = Rows::default();
        match query {
            Query::Execution(key) => self.query_execution(&mut rows, key),
            Query::Executions(list) => rows.executions = self.list(&list),
            Query::Flow(flow) => {
                rows.flows = self.flows.get(&flow).cloned().into_iter().collect();
                rows.counts = self.member_counts(flow);
            }
            Query::Flows(list) => rows.flows = self.list_flows(&list),
            Query::Count(list) => {
                rows.count =
                    self.executions.values().filter(|row| list.matches(row)).count() as u64;
            }
            Query::UnfinishedMembers { flow, limit } => {
                let open = self.members(flow).filter(|row| {
                    !row.is_finished() && row.blocking != BlockingReason::PausedByFlowCancel
                });
                rows.executions = open.take(limit).cloned().collect();
            }
            Query::Payloads(keys) => {
                let found = keys.iter().filter_map(|key| self.executions.get(key));
                rows.blobs = found.filter_map(|row| bytes_of(row.key, &row.payload)).collect();
            }
            Query::Results { keys, bytes } => {
                let mut room = bytes;
                for row in keys.iter().filter_map(|key| self.executions.get(key)) {
                    let blob = bytes_of(row.key, &row.result);
                    let size = blob.as_ref().map_or(0, |(_, bytes)| bytes.len());
                    if size > room && !rows.executions.is_empty() {
                        break;
                    }
                    room = room.saturating_sub(size);
                    rows.blobs.extend(blob);
                    rows.executions.push(row.clone());
                }
            }
            Query::Events { after, limit } => {
                let after = after.first().copied().unwrap_or_default();
                let from = (Bound::Excluded(after), Bound::Unbounded);
                let events = self.events.range(from).filter(|(seq, _)| **seq >= self.log_floor);
                let events = self.events.get(&after).into_iter().chain(events.map(|(_, row)| row));
                rows.events = events.take(limit.saturating_add(1)).cloned().collect();
                rows.log = Some(self.bounds());
            }
            Query::History { execution, after_version, limit } => {
                let own = |row: &&EventRow| {
                    row.execution == Some(execution) && row.version > after_version
                };
                let mut events: Vec<_> = self.events.values().filter(own).cloned().collect();
                events.sort_by_key(|row| row.version);
                events.truncate(limit);
                rows.events = events;
            }
            Query::Counts { namespace } => rows.counts = self.counts(namespace.as_ref()),
            Query::Lanes => rows.lanes = self.lanes.values().cloned().collect(),
            Query::Records { keys, scans } => {
                rows.records =
                    keys.iter().filter_map(|key| self.records.get(key)).cloned().collect();
                for scan in &scans {
                    rows.records.extend(self.scan(scan).into_iter().cloned());
                }
            }
            Query::Log => rows.log = Some(self.bounds()),
            Query::NextDue(scan) => rows.next_due = self.next_due(scan, now),
            Query::Timers { after, limit } => rows.timers = self.page_of_timers(after, limit),
        }
        rows
    }

    fn page_of_timers(&self, after: Option<TimerKey>, limit: usize) -> Vec<TimerRow> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.timers.range((from, Bound::Unbounded));
        found.take(limit).map(|(_, row)| row.clone()).collect()
    }

    fn query_execution(&self, rows: &mut Rows, key: ExecutionKey) {
        let Some(row) = self.executions.get(&key) else {
            return;
        };
        let from = AttemptKey { execution: key, index: 0 };
        let attempts = self.attempts.range(from..).take_while(|(at, _)| at.execution == key);
        rows.attempts = attempts.map(|(_, row)| row.clone()).collect();
        rows.lanes = self.lanes.get(&row.lane).cloned().into_iter().collect();
        if let Some(id) = row.flow_id {
            let flow = self.flows.get(&FlowKey { partition: key.partition, id });
            rows.flows = flow.cloned().into_iter().collect();
        }
        rows.executions = vec![row.clone()];
    }

    fn list(&self, list: &ListQuery) -> Vec<ExecutionRow> {
        let wanted = |row: &&ExecutionRow| list.matches(row) && list.is_after(row);
        let mut found: Vec<_> = self.executions.values().filter(wanted).cloned().collect();
        found.sort_by_key(|row| (row.created_at, row.key.id));
        if list.order == ListOrder::NewestFirst {
            found.reverse();
        }
        found.truncate(list.limit);
        found
    }

    fn member_counts(&self, flow: FlowKey) -> Vec<CountRow> {
        let mut counts: BTreeMap<_, u64> = BTreeMap::new();
        for row in self.members(flow) {
            *counts.entry(row.public_state).or_default() += 1;
        }
        let nothing: Arc<str> = "".into();
        let count = |(state, count)| CountRow {
            namespace: nothing.clone(),
            lane: nothing.clone(),
            state,
            count,
        };
        counts.into_iter().map(count).collect()
    }

    fn list_flows(&self, list: &FlowListQuery) -> Vec<FlowRow> {
        let wanted = |row: &&FlowRow| {
            list.namespace.as_ref().is_none_or(|namespace| *namespace == row.namespace)
                && (list.states.is_empty() || list.states.contains(&row.state))
                && list.after.is_none_or(|after| (row.created_at, row.key.id) < after)
        };
        let mut found: Vec<_> = self.flows.values().filter(wanted).cloned().collect();
        found.sort_by_key(|row| std::cmp::Reverse((row.created_at, row.key.id)));
        found.truncate(list.limit);
        found
    }

    fn counts(&self, namespace: Option<&Arc<str>>) -> Vec<CountRow> {
        let mut counts: BTreeMap<_, u64> = BTreeMap::new();
        for row in self.executions.values() {
            if namespace.is_none_or(|wanted| *wanted == row.namespace) {
                let group = (row.namespace.clone(), row.lane.clone(), row.public_state);
                *counts.entry(group).or_default() += 1;
            }
        }
        let count = |((namespace, lane, state), count)| CountRow { namespace, lane, state, count };
        counts.into_iter().map(count).collect()
    }

    fn bounds(&self) -> LogBounds {
        let (floor, head, floor_mark) = (self.log_floor, self.log_head, self.log_floor_mark);
        LogBounds {
            history_id: self.history_id,
            secret: self.log_secret,
            shards: vec![ShardBounds { floor, head, floor_mark }],
        }
    }

    fn next_due(&self, scan: Option<RetentionScan>, now: TimestampMs) -> Option<TimestampMs> {
        let timer = self.timers.keys().next().map(|key| key.due_at);
        let oldest = self.events.range(self.log_floor..).next().map(|(_, row)| row);
        let retired = scan.and_then(|scan| {
            let oldest = oldest?;
            let too_many = scan.max_finished.and_then(|keep| self.finish_horizon(keep));
            if too_many.is_some_and(|horizon| oldest.seq <= horizon) {
                return Some(now);
            }
            scan.max_age_ms.map(|age| oldest.at.after_ms(age))
        });
        let unannounced = self.unannounced().next().map(|_| now);
        timer.into_iter().chain(retired).chain(unannounced).min()
    }
}

fn bytes_of(key: ExecutionKey, blob: &Blob) -> Option<(ExecutionKey, Arc<[u8]>)> {
    match blob {
        Blob::Here(bytes) => Some((key, bytes.clone())),
        Blob::Absent | Blob::Apart => None,
    }
}
