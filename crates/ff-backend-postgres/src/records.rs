//! Records by their description: reads inside transactions and outside.

use std::collections::BTreeMap;

use ff_core::engine_error::StoreError;
use ff_core::rows::{AnyKey, AnyRow, Column as Described, Kind, Order, Spec, Value};
use ff_core::store::cells::{Reader, Words};
use ff_core::store::{Lock, Needs, Scan, World};
use uuid::Uuid;

use crate::binding::Bound;
use crate::columns::Column;
use crate::load::{Loader, Prepared, whole};
use crate::query::Reads;
use crate::sql;

impl Loader<'_> {
    /// Rows by their keys in the order of tables and keys, then those that scans find.
    pub(crate) async fn records(
        &mut self,
        world: &mut World,
        needs: &Needs,
    ) -> Result<(), StoreError> {
        let keys: Vec<&AnyKey> = needs.records.iter().collect();
        for keys in keys.chunk_by(|one, other| one.spec == other.spec) {
            let spec = keys[0].spec;
            let lock = if self.locking { " FOR UPDATE OF t" } else { "" };
            let sql = by_keys(spec) + lock;
            let values: Vec<&[Value]> = keys.iter().map(|key| &key.values[..]).collect();
            let mut bound = Bound::default();
            arrays(&mut bound, spec.key_columns(), &values);
            let query = sqlx::query_with(&sql, bound.finish()?);
            for cells in self.fetch(query).await? {
                world.records.load(Reader::new(&Column(&cells), self.words).record(spec)?);
            }
        }
        let mut alike: BTreeMap<Shape, Vec<&Scan>> = BTreeMap::new();
        for scan in &needs.scans {
            alike.entry(shape(scan)).or_default().push(scan);
        }
        for scans in alike.values() {
            self.scans(world, scans).await?;
        }
        Ok(())
    }

    /// Scans of whole tables.
    async fn scan_of_all(
        &mut self,
        world: &mut World,
        scans: &[&Scan],
        lock: &str,
    ) -> Result<(), StoreError> {
        for scan in scans {
            let sql = scan_sql(scan) + lock;
            let mut rows = Vec::new();
            for cells in self.fetch(scanning(sqlx::query(&sql), scan)).await? {
                rows.push(Reader::new(&Column(&cells), self.words).record(scan.spec)?);
            }
            world.scans.insert((*scan).clone(), scan.found(&rows));
            for row in rows {
                world.records.load(row);
            }
        }
        Ok(())
    }

    /// Scans that differ only in their values, in one statement.
    async fn scans(&mut self, world: &mut World, scans: &[&Scan]) -> Result<(), StoreError> {
        let first = scans[0];
        let lock = match first.lock {
            Lock::Wait if self.locking => " FOR UPDATE",
            Lock::Skip if self.locking => " FOR UPDATE SKIP LOCKED",
            Lock::Wait | Lock::Skip | Lock::None => "",
        };
        if first.prefix.is_empty() && first.after.is_empty() {
            return self.scan_of_all(world, scans, lock).await;
        }
        let sql = scans_sql(first, lock);
        let (columns, values) = (scanned_columns(first), scanned_values(scans));
        let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
        let mut bound = Bound::default();
        arrays(&mut bound, &columns, &values);
        let query = sqlx::query_with(&sql, bound.finish()?).bind(whole(first.limit));
        let mut found: Vec<Vec<AnyRow>> = vec![Vec::new(); scans.len()];
        for cells in self.fetch(query).await? {
            let column = Column(&cells);
            let mut reader = Reader::new(&column, self.words);
            let number: usize = reader.number()?;
            found[number - 1].push(reader.record(first.spec)?);
        }
        for (scan, mut rows) in scans.iter().zip(found) {
            rows.sort_by_cached_key(|row| scan.values_of(row));
            world.scans.insert((*scan).clone(), scan.found(&rows));
            for row in rows {
                world.records.load(row);
            }
        }
        Ok(())
    }
}

impl Reads<'_> {
    pub(crate) async fn records(
        &mut self,
        keys: &[AnyKey],
        scans: &[Scan],
    ) -> Result<Vec<AnyRow>, StoreError> {
        let mut found = Vec::new();
        let mut words = Words::default();
        for key in keys {
            let sql = by_keys(key.spec);
            let mut bound = Bound::default();
            arrays(&mut bound, key.spec.key_columns(), &[&key.values]);
            let query = sqlx::query_with(&sql, bound.finish()?);
            for cells in self.fetch(query).await? {
                found.push(Reader::new(&Column(&cells), &mut words).record(key.spec)?);
            }
        }
        for scan in scans {
            let sql = scan_sql(scan);
            for cells in self.fetch(scanning(sqlx::query(&sql), scan)).await? {
                found.push(Reader::new(&Column(&cells), &mut words).record(scan.spec)?);
            }
        }
        Ok(found)
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Small => "int2",
        Kind::Int4 => "int4",
        Kind::Int => "int8",
        Kind::Bool => "bool",
        Kind::Text => "text",
        Kind::Bytes => "bytea",
        Kind::Uuid => "uuid",
        Kind::Json => "json",
    }
}

pub(crate) fn columns(described: &[Described]) -> Vec<(&'static str, &'static str)> {
    described.iter().map(|column| (column.name, kind(column.kind))).collect()
}

fn read(column: &Described) -> String {
    match column.kind {
        Kind::Json => format!("{}::text", column.name),
        _ => column.name.to_owned(),
    }
}

