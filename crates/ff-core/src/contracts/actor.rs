//! Who did something, as the log remembers it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The caller of an operation. What is not known is absent: the engine in one's own process has no
/// token, and what workers and submitters do is told with their token alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Actor {
    /// The API token; the waitpoint, if its token was all that the caller had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<Uuid>,
    /// The token's name at that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_name: Option<String>,
    /// The address that the request came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// An actor as it is written into events: once per call, however many events it causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Kept", into = "Kept")]
pub struct Stamp {
    /// The actor's name goes into `by` of every event, if it is an operator's or an admin's.
    by: Option<Arc<str>>,
    /// What an event without other details gets; shared by all of them.
    alone: Arc<str>,
}

/// A stamp in a row, for the events that a request causes after its answer.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    actor: Actor,
}

impl From<Kept> for Stamp {
    fn from(kept: Kept) -> Self {
        Self { by: kept.by.map(Into::into), ..Self::worker(&kept.actor) }
    }
}

impl From<Stamp> for Kept {
    fn from(stamp: Stamp) -> Self {
        let mut details = serde_json::from_str(&stamp.alone).unwrap_or_default();
        let actor = take_actor(&mut details).unwrap_or_default();
        Self { by: stamp.by.as_deref().map(Into::into), actor }
    }
}

/// The member of an event's details that holds the actor.
const MEMBER: &str = "actor";

impl Stamp {
    /// Names the actor in the details of every event, and by its name in `by`.
    pub fn operator(actor: &Actor) -> Self {
        Self { by: actor.token_name.as_deref().map(Into::into), ..Self::worker(actor) }
    }

    /// Names the actor in the details; `by` stays what the operation says, such as the worker.
    pub fn worker(actor: &Actor) -> Self {
        let json = serde_json::json!({ MEMBER: actor });
        Self { by: None, alone: json.to_string().into() }
    }

    pub(crate) fn by(&self) -> Option<&Arc<str>> {
        self.by.as_ref()
    }

    /// Details with the actor in front. Both are objects that this crate has written.
    pub(crate) fn details(&self, details: Option<&str>) -> Arc<str> {
        let others = details.and_then(|json| json.strip_prefix('{'));
        match (others.filter(|others| *others != "}"), self.alone.strip_suffix('}')) {
            (Some(others), Some(own)) => format!("{own},{others}").into(),
            _ => self.alone.clone(),
        }
    }
}

/// Takes the actor out of the details of an event.
pub(crate) fn take_actor(details: &mut serde_json::Value) -> Option<Actor> {
    let object = details.as_object_mut()?;
    let actor = serde_json::from_value(object.remove(MEMBER)?).ok();
    if object.is_empty() {
        *details = serde_json::Value::Null;
    }
    actor
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_actor_goes_into_details_and_out_again() {
        let actor = Actor {
            token_id: Some(Uuid::from_u128(7)),
            token_name: Some("ops \"}{".into()),
            remote: Some("::1".into()),
            request_id: Some("r".into()),
        };
        for actor in [actor.clone(), Actor::default(), Actor { token_id: None, ..actor }] {
            let stamp = Stamp::operator(&actor);
            let kept = serde_json::to_string(&stamp).unwrap();
            assert_eq!(serde_json::from_str::<Stamp>(&kept).unwrap(), stamp);
            for details in [None, Some("{}"), Some(r#"{"a":{"b":"}"}}"#)] {
                let mut stamped: Value = serde_json::from_str(&stamp.details(details)).unwrap();
                assert_eq!(take_actor(&mut stamped), Some(actor.clone()));
                let before = details.filter(|json| *json != "{}");
                let before = before.map(|json| serde_json::from_str(json).unwrap());
                assert_eq!(stamped, before.unwrap_or(Value::Null));
            }
        }
        assert_eq!(take_actor(&mut json!({ "a": 1 })), None);
        assert_eq!(take_actor(&mut Value::Null), None);
    }
}
