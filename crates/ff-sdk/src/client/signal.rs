//! Saying something to an execution that waits for it.

use ff_core::contracts::{DeliverSignalArgs, SignalOutcome, SignalTarget, WaitpointState};
use ff_core::engine_error::EngineError;
use ff_core::token::WaitpointToken;
use ff_core::types::ExecutionId;
use serde::Serialize;

use super::Client;
use crate::error::Error;

/// The encoding of every payload that the SDK writes.
const JSON: &str = "json";

impl Client {
    /// Says something to an execution that waits for a signal of this name, or that has made the
    /// waitpoint ahead. Nothing is kept for one that has done neither: that is `not_found`.
    pub async fn signal<T: Serialize>(
        &self,
        id: &ExecutionId,
        name: &str,
        payload: &T,
    ) -> Result<SignalOutcome, Error> {
        let open = self.transport.list_waitpoints(id).await?.into_iter().find(|waitpoint| {
            waitpoint.state != WaitpointState::Closed && waitpoint.waitpoint_key == name
        });
        let open = open.ok_or(EngineError::NotFound { entity: "waitpoint" })?;
        let (execution_id, waitpoint_id) = (id.clone(), open.waitpoint_id);
        let target = SignalTarget::Waitpoint { execution_id, waitpoint_id };
        self.deliver(target, name, payload).await
    }

    /// The same for whoever has the token of a waitpoint and need not know anything else.
    pub async fn signal_by_token<T: Serialize>(
        &self,
        token: WaitpointToken,
        name: &str,
        payload: &T,
    ) -> Result<SignalOutcome, Error> {
        self.deliver(SignalTarget::Token(token), name, payload).await
    }

    async fn deliver<T: Serialize>(
        &self,
        target: SignalTarget,
        name: &str,
        payload: &T,
    ) -> Result<SignalOutcome, Error> {
        let payload = serde_json::to_vec(payload)
            .map_err(|source| Error::Json { what: "payload of the signal", source })?;
        let mut args = DeliverSignalArgs::new(target, name).payload(payload);
        args.payload_encoding = Some(JSON.to_owned());
        Ok(self.transport.deliver_signal(args).await?)
    }
}
