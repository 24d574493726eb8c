//! Records by their description: reads inside transactions and outside.

use std::collections::BTreeMap;

use ff_core::engine_error::StoreError;
use ff_core::rows::{AnyKey, AnyRow, Column as Described, Kind, Order, Spec, Value};
use ff_core::store::cells::{Reader, Words};
use ff_core::store::{Lock, Needs, Scan, World};
use sqlx::postgres::PgArguments;
use uuid::Uuid;

use crate::binding::Bound;
use crate::columns::Column;
use crate::load::{Loader, Prepared, whole};
use crate::query::Reads;
use crate::sql;

/// As many keys and scans as are read in one statement for all tables; with more, a round trip for
/// each table matters less than the columns that its rows leave empty.
const FEW: usize = 64;

impl Loader<'_> {
    /// Rows by their keys in the order of tables and keys, then those that scans find.
    pub(crate) async fn records(
        &mut self,
        world: &mut World,
        needs: &Needs,
    ) -> Result<(), StoreError> {
        let parts = parts_of(world, needs);
        let few = parts.iter().map(Part::len).sum::<usize>() <= FEW;
        let at_once = if few { parts.len().max(1) } else { 1 };
        for parts in parts.chunks(at_once) {
            let mut bound = Bound::default();
            let text = match parts {
                [part] => part.text(&mut bound, self.locking),
                parts => text_of_all(parts, &mut bound, self.locking),
            };
            let mut found: Vec<Vec<(usize, AnyRow)>> = vec![Vec::new(); parts.len()];
            for cells in self.fetch(sqlx::query_with(&text, bound.finish()?)).await? {
                let column = Column(&cells);
                let (at, place) = match parts {
                    [_] => (0, 0),
                    parts => {
                        let at: usize = Reader::new(&column, self.words).number()?;
                        let before = parts[..at].iter().map(|part| part.spec().columns.len());
                        (at, before.sum::<usize>() + 1)
                    }
                };
                // With several parts, the number of the scan stands before the columns of all.
                let number_at = usize::from(parts.len() > 1);
                let number = Reader::from(&column, self.words, number_at).number()?;
                let mut reader = Reader::from(&column, self.words, place + 1);
                found[at].push((number, reader.record(parts[at].spec())?));
            }
            for (part, rows) in parts.iter().zip(found) {
                part.load(world, rows);
            }
        }
        Ok(())
    }
}

/// Something to read of one table.
enum Part<'n> {
    Keys(Vec<&'n AnyKey>),
    /// Scans that differ only in their values.
    Scans(Vec<&'n Scan>),
}

fn parts_of<'n>(world: &World, needs: &'n Needs) -> Vec<Part<'n>> {
    let keys: Vec<&AnyKey> = needs.records.iter().collect();
    let mut parts: Vec<Part<'n>> = keys
        .chunk_by(|one, other| one.spec == other.spec)
        .map(|keys| Part::Keys(keys.to_vec()))
        .collect();
    let mut alike: BTreeMap<Shape, Vec<&Scan>> = BTreeMap::new();
    for scan in needs.scans.iter().filter(|scan| !world.has_scanned(scan)) {
        alike.entry(shape(scan)).or_default().push(scan);
    }
    parts.extend(alike.into_values().map(Part::Scans));
    parts
}

impl Part<'_> {
    fn spec(&self) -> &'static Spec {
        match self {
            Self::Keys(keys) => keys[0].spec,
            Self::Scans(scans) => scans[0].spec,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Keys(keys) => keys.len(),
            Self::Scans(scans) => scans.len(),
        }
    }

    /// Binds the part. Its rows begin with the number of their scan, from 1, or 0.
    fn text(&self, bound: &mut Bound, locking: bool) -> String {
        let first = bound.next();
        match self {
            Self::Keys(keys) => {
                let spec = self.spec();
                let values: Vec<&[Value]> = keys.iter().map(|key| &key.values[..]).collect();
                arrays(bound, spec.key_columns(), &values);
                let lock = if locking { " FOR UPDATE OF t" } else { "" };
                by_keys(first, spec, "0::int8 AS n, ") + lock
            }
            Self::Scans(scans) => {
                let scan = scans[0];
                let lock = match scan.lock {
                    Lock::Wait if locking => " FOR UPDATE",
                    Lock::Skip if locking => " FOR UPDATE SKIP LOCKED",
                    Lock::Wait | Lock::Skip | Lock::None => "",
                };
                let (columns, values) = (scanned_columns(scan), scanned_values(scans));
                let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
                arrays(bound, &columns, &values);
                bound.value(whole(scan.limit));
                scans_sql(first, scan, lock)
            }
        }
    }

    fn load(&self, world: &mut World, found: Vec<(usize, AnyRow)>) {
        let Self::Scans(scans) = self else {
            found.into_iter().for_each(|(_, row)| world.records.load(row));
            return;
        };
        let mut rows: Vec<Vec<AnyRow>> = vec![Vec::new(); scans.len()];
        for (number, row) in found {
            rows[number - 1].push(row);
        }
        for (scan, mut rows) in scans.iter().zip(rows) {
            rows.sort_by_cached_key(|row| scan.values_of(row));
            world.scans.insert((*scan).clone(), scan.found(&rows));
            rows.into_iter().for_each(|row| world.records.load(row));
        }
    }
}

