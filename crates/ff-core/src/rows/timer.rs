//! `ff_timer`: something to look at when its time comes.
//!
//! Timers are lazy. A row only says "look at these executions then"; whether anything is to be
//! done is decided from the executions themselves. So a renewed or finished lease leaves its timer
//! alone, and one timer watches everything that one call claimed.

use uuid::Uuid;

use super::Row;
use crate::types::{ExecutionKey, TimestampMs};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimerKind {
    /// Leases that one claim granted may have expired.
    Lease,
    /// A delay or a back-off is over.
    Ready,
    /// An execution's deadline has come.
    Deadline,
    /// An attempt has run for as long as it may.
    AttemptTimeout,
    /// An idempotency key lapses.
    Idempotency,
    /// A suspension has lasted for as long as it may.
    Suspension,
    /// No suspension has come for a waitpoint.
    Waitpoint,
    /// A worker may have gone silent.
    Worker,
    /// A budget or a quota may have room.
    Limit,
    /// Work on a graph goes on; the subject is that of a cascade.
    Cascade,
    /// A schedule has come due, or a run of it has ended.
    Schedule,
    /// A bulk operation goes on, or is old enough to be forgotten.
    Bulk,
}

/// Ordered by due time, because that is how timers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerKey {
    pub due_at: TimestampMs,
    pub kind: TimerKind,
    /// The execution, the claim that granted the leases, the waitpoint, or what the kind says.
    pub subject: Uuid,
}

/// An execution to look at, and the lease epoch that the timer was armed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerMember {
    pub execution: ExecutionKey,
    pub lease_epoch: u64,
}

/// Writing a timer that is there already replaces it: it says nothing but "look then".
#[derive(Clone, Debug, PartialEq)]
pub struct TimerRow {
    pub key: TimerKey,
    pub members: Vec<TimerMember>,
}

impl TimerRow {
    /// A timer for one execution.
    pub fn single(
        kind: TimerKind,
        due_at: TimestampMs,
        execution: ExecutionKey,
        lease_epoch: u64,
    ) -> Self {
        let key = TimerKey { due_at, kind, subject: execution.id };
        Self { key, members: vec![TimerMember { execution, lease_epoch }] }
    }

    /// A timer that names no executions: its subject says what to look at.
    pub fn bare(kind: TimerKind, due_at: TimestampMs, subject: Uuid) -> Self {
        Self { key: TimerKey { due_at, kind, subject }, members: Vec::new() }
    }

    /// The members as bytes: partition, id and epoch of each, 26 bytes, big-endian.
    pub fn encode_members(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.members.len() * MEMBER_BYTES);
        for member in &self.members {
            bytes.extend_from_slice(&member.execution.partition.to_be_bytes());
            bytes.extend_from_slice(member.execution.id.as_bytes());
            bytes.extend_from_slice(&member.lease_epoch.to_be_bytes());
        }
        bytes
    }

    pub fn decode_members(bytes: &[u8]) -> Vec<TimerMember> {
        let (members, _) = bytes.as_chunks::<MEMBER_BYTES>();
        members.iter().map(decode_member).collect()
    }
}

const MEMBER_BYTES: usize = 26;

fn decode_member(bytes: &[u8; MEMBER_BYTES]) -> TimerMember {
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[2..18]);
    let mut lease_epoch = [0; 8];
    lease_epoch.copy_from_slice(&bytes[18..]);
    let partition = u16::from_be_bytes([bytes[0], bytes[1]]);
    TimerMember {
        execution: ExecutionKey { partition, id: Uuid::from_bytes(id) },
        lease_epoch: u64::from_be_bytes(lease_epoch),
    }
}

impl Row for TimerRow {
    type Key = TimerKey;

    fn key(&self) -> TimerKey {
        self.key
    }
}
