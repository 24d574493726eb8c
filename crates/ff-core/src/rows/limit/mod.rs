//! `ff_limit` and what hangs on it: budgets and quotas, where they stand, and who waits for them.

mod account;
mod window;

pub use account::{Account, Dimensions, End, Pass, Share, Short};
pub use window::Window;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::record::{Json, record};
use super::{ExecutionRow, Word};
use crate::contracts::{PutBudgetArgs, PutQuotaArgs};
use crate::types::{ExecutionKey, TimestampMs};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKind {
    Budget,
    Quota,
}

/// What a limit says, as it was declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    Budget(PutBudgetArgs),
    Quota(PutQuotaArgs),
}

/// Where a limit stands: of a budget all of it, of a quota one of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Budget(Account),
    Quota(Permits),
}

/// What one key of a quota has in hand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permits {
    /// Leases that hold a permit.
    #[serde(default)]
    pub in_use: u64,
    /// Permits that were ever given: whoever counts them anew sees whether some moved meanwhile.
    #[serde(default)]
    pub grants: u64,
    #[serde(default)]
    pub window: Window,
    /// The key's place in the line of turns; of the quota itself, how far the line has come.
    #[serde(default)]
    pub pass: u64,
    #[serde(default)]
    pub used_at: TimestampMs,
    /// Of the quota itself: up to which key the sweeper has come that looks at all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Uuid>,
    /// Of the quota itself: up to which key claims have called back what was put aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<Uuid>,
}

record! {
    /// What a budget or a quota says.
    pub struct LimitRow in "ff_limit" {
        key LimitKey {
            id: Uuid = [limit_uid: Uuid],
        }
        kind: Word<LimitKind> = [kind: Text],
        namespace: Arc<str> = [namespace: Text],
        name: Arc<str> = [name: Text],
        /// The lane whose claims look at it; empty for every lane, absent if it must be named.
        lane: Option<Arc<str>> = [lane_id: Text],
        rule: Json<Rule> = [rule: Text],
        created_at: TimestampMs = [created_at_ms: Int],
    }
    index BY_LANE = ff_limit_lane[lane_id, limit_uid];
    index BY_NAME = ff_limit_name[kind, namespace, name];
}

record! {
    /// Where a limit stands.
    pub struct LimitStateRow in "ff_limit_state" {
        key LimitStateKey {
            id: Uuid = [state_uid: Uuid],
        }
        limit: Uuid = [limit_uid: Uuid],
        /// The value that a quota counts apart; empty for a budget.
        value: Arc<str> = [key_value: Text],
        /// How many executions have been put aside for it and not been looked at since.
        waiting: u64 = [waiting: Int],
        is_waiting: bool = [is_waiting: Bool],
        /// When the sweeper looks at it next, as far as it was asked to.
        look_at: Option<TimestampMs> = [look_at_ms: Int],
        standing: Json<Standing> = [standing: Text],
    }
    index BY_LIMIT = ff_limit_state_limit[limit_uid, is_waiting, state_uid];
}

record! {
    /// An execution that waits for room, in the order in which they are let go.
    pub struct LimitWaitRow in "ff_limit_wait" {
        key LimitWaitKey {
            state: Uuid = [state_uid: Uuid],
            rank: i64 = [rank: Int],
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
            /// Tells this wait from others of the same execution.
            ticket: u64 = [ticket: Int],
        }
        since: TimestampMs = [since_ms: Int],
    }
}

record! {
    /// What an execution holds and has spent of a budget, and the reports that it has made.
    pub struct LimitUsageRow in "ff_limit_usage", owned {
        key LimitUsageKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
            limit: Uuid = [limit_uid: Uuid],
            /// Empty for the sum; a report that has a key leaves it here.
            dedup_key: Arc<str> = [dedup_key: Text],
        }
        share: Json<Share> = [share: Text],
    }
}

impl LimitRow {
    pub fn budget(&self) -> Option<&PutBudgetArgs> {
        match &self.rule.0 {
            Rule::Budget(budget) => Some(budget),
            Rule::Quota(_) => None,
        }
    }

    pub fn quota(&self) -> Option<&PutQuotaArgs> {
        match &self.rule.0 {
            Rule::Quota(quota) => Some(quota),
            Rule::Budget(_) => None,
        }
    }
}

impl LimitStateRow {
    pub fn new(id: Uuid, limit: Uuid, value: Arc<str>, standing: Standing) -> Self {
        Self {
            key: LimitStateKey { id },
            limit,
            value,
            waiting: 0,
            is_waiting: false,
            look_at: None,
            standing: Json(standing),
        }
    }

