//! Reads what the sweeper looks at: what is due, what the log has not told of, and its old end.

use ff_core::engine_error::StoreError;
use ff_core::rows::spelling::Spelling;
use ff_core::rows::{EventRow, IdempotencyKey, TimerKey, TimerKind, TimerRow};
use ff_core::store::{RetentionScan, Walk, Walked, World, damage};
use ff_core::types::{ExecutionKey, TimestampMs};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use uuid::Uuid;

use crate::bound::Cell;
use crate::columns::{EVENT, Written};
use crate::error::store_error;
use crate::load::Loader;
use crate::query::DIALECT;

impl Loader<'_> {
    pub(crate) fn due_timers(&mut self, world: &mut World, limit: usize) -> Result<(), StoreError> {
        let now = world.now;
        let sql = "SELECT due_at_ms, kind, subject, members FROM ff_timer WHERE due_at_ms <= ?1 \
                   ORDER BY due_at_ms, kind, subject LIMIT ?2";
        let read = |row: &Row<'_>| {
            let kind: String = row.get(1)?;
            let members: Vec<u8> = row.get(3)?;
            Ok((TimestampMs(row.get(0)?), kind, row.get::<_, Uuid>(2)?, members))
        };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut timers = Vec::new();
        for (due_at, kind, subject, members) in self.rows(sql, params![now.0, limit], read)? {
            let kind = TimerKind::read(&kind)
                .ok_or_else(|| StoreError::Corrupt(format!("unknown timer {kind:?}")))?;
            let key = TimerKey { due_at, kind, subject };
            timers.push(TimerRow { key, members: TimerRow::decode_members(&members) });
        }
        timers.sort_unstable_by_key(|timer| timer.key);
        for timer in timers {
            let keys: Vec<_> = timer.members.iter().map(|member| member.execution).collect();
            self.executions(world, &keys)?;
            for key in keys {
                self.own_key(world, key)?;
            }
            world.timers.load(timer.clone());
            world.due_timers.push(timer);
        }
        Ok(())
    }

    pub(crate) fn unannounced(
        &mut self,
        world: &mut World,
        limit: usize,
    ) -> Result<(), StoreError> {
        let sql = "SELECT execution_id, home_partition FROM ff_exec_core \
                   INDEXED BY ff_exec_unannounced WHERE version = 0 LIMIT ?1";
        let read = |row: &Row<'_>| Ok(ExecutionKey { partition: row.get(1)?, id: row.get(0)? });
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let keys = self.rows(sql, params![limit], read)?;
        self.executions(world, &keys)?;
        for key in keys {
            let lane = world.executions.get(&key).map(|row| row.lane.clone());
            if let Some(lane) = lane {
                self.lane(world, &lane)?;
                world.unannounced.push(key);
            }
        }
        Ok(())
    }

    pub(crate) fn retired(
        &mut self,
        world: &mut World,
        scan: RetentionScan,
    ) -> Result<(), StoreError> {
        let now = world.now;
        let cutoff = scan.max_age_ms.map_or(i64::MIN, |age| now.0.saturating_sub_unsigned(age));
        let horizon = match scan.max_finished {
            Some(keep) => finish_horizon(self.connection, keep)?,
            None => -1,
        };
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
        let mut events = Vec::new();
        {
            let mut statement = self.prepare(&self.statements.retired)?;
            let mut rows =
                statement.query(params![self.log_floor, limit]).map_err(|e| store_error(&e))?;
            while let Some(cells) = rows.next().map_err(|e| store_error(&e))? {
                events.push(damage::event(&Written(cells), self.words, EVENT)?);
            }
        }
        let retired = |event: &EventRow| {
            event.at.0 <= cutoff || i64::try_from(event.seq).is_ok_and(|seq| seq <= horizon)
        };
        let count = events.iter().take_while(|event| retired(event)).count();
        events.truncate(count);
        let keys: Vec<_> = events.iter().filter_map(|event| event.execution).collect();
        self.executions(world, &keys)?;
        for key in keys {
            self.own_key(world, key)?;
        }
        world.retired_events = events;
        Ok(())
    }

    pub(crate) fn walk(
        &mut self,
        world: &mut World,
        walker: Uuid,
        walk: &Walk,
    ) -> Result<(), StoreError> {
        let sql = walk.filter.walk(DIALECT, "home_partition", walk.steps);
        let read = |row: &Row<'_>| {
            let key = ExecutionKey { partition: row.get(0)?, id: row.get(2)? };
            Ok((TimestampMs(row.get(1)?), key, row.get::<_, bool>(3)?))
        };
        let values = params_from_iter(sql.values.iter().map(Cell::from));
        let walked = Walked::from_steps(self.rows(&sql.text, values, read)?, walk);
        let keys: Vec<_> = walked.keys.iter().map(|(_, key)| *key).collect();
        self.executions(world, &keys)?;
        world.walks.insert(walker, walked);
        Ok(())
    }

    fn own_key(&self, world: &mut World, key: ExecutionKey) -> Result<(), StoreError> {
        let own = world.executions.get(&key).and_then(|row| {
            let key = row.idempotency_key.clone()?;
            Some(IdempotencyKey { namespace: row.namespace.clone(), key })
        });
        match own {
            Some(own) => self.idempotency(world, &own),
            None => Ok(()),
        }
    }
}

/// The last place in the log before the newest `keep` endings; -1 if there are not more.
fn finish_horizon(connection: &Connection, keep: u64) -> Result<i64, StoreError> {
    let sql = "SELECT seq FROM ff_event WHERE event_type IN \
               ('completed', 'failed', 'cancelled', 'expired', 'skipped') \
               ORDER BY seq DESC LIMIT 1 OFFSET ?1";
    let keep = i64::try_from(keep).unwrap_or(i64::MAX);
    let found = connection.query_row(sql, [keep], |row| row.get(0)).optional();
    found.map(|seq| seq.unwrap_or(-1)).map_err(|error| store_error(&error))
}
