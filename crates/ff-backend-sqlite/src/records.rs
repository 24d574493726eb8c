//! Records by their description: reads inside transactions and outside, and writes.

use std::sync::LazyLock;

use ff_core::engine_error::StoreError;
use ff_core::rows::{AnyKey, AnyRow, RECORDS, Spec, Value};
use ff_core::store::cells::{Reader, Words};
use ff_core::store::{Needs, Scan, World, Write};
use ff_core::types::ExecutionKey;
use foldhash::HashMap;
use rusqlite::{Result, params_from_iter};
use sqlx::Sqlite;

use crate::bound::Cell;
use crate::columns::{Read, Written};
use crate::error::store_error;
use crate::load::Loader;
use crate::query::Reads;
use crate::write::Writing;

impl<'r> From<&'r Value> for Cell<'r> {
    fn from(value: &'r Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Int(number) => Self::Int(*number),
            Value::Text(text) => Self::Text(text),
            Value::Bytes(bytes) => Self::Bytes(bytes),
            Value::Uuid(id) => Self::Bytes(id.as_bytes()),
        }
    }
}

impl Loader<'_> {
    pub(crate) fn records(&mut self, world: &mut World, needs: &Needs) -> Result<(), StoreError> {
        for key in &needs.records {
            let sql = &texts(key.spec).select;
            for row in self.described(key.spec, sql, key.values.iter().map(Cell::from))? {
                world.records.load(row);
            }
        }
        for scan in &needs.scans {
            let parameters = scan.parameters();
            let values = parameters.iter().map(|(_, value)| Cell::from(*value));
            let limit = Cell::Int(i64::try_from(scan.limit).unwrap_or(i64::MAX));
            let sql = self.statements.scan(scan);
            let rows = self.described(scan.spec, &sql, values.chain([limit]))?;
            world.scans.insert(scan.clone(), scan.found(&rows));
            for row in rows {
                world.records.load(row);
            }
        }
        Ok(())
    }

    fn described<'v>(
        &mut self,
        spec: &'static Spec,
        sql: &str,
        values: impl Iterator<Item = Cell<'v>>,
    ) -> Result<Vec<AnyRow>, StoreError> {
        let mut statement = self.prepare(sql)?;
        let mut rows =
            statement.query(params_from_iter(values)).map_err(|error| store_error(&error))?;
        let mut found = Vec::new();
        while let Some(cells) = rows.next().map_err(|error| store_error(&error))? {
            found.push(Reader::new(&Written(cells), self.words).record(spec)?);
        }
        Ok(found)
    }
}

impl Writing<'_> {
    pub(crate) fn write_records(&self, writes: &[Write<AnyRow>]) -> Result<()> {
        for write in writes {
            match write {
                Write::Insert(row) => {
                    self.record(&texts(row.spec).insert, row.values.iter())?;
                }
                Write::Update(row) => {
                    let (key, rest) = row.values.split_at(row.spec.key);
                    if !rest.is_empty() {
                        self.record(&texts(row.spec).update, rest.iter().chain(key))?;
                    }
                }
                Write::Delete(key) => self.record(&texts(key.spec).delete, key.values.iter())?,
            }
        }
        Ok(())
    }

    /// Forgets what belongs to an execution.
    pub(crate) fn purge_records(&self, key: ExecutionKey) -> Result<()> {
        let owner = [Value::Int(i64::from(key.partition)), Value::Uuid(key.id)];
        for spec in RECORDS.iter().filter(|spec| spec.owned) {
            let sql = format!(
                "DELETE FROM {} WHERE {} = ?1 AND {} = ?2",
                spec.table, spec.columns[0].name, spec.columns[1].name
            );
            self.record(&sql, owner.iter())?;
        }
        Ok(())
    }

    fn record<'v>(&self, sql: &str, values: impl Iterator<Item = &'v Value>) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.execute(params_from_iter(values.map(Cell::from))).map(|_| ())
    }
}

impl Reads<'_> {
    pub(crate) async fn records(
        &self,
        keys: &[AnyKey],
        scans: &[Scan],
    ) -> Result<Vec<AnyRow>, StoreError> {
        let mut found = Vec::new();
        let mut words = Words::default();
        for key in keys {
            let sql = &texts(key.spec).select;
            for cells in &self.fetch(bind(sqlx::query(sql), &key.values)).await? {
                found.push(Reader::new(&Read(cells), &mut words).record(key.spec)?);
            }
        }
        for scan in scans {
            let sql = scan_sql(scan);
            let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
            let values = scan.parameters().into_iter().map(|(_, value)| value);
            let query = bind(sqlx::query(&sql), values).bind(limit);
            for cells in &self.fetch(query).await? {
                found.push(Reader::new(&Read(cells), &mut words).record(scan.spec)?);
            }
        }
        Ok(found)
    }
}

