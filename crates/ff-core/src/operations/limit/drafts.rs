//! Standings of limits that one operation is changing, each written once in the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::rows::{
    Account, LimitStateKey, LimitStateRow, Permits, Record, Row, Standing, TimerKey, TimerKind,
    TimerRow,
};
use crate::store::{Change, World, Write};
use crate::types::TimestampMs;

pub(super) struct Drafts<'w> {
    world: &'w World,
    rows: BTreeMap<Uuid, Draft>,
}

struct Draft {
    row: LimitStateRow,
    is_stored: bool,
    is_changed: bool,
}

impl<'w> Drafts<'w> {
    pub fn new(world: &'w World) -> Self {
        Self { world, rows: BTreeMap::new() }
    }

    /// Goes on from what an operation has decided to write already.
    pub fn after(world: &'w World, change: &Change) -> Self {
        let mut drafts = Self::new(world);
        for write in change.records.iter() {
            let (row, is_stored) = match write {
                Write::Insert(row) => (row, false),
                Write::Update(row) => (row, true),
                Write::Delete(_) => continue,
            };
            if row.key().spec == LimitStateRow::SPEC
                && let Ok(Some(row)) = row.decode::<LimitStateRow>()
            {
                drafts.rows.insert(row.key.id, Draft { row, is_stored, is_changed: false });
            }
        }
        drafts
    }

    pub fn get(&mut self, id: Uuid) -> Option<&LimitStateRow> {
        self.draft(id).map(|draft| &draft.row)
    }

    pub fn change(&mut self, id: Uuid) -> Option<&mut LimitStateRow> {
        let draft = self.draft(id)?;
        draft.is_changed = true;
        Some(&mut draft.row)
    }

    pub fn account(&mut self, id: Uuid) -> Option<&mut Account> {
        match &mut self.change(id)?.standing.0 {
            Standing::Budget(account) => Some(account),
            Standing::Quota(_) => None,
        }
    }

    pub fn permits(&mut self, id: Uuid) -> Option<&mut Permits> {
        match &mut self.change(id)?.standing.0 {
            Standing::Quota(permits) => Some(permits),
            Standing::Budget(_) => None,
        }
    }

    /// What a key of a quota has in hand, to look at.
    pub fn permits_of(&mut self, id: Uuid) -> Permits {
        match self.get(id).map(|row| &row.standing.0) {
            Some(Standing::Quota(permits)) => permits.clone(),
            _ => Permits::default(),
        }
    }

    /// Makes sure that there is a row for a key of a quota; says whether there was none.
    pub fn open_key(&mut self, id: Uuid, limit: Uuid, value: &Arc<str>) -> bool {
        if self.draft(id).is_some() {
            return false;
        }
        let standing = Standing::Quota(Permits::default());
        let row = LimitStateRow::new(id, limit, value.clone(), standing);
        self.rows.insert(id, Draft { row, is_stored: false, is_changed: true });
        true
    }

    /// Asks the sweeper to look at a limit then, unless it does so before.
    pub fn arm(&mut self, change: &mut Change, id: Uuid, at: TimestampMs) {
        let now = self.world.now;
        let Some(row) = self.change(id) else { return };
        if row.look_at.is_none_or(|known| known <= now || known > at) {
            row.look_at = Some(at);
            look_at(change, id, at);
        }
    }

    /// There may be room: the waiters are looked at.
    pub fn arm_if_waited_for(&mut self, change: &mut Change, id: Uuid) {
        self.arm_waiters(change, id, self.world.now);
    }

    /// The same for a rule that changes. A sweep that has read the rule before deletes the timers
    /// that it has seen due; a timer of a later time is not among them.
    pub fn arm_for_new_rule(&mut self, change: &mut Change, id: Uuid) {
        self.arm_waiters(change, id, self.world.now.after_ms(1));
    }

    fn arm_waiters(&mut self, change: &mut Change, id: Uuid, at: TimestampMs) {
        if self.get(id).is_some_and(|row| row.is_waiting) {
            if let Some(pass) = self.account(id).and_then(|account| account.pass.as_mut()) {
                pass.again = true;
            }
            self.arm(change, id, at);
        }
    }

    /// What a limit says has changed: the sweeper looks at it, and at all keys of a quota from the
    /// first.
    pub fn look_at_all_keys(&mut self, change: &mut Change, id: Uuid) {
        if self.permits_of(id).reached.is_some()
            && let Some(permits) = self.permits(id)
        {
            permits.reached = None;
        }
        look_at(change, id, self.world.now);
    }

    pub fn delete(&mut self, change: &mut Change, id: Uuid) {
        if self.rows.remove(&id).is_some() {
            change.delete::<LimitStateRow>(&LimitStateKey { id });
        }
    }

    pub fn write(self, change: &mut Change) {
        for draft in self.rows.into_values().filter(|draft| draft.is_changed) {
            match draft.is_stored {
                true => change.update(&draft.row),
                false => change.insert(&draft.row),
            }
        }
    }

    fn draft(&mut self, id: Uuid) -> Option<&mut Draft> {
        if !self.rows.contains_key(&id) {
            let row = self.world.record::<LimitStateRow>(&LimitStateKey { id })?;
            self.rows.insert(id, Draft { row, is_stored: true, is_changed: false });
        }
        self.rows.get_mut(&id)
    }
}

/// Asks the sweeper to look at a limit then.
pub(super) fn look_at(change: &mut Change, subject: Uuid, due_at: TimestampMs) {
    let key = TimerKey { due_at, kind: TimerKind::Limit, subject };
    change.timers.push(Write::Update(TimerRow { key, members: Vec::new() }));
}

/// Writes a record, which is there already or not.
pub(super) fn put(change: &mut Change, known: bool, row: &impl Record) {
    match known {
        true => change.update(row),
        false => change.insert(row),
    }
}
