//! "All records that begin so": how operations and queries read more than one of them.

use crate::rows::{AnyKey, AnyRow, Column, Order, Record, Spec, Value};

/// Records whose first columns have these values, in the order of the others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scan {
    pub spec: &'static Spec,
    /// By which columns; absent: by the key's.
    pub order: Option<&'static Order>,
    pub prefix: Vec<Value>,
    /// Only what comes after these values of the columns behind the prefix.
    pub after: Vec<Value>,
    pub limit: usize,
    pub lock: Lock,
}

/// What a transaction does with the rows that it finds, where a store has locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lock {
    /// Waits for whoever has them in hand, and keeps them until it commits.
    Wait,
    /// Passes over what others have in hand.
    Skip,
    /// Only looks: another row's lock stands for them.
    None,
}

/// What a scan has found.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    pub keys: Vec<AnyKey>,
    /// The columns that the last row found is ordered by, if the scan stopped at its limit.
    pub cut: Option<Vec<Value>>,
}

/// As many records as one scan reads, unless it says otherwise.
const LIMIT: usize = 1000;

impl Scan {
    pub fn of<R: Record>(prefix: Vec<Value>) -> Self {
        let spec = R::SPEC;
        Self { spec, order: None, prefix, after: Vec::new(), limit: LIMIT, lock: Lock::Wait }
    }

    /// In another order than that of the keys.
    #[must_use]
    pub fn by(self, order: &'static Order) -> Self {
        Self { order: Some(order), ..self }
    }

    #[must_use]
    pub fn after(self, after: Vec<Value>) -> Self {
        Self { after, ..self }
    }

    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    #[must_use]
    pub fn skip_locked(self) -> Self {
        Self { lock: Lock::Skip, ..self }
    }

    #[must_use]
    pub fn unlocked(self) -> Self {
        Self { lock: Lock::None, ..self }
    }

    /// Where the columns stand that the scan goes by.
    pub fn places(&self) -> Vec<usize> {
        match self.order {
            Some(order) => order.columns.iter().map(|name| self.spec.place(name)).collect(),
            None => (0..self.spec.key).collect(),
        }
    }

    /// The values of a row that the scan goes by.
    pub fn values_of(&self, row: &AnyRow) -> Vec<Value> {
        self.places().into_iter().map(|at| row.values[at].clone()).collect()
    }

    /// Whether the scan would come to a row.
    pub fn covers(&self, row: &AnyRow) -> bool {
        if row.spec != self.spec {
            return false;
        }
        let place = |at: usize| match self.order {
            Some(order) => self.spec.place(order.columns[at]),
            None => at,
        };
        let known = self.prefix.len();
        let begins = (0..known).all(|at| row.values[place(at)] == self.prefix[at]);
        begins
            && (self.after.is_empty() || {
                let behind = (0..self.after.len()).map(|at| &row.values[place(known + at)]);
                behind.gt(self.after.iter())
            })
    }

    /// What was found, from rows that stand in the scan's order.
    pub fn found<'r>(&self, rows: impl IntoIterator<Item = &'r AnyRow>) -> Scanned {
        let mut scanned = Scanned::default();
        for row in rows {
            scanned.keys.push(crate::rows::Row::key(row));
            if scanned.keys.len() == self.limit {
                scanned.cut = Some(self.values_of(row));
            }
        }
        scanned
    }

    /// The text of the scan for a store that speaks SQL, over its table as the store names it. Its
    /// parameters are the prefix, what it comes after and the limit, numbered from 1.
    pub fn sql(
        &self,
        table: &str,
        read: impl Fn(&Column) -> String,
        parameter: impl Fn(usize) -> String,
    ) -> String {
        let columns: Vec<String> = self.spec.columns.iter().map(read).collect();
        let places = self.places();
        let names: Vec<&str> = places.iter().map(|at| self.spec.columns[*at].name).collect();
        let mut sql = format!("SELECT {} FROM {table}", columns.join(", "));
        let known = self.prefix.len();
        let mut tests: Vec<String> =
            (0..known).map(|at| format!("{} = {}", names[at], parameter(at + 1))).collect();
        if !self.after.is_empty() {
            let behind = &names[known..known + self.after.len()];
            let places: Vec<_> = (0..behind.len()).map(|at| parameter(known + at + 1)).collect();
            tests.push(format!("({}) > ({})", behind.join(", "), places.join(", ")));
        }
        if !tests.is_empty() {
            sql += &format!(" WHERE {}", tests.join(" AND "));
        }
        let limit = parameter(known + self.after.len() + 1);
        sql + &format!(" ORDER BY {} LIMIT {limit}", names.join(", "))
    }

    /// The columns of the scan's parameters, the limit apart.
    pub fn parameters(&self) -> Vec<(&'static Column, &Value)> {
        let places = self.places();
        let values = self.prefix.iter().chain(&self.after);
        places.into_iter().map(|at| &self.spec.columns[at]).zip(values).collect()
    }
}
