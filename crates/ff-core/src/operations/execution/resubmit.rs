//! An operator starts the work of an ended execution anew, as an execution of its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::submit::{Accepted, PreparedSubmission, accept, needs_of};
use super::unique_key::{FINGERPRINT, check_free};
use crate::contracts::{ResubmitResult, SubmitOutcome};
use crate::engine_error::{EngineError, StateKind};
use crate::operations::Operation;
use crate::rows::{Blob, ExecutionRow, with_raw};
use crate::store::{Change, Needs, World};
use crate::types::ExecutionKey;

/// Where the new execution names the one that it was made from.
pub(crate) const RESUBMITTED_FROM: &str = "resubmitted_from";

#[derive(Debug)]
pub struct Resubmit {
    /// The execution that has ended.
    pub from: ExecutionKey,
    /// The identity of the new one.
    pub key: ExecutionKey,
    pub payload: Arc<[u8]>,
    pub payload_encoding: Option<Arc<str>>,
    pub creator: Arc<str>,
    /// A key of the new execution's own, and how long it holds.
    pub idempotency: Option<(Arc<str>, Duration)>,
    pub fingerprint: [u8; 32],
}

impl Operation for Resubmit {
    type Reply = ResubmitResult;

    const NAME: &'static str = "resubmit";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        needs.unwritten_execution(self.from);
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        if let Some(row) = world.execution(self.from) {
            needs_of(needs, &self.item(row));
        }
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let from = world.existing(self.from)?;
        if !from.is_finished() {
            return Err(EngineError::State(StateKind::ExecutionNotEnded));
        }
        if from.holds_key && self.idempotency.is_some() {
            let detail = "the execution has a unique key, which its resubmission takes; it cannot \
                          have another idempotency key";
            return Err(EngineError::invalid(detail));
        }
        let item = self.item(from);
        let mut change = Change::default();
        check_free(world, &change, &item.row)?;
        let deadline = item.deadline.map(|deadline| world.now.after(deadline));
        let mut accepted = Accepted::default();
        match accept(world, &mut change, &mut accepted, &item, None, deadline) {
            SubmitOutcome::Created { execution_id, public_state } => {
                let details = json!({ RESUBMITTED_FROM: self.from.execution_id() });
                change.events = change.events.into_iter().map(|e| e.details(&details)).collect();
                Ok((ResubmitResult::Created { execution_id, public_state }, change))
            }
            SubmitOutcome::Duplicate { execution_id } => {
                Ok((ResubmitResult::Duplicate { execution_id }, change))
            }
            SubmitOutcome::Refused(error) => Err(error),
        }
    }
}

impl Resubmit {
    /// The new execution as a submission that has been checked.
    fn item(&self, from: &ExecutionRow) -> PreparedSubmission {
        let mut row = anew(from, self.key);
        row.payload = Blob::Here(self.payload.clone());
        row.payload_encoding = self.payload_encoding.clone();
        row.creator = self.creator.clone();
        let mut raw = vec![(RESUBMITTED_FROM, json!(self.from.execution_id()))];
        if from.holds_key {
            row.holds_key = true;
            row.idempotency_key = from.idempotency_key.clone();
            raw.push((FINGERPRINT, super::unique_key::encode(&self.fingerprint).into()));
        } else {
            row.idempotency_key = self.idempotency.as_ref().map(|(key, _)| key.clone());
        }
        row.raw_fields = with_raw("{}", raw);
        let deadline = row.policy().timeout_policy.execution_deadline_ms;
        PreparedSubmission {
            row,
            fresh_id: true,
            fingerprint: self.fingerprint,
            key_ttl: self.idempotency.as_ref().map(|(_, ttl)| *ttl),
            delay: None,
            deadline: deadline.map(Duration::from_millis),
        }
    }
}

/// The same work under another identity: outside flows, without a key, and with nothing done yet.
pub(crate) fn anew(row: &ExecutionRow, key: ExecutionKey) -> ExecutionRow {
    ExecutionRow {
        namespace: row.namespace.clone(),
        lane: row.lane.clone(),
        kind: row.kind.clone(),
        payload: row.payload.clone(),
        payload_encoding: row.payload_encoding.clone(),
        creator: row.creator.clone(),
        policy: row.policy.clone(),
        capability_class: row.capability_class.clone(),
        priority: row.priority,
        tags: row.tags.clone(),
        raw_fields: "{}".into(),
        ..ExecutionRow::blank(key)
    }
}
