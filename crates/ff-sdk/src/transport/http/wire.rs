//! Between the shapes of the engine and those of HTTP.

use ff_api::{
    ClaimRequest, ClaimedExecution as WireClaimed, CompleteRequest, DelayRequest, FailRequest,
    FailureClass as WireClass, FlowNodeRequest, LeaseOperation, Parent,
    RenewOutcome as WireRenewed, Signal, SignalRequest, Span, SubmitFlowRequest,
    SubmitOutcome as WireSubmitted, SubmitRequest, SuspendAnswer, bytes,
};
use ff_core::backend::Handle;
use ff_core::contracts::{
    ClaimArgs, ClaimedExecution, DeliverSignalArgs, FailureClass, FlowNode, IdempotencyScope,
    ParentResult, ReadStreamArgs, RenewOutcome, ResumeSignal, SignalTarget, Submission,
    SubmitFlowArgs, SubmitOutcome, SuspendOutcome, SuspensionDetails, Visibility,
};
use ff_core::engine_error::EngineError;
use ff_core::types::{LeaseEpoch, Namespace};

use super::problem;
use crate::transport::{Report, Verdict};

/// The namespace of submissions that name none.
const UNSAID: &str = "default";

/// The server puts everything into the namespace of the request.
pub(super) fn submission(
    item: Submission,
    namespace: Option<&Namespace>,
) -> Result<SubmitRequest, EngineError> {
    let own = namespace.map_or(UNSAID, Namespace::as_str);
    if item.namespace.as_str() != own && item.namespace.as_str() != UNSAID {
        let wanted = item.namespace;
        let detail = format!("a client of the namespace {own:?} cannot submit to {wanted:?}");
        return Err(EngineError::invalid(detail));
    }
    let (payload, payload_base64) = match item.input_payload.is_empty() {
        true => (None, None),
        false => bytes::write(&item.input_payload),
    };
    let scope = item.idempotency.as_ref().map(|key| key.scope);
    Ok(SubmitRequest {
        execution_id: item.execution_id,
        lane_id: item.lane_id,
        execution_kind: item.execution_kind,
        payload,
        payload_base64,
        payload_encoding: item.payload_encoding,
        priority: item.priority,
        creator_identity: Some(item.creator_identity).filter(|name| !name.is_empty()),
        idempotency_key: item.idempotency.map(|key| key.key),
        idempotency_ttl: match scope {
            Some(IdempotencyScope::Ttl(ttl)) => Some(Span(ttl)),
            _ => None,
        },
        unique_until_finished: scope == Some(IdempotencyScope::UntilFinished),
        tags: item.tags,
        policy: item.policy,
        delay: item.delay.map(Span),
        deadline: item.deadline.map(Span),
    })
}

pub(super) fn flow(
    args: SubmitFlowArgs,
    namespace: Option<&Namespace>,
) -> Result<SubmitFlowRequest, EngineError> {
    Ok(SubmitFlowRequest {
        flow_id: args.flow_id,
        flow_kind: args.flow_kind,
        idempotency_key: args.idempotency_key,
        tags: args.tags,
        nodes: nodes(args.nodes, namespace)?,
        edges: args.edges,
    })
}

/// Nodes that join a flow: the engine puts them into the flow's own namespace.
pub(super) fn joining(mut nodes: Vec<FlowNode>) -> Result<Vec<FlowNodeRequest>, EngineError> {
    nodes.iter_mut().for_each(|node| node.work.namespace = Namespace::new(UNSAID));
    self::nodes(nodes, None)
}

pub(super) fn nodes(
    nodes: Vec<FlowNode>,
    namespace: Option<&Namespace>,
) -> Result<Vec<FlowNodeRequest>, EngineError> {
    let node = |node: FlowNode| {
        let work = submission(node.work, namespace)?;
        let (policy, merge_results) = (node.policy, node.merge_results);
        Ok(FlowNodeRequest { name: node.name, work, policy, merge_results })
    };
    nodes.into_iter().map(node).collect()
}

pub(super) fn parent(parent: Parent) -> Result<ParentResult, EngineError> {
    let result = parent.bytes().map_err(|error| problem::unreadable(&error))?;
    let Parent { execution_id, name, public_state, .. } = parent;
    Ok(ParentResult { execution_id, name, public_state, result })
}

pub(super) fn submit_outcome(outcome: WireSubmitted) -> SubmitOutcome {
    match outcome {
        WireSubmitted::Created { execution_id, public_state } => {
            SubmitOutcome::Created { execution_id, public_state }
        }
        WireSubmitted::Duplicate { execution_id } => SubmitOutcome::Duplicate { execution_id },
        WireSubmitted::Refused { problem } => {
            SubmitOutcome::Refused(problem::engine_error(problem))
        }
    }
}

pub(super) fn claim(args: ClaimArgs) -> ClaimRequest {
    ClaimRequest {
        lanes: args.lanes,
        capabilities: args.capabilities.tokens,
        worker_id: args.worker_id,
        worker_instance_id: args.worker_instance_id,
        lease_ttl: Span::millis(u64::from(args.lease_ttl_ms)),
        max: args.max,
        wait: Span(args.wait),
    }
}

