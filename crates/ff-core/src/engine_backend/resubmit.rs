//! What a resubmission is made of. What is read here of the original never changes, so that it may
//! be read before the transaction.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{check_readable, visible};
use crate::contracts::ResubmitArgs;
use crate::engine::{Engine, check_bytes, check_text, fingerprint};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::execution::Resubmit;
use crate::policy::DEFAULT_IDEMPOTENCY_TTL_MS;
use crate::store::Query;
use crate::types::{ExecutionKey, LaneId, Namespace};

pub(super) async fn prepare(
    engine: &Engine,
    scope: Option<&Namespace>,
    args: ResubmitArgs,
) -> Result<Resubmit, EngineError> {
    check(engine, &args)?;
    let from = args.execution_id.key();
    let rows = engine.query(Query::Execution(from)).await?;
    let row = visible(scope, &rows).ok_or(EngineError::NotFound { entity: "execution" })?;
    check_readable(&rows.damage)?;
    let payload: Arc<[u8]> = match args.input_payload {
        Some(given) => given.into(),
        None => {
            let stored = engine.query(Query::Payloads(vec![from])).await?.blobs;
            stored.into_iter().next().map_or_else(|| Arc::from([]), |(_, bytes)| bytes)
        }
    };
    let payload_encoding =
        args.payload_encoding.map(Into::into).or_else(|| row.payload_encoding.clone());
    let creator = match args.creator_identity.is_empty() {
        true => row.creator.clone(),
        false => args.creator_identity.into(),
    };
    let window = row.policy().dedup_window_ms.unwrap_or(DEFAULT_IDEMPOTENCY_TTL_MS);
    let ttl = Duration::from_millis(window);
    let partition = engine.store().solo_partition(&LaneId::new(&*row.lane));
    Ok(Resubmit {
        from,
        key: ExecutionKey { partition, id: Uuid::now_v7() },
        fingerprint: fingerprint(&row.lane, &row.kind, payload_encoding.as_deref(), &payload),
        payload,
        payload_encoding,
        creator,
        idempotency: args.idempotency_key.map(|key| (key.into(), ttl)),
    })
}

fn check(engine: &Engine, args: &ResubmitArgs) -> Result<(), EngineError> {
    let payload = args.input_payload.as_ref().map_or(0, Vec::len);
    check_bytes("payload", payload, &engine.config().limits)?;
    let encoding = args.payload_encoding.as_deref().unwrap_or_default();
    check_text("payload encoding", encoding, 0, limits::NAME_BYTES)?;
    check_text("creator identity", &args.creator_identity, 0, limits::NAME_BYTES)?;
    if let Some(key) = &args.idempotency_key {
        check_text("idempotency key", key, 1, limits::IDEMPOTENCY_KEY_BYTES)?;
    }
    Ok(())
}
