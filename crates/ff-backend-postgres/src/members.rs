//! Members of flows: the lock of their flow before their own, all of them one after the other, and
//! their payloads if they are about to be handed out.

use std::collections::BTreeSet;

use ff_core::engine_error::StoreError;
use ff_core::rows::{Blob, FlowKey};
use ff_core::store::cells::{Cells, Reader, readable};
use ff_core::store::{MemberScan, Needs, World};
use ff_core::types::ExecutionKey;
use uuid::Uuid;

use crate::columns::{Column, PAYLOAD, narrow};
use crate::load::{Loader, was_never_leased, whole};

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
        for key in ending.iter().filter(|_| self.locking || !self.begun) {
            let stored = self.careful || needs.unwritten.contains(key);
            let held = world.executions.is_loaded(key)
                || (!stored && self.held.take(*key, world, &mut self.unlocked));
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
        flows.retain(|key| self.locked_flows.insert(*key));
        if !flows.is_empty() {
            self.begin().await?;
        }
        world.seen_flows.retain(|key| !flows.contains(key));
        self.flows(world, &flows, &self.statements.flows_locked).await
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
