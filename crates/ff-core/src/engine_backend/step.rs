//! Durable steps: what a worker has done is recorded, and comes back with the next claim.

use std::time::Duration;

use async_trait::async_trait;

use super::{EngineBackend, visible};
use crate::backend::Handle;
use crate::contracts::{Listed, RecordStepOutcome, SleepOutcome, Step};
use crate::engine::{check_count, check_duration, check_step_name, check_step_result};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::step::{RecordStep, SleepStep};
use crate::rows::{StepRow, values};
use crate::store::{Query, Scan};
use crate::types::{ExecutionId, ExecutionKey};
use crate::views;

#[async_trait]
pub trait StepOperations: EngineBackend {
    /// The holder records what it has done. What is recorded first under a name stands: a repeat
    /// is told so, and other bytes are answered with those that stand. Keeps the lease.
    async fn record_step(
        &self,
        handle: &Handle,
        name: &str,
        result: Vec<u8>,
    ) -> Result<RecordStepOutcome, EngineError> {
        check_step_name(name)?;
        check_step_result(&result)?;
        let (handle, name, result) = (handle.clone(), name.into(), result.into());
        self.engine().run_as(self.caller(), RecordStep { handle, name, result }).await
    }

    /// The holder sleeps once under a name. The execution is put down until the sleep is over;
    /// whoever claims it then is told so by the same call.
    async fn sleep_step(
        &self,
        handle: &Handle,
        name: &str,
        duration: Duration,
    ) -> Result<SleepOutcome, EngineError> {
        check_step_name(name)?;
        check_duration("sleep", Some(duration))?;
        let (handle, name) = (handle.clone(), name.into());
        self.engine().run_as(self.caller(), SleepStep { handle, name, duration }).await
    }

    /// The steps of an execution in the order in which they were recorded, after one of them.
    async fn list_steps(
        &self,
        id: &ExecutionId,
        after_sequence: u32,
        limit: usize,
    ) -> Result<Listed<Step>, EngineError> {
        check_count("steps", limit, limits::STEPS)?;
        let rows = self.engine().query(Query::Execution(id.key())).await?;
        let row = visible(self.scope(), &rows);
        let row = row.ok_or(EngineError::NotFound { entity: "execution" })?;
        if !row.has_steps() {
            return Ok(Listed::default());
        }
        let found = super::scan::find::<StepRow>(self.engine(), steps_of(row.key)).await?;
        let mut items = views::steps(found.records);
        items.retain(|step| step.sequence > after_sequence);
        items.truncate(limit);
        Ok(Listed { items, unreadable: found.unreadable })
    }
}

impl<B: EngineBackend + ?Sized> StepOperations for B {}

/// All steps of an execution, by name.
pub(super) fn steps_of(execution: ExecutionKey) -> Scan {
    Scan::of::<StepRow>(values![execution]).limit(limits::STEPS)
}
