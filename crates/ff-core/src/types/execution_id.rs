//! `{fp:<partition>}:<uuid>`: the wire form of an execution's identity, and its parsed key.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::partition::{PartitionConfig, flow_partition, lane_partition};
use crate::types::{FlowId, LaneId};

/// An execution's identity in its wire form. It cannot be built from a malformed string.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutionId(String);

/// The same identity as two numbers: what rows are keyed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecutionKey {
    pub partition: u16,
    pub id: Uuid,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutionIdParseError {
    #[error("execution id {0:?} has no `{{fp:N}}:` tag")]
    MissingTag(String),
    #[error("execution id {0:?} has a partition that is not a number from 0 to 65535")]
    InvalidPartitionIndex(String),
    #[error("execution id {0:?} does not end in a UUID")]
    InvalidUuid(String),
}

impl ExecutionId {
    /// A new identity for an execution outside any flow, placed by its lane.
    pub fn solo(lane_id: &LaneId, config: &PartitionConfig) -> Self {
        Self::from_parts(lane_partition(lane_id, config).index, Uuid::now_v7())
    }

    /// A new identity for a member of a flow, placed with its flow.
    pub fn for_flow(flow_id: &FlowId, config: &PartitionConfig) -> Self {
        Self::deterministic_for_flow(flow_id, config, Uuid::now_v7())
    }

    /// The same under a UUID of the caller's.
    pub fn deterministic_for_flow(flow_id: &FlowId, config: &PartitionConfig, id: Uuid) -> Self {
        Self::from_parts(flow_partition(flow_id, config).index, id)
    }

    /// An identity outside any flow under a UUID of the caller's.
    pub fn deterministic_solo(lane_id: &LaneId, config: &PartitionConfig, id: Uuid) -> Self {
        Self::from_parts(lane_partition(lane_id, config).index, id)
    }

    pub fn from_parts(partition: u16, id: Uuid) -> Self {
        Self(format!("{{fp:{partition}}}:{}", id.hyphenated()))
    }

    pub fn parse(s: &str) -> Result<Self, ExecutionIdParseError> {
        let key = ExecutionKey::parse(s)?;
        Ok(Self::from_parts(key.partition, key.id))
    }

    pub fn partition(&self) -> u16 {
        self.key().partition
    }

    pub fn uuid(&self) -> Uuid {
        self.key().id
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn key(&self) -> ExecutionKey {
        ExecutionKey::parse(&self.0).expect("an ExecutionId is parsed when it is built")
    }
}

impl ExecutionKey {
    fn parse(s: &str) -> Result<Self, ExecutionIdParseError> {
        let missing = || ExecutionIdParseError::MissingTag(s.chars().take(80).collect());
        let rest = s.strip_prefix("{fp:").ok_or_else(missing)?;
        let (partition, id) = rest.split_once("}:").ok_or_else(missing)?;
        let plain_number = !partition.is_empty() && partition.bytes().all(|b| b.is_ascii_digit());
        let partition = match partition.parse::<u16>() {
            Ok(number) if plain_number => number,
            _ => {
                return Err(ExecutionIdParseError::InvalidPartitionIndex(partition.to_owned()));
            }
        };
        let well_formed = id.len() == 36;
        let id = match Uuid::try_parse(id) {
            Ok(uuid) if well_formed => uuid,
            _ => {
                return Err(ExecutionIdParseError::InvalidUuid(id.chars().take(80).collect()));
            }
        };
        Ok(Self { partition, id })
    }

    pub fn execution_id(self) -> ExecutionId {
        ExecutionId::from_parts(self.partition, self.id)
    }
}

impl From<&ExecutionId> for ExecutionKey {
    fn from(id: &ExecutionId) -> Self {
        id.key()
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExecutionId({})", self.0)
    }
}

impl Serialize for ExecutionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ExecutionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_form_round_trips() {
        let id = ExecutionId::solo(&LaneId::new("default"), &PartitionConfig::default());
        assert_eq!(ExecutionId::parse(id.as_str()).unwrap(), id);
        assert!(id.partition() < 256);
    }

    #[test]
    fn identities_are_placed_by_flow_or_lane() {
        let (config, id) = (PartitionConfig::default(), Uuid::from_u128(7));
        let (flow, lane) = (FlowId::new(), LaneId::new("default"));
        let member = ExecutionId::deterministic_for_flow(&flow, &config, id);
        assert_eq!(member.partition(), flow_partition(&flow, &config).index);
        assert_eq!(ExecutionId::for_flow(&flow, &config).partition(), member.partition());
        let solo = ExecutionId::deterministic_solo(&lane, &config, id);
        assert_eq!(solo.partition(), ExecutionId::solo(&lane, &config).partition());
        assert_eq!((member.uuid(), solo.uuid()), (id, id));
    }

    #[test]
    fn malformed_ids_are_refused() {
        let uuid = "0193b3c4-0000-7000-8000-000000000001";
        for bad in [
            "",
            uuid,
            &format!("{{fp:}}:{uuid}"),
            &format!("{{fp:+1}}:{uuid}"),
            &format!("{{fp:65536}}:{uuid}"),
            &format!("{{fp:1:{uuid}"),
            "{fp:1}:",
            "{fp:1}:0193b3c4000070008000000000000001",
            &format!("{{fp:1}}:{uuid}x"),
        ] {
            assert!(ExecutionId::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
