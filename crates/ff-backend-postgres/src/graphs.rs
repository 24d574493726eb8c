//! Graphs of young flows, each as one transaction left it.
//!
//! The lock of a flow stands for its edges and groups, and whoever writes one of these writes the
//! flow too. So a graph is true for the flow as one transaction has left it, and whoever has locked
//! the flow sees which one that was. A graph is learned before the commit, because whoever waits
//! for the lock goes on right behind it; if the commit fails, all graphs are forgotten. So they are
//! when a connection is made: a server that has crashed gives the numbers of lost transactions to
//! others. Members are compared when they are written, like all rows that were not locked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ff_core::store::{Change, Graphs, Scan, World, Write};
use ff_core::types::ExecutionKey;
use uuid::Uuid;

use crate::held::Unlocked;

/// The transactions that left some flows, by name.
pub(crate) type Writers = HashMap<Uuid, Arc<str>>;

#[derive(Default)]
pub(crate) struct Young(Mutex<Graphs<Arc<str>, Arc<str>>>);

impl Young {
    fn graphs(&self) -> MutexGuard<'_, Graphs<Arc<str>, Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn forget(&self) {
        self.graphs().forget();
    }

    /// Takes what stands behind executions into the world where the flow is still as it was left,
    /// and names the members that are not held. The scans that remain must be read.
    pub fn bring(
        &self,
        world: &mut World,
        scans: &mut Vec<Scan>,
        locked: &Writers,
        unlocked: &mut Unlocked,
    ) -> Vec<ExecutionKey> {
        let (graphs, mut missing) = (self.graphs(), Vec::new());
        scans.retain(|scan| {
            let as_left = graphs.flow_of(scan).is_some_and(|flow| {
                locked.get(&flow).is_some_and(|writer| graphs.version(&flow) == Some(writer))
            });
            let found = |key, writer: &Arc<str>| unlocked.find(key, writer.clone());
            !(as_left && graphs.bring(world, scan, found, &mut missing))
        });
        missing
    }

    /// Takes over what a transaction has written that found the flows as others had left them.
    pub fn learn(&self, change: &Change, locked: &Writers, writer: Option<&Arc<str>>) {
        let mut graphs = self.graphs();
        if graphs.is_empty() && change.flows.is_empty() {
            return;
        }
        for write in &change.flows {
            if let Write::Update(row) = write
                && graphs.version(&row.key.id) != locked.get(&row.key.id)
            {
                graphs.drop_flow(row.key.id);
            }
        }
        graphs.learn(change, |_| writer.cloned());
        for write in &change.flows {
            if let Write::Insert(row) | Write::Update(row) = write {
                match writer {
                    Some(writer) => graphs.set_version(&row.key.id, writer.clone()),
                    None => graphs.drop_flow(row.key.id),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ff_core::rows::{Endings, FlowKey, FlowRow, FlowState};
    use ff_core::types::TimestampMs;

    use super::*;

    fn flow(key: FlowKey) -> FlowRow {
        FlowRow {
            key,
            namespace: "default".into(),
            kind: "".into(),
            graph_revision: 0,
            state: FlowState::Open,
            created_at: TimestampMs(1),
            terminal_at: None,
            nodes: 1,
            edges: 0,
            ended: Endings::default(),
            raw_fields: "{}".into(),
        }
    }

    /// A server that has crashed may call another transaction by the number that was lost.
    #[test]
    fn what_was_learned_before_a_commit_that_failed_is_forgotten() {
        let young = Young::default();
        let key = FlowKey { partition: 0, id: Uuid::from_u128(1) };
        let change = Change { flows: vec![Write::Insert(flow(key))], ..Change::default() };
        young.learn(&change, &Writers::default(), Some(&"1000".into()));
        assert_eq!(young.graphs().version(&key.id).map(|writer| &**writer), Some("1000"));
        young.forget();
        assert_eq!(young.graphs().version(&key.id), None);
    }
}