pub(super) fn claimed(claimed: WireClaimed) -> Result<ClaimedExecution, EngineError> {
    let payload = claimed.bytes().map_err(|error| problem::unreadable(&error))?;
    Ok(ClaimedExecution {
        handle: Handle::decode(&claimed.handle)?,
        execution_id: claimed.execution_id,
        namespace: claimed.namespace,
        lane_id: claimed.lane_id,
        execution_kind: claimed.execution_kind,
        payload: payload.unwrap_or_default().into(),
        payload_encoding: claimed.payload_encoding,
        tags: claimed.tags,
        priority: claimed.priority,
        attempt_index: claimed.attempt_index,
        attempt_type: claimed.attempt_type,
        lease_epoch: LeaseEpoch(claimed.lease_epoch),
        lease_expires_at: claimed.lease_expires_at,
        created_at: claimed.created_at,
        deadline_at: claimed.deadline_at,
        steps: claimed.steps,
        resume_signals: signals(claimed.resume_signals)?,
    })
}

fn signals(signals: Vec<Signal>) -> Result<Vec<ResumeSignal>, EngineError> {
    signals.into_iter().map(signal).collect()
}

fn signal(signal: Signal) -> Result<ResumeSignal, EngineError> {
    let payload = signal.bytes().map_err(|error| problem::unreadable(&error))?;
    Ok(ResumeSignal {
        signal_id: signal.signal_id,
        waitpoint_id: signal.waitpoint_id,
        waitpoint_key: signal.waitpoint_key,
        signal_name: signal.signal_name,
        signal_category: signal.signal_category,
        source_type: signal.source_type,
        source_identity: signal.source_identity,
        payload,
        payload_encoding: signal.payload_encoding,
        correlation_id: signal.correlation_id,
        accepted_at: signal.accepted_at,
    })
}

pub(super) fn suspended(answer: SuspendAnswer) -> Result<SuspendOutcome, EngineError> {
    Ok(match answer {
        SuspendAnswer::Suspended { suspension_id, waitpoints, timeout_at } => {
            let details = SuspensionDetails { suspension_id, waitpoints, timeout_at };
            SuspendOutcome::Suspended(details)
        }
        SuspendAnswer::AlreadySatisfied { suspension_id, signals: found } => {
            SuspendOutcome::AlreadySatisfied { suspension_id, signals: signals(found)? }
        }
    })
}

/// Where a signal goes, and what it says. Who says it is for the server to tell.
pub(super) fn signal_request(args: DeliverSignalArgs) -> (SignalTarget, SignalRequest) {
    let (payload, payload_base64) =
        args.payload.map(|payload| bytes::write(&payload)).unwrap_or_default();
    let request = SignalRequest {
        signal_name: args.signal_name,
        signal_id: Some(args.signal_id),
        signal_category: args.signal_category,
        payload,
        payload_base64,
        payload_encoding: args.payload_encoding,
        correlation_id: args.correlation_id,
        idempotency_key: args.idempotency_key,
    };
    (args.target, request)
}

pub(super) fn stream_query(args: &ReadStreamArgs) -> Vec<(&'static str, String)> {
    let mut query = vec![
        ("from", args.from.to_string()),
        ("durable_only", (args.visibility == Visibility::ExcludeBestEffort).to_string()),
        ("wait", Span::millis(args.wait_ms).to_string()),
    ];
    query.extend(args.attempt_index.map(|index| ("attempt_index", index.to_string())));
    query.extend((args.limit > 0).then(|| ("limit", args.limit.to_string())));
    query
}

pub(super) fn renew_outcome(outcome: WireRenewed) -> RenewOutcome {
    match outcome {
        WireRenewed::Renewed { expires_at } => RenewOutcome::Renewed { expires_at },
        WireRenewed::Lost { problem } => RenewOutcome::Lost(problem::engine_error(problem)),
    }
}

pub(super) fn operation(report: &Report) -> LeaseOperation {
    let handle = report.handle.encode();
    match &report.verdict {
        Verdict::Complete(result) => {
            let written = result.as_deref().map(bytes::write);
            let (result, result_base64) = written.unwrap_or_default();
            LeaseOperation::Complete(CompleteRequest { handle, result, result_base64 })
        }
        Verdict::Fail(args) => LeaseOperation::Fail(FailRequest {
            handle,
            reason: args.reason.clone(),
            category: args.category.clone(),
            class: match args.class {
                FailureClass::Retryable => WireClass::Retryable,
                FailureClass::Fatal => WireClass::Fatal,
            },
        }),
        Verdict::Release(delay) => {
            LeaseOperation::Delay(DelayRequest { handle, delay: Span(*delay) })
        }
    }
}

/// A name as one segment of an address.
pub(super) fn segment(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                segment.push(char::from(byte));
            }
            _ => segment += &format!("%{byte:02X}"),
        }
    }
    segment
}

/// About how many bytes a report takes; base64 makes a third more of what is not JSON.
pub(super) fn size(report: &Report) -> usize {
    const AROUND: usize = 512;
    AROUND
        + match &report.verdict {
            Verdict::Complete(result) => result.as_ref().map_or(0, |bytes| bytes.len() * 4 / 3),
            Verdict::Fail(args) => args.reason.len() + args.category.len(),
            Verdict::Release(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn names_are_one_segment() {
        assert_eq!(segment("w-1"), "w-1");
        assert_eq!(segment("a/b \u{e9}"), "a%2Fb%20%C3%A9");
    }
}
