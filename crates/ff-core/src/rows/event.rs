//! `ff_event`: the append-only log. The contract's event tables are views on it.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{ExecutionRow, with_raw};
use crate::contracts::{EventFilter, EventType, Stamp, take_actor};
use crate::state::PublicState;
use crate::types::{ExecutionKey, TimestampMs};

#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// Given by the store as it commits; dense per shard.
    pub shard: u16,
    pub seq: u64,
    pub at: TimestampMs,
    pub event_type: EventType,
    pub namespace: Arc<str>,
    pub lane: Option<Arc<str>>,
    pub kind: Option<Arc<str>>,
    pub execution: Option<ExecutionKey>,
    pub flow_id: Option<Uuid>,
    pub from: Option<PublicState>,
    pub to: Option<PublicState>,
    pub version: u64,
    pub attempt_index: u32,
    pub lease_epoch: u64,
    /// A lease ended with this transition.
    pub lease_ended: bool,
    pub by: Option<Arc<str>>,
    /// A JSON object, if there is more to say.
    pub details: Option<Arc<str>>,
}

impl EventRow {
    /// An event that is about no execution.
    pub fn bare(event_type: EventType, namespace: Arc<str>, at: TimestampMs) -> Self {
        Self {
            shard: 0,
            seq: 0,
            at,
            event_type,
            namespace,
            lane: None,
            kind: None,
            execution: None,
            flow_id: None,
            from: None,
            to: None,
            version: 0,
            attempt_index: 0,
            lease_epoch: 0,
            lease_ended: false,
            by: None,
            details: None,
        }
    }

    /// An event about an execution as it stands after the transition.
    pub fn about(row: &ExecutionRow, event_type: EventType, at: TimestampMs) -> Self {
        Self {
            lane: Some(row.lane.clone()),
            kind: Some(row.kind.clone()),
            execution: Some(row.key),
            flow_id: row.flow_id,
            to: Some(row.public_state),
            version: row.version,
            attempt_index: row.attempt_index,
            lease_epoch: row.lease_epoch,
            ..Self::bare(event_type, row.namespace.clone(), at)
        }
    }

    /// Made from what the event says. It is never 0, and hardly ever the same for two events that
    /// were written at the same place of the log, one of them before a restore and one after it.
    pub fn mark(&self) -> u32 {
        let key = self.execution.map_or(Uuid::nil(), |key| key.id);
        let digest = Sha256::new()
            .chain_update(self.at.0.to_be_bytes())
            .chain_update(key.as_bytes())
            .chain_update(self.flow_id.unwrap_or_default().as_bytes())
            .chain_update(self.version.to_be_bytes())
            .chain_update(self.lease_epoch.to_be_bytes())
            .chain_update(self.event_type.as_str())
            .finalize();
        u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]).max(1)
    }

    #[must_use]
    pub fn details(mut self, details: &serde_json::Value) -> Self {
        self.details = Some(details.to_string().into());
        self
    }

    /// Notes when the caller says that it asked, where that is not the time of the log. The
    /// contract's event tables show that time; retention and cursors go by the log's own.
    #[must_use]
    pub fn asked_at(mut self, asked_at: Option<TimestampMs>) -> Self {
        if let Some(at) = asked_at.filter(|at| *at != self.at) {
            self.add_detail("asked_at_ms", at.0.into());
        }
        self
    }

    /// Says one thing more.
    pub(crate) fn add_detail(&mut self, name: &str, value: serde_json::Value) {
        let known = self.details.as_deref().unwrap_or("{}");
        self.details = Some(with_raw(known, [(name, value)]));
    }

    #[must_use]
    pub fn by(mut self, by: Option<Arc<str>>) -> Self {
        self.by = by;
        self
    }

    /// Writes down who caused it.
    pub(crate) fn stamp(&mut self, stamp: &Stamp) {
        if let Some(by) = stamp.by() {
            self.by = Some(by.clone());
        }
        self.details = Some(stamp.details(self.details.as_deref()));
    }

    /// Whether an operator or an admin has caused it through a server.
    fn is_audited(&self) -> bool {
        let Some(details) = self.details.as_deref().filter(|json| json.contains("request_id"))
        else {
            return false;
        };
        let mut details = serde_json::from_str(details).unwrap_or_default();
        take_actor(&mut details).is_some_and(|actor| actor.request_id.is_some())
    }

    pub fn matches(&self, filter: &EventFilter) -> bool {
        let same = |wanted: Option<&str>, have: Option<&str>| wanted.is_none() || wanted == have;
        same(filter.namespace.as_ref().map(|n| n.as_str()), Some(&self.namespace))
            && same(filter.lane_id.as_ref().map(|l| l.as_str()), self.lane.as_deref())
            && same(filter.execution_kind.as_deref(), self.kind.as_deref())
            && (filter.flow_id.is_none() || filter.flow_id.map(|f| f.0) == self.flow_id)
            && (filter.event_types.is_empty() || filter.event_types.contains(&self.event_type))
            && (!filter.audit || self.is_audited())
    }
}
