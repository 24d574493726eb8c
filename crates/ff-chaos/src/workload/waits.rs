//! Calls about flows, suspensions and signals.

use std::time::Duration;

use ff_core::backend::{CancelFlowPolicy, CancelFlowWait, Handle};
use ff_core::condition::{ResumeCondition, SignalMatcher};
use ff_core::contracts::{
    DeliverSignalArgs, SignalTarget, SuspendArgs, SuspendOutcome, TimeoutBehavior,
};
use ff_core::engine_backend::{EngineBackend, FlowOperations, SuspensionOperations};
use ff_core::engine_error::EngineError;
use ff_core::types::{FlowId, WaitpointId};

use super::client::parse;
use crate::history::{Op, Outcome};

const WAITPOINT: &str = "go";
pub const SIGNAL: &str = "go";

/// Waits for any signal, and not for ever.
pub fn suspension(timeout_ms: u64, fails: bool) -> SuspendArgs {
    let condition = ResumeCondition::Single {
        waitpoint_key: WAITPOINT.to_owned(),
        matcher: SignalMatcher::Any,
    };
    let behavior = match fails {
        true => TimeoutBehavior::Fail,
        false => TimeoutBehavior::AutoResumeWithTimeoutSignal,
    };
    let timeout = Duration::from_millis(timeout_ms);
    SuspendArgs::new(condition).without_tokens().timeout(timeout, behavior)
}

pub async fn perform(backend: &dyn EngineBackend, op: &Op) -> Result<Outcome, EngineError> {
    match op {
        Op::Plant(planted) => {
            let args = planted.args().map_err(|error| EngineError::invalid(error.to_string()))?;
            backend.submit_flow(args).await?;
            Ok(Outcome::Done)
        }
        Op::CancelFlow { flow } => {
            let (policy, wait) = (CancelFlowPolicy::CancelAll, CancelFlowWait::NoWait);
            backend.cancel_flow(&FlowId(*flow), policy, wait).await?;
            Ok(Outcome::Done)
        }
        Op::Suspend { lease, timeout_ms, fails } => {
            let args = suspension(*timeout_ms, *fails);
            match backend.suspend(&Handle::decode(&lease.handle)?, args).await? {
                SuspendOutcome::Suspended(details) => {
                    let waitpoint = details.waitpoints.first().map(|one| one.waitpoint_id.0);
                    let waitpoint = waitpoint.ok_or(EngineError::NotFound { entity: "waitpoint" });
                    Ok(Outcome::Suspended { waitpoint: waitpoint? })
                }
                SuspendOutcome::AlreadySatisfied { .. } => Ok(Outcome::Unchanged),
            }
        }
        Op::Signal { id, waitpoint, key } => {
            let (execution_id, waitpoint_id) = (parse(id)?, WaitpointId(*waitpoint));
            let target = SignalTarget::Waitpoint { execution_id, waitpoint_id };
            let args = DeliverSignalArgs::new(target, SIGNAL).idempotency_key(key);
            backend.deliver_signal(args).await?;
            Ok(Outcome::Done)
        }
        _ => Err(EngineError::invalid("another file performs this")),
    }
}
