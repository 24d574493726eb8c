//! Records by their description: reads inside transactions and outside, and writes.

use std::sync::{Arc, LazyLock};

use ff_core::engine_error::StoreError;
use ff_core::rows::{AnyKey, AnyRow, RECORDS, Spec, Value};
use ff_core::store::cells::{Reader, Words};
use ff_core::store::{Needs, Scan, World, Write, damage};
use ff_core::types::ExecutionKey;
use foldhash::HashMap;
use rusqlite::{CachedStatement, Result, params_from_iter};
use sqlx::Sqlite;

use crate::bound::{Bound, Cell};
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
        self.by_keys(world, &needs.records, |_| {})?;
        self.scans(world, &needs.scans, |_| {})
    }

    /// Shows each row that was not at hand before.
    pub(crate) fn by_keys<'k>(
        &mut self,
        world: &mut World,
        keys: impl IntoIterator<Item = &'k AnyKey>,
        mut each: impl FnMut(&AnyRow),
    ) -> Result<(), StoreError> {
        let mut last: Option<(&Spec, CachedStatement<'_>)> = None;
        for key in keys {
            if world.records.is_loaded(key) {
                continue;
            }
            let statement = match &mut last {
                Some((spec, statement)) if *spec == key.spec => statement,
                _ => &mut last.insert((key.spec, self.prepare(&texts(key.spec).select)?)).1,
            };
            for row in self.described(key.spec, statement, key.values.iter().map(Cell::from))? {
                each(&row);
                world.records.load(row);
            }
        }
        Ok(())
    }

    /// Shows each row that is found by a scan that was not run before.
    pub(crate) fn scans<'s>(
        &mut self,
        world: &mut World,
        scans: impl IntoIterator<Item = &'s Scan>,
        mut each: impl FnMut(&AnyRow),
    ) -> Result<(), StoreError> {
        let mut last: Option<(Arc<str>, CachedStatement<'_>)> = None;
        for scan in scans {
            if world.has_scanned(scan) {
                continue;
            }
            let sql = self.statements.scan(scan);
            let statement = match &mut last {
                Some((same, statement)) if Arc::ptr_eq(same, &sql) => statement,
                _ => {
                    let statement = self.prepare(&sql)?;
                    &mut last.insert((sql, statement)).1
                }
            };
            let values = scan.prefix.iter().chain(&scan.after).map(Cell::from);
            let limit = Cell::Int(i64::try_from(scan.limit).unwrap_or(i64::MAX));
            let rows = self.described(scan.spec, statement, values.chain([limit]))?;
            world.scans.insert(scan.clone(), scan.found(&rows));
            for row in rows {
                each(&row);
                world.records.load(row);
            }
        }
        Ok(())
    }

    fn described<'v>(
        &mut self,
        spec: &'static Spec,
        statement: &mut CachedStatement<'_>,
        values: impl Iterator<Item = Cell<'v>>,
    ) -> Result<Vec<AnyRow>, StoreError> {
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
        // They stand in the order of their tables, so that one statement serves many.
        let mut last: Option<(&str, Bound<'_, '_>)> = None;
        for write in writes {
            let (sql, first, second) = match write {
                Write::Insert(row) => (&*texts(row.spec).insert, &row.values[..], &[][..]),
                Write::Update(row) => {
                    let (key, rest) = row.values.split_at(row.spec.key);
                    (&*texts(row.spec).update, rest, key)
                }
                Write::Delete(key) => (&*texts(key.spec).delete, &key.values[..], &[][..]),
            };
            if first.is_empty() {
                // A row that is nothing but its key has nothing to update.
                continue;
            }
            let statement = match &mut last {
                Some((same, statement)) if std::ptr::eq(*same, sql) => statement,
                _ => &mut last.insert((sql, Bound::new(self.connection, sql)?)).1,
            };
            statement.run(first.iter().chain(second).map(Cell::from))?;
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
                found.push(damage::record(&Read(cells), &mut words, key.spec)?);
            }
        }
        for scan in scans {
            let sql = scan_sql(scan);
            let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
            let values = scan.parameters().into_iter().map(|(_, value)| value);
            let query = bind(sqlx::query(&sql), values).bind(limit);
            for cells in &self.fetch(query).await? {
                found.push(damage::record(&Read(cells), &mut words, scan.spec)?);
            }
        }
        Ok(found)
    }
}

pub(crate) type Asked<'q> = sqlx::query::Query<'q, Sqlite, sqlx::sqlite::SqliteArguments<'q>>;

pub(crate) fn bind<'q>(query: Asked<'q>, values: impl IntoIterator<Item = &'q Value>) -> Asked<'q> {
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
