//! Tags are merged into those that are there.

use super::transition;
use crate::contracts::{EventType, SetTagsArgs};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::Operation;
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
        let mut tags = row.tags();
        for (key, value) in &self.args.tags {
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
            return Ok(((), change));
        }
        let mut after = row.clone();
        after.tags = serde_json::json!(tags).to_string().into();
        let details = serde_json::json!({ "tags": self.args.tags });
        transition(&mut change, row, after, EventType::TagsChanged, world.now, |event| {
            event.details(&details)
        });
        Ok(((), change))
    }
}
