//! Records by their description: reads inside transactions and outside.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ff_core::engine_error::StoreError;
use ff_core::rows::{AnyKey, AnyRow, Column as Described, Kind, Order, Row, Spec, Value};
use ff_core::store::cells::{Reader, Words};
use ff_core::store::{Lock, Needs, Scan, World};
use sqlx::postgres::{PgArguments, PgRow};

use crate::binding::Bound;
use crate::columns::Column;
use crate::load::{Loader, whole};
use crate::query::Reads;
use crate::sql::{self, Many};
use crate::statements::Statements;
use crate::values::{bind_rows, columns, kind, read};

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
        let unread = needs.scans.iter().filter(|scan| !world.has_scanned(scan));
        let parts = parts_of(&needs.records.iter().collect::<Vec<_>>(), unread);
        for parts in parts.chunks(at_once(&parts)) {
            let (text, bound) = statement(self.statements, parts, self.locking)?;
            let rows = self.fetch(sqlx::query_with(&text, bound)).await?;
            for (part, rows) in parts.iter().zip(decode(parts, &rows, self.words)?) {
                part.load(world, rows);
            }
        }
        Ok(())
    }
}

impl Reads<'_> {
    /// Rows by their keys, then those that scans find, in the order in which they are asked for.
    pub(crate) async fn records(
        &mut self,
        keys: &[AnyKey],
        scans: &[Scan],
    ) -> Result<Vec<AnyRow>, StoreError> {
        let mut words = Words::default();
        let (mut by_key, mut by_scan) = (HashMap::new(), HashMap::new());
        let sorted: BTreeSet<&AnyKey> = keys.iter().collect();
        let parts = parts_of(&sorted.into_iter().collect::<Vec<_>>(), scans);
        for parts in parts.chunks(at_once(&parts)) {
            let (text, bound) = statement(&self.statements, parts, false)?;
            let rows = self.fetch(sqlx::query_with(&text, bound)).await?;
            for (part, rows) in parts.iter().zip(decode(parts, &rows, &mut words)?) {
                match part {
                    Part::Keys(_) => {
                        by_key.extend(rows.into_iter().map(|(_, row)| (row.key(), row)))
                    }
                    Part::Scans(scans) => by_scan.extend(of_each_scan(scans, rows)),
                }
            }
        }
        let mut found: Vec<AnyRow> = keys.iter().filter_map(|key| by_key.remove(key)).collect();
        found.extend(scans.iter().filter_map(|scan| by_scan.remove(scan)).flatten());
        Ok(found)
    }
}

/// Something to read of one table.
enum Part<'n> {
    Keys(Vec<&'n AnyKey>),
    /// Scans that differ only in their values.
    Scans(Vec<&'n Scan>),
}

/// Keys of one table stand beside each other.
fn parts_of<'n>(keys: &[&'n AnyKey], scans: impl IntoIterator<Item = &'n Scan>) -> Vec<Part<'n>> {
    let tables = keys.chunk_by(|one, other| one.spec == other.spec);
    let mut parts: Vec<Part<'n>> = tables.map(|keys| Part::Keys(keys.to_vec())).collect();
    let mut alike: BTreeMap<Shape, Vec<&Scan>> = BTreeMap::new();
    for scan in scans {
        alike.entry(shape(scan)).or_default().push(scan);
    }
    parts.extend(alike.into_values().map(Part::Scans));
    parts
}

