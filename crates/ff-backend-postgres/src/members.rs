//! What members of flows need beside their rows: the lock of their flow before their own, and their
//! payloads if they are about to be handed out.

use std::collections::BTreeSet;

use ff_core::engine_error::StoreError;
use ff_core::rows::{Blob, FlowKey};
use ff_core::store::cells::Reader;
use ff_core::store::{Needs, World};
use ff_core::types::ExecutionKey;
use uuid::Uuid;

use crate::columns::{Column, PAYLOAD, narrow};
use crate::load::Loader;

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
