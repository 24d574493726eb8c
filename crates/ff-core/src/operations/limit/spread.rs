//! Fair lanes that have more than a claim can see: what one key has too much of is put aside, and
//! called back once its key has little left in sight.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::drafts::look_at;
use super::due::{KEYS, waiting_keys};
use super::gate::{Gate, applies, key_value};
use crate::rows::{ExecutionRow, LimitStateKey, LimitStateRow, Standing, quota_state_id};
use crate::state::BlockingReason;
use crate::store::{Change, Needs, World};
use crate::types::ExecutionKey;

/// So many of one key stay in the claim index of a fair lane that has more than a claim can see.
pub(super) const KEEP: usize = 16;

/// Names what a claim must see of a quota whose keys take turns.
pub(super) fn more(world: &World, needs: &mut Needs, limit: Uuid) {
    let key = LimitStateKey { id: limit };
    needs.record::<LimitStateRow>(&key);
    needs.scan(&waiting_keys(limit, None));
    if let Some(LimitStateRow { standing, .. }) = world.record::<LimitStateRow>(&key)
        && let Standing::Quota(permits) = &standing.0
        && permits.called.is_some()
    {
        needs.scan(&waiting_keys(limit, permits.called));
    }
}

impl<'w> Gate<'w> {
    /// Puts aside what is too much if there is more to see, and calls back otherwise.
    pub fn spread(&mut self, change: &mut Change, rest: &[&'w ExecutionRow], more: bool) -> bool {
        // Several quotas may speak of one execution, which is put aside once.
        let mut moved: HashSet<ExecutionKey> = HashSet::new();
        for rule in self.rules.clone() {
            let Some(quota) = rule.quota().filter(|quota| quota.fair) else { continue };
            let mut seen: BTreeMap<Arc<str>, usize> = BTreeMap::new();
            for row in rest.iter().filter(|row| applies(&rule, row)) {
                if moved.contains(&row.key) {
                    continue;
                }
                let value = key_value(quota, row);
                let count = seen.entry(value.clone()).or_default();
                *count += 1;
                if more && *count > KEEP && row.is_claimable() {
                    let state = quota_state_id(rule.key.id, &value);
                    self.drafts.open_key(state, rule.key.id, &value);
                    let reason = BlockingReason::WaitingForQuota;
                    let details = json!({
                        "limit": "quota", "quota_id": &*rule.name, "by": "turn",
                    });
                    self.wait(change, row, &rule, state, reason, None, &details);
                    moved.insert(row.key);
                }
            }
            if !more {
                self.call_back(change, rule.key.id, &seen);
            }
        }
        !moved.is_empty()
    }

    /// Looks at keys that have little in sight. If there are more than one claim looks at, the next
    /// claim goes on with those behind them, so that each has its turn.
    fn call_back(&mut self, change: &mut Change, limit: Uuid, seen: &BTreeMap<Arc<str>, usize>) {
        let called = self.drafts.permits_of(limit).called;
        let (first, next) = (waiting_keys(limit, None), waiting_keys(limit, called));
        if !self.world.has_scanned(&first) || !self.world.has_scanned(&next) {
            return;
        }
        let mut keys = self.world.scan::<LimitStateRow>(&next);
        if let Some(called) = called {
            let first = self.world.scan::<LimitStateRow>(&first).into_iter();
            keys.extend(first.filter(|state| state.key.id <= called));
            keys.truncate(KEYS);
        }
        for state in &keys {
            if seen.get(&state.value).copied().unwrap_or(0) < KEEP / 2 {
                look_at(change, state.key.id, self.world.now);
            }
        }
        let last = keys.last().filter(|_| self.world.scan_is_cut(&first));
        let last = last.map(|state| state.key.id);
        if last != called {
            self.drafts.open_key(limit, limit, &"".into());
            if let Some(permits) = self.drafts.permits(limit) {
                permits.called = last;
            }
        }
    }
}