/// Several parts in one statement, one after the other: the number of the part, that of the scan,
/// and the columns of all tables, of which each row has those of its own.
fn text_of_all(parts: &[Part<'_>], bound: &mut Bound, locking: bool) -> String {
    let (mut with, mut rows) = (Vec::new(), Vec::new());
    for (at, part) in parts.iter().enumerate() {
        with.push(format!("p{at} AS ({})", part.text(bound, locking)));
        let mut row = format!("SELECT {at}::int8, p{at}.n");
        for (other, part) in parts.iter().enumerate() {
            for column in part.spec().columns {
                row += &match (other == at, column.kind) {
                    (true, _) => format!(", p{at}.{}", column.name),
                    (false, Kind::Json) => ", NULL::text".to_owned(),
                    (false, other) => format!(", NULL::{}", kind(other)),
                };
            }
        }
        rows.push(row + &format!(" FROM p{at}"));
    }
    format!("WITH {} {}", with.join(", "), rows.join(" UNION ALL "))
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
            let sql = by_keys(1, key.spec, "");
            let mut bound = Bound::default();
            arrays(&mut bound, key.spec.key_columns(), &[&key.values]);
            let query = sqlx::query_with(&sql, bound.finish()?);
            for cells in self.fetch(query).await? {
                found.push(Reader::new(&Column(&cells), &mut words).record(key.spec)?);
            }
        }
        for scan in scans {
            let sql = scan_sql(scan);
            for cells in self.fetch(sqlx::query_with(&sql, scanning(scan)?)).await? {
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

pub(crate) fn read(column: &Described) -> String {
    match column.kind {
        Kind::Json => format!("{}::text", column.name),
        _ => column.name.to_owned(),
    }
}

/// Rows by their keys, whose arrays begin at this parameter, with something before their columns.
fn by_keys(first: usize, spec: &Spec, before: &str) -> String {
    let key = columns(spec.key_columns());
    let names: Vec<_> = spec.columns.iter().map(|column| format!("t.{}", read(column))).collect();
    let order: Vec<_> = key.iter().map(|(name, _)| format!("t.{name}")).collect();
    format!(
        "SELECT {before}{} FROM {} JOIN {} AS t ON {} ORDER BY {}",
        names.join(", "),
        sql::rows(first, &key),
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
fn scans_sql(first: usize, scan: &Scan, lock: &str) -> String {
    let given = scanned_columns(scan);
    let arrays = given.iter().enumerate();
    let arrays = arrays.map(|(at, column)| format!("${}::{}[]", first + at, kind(column.kind)));
    let names: Vec<String> = (0..given.len()).map(|at| format!("v{at}")).collect();
    let known = scan.prefix.len();
    let mut tests: Vec<String> =
        (0..known).map(|at| format!("r.{} = s.v{at}", given[at].name)).collect();
    if known < given.len() {
        let behind: Vec<_> = given[known..].iter().map(|column| column.name).collect();
        let values: Vec<_> = (known..given.len()).map(|at| format!("s.v{at}")).collect();
        tests.push(format!("({}) > ({})", behind.join(", "), values.join(", ")));
    }
    let (numbers, tests) = match given.is_empty() {
        // A scan of the whole table is alone of its kind.
        true => ("(SELECT 1::int8) AS s(n)".to_owned(), String::new()),
        false => {
            let arrays = arrays.collect::<Vec<_>>().join(", ");
            let numbers = format!("unnest({arrays}) WITH ORDINALITY AS s({}, n)", names.join(", "));
            (numbers, format!("WHERE {} ", tests.join(" AND ")))
        }
    };
    let places = scan.places().into_iter().map(|at| scan.spec.columns[at].name);
    let read = scan.spec.columns.iter().map(|column| format!("r.{}", read(column)));
    format!(
        "SELECT s.n, t.* FROM {numbers}, LATERAL ( \
           SELECT {} FROM {} AS r {tests}ORDER BY {} LIMIT ${}{lock}) AS t",
        read.collect::<Vec<_>>().join(", "),
        scan.spec.table,
        places.collect::<Vec<_>>().join(", "),
        first + given.len(),
    )
}

fn scan_sql(scan: &Scan) -> String {
    scan.sql(scan.spec.table, read, |at| format!("${at}"))
}

fn scanning(scan: &Scan) -> Result<PgArguments, StoreError> {
    let mut bound = Bound::default();
    for (column, value) in scan.parameters() {
        single(&mut bound, column, value);
    }
    bound.value(whole(scan.limit));
    bound.finish()
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

/// One value of a column.
pub(crate) fn single(bound: &mut Bound, column: &Described, value: &Value) {
    match column.kind {
        Kind::Small => bound.value(number(value).map(|number| number as i16)),
        Kind::Int4 => bound.value(number(value).map(|number| number as i32)),
        Kind::Int => bound.value(number(value)),
        Kind::Bool => bound.value(number(value).map(|number| number != 0)),
        Kind::Text | Kind::Json => bound.value(text(value)),
        Kind::Bytes => bound.value(bytes(value)),
        Kind::Uuid => bound.value(id(value)),
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