pub(crate) type Bound<'q> = sqlx::query::Query<'q, Sqlite, sqlx::sqlite::SqliteArguments<'q>>;

pub(crate) fn bind<'q>(query: Bound<'q>, values: impl IntoIterator<Item = &'q Value>) -> Bound<'q> {
    values.into_iter().fold(query, |query, value| match value {
        Value::Null => query.bind(None::<i64>),
        Value::Int(number) => query.bind(*number),
        Value::Text(text) => query.bind(&**text),
        Value::Bytes(bytes) => query.bind(&**bytes),
        Value::Uuid(id) => query.bind(*id),
    })
}

/// The text of a scan. SQLite is told the index of an order: it knows nothing of how many rows a
/// column tells apart, and would walk over the whole table where the key has the same order.
pub(crate) fn scan_sql(scan: &Scan) -> String {
    let table = match scan.order {
        Some(order) => format!("{} INDEXED BY {}", scan.spec.table, order.index),
        None => scan.spec.table.to_owned(),
    };
    scan.sql(&table, |column| column.name.to_owned(), |at| format!("?{at}"))
}

/// What is said about one table, put together once.
struct Texts {
    select: String,
    insert: String,
    update: String,
    delete: String,
}

fn texts(spec: &Spec) -> &'static Texts {
    static TEXTS: LazyLock<HashMap<&str, Texts>> = LazyLock::new(|| {
        let texts = |spec: &Spec| Texts {
            select: select(spec),
            insert: insert(spec),
            update: update(spec),
            delete: delete(spec),
        };
        RECORDS.iter().map(|spec| (spec.table, texts(spec))).collect()
    });
    &TEXTS[spec.table]
}

fn names(spec: &Spec) -> Vec<&'static str> {
    spec.columns.iter().map(|column| column.name).collect()
}

/// The key's columns, each equal to a parameter behind so many others.
fn key_is(spec: &Spec, behind: usize) -> String {
    let columns = spec.key_columns().iter().enumerate();
    let tests = columns.map(|(at, column)| format!("{} = ?{}", column.name, behind + at + 1));
    tests.collect::<Vec<_>>().join(" AND ")
}

fn select(spec: &Spec) -> String {
    format!("SELECT {} FROM {} WHERE {}", names(spec).join(", "), spec.table, key_is(spec, 0))
}

fn insert(spec: &Spec) -> String {
    let names = names(spec);
    let places = vec!["?"; names.len()].join(", ");
    format!("INSERT INTO {} ({}) VALUES ({places})", spec.table, names.join(", "))
}

fn update(spec: &Spec) -> String {
    let rest = &names(spec)[spec.key..];
    let set: Vec<_> =
        rest.iter().enumerate().map(|(at, name)| format!("{name} = ?{}", at + 1)).collect();
    format!("UPDATE {} SET {} WHERE {}", spec.table, set.join(", "), key_is(spec, rest.len()))
}

fn delete(spec: &Spec) -> String {
    format!("DELETE FROM {} WHERE {}", spec.table, key_is(spec, 0))
}

#[cfg(test)]
mod tests {
    use ff_core::store::Lock;
    use rusqlite::Connection;

    use super::*;

    /// Left alone, SQLite walked over the edges of all flows to find those behind one execution.
    #[test]
    fn every_scan_goes_by_the_index_of_its_order() {
        let connection = Connection::open_in_memory().expect("open");
        crate::migrate::apply(&connection).expect("migrate");
        for spec in RECORDS {
            for order in spec.orders {
                for known in 1..=order.columns.len() {
                    let prefix = vec![Value::Null; known];
                    let (after, lock) = (Vec::new(), Lock::None);
                    let scan = Scan { spec, order: Some(order), prefix, after, limit: 1, lock };
                    let plan = plan(&connection, &scan);
                    assert!(plan.contains(order.index), "{}: {plan}", spec.table);
                    assert!(!plan.contains("TEMP B-TREE"), "{}: {plan}", spec.table);
                    let named = order.columns[..known].iter().all(|name| plan.contains(name));
                    assert!(named, "{}: {plan}", spec.table);
                }
            }
        }
    }

    fn plan(connection: &Connection, scan: &Scan) -> String {
        let sql = format!("EXPLAIN QUERY PLAN {}", scan_sql(scan));
        let mut statement = connection.prepare(&sql).expect("prepare");
        let values = vec![None::<i64>; scan.prefix.len() + 1];
        let rows = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3));
        rows.expect("explain").map(|row| row.expect("row")).collect::<Vec<_>>().join("; ")
    }
}
