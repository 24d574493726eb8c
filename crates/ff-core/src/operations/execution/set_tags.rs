//! Tags are merged into those that are there.

use std::collections::BTreeMap;

use super::transition;
use crate::contracts::{EventType, SetTagsArgs};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::Operation;
use crate::rows::ExecutionRow;
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct SetTags {
    pub args: SetTagsArgs,
}

impl Operation for SetTags {
    type Reply = ();

    const NAME: &'static str = "set_tags";

    fn needs(&self, needs: &mut Needs) {
        needs.execution(self.args.execution_id.key());
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        let row = world.existing(self.args.execution_id.key())?;
        retag(world, &mut change, row, &self.args.tags)?;
        Ok(((), change))
    }
}

/// Merges tags into those that are there. Says whether anything changed.
pub(crate) fn retag(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    merged: &BTreeMap<String, Option<String>>,
) -> Result<bool, EngineError> {
    let mut tags = row.tags();
    for (key, value) in merged {
        match value {
            Some(value) => tags.insert(key.clone(), value.clone()),
            None => tags.remove(key),
        };
    }
    if tags.len() > limits::TAGS {
        let detail = format!("{} tags, the limit is {}", tags.len(), limits::TAGS);
        return Err(EngineError::invalid(detail));
    }
    // By meaning: a store may spell the same tags in another way.
    if tags == row.tags() {
        return Ok(false);
    }
    let mut after = row.clone();
    after.tags = serde_json::json!(tags).to_string().into();
    let details = serde_json::json!({ "tags": merged });
    transition(change, row, after, EventType::TagsChanged, world.now, |event| {
        event.details(&details)
    });
    Ok(true)
}
