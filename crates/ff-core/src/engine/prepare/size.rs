//! How large a call may be that brings many things at once: the writer has all of it in memory.

use crate::contracts::{FlowEdge, FlowNode, Submission};
use crate::engine_error::{EngineError, ValidationKind};
use crate::limits::Limits;
use crate::policy::ExecutionPolicy;

pub(super) fn check_submissions(items: &[Submission], limits: &Limits) -> Result<(), EngineError> {
    check("the submissions", items.iter().map(submission).sum(), limits)
}

pub(super) fn check_graph(
    nodes: &[FlowNode],
    edges: &[FlowEdge],
    limits: &Limits,
) -> Result<(), EngineError> {
    let nodes: usize = nodes.iter().map(|node| node.name.len() + submission(&node.work)).sum();
    let edges: usize = edges.iter().map(|edge| edge.from.len() + edge.to.len()).sum();
    check("the nodes and edges", nodes + edges, limits)
}

/// Refuses what has more bytes than one call may bring.
pub(crate) fn check(what: &str, bytes: usize, limits: &Limits) -> Result<(), EngineError> {
    // The largest payload can always be submitted.
    let limit = limits.submission_bytes.max(2 * limits.payload_bytes);
    if bytes <= limit {
        return Ok(());
    }
    let detail = format!("{what} have {bytes} bytes together, the limit is {limit}");
    Err(EngineError::validation(ValidationKind::PayloadTooLarge, detail))
}

/// The bytes and texts of one submission that can be long.
fn submission(item: &Submission) -> usize {
    let tags: usize = item.tags.iter().map(|(key, value)| key.len() + value.len()).sum();
    item.input_payload.len()
        + item.execution_kind.len()
        + item.creator_identity.len()
        + item.idempotency.as_ref().map_or(0, |own| own.key.len())
        + item.policy.as_ref().map_or(0, policy)
        + tags
}

fn policy(policy: &ExecutionPolicy) -> usize {
    let capabilities = policy.routing_requirements.required_capabilities.iter();
    let names = capabilities.chain(&policy.retry_policy.retryable_categories);
    let names = names.chain(&policy.budget_ids).chain(policy.budget_estimate.keys());
    names.map(String::len).sum()
}