/// How many parts one statement reads.
fn at_once(parts: &[Part<'_>]) -> usize {
    let few = parts.iter().map(Part::len).sum::<usize>() <= FEW;
    if few { parts.len().max(1) } else { 1 }
}

/// Reads parts in one statement, one after the other.
fn statement(
    statements: &Statements,
    parts: &[Part<'_>],
    locking: bool,
) -> Result<(Arc<str>, PgArguments), StoreError> {
    let mut bound = Bound::default();
    parts.iter().for_each(|part| part.bind(&mut bound));
    let reads = parts.iter().map(|part| part.read(locking)).collect();
    Ok((statements.records.get(reads, |reads| text(reads)), bound.finish()?))
}

/// The rows of each part, each with the number of the scan that it belongs to, from 1, or 0.
fn decode(
    parts: &[Part<'_>],
    rows: &[PgRow],
    words: &mut Words,
) -> Result<Vec<Vec<(usize, AnyRow)>>, StoreError> {
    let mut found: Vec<Vec<(usize, AnyRow)>> = vec![Vec::new(); parts.len()];
    for cells in rows {
        let column = Column(cells);
        let (at, place) = match parts {
            [_] => (0, 0),
            parts => {
                let at: usize = Reader::new(&column, words).number()?;
                let before = parts[..at].iter().map(|part| part.spec().columns.len());
                (at, before.sum::<usize>() + 1)
            }
        };
        // With several parts, the number of the scan stands before the columns of all.
        let number = Reader::from(&column, words, usize::from(parts.len() > 1)).number()?;
        let row = Reader::from(&column, words, place + 1).record(parts[at].spec())?;
        found[at].push((number, row));
    }
    Ok(found)
}

/// The rows of scans that share a statement, each in its order.
fn of_each_scan<'n>(
    scans: &[&'n Scan],
    found: Vec<(usize, AnyRow)>,
) -> impl Iterator<Item = (&'n Scan, Vec<AnyRow>)> {
    let mut rows: Vec<Vec<AnyRow>> = vec![Vec::new(); scans.len()];
    for (number, row) in found {
        rows[number - 1].push(row);
    }
    scans.iter().copied().zip(rows).map(|(scan, mut rows)| {
        rows.sort_by_cached_key(|row| scan.values_of(row));
        (scan, rows)
    })
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

    fn bind(&self, bound: &mut Bound) {
        match self {
            Self::Keys(keys) => {
                let values: Vec<&[Value]> = keys.iter().map(|key| &key.values[..]).collect();
                bind_rows(bound, self.spec().key_columns(), &values);
            }
            Self::Scans(scans) => {
                let values =
                    |scan: &&Scan| scan.prefix.iter().chain(&scan.after).cloned().collect();
                let values: Vec<Vec<Value>> = scans.iter().map(values).collect();
                let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
                bind_rows(bound, &self.read(false).given(), &values);
                bound.value(whole(scans[0].limit));
            }
        }
    }

    fn read(&self, locking: bool) -> Read {
        let (spec, many) = (self.spec(), Many::of(self.len()));
        // Whoever locked what its execution guards before the execution itself would wait for
        // somebody who waits for him.
        let lock = |lock: Lock| if locking && !spec.guarded { lock } else { Lock::None };
        match self {
            Self::Keys(_) => Read { spec, scan: None, lock: lock(Lock::Wait), many },
            Self::Scans(scans) => {
                let Scan { order, prefix, after, .. } = scans[0];
                let scan = Some((*order, prefix.len(), after.len()));
                Read { spec, scan, lock: lock(scans[0].lock), many }
            }
        }
    }

    fn load(&self, world: &mut World, found: Vec<(usize, AnyRow)>) {
        let Self::Scans(scans) = self else {
            found.into_iter().for_each(|(_, row)| world.records.load(row));
            return;
        };
        for (scan, rows) in of_each_scan(scans, found) {
            world.scans.insert(scan.clone(), scan.found(&rows));
            rows.into_iter().for_each(|row| world.records.load(row));
        }
    }
}

/// The shape of a part, from which its text follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Read {
    spec: &'static Spec,
    /// By which order, how many columns are known, and how many others it comes after; a read by
    /// keys has none of them.
    scan: Option<(Option<&'static Order>, usize, usize)>,
    lock: Lock,
    many: Many,
}

impl Read {
    /// The columns whose values are given.
    fn given(&self) -> Vec<Described> {
        let columns = match self.scan {
            None => self.spec.key_columns().to_vec(),
            Some((order, ..)) => in_order(self.spec, order),
        };
        let many = self.scan.map_or(columns.len(), |(_, known, behind)| known + behind);
        columns[..many].to_vec()
    }

    /// How many parameters it has.
    fn parameters(&self) -> usize {
        self.given().len() + usize::from(self.scan.is_some())
    }

    /// The text with this as its first parameter. The rows begin with the number of their scan,
    /// from 1, or 0.
    fn text(&self, first: usize) -> String {
        match self.scan {
            None => self.by_keys(first),
            Some((order, known, _)) => self.by_scans(first, order, known),
        }
    }

    fn by_keys(&self, first: usize) -> String {
        let spec = self.spec;
        let key = columns(spec.key_columns());
        let names = spec.columns.iter().map(|column| format!("t.{}", read(column)));
        let order: Vec<_> = key.iter().map(|(name, _)| format!("t.{name}")).collect();
        format!(
            "SELECT 0::int8 AS n, {} FROM {} JOIN {} AS t ON {} ORDER BY {}{}",
            names.collect::<Vec<_>>().join(", "),
            sql::rows(first, &key, self.many),
            spec.table,
            sql::matching("t", &key),
            order.join(", "),
            if self.lock == Lock::None { "" } else { " FOR UPDATE OF t" }
        )
    }

    fn by_scans(&self, first: usize, order: Option<&Order>, known: usize) -> String {
        let given = self.given();
        let mut tests: Vec<String> =
            (0..known).map(|at| format!("r.{} = s.v{at}", given[at].name)).collect();
        if known < given.len() {
            let behind: Vec<_> = given[known..].iter().map(|column| column.name).collect();
            let values: Vec<_> = (known..given.len()).map(|at| format!("s.v{at}")).collect();
            tests.push(format!("({}) > ({})", behind.join(", "), values.join(", ")));
        }
        let (before, tests) = match tests.is_empty() {
            true => ("", String::new()),
            false => (" WHERE ", tests.join(" AND ")),
        };
        let lock = match self.lock {
            Lock::Wait => " FOR UPDATE",
            Lock::Skip => " FOR UPDATE SKIP LOCKED",
            Lock::None => "",
        };
        let read = self.spec.columns.iter().map(|column| format!("r.{}", read(column)));
        let places = in_order(self.spec, order);
        format!(
            "SELECT s.n, t.* FROM {}, LATERAL ( \
               SELECT {} FROM {} AS r{before}{tests} ORDER BY {} LIMIT ${}{lock}) AS t",
            self.scans(first, &given),
            read.collect::<Vec<_>>().join(", "),
            self.spec.table,
            places.iter().map(|column| column.name).collect::<Vec<_>>().join(", "),
            first + given.len(),
        )
    }

    /// The scans as a table `s`: their values and their numbers.
    fn scans(&self, first: usize, given: &[Described]) -> String {
        let place = |at: usize| format!("${}::{}", first + at, kind(given[at].kind));
        let columns = 0..given.len();
        match self.many {
            Many::One => {
                let values = columns.map(|at| format!("{} AS v{at}, ", place(at)));
                format!("(SELECT {}1::int8 AS n) AS s", values.collect::<String>())
            }
            Many::Arrays => {
                let arrays: Vec<_> = columns.clone().map(|at| place(at) + "[]").collect();
                let names: String = columns.map(|at| format!("v{at}, ")).collect();
                format!("unnest({}) WITH ORDINALITY AS s({names}n)", arrays.join(", "))
            }
        }
    }
}

/// The columns of a table in an order, or those of its key.
fn in_order(spec: &Spec, order: Option<&Order>) -> Vec<Described> {
    match order {
        Some(order) => order.columns.iter().map(|name| spec.columns[spec.place(name)]).collect(),
        None => spec.key_columns().to_vec(),
    }
}

/// Several reads in one statement, one after the other: the number of the read, that of the scan,
/// and the columns of all tables, of which each row has those of its own.
fn text(reads: &[Read]) -> String {
    if let [read] = reads[..] {
        return read.text(1);
    }
    let (mut first, mut with, mut rows) = (1, Vec::new(), Vec::new());
    for (at, read) in reads.iter().enumerate() {
        with.push(format!("p{at} AS ({})", read.text(first)));
        first += read.parameters();
        let mut row = format!("SELECT {at}::int8, p{at}.n");
        for (other, read) in reads.iter().enumerate() {
            for column in read.spec.columns {
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

/// What scans must have in common to share a statement.
type Shape = (&'static str, Option<&'static Order>, usize, usize, usize, Lock);

fn shape(scan: &Scan) -> Shape {
    let lens = (scan.prefix.len(), scan.after.len());
    (scan.spec.table, scan.order, lens.0, lens.1, scan.limit, scan.lock)
}