fn by_keys(spec: &Spec) -> String {
    let key = columns(spec.key_columns());
    let names: Vec<_> = spec.columns.iter().map(|column| format!("t.{}", read(column))).collect();
    let order: Vec<_> = key.iter().map(|(name, _)| format!("t.{name}")).collect();
    format!(
        "SELECT {} FROM {} JOIN {} AS t ON {} ORDER BY {}",
        names.join(", "),
        sql::rows(1, &key),
        spec.table,
        sql::matching("t", &key),
        order.join(", ")
    )
}

/// What scans must have in common to share a statement.
type Shape = (&'static str, Option<&'static Order>, usize, usize, usize, Lock);

fn shape(scan: &Scan) -> Shape {
    let lens = (scan.prefix.len(), scan.after.len());
    (scan.spec.table, scan.order, lens.0, lens.1, scan.limit, scan.lock)
}

fn scanned_columns(scan: &Scan) -> Vec<Described> {
    scan.parameters().into_iter().map(|(column, _)| *column).collect()
}

fn scanned_values(scans: &[&Scan]) -> Vec<Vec<Value>> {
    let values = |scan: &&Scan| scan.prefix.iter().chain(&scan.after).cloned().collect();
    scans.iter().map(values).collect()
}

/// The first column of each row is the number of its scan, from 1.
fn scans_sql(scan: &Scan, lock: &str) -> String {
    let given = scanned_columns(scan);
    let arrays = given.iter().enumerate();
    let arrays = arrays.map(|(at, column)| format!("${}::{}[]", at + 1, kind(column.kind)));
    let names: Vec<String> = (0..given.len()).map(|at| format!("v{at}")).collect();
    let known = scan.prefix.len();
    let mut tests: Vec<String> =
        (0..known).map(|at| format!("r.{} = s.v{at}", given[at].name)).collect();
    if known < given.len() {
        let behind: Vec<_> = given[known..].iter().map(|column| column.name).collect();
        let values: Vec<_> = (known..given.len()).map(|at| format!("s.v{at}")).collect();
        tests.push(format!("({}) > ({})", behind.join(", "), values.join(", ")));
    }
    let places = scan.places().into_iter().map(|at| scan.spec.columns[at].name);
    let read = scan.spec.columns.iter().map(|column| format!("r.{}", read(column)));
    format!(
        "SELECT s.n, t.* FROM unnest({}) WITH ORDINALITY AS s({}, n), LATERAL ( \
           SELECT {} FROM {} AS r WHERE {} ORDER BY {} LIMIT ${}{lock}) AS t",
        arrays.collect::<Vec<_>>().join(", "),
        names.join(", "),
        read.collect::<Vec<_>>().join(", "),
        scan.spec.table,
        tests.join(" AND "),
        places.collect::<Vec<_>>().join(", "),
        given.len() + 1,
    )
}

fn scan_sql(scan: &Scan) -> String {
    scan.sql(scan.spec.table, read, |at| format!("${at}"))
}

fn scanning<'q>(query: Prepared<'q>, scan: &'q Scan) -> Prepared<'q> {
    let bound = scan.parameters().into_iter().fold(query, |query, (column, value)| {
        match (column.kind, value) {
            (Kind::Small, value) => query.bind(number(value).map(|number| number as i16)),
            (Kind::Int4, value) => query.bind(number(value).map(|number| number as i32)),
            (Kind::Int, value) => query.bind(number(value)),
            (Kind::Bool, value) => query.bind(number(value).map(|number| number != 0)),
            (Kind::Text | Kind::Json, value) => query.bind(text(value)),
            (Kind::Bytes, value) => query.bind(bytes(value)),
            (Kind::Uuid, value) => query.bind(id(value)),
        }
    });
    bound.bind(whole(scan.limit))
}

/// The parameters of a statement, each as what it is.
pub(crate) fn bind<'q>(query: Prepared<'q>, values: &'q [Value]) -> Prepared<'q> {
    values.iter().fold(query, |query, value| match value {
        Value::Null => query.bind(None::<i64>),
        Value::Int(number) => query.bind(*number),
        Value::Text(text) => query.bind(&**text),
        Value::Bytes(bytes) => query.bind(&**bytes),
        Value::Uuid(id) => query.bind(*id),
    })
}

/// One array for each column.
pub(crate) fn arrays(bound: &mut Bound, described: &[Described], rows: &[&[Value]]) {
    for (at, column) in described.iter().enumerate() {
        let values = rows.iter().map(|row| &row[at]);
        match column.kind {
            // The bits of a partition fit, whatever their sign.
            Kind::Small => bound.value(
                values.map(|value| number(value).map(|number| number as i16)).collect::<Vec<_>>(),
            ),
            Kind::Int4 => bound.value(
                values.map(|value| number(value).map(|number| number as i32)).collect::<Vec<_>>(),
            ),
            Kind::Int => bound.value(values.map(number).collect::<Vec<_>>()),
            Kind::Bool => bound.value(
                values.map(|value| number(value).map(|number| number != 0)).collect::<Vec<_>>(),
            ),
            Kind::Text | Kind::Json => bound.value(values.map(text).collect::<Vec<_>>()),
            Kind::Bytes => bound.value(values.map(bytes).collect::<Vec<_>>()),
            Kind::Uuid => bound.value(values.map(id).collect::<Vec<_>>()),
        }
    }
}

fn number(value: &Value) -> Option<i64> {
    if let Value::Int(number) = value { Some(*number) } else { None }
}

fn text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    if let Value::Bytes(bytes) = value { Some(bytes) } else { None }
}

fn id(value: &Value) -> Option<Uuid> {
    if let Value::Uuid(id) = value { Some(*id) } else { None }
}
