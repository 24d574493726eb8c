//! Which partition a flow or an execution belongs to. The hash is a wire contract: never change it.

use crate::types::{FlowId, LaneId};

/// How many partitions each family of rows is spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionConfig {
    pub num_flow_partitions: u16,
    pub num_budget_partitions: u16,
    pub num_quota_partitions: u16,
}

impl Default for PartitionConfig {
    fn default() -> Self {
        Self { num_flow_partitions: 256, num_budget_partitions: 32, num_quota_partitions: 32 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionFamily {
    Flow,
    Budget,
    Quota,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    pub family: PartitionFamily,
    pub index: u16,
}

/// A flow and all its members live on this partition.
pub fn flow_partition(fid: &FlowId, config: &PartitionConfig) -> Partition {
    let index = crc16(fid.0.as_bytes()) % config.num_flow_partitions.max(1);
    Partition { family: PartitionFamily::Flow, index }
}

/// Where executions of a lane live that belong to no flow.
pub fn lane_partition(lane: &LaneId, config: &PartitionConfig) -> Partition {
    let index = crc16(lane.as_str().as_bytes()) % config.num_flow_partitions.max(1);
    Partition { family: PartitionFamily::Flow, index }
}

/// CRC-16/XMODEM, the hash of Redis Cluster's key slots.
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_frozen() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
        assert_eq!(crc16(b"default") % 256, 86);
    }
}
