//! Lists and maps of requests that are refused while they are read, before they take the memory
//! that a few bytes an item can grow to.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use ff_core::policy::ExecutionPolicy;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Far more than a flow may have; the engine says how many exactly.
pub const NODES: usize = 50_000;
pub const EDGES: usize = 200_000;
/// The most items of a batch.
pub const BATCH: usize = 1_000;
/// More than an execution may have, so that a few too many are refused by the engine in its words.
pub const TAGS: usize = 64;
/// The largest policy as JSON, and how many values it may have.
const POLICY_BYTES: usize = ff_core::limits::POLICY_BYTES;
const POLICY_VALUES: usize = 1_024;

/// A list of at most `MAX` items.
pub fn list<'de, D, T, const MAX: usize>(given: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    given.deserialize_seq(List::<T, MAX>(PhantomData))
}

/// A map of at most `MAX` entries.
pub fn map<'de, D, const MAX: usize>(given: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    given.deserialize_map(Map::<MAX>)
}

/// A policy, which is understood only if it is not too large.
pub fn policy<'de, D>(given: D) -> Result<Option<ExecutionPolicy>, D::Error>
where
    D: Deserializer<'de>,
{
    let Some(raw) = Option::<Box<RawValue>>::deserialize(given)? else { return Ok(None) };
    let text = raw.get();
    if text.len() > POLICY_BYTES {
        let detail = format!("a policy of {} bytes, the limit is {POLICY_BYTES}", text.len());
        return Err(D::Error::custom(detail));
    }
    if text.bytes().filter(|byte| *byte == b',').count() >= POLICY_VALUES {
        return Err(D::Error::custom(format!("a policy of more than {POLICY_VALUES} values")));
    }
    serde_json::from_str(text).map(Some).map_err(D::Error::custom)
}

struct List<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::custom(format!("a list of more than {MAX} items")));
            }
            list.push(item);
        }
        Ok(list)
    }
}

struct Map<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for Map<MAX> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of at most {MAX} entries")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((name, value)) = entries.next_entry()? {
            if map.len() == MAX {
                return Err(A::Error::custom(format!("an object of more than {MAX} entries")));
            }
            map.insert(name, value);
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{SubmitBatchRequest, SubmitFlowRequest, SubmitRequest};

    #[test]
    fn lists_maps_and_policies_are_bounded() {
        let work = |tags: usize| {
            let tags: super::BTreeMap<_, _> = (0..tags).map(|at| (format!("a.{at}"), "")).collect();
            json!({ "lane_id": "l", "execution_kind": "k", "tags": tags })
        };
        let read = |value: serde_json::Value| {
            let read = serde_json::from_str::<SubmitRequest>(&value.to_string());
            read.map(drop).map_err(|error| error.to_string())
        };
        assert!(read(work(super::TAGS)).is_ok());
        assert!(read(work(super::TAGS + 1)).unwrap_err().contains("more than 64 entries"));
        let batch = |count: usize| {
            let batch = json!({ "executions": vec![work(0); count] }).to_string();
            serde_json::from_str::<SubmitBatchRequest>(&batch).map_err(|error| error.to_string())
        };
        assert_eq!(batch(super::BATCH).unwrap().executions.len(), super::BATCH);
        assert!(batch(super::BATCH + 1).unwrap_err().contains("more than 1000 items"));
        let nodes = json!({ "nodes": [], "edges": null }).to_string();
        assert!(serde_json::from_str::<SubmitFlowRequest>(&nodes).is_err());
        let with = |policy: serde_json::Value| {
            let mut work = work(0);
            work["policy"] = policy;
            read(work)
        };
        assert!(with(json!(null)).is_ok() && with(json!({})).is_ok());
        let tokens = |count: usize| {
            let tokens: Vec<String> = (0..count).map(|at| format!("{at}")).collect();
            json!({ "routing_requirements": { "required_capabilities": tokens } })
        };
        assert_eq!(with(tokens(256)), Ok(()));
        assert!(with(tokens(1_025)).unwrap_err().contains("more than 1024 values"));
        assert!(with(tokens(4_000)).unwrap_err().contains("the limit is 16384"));
    }
}
