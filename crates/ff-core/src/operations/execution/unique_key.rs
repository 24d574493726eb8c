//! A key that one execution at a time may live under. Its end gives the key back; whatever brings
//! the execution back to life takes the key again or is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

use crate::engine_error::EngineError;
use crate::rows::{ExecutionRow, IdempotencyKey, IdempotencyRow};
use crate::store::{Change, Needs, World, Write};

/// Where a submission leaves its fingerprint for the time after the key was given back.
pub(crate) const FINGERPRINT: &str = "key_fingerprint";

/// The `raw_fields` of a new execution that holds its key until it ends.
pub(crate) fn raw_fields(fingerprint: &[u8; 32]) -> String {
    format!("{{\"{FINGERPRINT}\":\"{}\"}}", encode(fingerprint))
}

pub(crate) fn encode(fingerprint: &[u8; 32]) -> String {
    STANDARD_NO_PAD.encode(fingerprint)
}

/// The unique key of an execution, if it has one.
pub(crate) fn unique_key(row: &ExecutionRow) -> Option<IdempotencyKey> {
    let key = row.idempotency_key.clone().filter(|_| row.holds_key)?;
    Some(IdempotencyKey { namespace: row.namespace.clone(), key })
}

/// Asks for what [`take_key`] will look at.
pub(crate) fn needs_key(needs: &mut Needs, row: &ExecutionRow) {
    needs.idempotency.extend(unique_key(row).filter(|_| row.is_finished()));
}

/// An execution that has ended takes its key again. Writes nothing if another one lives under it.
pub(crate) fn take_key(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
) -> Result<(), EngineError> {
    let Some(key) = unique_key(row) else { return Ok(()) };
    check_free(world, change, row)?;
    let is_stored = holder(world, change, &key).is_some();
    let taken =
        IdempotencyRow { key, execution: row.key, fingerprint: fingerprint(row), expires_at: None };
    change.idempotency.push(if is_stored { Write::Update(taken) } else { Write::Insert(taken) });
    Ok(())
}

/// Refuses while another execution lives under the unique key of this one.
pub(crate) fn check_free(
    world: &World,
    change: &Change,
    row: &ExecutionRow,
) -> Result<(), EngineError> {
    let known = unique_key(row).and_then(|key| holder(world, change, &key));
    match known.filter(|known| known.holds(world.now) && known.execution != row.key) {
        Some(known) => Err(EngineError::UniqueKeyHeld { holder: known.execution.execution_id() }),
        None => Ok(()),
    }
}

/// The row of a key as this change would leave it.
fn holder<'w>(
    world: &'w World,
    change: &'w Change,
    key: &IdempotencyKey,
) -> Option<&'w IdempotencyRow> {
    let written = change.idempotency.iter().rev().find_map(|write| match write {
        Write::Insert(row) | Write::Update(row) if row.key == *key => Some(Some(row)),
        Write::Delete(gone) if gone == key => Some(None),
        _ => None,
    });
    written.unwrap_or_else(|| world.idempotency.get(key))
}

/// What the execution was submitted with. Where that was not kept nothing counts as a repeat, so
/// that no other work passes for this one.
fn fingerprint(row: &ExecutionRow) -> [u8; 32] {
    let kept = row.raw(FINGERPRINT);
    let kept = kept.as_ref().and_then(Value::as_str);
    let bytes = kept.and_then(|text| STANDARD_NO_PAD.decode(text).ok());
    bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or_default()
}