    pub fn set_waiting(&mut self, waiting: u64) {
        self.waiting = waiting;
        self.is_waiting = waiting > 0;
    }
}

impl LimitWaitKey {
    /// Where it stands among those who wait for the same.
    pub fn place(&self) -> Pass {
        let ExecutionKey { partition, id } = self.execution;
        Pass { rank: self.rank, execution: (partition, id), ticket: self.ticket, again: false }
    }
}

impl LimitUsageKey {
    /// The sum of what an execution has of a budget.
    pub fn sum(execution: ExecutionKey, limit: Uuid) -> Self {
        Self { execution, limit, dedup_key: "".into() }
    }
}

/// The identity of a limit, made from its name. A budget stands under the same one.
pub fn limit_id(kind: LimitKind, namespace: &str, name: &str) -> Uuid {
    let kind = match kind {
        LimitKind::Budget => "budget",
        LimitKind::Quota => "quota",
    };
    digest(&[kind.as_bytes(), namespace.as_bytes(), name.as_bytes()])
}

/// The identity of one key of a quota.
pub fn quota_state_id(limit: Uuid, value: &str) -> Uuid {
    digest(&[b"key", limit.as_bytes(), value.as_bytes()])
}

fn digest(parts: &[&[u8]]) -> Uuid {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// What the lease of an execution holds, as the execution's own row says. It goes with the lease,
/// in the same write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// Keys of quotas, by their identities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permits: Vec<Uuid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Uuid>,
}

/// What an execution waits for, as its own row says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitWait {
    pub limit: Uuid,
    pub state: Uuid,
    pub ticket: u64,
}

const HOLDS: &str = "limit_holds";
const WAIT: &str = "limit_wait";
const BUDGETS: &str = "budget_ids";

impl ExecutionRow {
    /// Cheap, because it is asked of every row that is loaded.
    pub fn may_hold_limits(&self) -> bool {
        self.raw_fields.len() > 2 && self.raw_fields.contains(HOLDS)
    }

    pub fn limit_holds(&self) -> Option<Holds> {
        if !self.may_hold_limits() {
            return None;
        }
        serde_json::from_value(self.raw(HOLDS)?).ok()
    }

    pub fn set_limit_holds(&mut self, holds: Option<&Holds>) {
        match holds {
            Some(holds) => self.set_raw(HOLDS, serde_json::json!(holds)),
            None => self.clear_raw(HOLDS),
        }
    }

    pub fn limit_wait(&self) -> Option<LimitWait> {
        if self.raw_fields.len() <= 2 || !self.raw_fields.contains(WAIT) {
            return None;
        }
        serde_json::from_value(self.raw(WAIT)?).ok()
    }

    pub fn set_limit_wait(&mut self, wait: Option<&LimitWait>) {
        match wait {
            Some(wait) => self.set_raw(WAIT, serde_json::json!(wait)),
            None if self.raw_fields.contains(WAIT) => self.clear_raw(WAIT),
            None => {}
        }
    }

    /// Whether the execution itself names budgets. Cheap, because every claim asks it.
    pub fn may_name_budgets(&self) -> bool {
        let names = |json: &str| json.contains(BUDGETS);
        self.policy.as_deref().is_some_and(names)
            || (self.raw_fields.len() > 2 && names(&self.raw_fields))
    }

    /// The budgets that its policy names and those that were declared for it.
    pub fn budget_names(&self) -> Vec<String> {
        let mut names = self.policy().budget_ids;
        names.extend(budget_names(&self.raw_fields));
        names
    }

    pub fn add_budget_name(&mut self, name: &str) {
        self.raw_fields = with_budget_name(&self.raw_fields, name);
    }
}

/// The budgets that a `raw_fields` column names.
pub(crate) fn budget_names(raw_fields: &str) -> Vec<String> {
    // Most name none, and claims ask for every row that they see.
    if !raw_fields.contains(BUDGETS) {
        return Vec::new();
    }
    let named = super::execution::raw_object(raw_fields).remove(BUDGETS);
    named.and_then(|names| serde_json::from_value(names).ok()).unwrap_or_default()
}

/// A `raw_fields` column that names one more budget.
pub(crate) fn with_budget_name(raw_fields: &str, name: &str) -> Arc<str> {
    let mut names = budget_names(raw_fields);
    if !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
    super::with_raw(raw_fields, [(BUDGETS, serde_json::json!(names))])
}

/// Numbers that look drawn and are the same every time, for the tests of the arithmetic.
#[cfg(test)]
struct Dice(u64);

#[cfg(test)]
impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
