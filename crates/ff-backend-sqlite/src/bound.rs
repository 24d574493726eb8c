//! Statements that run for many rows. A value is bound only where it differs from the row before:
//! SQLite copies each text that it is given, and most rows of a batch say the same.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, Result, ToSql};

/// How many rows one statement inserts, where there are as many that are alike.
const CHUNK: usize = 16;

/// One bound value, borrowed from its row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Cell<'r> {
    Null,
    Int(i64),
    Text(&'r str),
    Bytes(&'r [u8]),
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// A statement and what is bound to it at present.
pub(crate) struct Bound<'c, 'r> {
    statement: CachedStatement<'c>,
    cells: Vec<Cell<'r>>,
}

impl<'c, 'r> Bound<'c, 'r> {
    pub fn new(connection: &'c Connection, sql: &str) -> Result<Self> {
        let statement = connection.prepare_cached(sql)?;
        let cells = vec![Cell::Null; statement.parameter_count()];
        Ok(Self { statement, cells })
    }

    /// Runs the statement with one value for each of its parameters.
    pub fn run(&mut self, cells: impl Iterator<Item = Cell<'r>>) -> Result<()> {
        for (at, (bound, cell)) in self.cells.iter_mut().zip(cells).enumerate() {
            if *bound != cell {
                self.statement.raw_bind_parameter(at + 1, cell)?;
                *bound = cell;
            }
        }
        self.statement.raw_execute().map(|_| ())
    }
}

/// An insert of one row, of a chunk of rows that differ in few columns, and of one that may differ
/// in all.
pub(crate) struct Insert {
    one: String,
    chunk: String,
    mixed: String,
    pub width: usize,
    /// Where the columns stand that differ from row to row.
    own: Vec<usize>,
    /// Where those stand that a chunk has in common.
    common: Vec<usize>,
}

impl Insert {
    pub fn new(table: &str, columns: &str, own: &[&str]) -> Self {
        let names: Vec<&str> = columns.split(',').map(str::trim).collect();
        let is_own = |at: &usize| own.contains(&names[*at]);
        let width = names.len();
        let (own, common): (Vec<usize>, Vec<usize>) = (0..width).partition(is_own);
        let place = |row: usize, at: usize| match own.iter().position(|own| *own == at) {
            Some(nth) => common.len() + row * own.len() + nth + 1,
            None => common.iter().take_while(|common| **common != at).count() + 1,
        };
        let row = |row: usize| {
            let places = (0..width).map(|at| format!("?{}", place(row, at)));
            format!("({})", places.collect::<Vec<_>>().join(", "))
        };
        let rows: Vec<String> = (0..CHUNK).map(row).collect();
        // Whatever fails takes the whole transaction back, so SQLite need not be able to take
        // back a single statement.
        let insert = format!("INSERT OR FAIL INTO {table} ({columns}) VALUES ");
        let row = format!("({})", vec!["?"; width].join(", "));
        let mixed = format!("{insert}{}", vec![&*row; CHUNK].join(", "));
        let one = format!("{insert}{row}");
        let chunk = insert + &rows.join(", ");
        Self { one, chunk, mixed, width, own, common }
    }

    /// Inserts rows whose cells stand one after the other.
    pub fn run<'r>(&self, connection: &Connection, cells: &[Cell<'r>]) -> Result<()> {
        if cells.is_empty() {
            return Ok(());
        }
        let mut one = Bound::new(connection, &self.one)?;
        let mut chunk = Bound::new(connection, &self.chunk)?;
        let mut mixed = Bound::new(connection, &self.mixed)?;
        let mut rest = cells;
        while !rest.is_empty() {
            let alike = self.alike(rest);
            let full = rest.len() >= CHUNK * self.width;
            let (rows, after) = rest.split_at(if full { CHUNK } else { alike } * self.width);
            if alike == CHUNK {
                let common = self.common.iter().map(|at| rows[*at]);
                let rows = rows.chunks_exact(self.width);
                let own = rows.flat_map(|row| self.own.iter().map(|at| row[*at]));
                chunk.run(common.chain(own))?;
            } else if full {
                mixed.run(rows.iter().copied())?;
            } else {
                for row in rows.chunks_exact(self.width) {
                    one.run(row.iter().copied())?;
                }
            }
            rest = after;
        }
        Ok(())
    }

    /// How many of the next rows have in common what a chunk must; never more than a chunk.
    fn alike(&self, cells: &[Cell<'_>]) -> usize {
        let first = &cells[..self.width];
        let same = |row: &&[Cell<'_>]| self.common.iter().all(|at| row[*at] == first[*at]);
        cells.chunks_exact(self.width).take(CHUNK).take_while(same).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_arrive_as_they_are_however_much_they_have_in_common() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (id INTEGER, word TEXT, other BLOB)").unwrap();
        let insert = Insert::new("t", "id, word, other", &["id"]);
        let words = ["a", "b", "a", "a"];
        let row = |id: i64| {
            // Runs of 40, of 3 and of 1.
            let word = words[if id < 40 { 0 } else { (id as usize / 3) % 4 }];
            let other = if id % 50 == 49 { Cell::Null } else { Cell::Bytes(b"x") };
            [Cell::Int(id), Cell::Text(word), other]
        };
        let cells: Vec<Cell<'_>> = (0..100).flat_map(row).collect();
        insert.run(&connection, &cells).unwrap();
        let mut all = connection.prepare("SELECT id, word, other FROM t ORDER BY id").unwrap();
        let mut rows = all.query([]).unwrap();
        for id in 0..100 {
            let found = rows.next().unwrap().unwrap();
            for (at, cell) in row(id).iter().enumerate() {
                let ToSqlOutput::Borrowed(expected) = cell.to_sql().unwrap() else {
                    unreachable!()
                };
                assert_eq!(found.get_ref(at).unwrap(), expected, "row {id}, column {at}");
            }
        }
        assert!(rows.next().unwrap().is_none());
    }
}
