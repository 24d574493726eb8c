//! What was submitted to a kit, and assertions on it.

use ff_core::contracts::{ListExecutionsArgs, ListOrder};
use ff_core::engine_backend::EngineBackend as _;
use ff_core::limits;
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, FlowId};
use serde::Serialize;

use super::TestKit;
use crate::error::Error;
use crate::task::Task;

/// An execution as a test sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Submitted {
    pub id: ExecutionId,
    pub lane: String,
    pub kind: String,
    /// The input, if it is JSON.
    pub input: serde_json::Value,
    pub state: PublicState,
    /// The flow that it is a node of.
    pub flow: Option<FlowId>,
}

impl TestKit {
    /// Everything that was submitted, oldest first.
    pub async fn submitted(&self) -> Result<Vec<Submitted>, Error> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let page = ListExecutionsArgs {
                order: ListOrder::OldestFirst,
                limit: limits::PAGE,
                cursor,
                ..ListExecutionsArgs::default()
            };
            let page = self.backend.list_executions(page).await?;
            for one in page.executions {
                let payload = self.backend.payload(&one.execution_id).await?.unwrap_or_default();
                all.push(Submitted {
                    id: one.execution_id,
                    lane: one.lane_id.0,
                    kind: one.execution_kind,
                    input: serde_json::from_slice(&payload).unwrap_or_default(),
                    state: one.public_state,
                    flow: one.flow_id,
                });
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// How many executions of a kind were submitted.
    pub async fn count(&self, kind: &str) -> Result<usize, Error> {
        Ok(self.submitted().await?.iter().filter(|one| one.kind == kind).count())
    }

    /// Fails the test unless the task was submitted with this input, once or more.
    ///
    /// # Panics
    ///
    /// If it was not; the message shows what was submitted instead.
    pub async fn assert_submitted<I: Serialize, O>(
        &self,
        task: Task<I, O>,
        input: &I,
    ) -> Result<(), Error> {
        let wanted =
            serde_json::to_value(input).map_err(|source| Error::Json { what: "input", source })?;
        let all = self.submitted().await?;
        let found = all.iter().any(|one| one.kind == task.kind() && one.input == wanted);
        let shown = || {
            let lines = all.iter().map(|one| format!("  {} {}", one.kind, one.input));
            lines.collect::<Vec<_>>().join("\n")
        };
        assert!(found, "{} {wanted} was not submitted, but:\n{}", task.kind(), shown());
        Ok(())
    }
}
