//! What the parents of a member have ended with: page by page for whoever asks, and together with
//! the input for a member that wants it so.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::flow_key;
use crate::contracts::{FailureClass, ParentPage, ParentResult};
use crate::engine::Engine;
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::execution::{Fail, Grant};
use crate::operations::flow::cascade::edges_into;
use crate::rows::{EdgeKind, EdgeRow, FlowKey, Word};
use crate::store::{Query, Rows};
use crate::types::FlowId;

/// The category of a member whose parents have more to say than its payload may hold.
const TOO_LARGE: &str = "parents_too_large";

/// Whoever is of no flow has no parents.
pub(super) fn none() -> ParentPage {
    ParentPage { parents: Vec::new(), next_after: None }
}

/// Parents behind one of a member's edges of a kind: so many at most, and with results of so many
/// bytes.
pub(super) async fn page(
    engine: &Engine,
    (flow, member): (FlowKey, Uuid),
    kind: EdgeKind,
    after: Option<Uuid>,
    limit: usize,
) -> Result<ParentPage, EngineError> {
    let (edges, more) = edges(engine, (flow, member), kind, after, limit).await?;
    let keys = edges.iter().map(|edge| flow.member(edge.upstream)).collect();
    let rows = engine.query(Query::Results { keys, bytes: limits::PARENTS_PAGE_BYTES }).await?;
    let (parents, reached) = told(flow, &edges, rows);
    let more = more || reached < edges.len();
    let last = reached.checked_sub(1).and_then(|at| edges.get(at)).filter(|_| more);
    Ok(ParentPage { parents, next_after: last.map(|edge| edge.key.edge_id) })
}

/// The next edges of a kind into a member, and whether there are more. Parents and nodes that the
/// member has added itself are told apart by it.
async fn edges(
    engine: &Engine,
    (flow, member): (FlowKey, Uuid),
    kind: EdgeKind,
    after: Option<Uuid>,
    limit: usize,
) -> Result<(Vec<EdgeRow>, bool), EngineError> {
    let (mut edges, mut after) = (Vec::new(), after);
    loop {
        let scan = edges_into(flow, member, after).limit(limits::PAGE);
        let rows = engine.query(Query::Records { keys: Vec::new(), scans: vec![scan] }).await?;
        let found = rows.records::<EdgeRow>().map_err(|error| engine.store_error(error))?;
        let last = found.len() < limits::PAGE;
        after = found.last().map(|edge| edge.key.edge_id).or(after);
        edges.extend(found.into_iter().filter(|edge| edge.kind == Word(kind)));
        if edges.len() > limit {
            edges.truncate(limit);
            return Ok((edges, true));
        }
        if last {
            return Ok((edges, false));
        }
    }
}

/// The parents that were read, and how many of the edges they stand for. A parent that is not there
/// any more is passed over.
fn told(flow: FlowKey, edges: &[EdgeRow], rows: Rows) -> (Vec<ParentResult>, usize) {
    let mut blobs = rows.blobs.into_iter().peekable();
    let mut parents = Vec::with_capacity(rows.executions.len());
    let mut reached = 0;
    for row in &rows.executions {
        let is_own = |edge: &EdgeRow| flow.member(edge.upstream) == row.key;
        let Some(at) = edges[reached..].iter().position(is_own) else { break };
        reached += at + 1;
        parents.push(ParentResult {
            execution_id: row.key.execution_id(),
            name: row.node_name(),
            public_state: row.public_state,
            result: blobs.next_if(|(key, _)| *key == row.key).map(|(_, bytes)| bytes.to_vec()),
        });
    }
    let reached = if parents.is_empty() { edges.len() } else { reached };
    (parents, reached)
}

/// The input of a member together with the results of its parents, as one JSON object. If they are
/// more than a payload may hold, the member fails, for nobody would see that some are missing.
pub(super) async fn merged(
    engine: &Engine,
    grant: &Grant,
    input: &[u8],
) -> Result<Option<Arc<[u8]>>, EngineError> {
    let most = engine.config().limits.payload_bytes;
    let (mut told, mut bytes, mut after) = (Map::new(), 0, None);
    while let Some(flow) = grant.flow_id.map(|id| flow_key(engine, &FlowId(id))) {
        let page =
            page(engine, (flow, grant.key.id), EdgeKind::Depends, after, limits::PAGE).await?;
        for parent in page.parents {
            let name = match parent.name.is_empty() {
                true => parent.execution_id.as_str(),
                false => &parent.name,
            };
            bytes += name.len() + parent.result.as_ref().map_or(0, Vec::len);
            let facts = json!({
                "execution_id": parent.execution_id,
                "state": parent.public_state,
                "result": parent.result.as_deref().map(as_json),
            });
            told.insert(name.to_owned(), facts);
        }
        if bytes > most {
            refuse(engine, grant, most).await?;
            return Ok(None);
        }
        after = page.next_after;
        if after.is_none() {
            break;
        }
    }
    let mut object = match serde_json::from_slice(input) {
        Ok(Value::Object(object)) => object,
        _ if input.is_empty() => Map::new(),
        _ => Map::from_iter([("input".to_owned(), as_json(input))]),
    };
    object.insert("parents".to_owned(), Value::Object(told));
    Ok(Some(Value::Object(object).to_string().into_bytes().into()))
}

async fn refuse(engine: &Engine, grant: &Grant, most: usize) -> Result<(), EngineError> {
    let reason = format!(
        "the results of its parents are more than {most} bytes together, the most that a payload \
         may hold; a node that does not merge them reads them page by page"
    );
    let operation = Fail {
        handle: grant.handle.clone(),
        reason: reason.into(),
        category: TOO_LARGE.into(),
        class: FailureClass::Fatal,
        entropy: 0,
    };
    engine.run(None, operation).await.map(drop)
}

/// Bytes as JSON: what they say if they are JSON, a text, or their digits.
fn as_json(bytes: &[u8]) -> Value {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return value;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => {
            let digits = bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            json!({ "hex": digits })
        }
    }
}
