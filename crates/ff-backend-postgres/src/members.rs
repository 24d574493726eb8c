//! Members of flows: the lock of their flow before their own, all of them one after the other, and
//! their payloads if they are about to be handed out.

use std::collections::BTreeSet;

use ff_core::engine_error::StoreError;
use ff_core::rows::{Blob, FlowKey, FlowRow};
use ff_core::store::cells::{Cells, Reader, readable};
use ff_core::store::{MemberScan, Needs, World};
use ff_core::types::ExecutionKey;
use uuid::Uuid;

use crate::columns::{Column, PAYLOAD, narrow};
use crate::load::{Loader, was_never_leased, whole};

/// How many large flows one claim looks at: the server has room for so many locks only.
const MOST_LARGE: usize = 64;

impl Loader<'_> {
    /// Locks the flows that were asked for, and those of executions that may end: whoever ends a
    /// member or cancels a flow locks the flow first, so that all wait for each other in one order.
    pub(crate) async fn lock_flows(
        &mut self,
        world: &mut World,
        needs: &Needs,
        ending: &BTreeSet<ExecutionKey>,
    ) -> Result<(), StoreError> {
        let mut flows = needs.flows.clone();
        let (mut partitions, mut ids) = (Vec::new(), Vec::new());
        for key in ending.iter().filter(|_| self.locking || !*self.begun) {
            let stored = self.careful || needs.unwritten.contains(key);
            let held = world.executions.is_loaded(key)
                || (!stored && self.cache.held.take(*key, world, &mut self.unlocked));
            match world.executions.get(key).filter(|_| held) {
                Some(row) => {
                    let flow = row.flow_id.map(|id| FlowKey { partition: key.partition, id });
                    flows.extend(flow);
                }
                None => {
                    partitions.push(narrow(key.partition));
                    ids.push(key.id);
                }
            }
        }
        if !ids.is_empty() {
            self.begin().await?;
            let sql = "SELECT DISTINCT e.partition_key, e.flow_id \
                       FROM unnest($1::int2[], $2::uuid[]) AS k(partition_key, execution_id) \
                       JOIN ff_exec_core AS e ON e.partition_key = k.partition_key \
                       AND e.execution_id = k.execution_id WHERE e.flow_id IS NOT NULL";
            for cells in self.fetch(sqlx::query(sql).bind(partitions).bind(ids)).await? {
                let column = Column(&cells);
                let mut reader = Reader::new(&column, self.words);
                flows.insert(FlowKey { partition: reader.number()?, id: reader.uuid()? });
            }
        }
        let kept = self.keep_claims_out(&needs.cancelled_flows).await?;
        flows.retain(|key| self.locked_flows.insert(*key));
        if !flows.is_empty() {
            self.begin().await?;
        }
        world.seen_flows.retain(|key| !flows.contains(key));
        for row in self.flows(&flows, &self.statements.flows_locked).await? {
            // A claim may have looked at it before it was locked.
            world.flows.reload(row);
        }
        let outgrown = |key: &FlowKey| {
            let row = world.flows.get(key).filter(|row| !row.is_reached_at_once());
            row.is_some() && !kept.contains(key)
        };
        match needs.cancelled_flows.iter().any(outgrown) {
            true => Err(StoreError::Retry("a flow has grown while it was locked".to_owned())),
            false => Ok(()),
        }
    }

    async fn flows(
        &mut self,
        keys: &BTreeSet<FlowKey>,
        sql: &str,
    ) -> Result<Vec<FlowRow>, StoreError> {
        let mut rows = Vec::with_capacity(keys.len());
        if keys.is_empty() {
            return Ok(rows);
        }
        let partitions: Vec<_> = keys.iter().map(|key| narrow(key.partition)).collect();
        let ids: Vec<Uuid> = keys.iter().map(|key| key.id).collect();
        for cells in self.fetch(sqlx::query(sql).bind(partitions).bind(ids)).await? {
            let column = Column(&cells);
            let mut reader = Reader::new(&column, self.words);
            let row = reader.flow()?;
            if let Some(writer) = reader.own_text()? {
                self.flow_writers.insert(row.key.id, writer);
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// Whether the flow of something claimable still lives is looked at, not locked: a claim that
    /// meets a cancellation half-way comes before it, because both write the member. Where the
    /// cancellation leaves members for later, the claim keeps it away until it has committed.
    pub(crate) async fn flows_of_claimable(&mut self, world: &mut World) -> Result<(), StoreError> {
        let claimable = world.claimable.values().flat_map(|scanned| &scanned.keys);
        let unknown = claimable.filter_map(|key| flow_of(world, key));
        let keys: BTreeSet<_> = unknown.filter(|key| !world.flows.is_loaded(key)).collect();
        let mut rows = self.flows(&keys, &self.statements.flows).await?;
        let large = |row: &FlowRow| !row.state.is_finished() && !row.is_reached_at_once();
        let large: BTreeSet<FlowKey> =
            rows.iter().filter(|row| large(row)).map(|row| row.key).collect();
        if !large.is_empty() {
            self.begin().await?;
            let kept = self.keep_cancellations_out(&large).await?;
            let left: BTreeSet<_> = large.difference(&kept).copied().collect();
            leave_out(world, &left);
            // They may have been cancelled just before.
            rows.retain(|row| !large.contains(&row.key));
            rows.extend(self.flows(&kept, &self.statements.flows).await?);
        }
        world.seen_flows.extend(&keys);
        rows.into_iter().for_each(|row| world.flows.reload(row));
        Ok(())
    }

    /// Until this transaction ends, those of these flows that come back are not cancelled. Who
    /// waits to cancel one goes first, so that claims that follow each other do not put it off for
    /// ever; and no claim waits for him, because it may hold what he needs.
    async fn keep_cancellations_out(
        &mut self,
        flows: &BTreeSet<FlowKey>,
    ) -> Result<BTreeSet<FlowKey>, StoreError> {
        let flows: Vec<FlowKey> = flows.iter().take(MOST_LARGE).copied().collect();
        let sql = "SELECT n FROM unnest($1::int8[]) WITH ORDINALITY AS k(number, n) \
                   WHERE pg_try_advisory_xact_lock_shared(number)";
        let numbers: Vec<i64> = flows.iter().map(|flow| self.number_of(flow)).collect();
        let mut kept = BTreeSet::new();
        for cells in self.fetch(sqlx::query(sql).bind(numbers)).await? {
            let place = Column(&cells).int(0)?.unwrap_or_default() as usize - 1;
            kept.insert(flows[place]);
        }
        Ok(kept)
    }

    /// The other side of it: until this transaction ends, no claim takes a member of those of these
    /// flows that come back, the large ones. It comes before the locks of flows, for which the
    /// claims that are waited for may wait.
    async fn keep_claims_out(
        &mut self,
        flows: &BTreeSet<FlowKey>,
    ) -> Result<BTreeSet<FlowKey>, StoreError> {
        let mut kept = BTreeSet::new();
        if flows.is_empty() {
            return Ok(kept);
        }
        let sql = "SELECT partition_key, flow_id, pg_advisory_xact_lock(number) FROM ( \
                     SELECT f.partition_key, f.flow_id, k.number \
                     FROM unnest($1::int2[], $2::uuid[], $3::int8[]) AS k(partition, id, number) \
                     JOIN ff_flow_core AS f ON f.partition_key = k.partition AND f.flow_id = k.id \
                     WHERE f.node_count NOT BETWEEN 1 AND $4 ORDER BY k.number) AS f";
        let query = sqlx::query(sql)
            .bind(flows.iter().map(|flow| narrow(flow.partition)).collect::<Vec<_>>())
            .bind(flows.iter().map(|flow| flow.id).collect::<Vec<Uuid>>())
            .bind(flows.iter().map(|flow| self.number_of(flow)).collect::<Vec<_>>())
            .bind(FlowRow::REACHED_AT_ONCE as i64);
        for cells in self.fetch(query).await? {
            let column = Column(&cells);
            let mut reader = Reader::new(&column, self.words);
            kept.insert(FlowKey { partition: reader.number()?, id: reader.uuid()? });
        }
        Ok(kept)
    }

    /// What claims and cancellations of a flow lock; two flows may share it.
    fn number_of(&self, flow: &FlowKey) -> i64 {
        flow.id.as_u64_pair().1 as i64 ^ self.sweep_lock
    }

    /// The next members of flows. Those that nobody holds are not locked: whoever writes one
    /// compares it with what was found here. Attempts are written without their executions, so the
    /// others are locked with all that are.
    pub(crate) async fn members(
        &mut self,
        world: &mut World,
        scans: &BTreeSet<MemberScan>,
        executions: &mut BTreeSet<ExecutionKey>,
    ) -> Result<(), StoreError> {
        for scan in scans {
            let query = sqlx::query(&self.statements.members)
                .bind(narrow(scan.flow.partition))
                .bind(scan.flow.id)
                .bind(scan.after.unwrap_or_default())
                // One more than asked for tells whether there is more.
                .bind(whole(scan.limit).saturating_add(1));
            let found = self.fetch(query).await?;
            let mut last = None;
            for cells in found.iter().take(scan.limit) {
                let column = Column(cells);
                let mut reader = Reader::new(&column, self.words);
                let key = scan.flow.member(reader.uuid()?);
                last = Some(key.id);
                let writer = column.text(1)?.unwrap_or_default();
                let read = Reader::from(&column, self.words, 2).execution();
                match readable(read)? {
                    _ if world.executions.is_loaded(&key) => {}
                    Some(row) if !self.careful && (row.is_finished() || was_never_leased(&row)) => {
                        self.unlocked.find(key, writer);
                        world.executions.load(row);
                    }
                    _ => drop(executions.insert(key)),
                }
            }
            world.members.insert(*scan, last.filter(|_| found.len() > scan.limit));
        }
        Ok(())
    }

    /// How many members have not ended. The lock of their flow keeps others from adding some.
    pub(crate) async fn open_members(
        &mut self,
        world: &mut World,
        flows: &BTreeSet<FlowKey>,
    ) -> Result<(), StoreError> {
        for flow in flows {
            let sql = "SELECT count(*) FROM ff_exec_core WHERE partition_key = $1 \
                       AND flow_id = $2 AND lifecycle_phase NOT IN ('terminal', 'cancelled')";
            let query = sqlx::query(sql).bind(narrow(flow.partition)).bind(flow.id);
            let found = self.fetch(query).await?;
            let open = found.first().map_or(Ok(None), |cells| Column(cells).int(0))?;
            world.open_members.insert(*flow, u64::try_from(open.unwrap_or(0)).unwrap_or(0));
        }
        Ok(())
    }

    /// The payloads of executions that were read without them.
    pub(crate) async fn payloads(
        &mut self,
        world: &mut World,
        keys: &BTreeSet<ExecutionKey>,
    ) -> Result<(), StoreError> {
        let apart = |key: &&ExecutionKey| {
            world.executions.get(key).is_some_and(|row| row.payload == Blob::Apart)
        };
        let keys: Vec<&ExecutionKey> = keys.iter().filter(apart).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let partitions: Vec<_> = keys.iter().map(|key| narrow(key.partition)).collect();
        let ids: Vec<Uuid> = keys.iter().map(|key| key.id).collect();
        let sql = format!(
            "SELECT e.partition_key, e.execution_id, {PAYLOAD} \
             FROM unnest($1::int2[], $2::uuid[]) AS k(partition_key, execution_id) \
             JOIN ff_exec_core AS e ON e.partition_key = k.partition_key \
             AND e.execution_id = k.execution_id"
        );
        for cells in self.fetch(sqlx::query(&sql).bind(partitions).bind(ids)).await? {
            let column = Column(&cells);
            let mut reader = Reader::new(&column, self.words);
            let key = ExecutionKey { partition: reader.number()?, id: reader.uuid()? };
            let payload = reader.blob()?;
            world.executions.complement(&key, |row| row.payload = payload);
        }
        Ok(())
    }
}

fn flow_of(world: &World, key: &ExecutionKey) -> Option<FlowKey> {
    let id = world.executions.get(key)?.flow_id?;
    Some(FlowKey { partition: key.partition, id })
}

/// Members of these flows are not handed out now, as if somebody had them in hand.
fn leave_out(world: &mut World, flows: &BTreeSet<FlowKey>) {
    let mut claimable = std::mem::take(&mut world.claimable);
    for scanned in claimable.values_mut() {
        let before = scanned.keys.len();
        scanned.keys.retain(|key| flow_of(world, key).is_none_or(|flow| !flows.contains(&flow)));
        scanned.more |= scanned.keys.len() < before;
    }
    world.claimable = claimable;
}
