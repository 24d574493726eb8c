//! Binds the columns of many rows: an array for each column, or one value where all rows agree.
//!
//! Rows that are written together mostly differ in a few columns only. What they have in common is
//! sent once, and the server need not take it apart again. Columns agree in groups and not one by
//! one, so that there are few texts of each statement.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgHasArrayType, PgTypeInfo};
use sqlx::{Arguments, Encode, Postgres, Type};

use ff_core::engine_error::StoreError;

/// Columns and their types.
pub(crate) type Columns = &'static [(&'static str, &'static str)];

/// Columns of rows that are all bound in the same way.
pub(crate) trait Group<'r, R: Copy> {
    const COLUMNS: Columns;

    /// Shows each of the columns in their order.
    fn show(viewer: &mut impl Viewer<'r, R>);
}

pub(crate) trait Viewer<'r, R: Copy> {
    fn cell<T: Cell<'r>>(&mut self, cell: impl Fn(R) -> T);
}

/// Whatever a column may hold.
pub(crate) trait Cell<'r>:
    Encode<'r, Postgres> + Type<Postgres> + PgHasArrayType + PartialEq + 'r
{
}

impl<'r, T> Cell<'r> for T where
    T: Encode<'r, Postgres> + Type<Postgres> + PgHasArrayType + PartialEq + 'r
{
}

/// The arguments of a statement.
#[derive(Default)]
pub(crate) struct Bound {
    arguments: PgArguments,
    failed: Option<BoxDynError>,
}

impl Bound {
    /// Room for arguments of about so many bytes.
    pub fn with_room(bytes: usize) -> Self {
        let mut bound = Self::default();
        bound.arguments.reserve(32, bytes);
        bound
    }

    pub fn value<'r>(&mut self, value: impl Encode<'r, Postgres> + Type<Postgres> + 'r) {
        if let Err(error) = self.arguments.add(value) {
            self.failed = Some(error);
        }
    }

    /// Binds arrays.
    pub fn each<'r, R: Copy, G: Group<'r, R>>(&mut self, _: G, rows: &[R]) {
        G::show(&mut Binder { rows, alike: false, bound: self });
    }

    /// Binds single values if all rows agree, and says whether they do.
    pub fn alike<'r, R: Copy, G: Group<'r, R>>(&mut self, _: G, rows: &[R]) -> bool {
        let mut comparer = Comparer { rows, alike: true };
        G::show(&mut comparer);
        let alike = comparer.alike;
        G::show(&mut Binder { rows, alike, bound: self });
        alike
    }

    /// The number of the next parameter.
    pub fn next(&self) -> usize {
        self.arguments.len() + 1
    }

    pub fn finish(self) -> Result<PgArguments, StoreError> {
        match self.failed {
            None => Ok(self.arguments),
            Some(error) => Err(StoreError::Failed(error.to_string())),
        }
    }
}

struct Comparer<'v, R> {
    rows: &'v [R],
    alike: bool,
}

impl<'r, R: Copy> Viewer<'r, R> for Comparer<'_, R> {
    fn cell<T: Cell<'r>>(&mut self, cell: impl Fn(R) -> T) {
        if let (true, [first, others @ ..]) = (self.alike, self.rows) {
            let first = cell(*first);
            self.alike = others.iter().all(|row| cell(*row) == first);
        }
    }
}

struct Binder<'v, R> {
    rows: &'v [R],
    alike: bool,
    bound: &'v mut Bound,
}

impl<'r, R: Copy> Viewer<'r, R> for Binder<'_, R> {
    fn cell<T: Cell<'r>>(&mut self, cell: impl Fn(R) -> T) {
        match self.rows {
            [first, ..] if self.alike => self.bound.value(cell(*first)),
            rows => {
                let column: Vec<T> = rows.iter().map(|row| cell(*row)).collect();
                self.bound.value(column);
            }
        }
    }
}

/// A text that is stored as JSON.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Json<'r>(pub &'r str);

impl Encode<'_, Postgres> for Json<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        // The version of the format comes first.
        buffer.push(1);
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}

impl Type<Postgres> for Json<'_> {
    fn type_info() -> PgTypeInfo {
        <sqlx::types::Json<()> as Type<Postgres>>::type_info()
    }
}

impl PgHasArrayType for Json<'_> {
    fn array_type_info() -> PgTypeInfo {
        <sqlx::types::Json<()> as PgHasArrayType>::array_type_info()
    }
}
