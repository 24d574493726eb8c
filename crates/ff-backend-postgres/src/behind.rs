//! What stands behind executions that are about to end, in two statements, where it is not held.
//!
//! The lock of the flow stands for its edges and groups. The members behind them are not locked:
//! whoever writes one compares it with what was found here.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use ff_core::engine_error::StoreError;
use ff_core::rows::{EdgeGroupRow, EdgeRow, Record, Spec, Value};
use ff_core::store::cells::{Cells, Reader, readable};
use ff_core::store::{Needs, Scan, World, behind};
use ff_core::types::ExecutionKey;
use uuid::Uuid;

use crate::binding::Bound;
use crate::columns::{Column, EXECUTION, PAYLOAD, narrow, of_table};
use crate::load::{Loader, whole};
use crate::values::{arrays, read};

impl Loader<'_> {
    pub(crate) async fn behind(
        &mut self,
        world: &mut World,
        needs: &Needs,
    ) -> Result<(), StoreError> {
        let mut scans = behind::edges(world, needs);
        let mut members = BTreeSet::new();
        if !self.careful && !scans.is_empty() {
            let (locked, unlocked) = (&self.flow_writers, &mut self.unlocked);
            members.extend(self.cache.young.bring(world, &mut scans, locked, unlocked));
        }
        if !scans.is_empty() {
            self.follow(world, scans, &mut members).await?;
        }
        self.members_behind(world, &members).await
    }

    /// Follows edges to the members behind them.
    async fn follow(
        &mut self,
        world: &mut World,
        scans: Vec<Scan>,
        members: &mut BTreeSet<ExecutionKey>,
    ) -> Result<(), StoreError> {
        // Before the first edge of an execution is nothing.
        let first = [Value::Uuid(Uuid::nil()), Value::Uuid(Uuid::nil())];
        let from = |scan: &Scan| {
            let after = if scan.after.is_empty() { &first[..] } else { &scan.after };
            scan.prefix.iter().chain(after).cloned().collect::<Vec<_>>()
        };
        let values: Vec<Vec<Value>> = scans.iter().map(from).collect();
        let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
        let columns: Vec<_> =
            scans[0].places().into_iter().map(|at| EdgeRow::SPEC.columns[at]).collect();
        let mut bound = Bound::default();
        arrays(&mut bound, &columns, &values);
        bound.value(scans.iter().map(|scan| whole(scan.limit)).collect::<Vec<_>>());
        let query = sqlx::query_with(&EDGES, bound.finish()?);
        let mut found = vec![Vec::new(); scans.len()];
        for cells in self.fetch(query).await? {
            let column = Column(&cells);
            let scan = column.int(0)?.unwrap_or_default() as usize - 1;
            found[scan].push(Reader::from(&column, self.words, 1).record(EdgeRow::SPEC)?);
            let group = 1 + EdgeRow::SPEC.columns.len();
            if column.int(group)?.is_some() {
                let group = Reader::from(&column, self.words, group).record(EdgeGroupRow::SPEC)?;
                members.extend(behind::member(&group));
                world.records.load(group);
            }
        }
        for (scan, mut edges) in scans.into_iter().zip(found) {
            edges.sort_by_cached_key(|edge| scan.values_of(edge));
            world.scans.insert(scan.clone(), scan.found(&edges));
            edges.into_iter().for_each(|edge| world.records.load(edge));
        }
        Ok(())
    }

    async fn members_behind(
        &mut self,
        world: &mut World,
        keys: &BTreeSet<ExecutionKey>,
    ) -> Result<(), StoreError> {
        let keys: Vec<_> = keys.iter().filter(|key| !world.executions.is_loaded(key)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let query = sqlx::query(&MEMBERS)
            .bind(keys.iter().map(|key| narrow(key.partition)).collect::<Vec<_>>())
            .bind(keys.iter().map(|key| key.id).collect::<Vec<Uuid>>());
        for cells in self.fetch(query).await? {
            let column = Column(&cells);
            let read = Reader::from(&column, self.words, 1).execution_with_payload();
            if let (Some(row), Some(writer)) = (readable(read)?, column.text(0)?) {
                self.unlocked.find(row.key, writer);
                world.executions.load(row);
            }
        }
        Ok(())
    }
}

/// The number of the execution from 1, the edge, and the group that it leads to.
static EDGES: LazyLock<String> = LazyLock::new(|| {
    let columns = |table: &str, spec: &Spec| {
        let columns = spec.columns.iter().map(|column| format!("{table}.{}", read(column)));
        columns.collect::<Vec<_>>().join(", ")
    };
    format!(
        "SELECT s.n, {}, {} \
         FROM unnest($1::int2[], $2::uuid[], $3::uuid[], $4::uuid[], $5::int8[]) \
           WITH ORDINALITY AS s(partition_key, upstream, flow, edge, many, n), \
         LATERAL (SELECT * FROM ff_edge AS r WHERE r.partition_key = s.partition_key \
           AND r.upstream_eid = s.upstream AND (r.flow_id, r.edge_id) > (s.flow, s.edge) \
           ORDER BY r.flow_id, r.edge_id LIMIT s.many) AS e \
         LEFT JOIN ff_edge_group AS g ON g.partition_key = e.partition_key \
           AND g.flow_id = e.flow_id AND g.downstream_eid = e.downstream_eid",
        columns("e", EdgeRow::SPEC),
        columns("g", EdgeGroupRow::SPEC)
    )
});

/// The transaction that wrote it, and the execution.
static MEMBERS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT e.xmin::text, {} FROM unnest($1::int2[], $2::uuid[]) AS k(partition_key, id) \
         JOIN ff_exec_core AS e ON e.partition_key = k.partition_key AND e.execution_id = k.id",
        of_table("e", &format!("{EXECUTION}, {PAYLOAD}"))
    )
});
