//! Streams: attempts say something, others follow.

use async_trait::async_trait;

use super::stream_reader::StreamReader;
use super::{EngineBackend, visible};
use crate::backend::Handle;
use crate::contracts::{
    AppendFramesArgs, AppendFramesOutcome, ReadStreamArgs, StreamPage, StreamSummary,
};
use crate::engine::prepare_append;
use crate::engine_error::EngineError;
use crate::rows::{Record, SummaryKey, SummaryRow};
use crate::store::Query;
use crate::types::ExecutionId;
use crate::views;

#[async_trait]
pub trait StreamOperations: EngineBackend {
    /// The holder says something. Keeps the lease.
    async fn append_frames(
        &self,
        handle: &Handle,
        args: AppendFramesArgs,
    ) -> Result<AppendFramesOutcome, EngineError> {
        let operation = prepare_append(handle, args)?;
        self.engine().run_as(self.caller(), operation).await
    }

    /// Frames of one attempt after a place, in their order. Waits for the next ones if it is asked
    /// to, and is told at once when nothing more will come.
    async fn read_stream(&self, args: ReadStreamArgs) -> Result<StreamPage, EngineError> {
        StreamReader::new(self.engine(), self.scope(), args)?.read().await
    }

    /// What the summary frames of an attempt amount to; of the current attempt unless told.
    async fn read_summary(
        &self,
        id: &ExecutionId,
        attempt_index: Option<u32>,
    ) -> Result<Option<StreamSummary>, EngineError> {
        let execution = id.key();
        let rows = self.engine().query(Query::Execution(execution)).await?;
        let row = visible(self.scope(), &rows);
        let row = row.ok_or(EngineError::NotFound { entity: "execution" })?;
        let attempt_index = attempt_index.unwrap_or(row.attempt_index);
        let key = SummaryRow::erase_key(&SummaryKey { execution, attempt_index });
        let query = Query::Records { keys: vec![key], scans: Vec::new() };
        let rows = self.engine().query(query).await?.records::<SummaryRow>();
        let rows = rows.map_err(|error| self.engine().store_error(error))?;
        Ok(rows.first().and_then(views::summary))
    }
}

impl<B: EngineBackend + ?Sized> StreamOperations for B {}
